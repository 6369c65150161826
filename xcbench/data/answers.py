"""Answers to rows of new text, and the files that they are written to: a row per row that was asked, in its order."""

from __future__ import annotations

import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data.readers.table_files import check_pyarrow
from xcbench.data.topk import TopK
from xcbench.errors import InputError
from xcbench.files import atomic_file

ANSWER_KINDS = (".csv", ".tsv", ".jsonl", ".parquet")
"""The endings of the files that answers can be written to."""
_DIGITS = 4


@dataclass(frozen=True)
class Answers:
    """What a model answers to some rows.

    Parameters
    ----------
    keys
        The id of each row, as its file has it, or its number from 1.
    titles
        The titles.
    predictions
        The labels of each row, best first. Unused places come last.
    notes
        Why an answer is empty or poor; an empty text where there is nothing to say.
    """

    keys: Sequence[Any]
    titles: Sequence[str]
    predictions: TopK
    notes: Sequence[str]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)


@dataclass(frozen=True)
class AnswerColumns:
    """What the columns of an answer file are called, and how labels are.

    Parameters
    ----------
    key
        The name of the rows' ids, as in the file of questions.
    title
        The name of the rows' titles.
    k
        The most labels that an answer has.
    label_names
        [L] The name of each label.
    """

    key: str
    title: str
    k: int
    label_names: npt.NDArray[np.object_]

    def all(self, *further: str) -> list[str]:
        """Return all names of columns. Raises `InputError` where two are the same."""
        names = [self.key, self.title, *further, "note"]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise InputError(f"the answers would have two columns {repeated[0]!r}; rename the column of the input")
        return names


class AnswerFile(ABC):
    """A file that answers are written to, part by part."""

    def __init__(self, path: Path, columns: AnswerColumns) -> None:
        self.path = path
        self.columns = columns

    @abstractmethod
    def write(self, answers: Answers) -> None:
        """Append some answers."""

    @abstractmethod
    def close(self) -> None:
        """Finish the file."""


class CsvAnswers(AnswerFile):
    """A row per title, with the columns `label_1`, `score_1`, `label_2` and so on; unused ones are empty.

    Names of labels are quoted once, and scores are formatted once per value: the csv module, which looks at every
    character of every cell, takes a third of the time of fast models.
    """

    def __init__(self, path: Path, columns: AnswerColumns, separator: str = ",") -> None:
        super().__init__(path, columns)
        places = range(1, columns.k + 1)
        header = columns.all(*(f"{part}_{place}" for place in places for part in ("label", "score")))
        self.separator = separator
        self.needs_quotes = re.compile(f'[{separator}"\\r\\n]')
        self.label_names = np.array([*map(self._field, columns.label_names), ""], object)
        self.file = path.open("w", encoding="utf-8", errors="replace", newline="")
        self.file.write(f"{separator.join(map(self._field, header))}\n")

    def write(self, answers: Answers) -> None:
        """Append some answers."""
        # Label -1, an unused place, has the last name, which is empty.
        names = self.label_names[answers.predictions.indices]
        scores = _score_texts(answers.predictions)

        columns = [list(map(self._key, answers.keys)), list(map(self._field, answers.titles))]
        for place in range(self.columns.k):
            columns += [names[:, place].tolist(), scores[:, place].tolist()]
        columns.append([f"{note}\n" for note in answers.notes])
        self.file.writelines(map(self.separator.join, zip(*columns, strict=True)))

    def close(self) -> None:
        """Finish the file."""
        self.file.close()

    def _key(self, key: Any) -> str:
        """Return an id as a field; a row without one has an empty field."""
        if key is None:
            return ""
        return self._field(str(key))

    def _field(self, text: str) -> str:
        """Return a text as a field of CSV (RFC 4180)."""
        if not self.needs_quotes.search(text):
            return text
        doubled = text.replace('"', '""')
        return f'"{doubled}"'


class JsonAnswers(AnswerFile):
    """An object per title, with the lists `labels`, `scores` and `label_ids`."""

    def __init__(self, path: Path, columns: AnswerColumns) -> None:
        super().__init__(path, columns)
        self.names = columns.all("labels", "scores", "label_ids")
        self.encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
        self.file = path.open("w", encoding="utf-8", errors="replace", newline="\n")

    def write(self, answers: Answers) -> None:
        """Append some answers."""
        labels = answers.predictions.indices
        rows = zip(
            answers.keys,
            answers.titles,
            _rows_of(self.columns.label_names[labels], labels),
            _rows_of(_rounded(answers.predictions.scores), labels),
            _rows_of(labels, labels),
            answers.notes,
            strict=True,
        )
        values = (dict(zip(self.names, row, strict=True)) for row in rows)
        self.file.writelines([f"{self.encode(value)}\n" for value in values])

    def close(self) -> None:
        """Finish the file."""
        self.file.close()


class ParquetAnswers(AnswerFile):
    """A row per title, with the lists `labels`, `scores` and `label_ids`."""

    def __init__(self, path: Path, columns: AnswerColumns) -> None:
        super().__init__(path, columns)
        self.names = columns.all("labels", "scores", "label_ids")
        self.file: Any = None

    def write(self, answers: Answers) -> None:
        """Append some answers. The ids of the first ones decide of which type ids are."""
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        labels = answers.predictions.indices
        is_used = labels >= 0
        ends = np.concatenate([[0], np.cumsum(is_used.sum(axis=1))])
        offsets = pyarrow.array(ends, pyarrow.int32())
        lists = (
            pyarrow.array(self.columns.label_names[labels[is_used]], pyarrow.string()),
            pyarrow.array(answers.predictions.scores[is_used]),
            pyarrow.array(labels[is_used]),
        )
        table = pyarrow.table(
            [
                self._keys(answers.keys),
                pyarrow.array(answers.titles, pyarrow.string()),
                *(pyarrow.ListArray.from_arrays(offsets, values) for values in lists),
                pyarrow.array(answers.notes, pyarrow.string()),
            ],
            names=self.names,
        )
        if self.file is None:
            self.file = ParquetWriter(self.path, table.schema)
        self.file.write_table(table)

    def close(self) -> None:
        """Finish the file."""
        if self.file is not None:
            self.file.close()

    def _keys(self, keys: Sequence[Any]) -> Any:
        import pyarrow

        kind = None
        if self.file is not None:
            kind = self.file.schema.field(0).type
        try:
            return pyarrow.array(keys, kind)
        except pyarrow.ArrowException as error:
            raise InputError(f"the ids are not all of one type, which parquet needs: {error}") from None


def check_answer_path(path: Path) -> None:
    """Raise `InputError` unless answers can be written to a file of this name."""
    if path.suffix.lower() not in ANSWER_KINDS:
        raise InputError(f"{path}: answers are written to a file that ends in {', '.join(ANSWER_KINDS)}")
    if path.is_dir():
        raise InputError(f"{path}: expected the name of a file, this is a folder")
    if path.suffix.lower() == ".parquet":
        check_pyarrow(path)


@contextlib.contextmanager
def answer_file(path: Path, columns: AnswerColumns) -> Iterator[AnswerFile]:
    """Open a file of the kind that its name says. It appears when all is written; after an error there is none.

    Parameters
    ----------
    path
        The file, which is replaced.
    columns
        What its columns are called.
    """
    check_answer_path(path)
    with atomic_file(path) as part, contextlib.closing(_open(part, path.suffix.lower(), columns)) as file:
        yield file


def _open(path: Path, kind: str, columns: AnswerColumns) -> AnswerFile:
    if kind == ".parquet":
        return ParquetAnswers(path, columns)
    if kind == ".jsonl":
        return JsonAnswers(path, columns)
    if kind == ".tsv":
        return CsvAnswers(path, columns, "\t")
    return CsvAnswers(path, columns)


def _rows_of(cells: npt.NDArray[Any], labels: npt.NDArray[np.int32]) -> Iterator[list[Any]]:
    """Yield the used cells of each row."""
    width = labels.shape[1]
    flat = cells.ravel().tolist()
    ends = np.arange(len(labels)) * width + np.count_nonzero(labels >= 0, axis=1)
    for row, end in enumerate(ends.tolist()):
        yield flat[row * width : end]


def _score_texts(predictions: TopK) -> npt.NDArray[np.object_]:
    """Return scores as texts of `_DIGITS` significant digits; those of unused places are empty."""
    is_used = predictions.indices >= 0
    values, places = np.unique(_rounded(predictions.scores[is_used]), return_inverse=True)
    texts = np.array([f"{value:.{_DIGITS}g}" for value in values.tolist()], object)

    cells = np.full(predictions.indices.shape, "", object)
    cells[is_used] = texts[places]
    return cells


def _rounded(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return scores with `_DIGITS` significant digits; zero and infinity stay."""
    exact = scores.astype(np.float64)
    magnitude = np.abs(exact)
    is_ordinary = np.isfinite(exact) & (magnitude > 0)
    exponent = np.floor(np.log10(magnitude, where=is_ordinary, out=np.zeros_like(exact)))
    factor = 10.0 ** (_DIGITS - 1 - exponent)
    return np.divide(np.rint(exact * factor), factor, where=is_ordinary, out=exact)
