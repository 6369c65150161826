"""The compiled loops of `sparse_text`: one pass over the bytes, nothing allocated.

Each returns a status with the line and position where it stopped; `sparse_text` turns these into messages.
"""

from typing import Any

import numba
import numpy as np

MAX_ID = 2**31 - 2
"""The largest id: ids and their count fit 32 bits, as everywhere in xcbench."""

# Statuses
OK = 0
NOT_AN_ID = 1
OUT_OF_RANGE = 2
NO_COLON = 3
NOT_A_NUMBER = 4

# Bytes
NEWLINE = 10
COMMA = 44
COLON = 58
_TAB = 9
_RETURN = 13
_SPACE = 32
_HASH = 35
_PLUS = 43
_MINUS = 45
_POINT = 46
_ZERO = 48
_UPPER_E = 69
_LOWER_E = 101

_POWERS = 10.0 ** np.arange(23)  # exact in float64


@numba.njit(cache=True, nogil=True)
def parse_lines(
    text: Any,
    with_labels: bool,
    skip_blank: bool,
    feature_limit: int,
    label_limit: int,
    ids: Any,
    values: Any,
    ends: Any,
    label_ids: Any,
    label_ends: Any,
) -> tuple[int, int, int, int]:
    """Parse lines of `id:value`, each after a list of labels if `with_labels`.

    `ids` and `values` get the entries, `label_ids` the labels; row i of them ends before `ends[i + 1]` and
    `label_ends[i + 1]`. With `skip_blank`, blank lines are no rows, and a `#` starts a comment.

    Returns (status, line, position, rows). Line and position say where parsing stopped.
    """
    position = 0
    entry = 0
    label = 0
    row = 0
    line = 0
    while position < len(text):
        line += 1
        position = _skip_blanks(text, position)
        if skip_blank and (position >= len(text) or text[position] == NEWLINE or text[position] == _HASH):
            position = _skip_line(text, position) + 1
            continue

        if with_labels:
            status, position, label = _parse_labels(text, position, label_limit, label_ids, label)
            if status != OK:
                return status, line, position, row

        while True:
            position = _skip_blanks(text, position)
            if position >= len(text) or text[position] == NEWLINE:
                break
            if skip_blank and text[position] == _HASH:
                position = _skip_line(text, position)
                break

            start = position
            identity, position = _whole_number(text, position)
            if identity < 0:
                return NOT_AN_ID, line, start, row
            if position >= len(text) or text[position] != COLON:
                return NO_COLON, line, start, row
            if identity >= feature_limit:
                return OUT_OF_RANGE, line, start, row

            value, position = _number(text, position + 1)
            number = np.float32(value)
            if not np.isfinite(number):
                return NOT_A_NUMBER, line, start, row

            ids[entry] = identity
            values[entry] = number
            entry += 1

        position += 1
        row += 1
        ends[row] = entry
        label_ends[row] = label
    return OK, line, position, row


@numba.njit(cache=True, nogil=True)
def _parse_labels(
    text: Any,
    position: int,
    limit: int,
    label_ids: Any,
    label: int,
) -> tuple[int, int, int]:
    """Parse `7,2,9` and store the ids from place `label` on. Returns (status, position, next place).

    A word with a colon is the first feature of a point without labels; the position then stays before it.
    """
    first = label
    start = position
    while position < len(text) and not _ends_word(text[position]):
        identity, after = _whole_number(text, position)
        if after < len(text) and text[after] == COLON and label == first:
            return OK, start, first
        if identity < 0:
            return NOT_AN_ID, position, label
        if identity >= limit:
            return OUT_OF_RANGE, position, label

        label_ids[label] = identity
        label += 1
        position = after
        if position < len(text) and text[position] == COMMA:
            # Some writers put a blank after the comma; a comma that ends the list is an error.
            position = _skip_blanks(text, position + 1)
            if position >= len(text) or text[position] == NEWLINE:
                return NOT_AN_ID, position, label
        elif position < len(text) and not _ends_word(text[position]):
            return NOT_AN_ID, position, label
        else:
            break
    return OK, position, label


@numba.njit(cache=True, nogil=True)
def parse_pairs(
    text: Any,
    rows: int,
    columns: int,
    pairs: Any,
) -> tuple[int, int, int, int]:
    """Parse lines of two whole numbers into `pairs`. Returns (status, line, position, number of pairs)."""
    position = 0
    count = 0
    line = 0
    while position < len(text):
        line += 1
        position = _skip_blanks(text, position)
        if position < len(text) and text[position] != NEWLINE:
            for column in range(2):
                position = _skip_blanks(text, position)
                start = position
                value, position = _whole_number(text, position)
                if value < 0 or (position < len(text) and not _ends_word(text[position])):
                    return NOT_AN_ID, line, start, count

                limit = rows if column == 0 else columns
                if value >= limit:
                    return OUT_OF_RANGE, line, start, count
                pairs[count, column] = value

            count += 1
            position = _skip_blanks(text, position)
            if position < len(text) and text[position] != NEWLINE:
                return NOT_AN_ID, line, position, count
        position += 1
    return OK, line, position, count


@numba.njit(cache=True, nogil=True, inline="always")
def _ends_word(byte: int) -> bool:
    return byte == _SPACE or byte == NEWLINE or byte == _TAB or byte == _RETURN  # numba compiles `in` to a loop


@numba.njit(cache=True, nogil=True)
def _skip_blanks(text: Any, position: int) -> int:
    while position < len(text) and (text[position] == _SPACE or text[position] == _TAB or text[position] == _RETURN):
        position += 1
    return position


@numba.njit(cache=True, nogil=True)
def _skip_line(text: Any, position: int) -> int:
    while position < len(text) and text[position] != NEWLINE:
        position += 1
    return position


@numba.njit(cache=True, nogil=True)
def _whole_number(text: Any, position: int) -> tuple[int, int]:
    """Return the number that starts here and where it ends; -1 where there is none.

    A number beyond any legal id stops growing, so that it cannot overflow.
    """
    start = position
    value = 0
    while position < len(text):
        digit = np.int64(text[position]) - _ZERO
        if digit < 0 or digit > 9:
            break
        if value <= MAX_ID:
            value = value * 10 + digit
        position += 1

    if position == start:
        return -1, position
    return value, position


@numba.njit(cache=True, nogil=True)
def _number(text: Any, position: int) -> tuple[float, int]:
    """Return a decimal number and where it ends; nan where there is none, or where other characters follow it.

    Up to 15 digits and exponents within 22 are exact; beyond that the error stays far below float32's own.
    """
    negative = False
    if position < len(text) and (text[position] == _MINUS or text[position] == _PLUS):
        negative = text[position] == _MINUS
        position += 1

    mantissa = np.int64(0)
    exponent = 0
    digits = 0
    after_point = 0
    while position < len(text):
        digit = np.int64(text[position]) - _ZERO
        if digit >= 0 and digit <= 9:
            digits += 1
            if mantissa < 10**17:
                mantissa = mantissa * 10 + digit
                exponent -= after_point
            else:
                exponent += 1 - after_point
        elif text[position] == _POINT and not after_point:
            after_point = 1
        else:
            break
        position += 1
    if digits == 0:
        return np.nan, position

    if position < len(text) and (text[position] == _LOWER_E or text[position] == _UPPER_E):
        position += 1
        sign = 1
        if position < len(text) and (text[position] == _MINUS or text[position] == _PLUS):
            if text[position] == _MINUS:
                sign = -1
            position += 1
        power, position = _whole_number(text, position)
        if power < 0:
            return np.nan, position
        exponent += sign * power
    if position < len(text) and not _ends_word(text[position]):
        return np.nan, position

    value = _scaled(mantissa, exponent)
    if negative:
        return -value, position
    return value, position


@numba.njit(cache=True, nogil=True)
def _scaled(mantissa: int, exponent: int) -> Any:
    """Return mantissa * 10**exponent."""
    value = np.float64(mantissa)
    if exponent == 0 or mantissa == 0:
        return value
    if exponent < -350:
        return 0.0
    if exponent > 350:
        return np.inf
    if exponent < -22 or exponent > 22:
        # Two steps, so that the power itself neither overflows nor vanishes.
        half = exponent // 2
        return value * 10.0**half * 10.0 ** (exponent - half)
    if exponent < 0:
        return value / _POWERS[-exponent]
    return value * _POWERS[exponent]
