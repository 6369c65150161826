"""Answering rows of new text with a run's model: part by part, in constant memory, in the order of the rows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xcbench.data import TopK
from xcbench.data.answers import AnswerColumns, Answers, answer_file
from xcbench.data.readers.table_files import Table, open_titles
from xcbench.errors import DataError, InputError
from xcbench.evaluation import Thresholds
from xcbench.progress import Counter
from xcbench.runner.model import Model

_log = logging.getLogger(__name__)

ROWS_AT_ONCE = 1 << 14
"""So many rows are read, answered and written together."""
EMPTY_TITLE = "empty title"
NO_LABEL = "no label found"
BELOW_THRESHOLD = "no label reaches its threshold"
UNKNOWN_WORDS = "no known word"


Question = tuple[Any, str]
"""A row that asks for labels: its id, or its number from 1, and its title."""


def check_depth(k: int) -> None:
    """Raise `InputError` unless that many labels can be asked for."""
    if k < 1:
        raise InputError(f"k is at least 1, got {k}")


@dataclass(frozen=True)
class QuestionTable:
    """A table whose rows ask for labels; it yields every row, blank lines included.

    Parameters
    ----------
    table
        The table.
    column
        The column of titles.
    id_column
        The column of ids; None counts the rows from 1.
    """

    table: Table
    column: str
    id_column: str | None = None

    @classmethod
    def open(cls, path: Path, column: str | None = None, id_column: str | None = None) -> QuestionTable:
        """Open a file of questions.

        Parameters
        ----------
        path
            A table, or a text file with a title per line; - is the standard input.
        column
            The column of titles; by default `title`, or the only column.
        id_column
            The column of ids; None counts the rows from 1.
        """
        table = open_titles(path)
        if column is None and len(table.columns) == 1:
            column = table.columns[0]
        if id_column is not None:
            id_column = table.column(id_column)
        return cls(table, table.column(column or "title"), id_column)

    def __iter__(self) -> Iterator[Question]:
        columns = [self.column]
        if self.id_column is not None:
            columns.append(self.id_column)
        for count, (number, values) in enumerate(self.table.rows(columns), 1):
            key = count
            if self.id_column is not None:
                key = values[1]
            yield key, self.table.text(values[0], number, self.column)


def answers(
    model: Model,
    asked: Iterable[Question],
    k: int,
    thresholds: Thresholds | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Iterator[Answers]:
    """Yield the answers to rows of text, in parts.

    A title without text has an empty answer. Notes say which titles these are, and which have no word that the model
    knows or no label that reaches the threshold.

    Parameters
    ----------
    model
        The model of a run.
    asked
        The rows.
    k
        How many labels per row.
    thresholds
        Leave out labels with lower scores; None leaves out none.
    rows_at_once
        How many rows a part has.
    """
    rows = iter(asked)
    while True:
        keys = []
        titles = []
        for key, title in itertools.islice(rows, rows_at_once):
            keys.append(key)
            titles.append(title)
        if not keys:
            return
        predictions, notes = _answer(model, titles, k, thresholds)
        yield Answers(keys, titles, predictions, notes)


def answer_table(
    model: Model,
    asked: QuestionTable,
    output: Path,
    k: int,
    thresholds: Thresholds | None = None,
) -> int:
    """Answer every row of a table into a file, and return how many there were. After an error there is no file.

    Parameters
    ----------
    model
        The model of a run.
    asked
        The rows.
    output
        The file to write; its name ends in .csv, .tsv, .jsonl or .parquet.
    k
        How many labels per row.
    thresholds
        Leave out labels with lower scores; None leaves out none.
    """
    k = min(k, model.label_count)
    columns = AnswerColumns(asked.id_column or "row", asked.column, k, _label_names(model))
    noted = 0
    with (
        answer_file(output, columns) as file,
        Counter("predict", asked.table.expected_rows(), _log.info) as counter,
    ):
        for part in answers(model, asked, k, thresholds):
            file.write(part)
            noted += sum(map(bool, part.notes))
            counter.advance(len(part))
        if counter.done == 0:
            raise DataError("nothing to predict: holds no rows", asked.table.path)

    _log.info(
        "answered in %.1f s, %.0f rows per second; rows with a note: %d",
        counter.seconds,
        counter.per_second,
        noted,
    )
    return counter.done


def _answer(
    model: Model,
    titles: list[str],
    k: int,
    thresholds: Thresholds | None,
) -> tuple[TopK, list[str]]:
    """Return the labels of some titles, and what there is to say about each."""
    X = model.features(titles)
    predictions = model.predict(X, k, titles)

    is_empty = np.array([not title.strip() for title in titles])
    kept = TopK(
        np.where(is_empty[:, None], np.int32(-1), predictions.indices),
        np.where(is_empty[:, None], np.float32(-np.inf), predictions.scores),
    )
    if thresholds is not None:
        kept = thresholds.apply(kept)

    notes = np.full(len(titles), "", object)
    has_no_label = (kept.indices < 0).all(axis=1)
    notes[has_no_label] = NO_LABEL
    if thresholds is not None:
        has_lower_ones = (predictions.indices >= 0).any(axis=1)
        notes[has_no_label & has_lower_ones] = BELOW_THRESHOLD
    if model.encoder is not None:
        notes[np.diff(X.indptr) == 0] = UNKNOWN_WORDS
    notes[is_empty] = EMPTY_TITLE
    return kept, notes.tolist()


def _label_names(model: Model) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return the names of labels: their titles or, where they have none, their numbers."""
    names = np.empty(model.label_count, object)
    if model.label_titles is not None:
        names[:] = list(model.label_titles)
    else:
        names[:] = [str(label) for label in range(model.label_count)]
    return names
