"""The compiled loops behind `sparse_text`: one pass over the bytes, nothing allocated.

Each returns a status with the line and position where it stopped; words for people are made elsewhere.
"""

from typing import Any

import numba
import numpy as np

MAX_ID = 2**31 - 2
"""Ids and their count fit 32 bits, as everywhere in xcbench."""
NEWLINE, COMMA, COLON = 10, 44, 58
FINE, NOT_AN_ID, OUT_OF_RANGE, NO_COLON, NOT_A_NUMBER = range(5)
_HASH = 35
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
    """Fill the arrays; returns (status, line, position, rows), where the first two places tell what went wrong."""
    position = entry = name = row = line = 0
    while position < len(text):
        line += 1
        position = _skip_blanks(text, position)
        if skip_blank and (position >= len(text) or text[position] == NEWLINE or text[position] == _HASH):
            position = _skip_line(text, position) + 1
            continue
        if with_labels:
            status, position, name = _parse_labels(text, position, label_limit, label_ids, name)
            if status != FINE:
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
        label_ends[row] = name
    return FINE, line, position, row


@numba.njit(cache=True, nogil=True)
def _parse_labels(text: Any, position: int, limit: int, label_ids: Any, name: int) -> tuple[int, int, int]:
    """Read `7,2,9` and a blank; a word with a colon is the first feature of a point without labels, and stays."""
    first, start = name, position
    while position < len(text) and not _ends_word(text[position]):
        identity, after = _whole_number(text, position)
        if after < len(text) and text[after] == COLON and name == first:
            return FINE, start, first
        if identity < 0:
            return NOT_AN_ID, position, name
        if identity >= limit:
            return OUT_OF_RANGE, position, name
        label_ids[name] = identity
        name += 1
        position = after
        if position < len(text) and text[position] == COMMA:
            # Some writers put a blank after the comma; a comma that ends the list belongs to nothing.
            position = _skip_blanks(text, position + 1)
            if position >= len(text) or text[position] == NEWLINE:
                return NOT_AN_ID, position, name
        elif position < len(text) and not _ends_word(text[position]):
            return NOT_AN_ID, position, name
        else:
            break
    return FINE, position, name


@numba.njit(cache=True, nogil=True)
def parse_pairs(text: Any, rows: int, columns: int, pairs: Any) -> tuple[int, int, int, int]:
    position = found = line = 0
    while position < len(text):
        line += 1
        position = _skip_blanks(text, position)
        if position < len(text) and text[position] != NEWLINE:
            for column in range(2):
                position = _skip_blanks(text, position)
                start = position
                value, position = _whole_number(text, position)
                if value < 0 or (position < len(text) and not _ends_word(text[position])):
                    return NOT_AN_ID, line, start, found
                if value >= (columns if column else rows):
                    return OUT_OF_RANGE, line, start, found
                pairs[found, column] = value
            found += 1
            position = _skip_blanks(text, position)
            if position < len(text) and text[position] != NEWLINE:
                return NOT_AN_ID, line, position, found
        position += 1
    return FINE, line, position, found


@numba.njit(cache=True, nogil=True, inline="always")
def _ends_word(byte: int) -> bool:
    return byte == 32 or byte == NEWLINE or byte == 9 or byte == 13


@numba.njit(cache=True, nogil=True)
def _skip_blanks(text: Any, position: int) -> int:
    while position < len(text) and (text[position] == 32 or text[position] == 9 or text[position] == 13):
        position += 1
    return position


@numba.njit(cache=True, nogil=True)
def _skip_line(text: Any, position: int) -> int:
    while position < len(text) and text[position] != NEWLINE:
        position += 1
    return position


@numba.njit(cache=True, nogil=True)
def _whole_number(text: Any, position: int) -> tuple[int, int]:
    """The number that starts here and where it ends; -1 where there is none. Past any legal id it stops growing."""
    start, value = position, 0
    while position < len(text):
        digit = np.int64(text[position]) - 48
        if digit < 0 or digit > 9:
            break
        if value <= MAX_ID:
            value = value * 10 + digit
        position += 1
    return (value if position > start else -1), position


@numba.njit(cache=True, nogil=True)
def _number(text: Any, position: int) -> tuple[float, int]:
    """A decimal number and where it ends; nan where there is none, or where something sticks to its end.

    Up to 15 digits and exponents within 22 are exact; beyond that the error stays far below float32's own.
    """
    negative = False
    if position < len(text) and (text[position] == 45 or text[position] == 43):
        negative = text[position] == 45
        position += 1
    mantissa, exponent, digits, after_point = np.int64(0), 0, 0, 0
    while position < len(text):
        digit = np.int64(text[position]) - 48
        if digit >= 0 and digit <= 9:
            digits += 1
            if mantissa < 10**17:
                mantissa = mantissa * 10 + digit
                exponent -= after_point
            else:
                exponent += 1 - after_point
        elif text[position] == 46 and not after_point:
            after_point = 1
        else:
            break
        position += 1
    if digits == 0:
        return np.nan, position
    if position < len(text) and (text[position] == 101 or text[position] == 69):
        position += 1
        sign = 1
        if position < len(text) and (text[position] == 45 or text[position] == 43):
            sign = -1 if text[position] == 45 else 1
            position += 1
        power, position = _whole_number(text, position)
        if power < 0:
            return np.nan, position
        exponent += sign * power
    if position < len(text) and not _ends_word(text[position]):
        return np.nan, position
    value = _scaled(mantissa, exponent)
    return (-value if negative else value), position


@numba.njit(cache=True, nogil=True)
def _scaled(mantissa: int, exponent: int) -> Any:
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
    return value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
