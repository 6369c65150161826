"""Import: read a dataset, check it, store it, and report what was found."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcbench.data import catalog
from xcbench.data.assemble import assemble
from xcbench.data.binary import load_stored, store_dataset
from xcbench.data.dataset import Dataset, Propensity, Split
from xcbench.data.published import published_propensity
from xcbench.data.quality import dataset_notes
from xcbench.data.raw import Findings, RawDataset
from xcbench.data.readers import read_raw
from xcbench.data.readers.single_table import TableColumns, read_single_table
from xcbench.errors import InputError, XCBenchError


@dataclass(frozen=True)
class ImportReport:
    """A stored dataset and what its import found; `str` gives a summary of a few lines."""

    dataset: Dataset
    findings: Findings
    propensity_origin: str
    """Where the propensity constants come from, in words."""
    source: Path
    folder: Path

    def __str__(self) -> str:
        data = self.dataset
        files = ""
        if data.manifest:
            files = ", ".join(data.manifest.files)
        vocabulary = "learned from the titles" if data.encoder else "as given"

        lines = [f"{data.name}: imported from {self.source}"]
        lines.append(_line("read", files))
        lines.append(_line("train", _describe_split(data.train)))
        lines.append(_line("test", _describe_split(data.test)))
        lines.append(_line("labels", f"{data.label_count:,}"))
        lines.append(_line("features", f"{data.feature_count:,}, {vocabulary}"))
        lines += [_line("repaired", text) for text in self.findings.repaired]
        lines += [_line("note", text) for text in self.findings.notes]
        constants = f"A = {data.propensity.A:g}, B = {data.propensity.B:g}"
        lines.append(_line("propensity", f"{constants}, {self.propensity_origin}"))
        lines.append(_line("stored", str(self.folder)))
        return "\n".join(lines)


def import_dataset(
    path: str | Path,
    name: str,
    *,
    propensity: Propensity | None = None,
    text_options: Mapping[str, Any] | None = None,
    with_content: bool = False,
    label_separator: str = ";",
    from_text: bool = False,
    replace: bool = False,
) -> ImportReport:
    """Check everything that a folder or zip holds, and store it as a named dataset.

    A contradiction in the files raises `DataError`, and then nothing is stored. `import_table` takes a single table.

    Parameters
    ----------
    path
        A folder or zip in any form that docs/guides/data-formats.md describes.
    name
        The name by which `load_dataset` will know the dataset.
    propensity
        The constants of the propensity model; by default those of the manifest, or A = 0.55 and B = 1.5.
    text_options
        Options of `TextEncoder.fit`; by default those of the manifest. Used only where features come from titles.
    with_content
        Append the `content` of JSON objects to their titles.
    label_separator
        The text between two labels of a CSV field.
    from_text
        Compute features from the titles even where the files hold features.
    replace
        Replace an imported dataset of the same name.
    """
    path = Path(path).expanduser()
    folder = catalog.folder_for_new(name, replace)

    raw = read_raw(path, with_content=with_content, label_separator=label_separator)
    dataset = assemble(raw, name, propensity=propensity, text_options=text_options, from_text=from_text)
    if text_options and dataset.encoder is None:
        raw.findings.notes.append("text options change nothing: the files hold features (--from-text makes new ones)")
    return _store(dataset, raw, path, folder, _propensity_origin(propensity, raw, name))


def import_table(
    path: str | Path,
    name: str,
    columns: TableColumns | None = None,
    *,
    propensity: Propensity | None = None,
    text_options: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> ImportReport:
    """Make a named dataset of one table: read it, split its rows into train and test, and store the result.

    A row that cannot be read raises `DataError`, and then nothing is stored.

    Parameters
    ----------
    path
        A .csv, .tsv, .jsonl or .parquet file.
    name
        The name by which `load_dataset` will know the dataset.
    columns
        Which columns hold titles, labels and so on, and how the rows are split.
    propensity
        The constants of the propensity model; by default A = 0.55 and B = 1.5.
    text_options
        Options of `TextEncoder.fit`.
    replace
        Replace an imported dataset of the same name.
    """
    path = Path(path).expanduser()
    folder = catalog.folder_for_new(name, replace)

    raw = read_single_table(path, columns or TableColumns())
    dataset = assemble(raw, name, propensity=propensity, text_options=text_options)
    return _store(dataset, raw, path, folder, _propensity_origin(propensity, raw, name))


def propensity_of(A: float | None, B: float | None) -> Propensity | None:
    """Return the propensity constants that a user gave, or None where neither was given.

    Raises `InputError` where only one was given, or one is negative or not finite.
    """
    if A is None and B is None:
        return None
    if A is None or B is None:
        raise InputError("propensity constants come in pairs: give both A and B")
    if not (0 <= A < math.inf and 0 <= B < math.inf):
        raise InputError(f"propensity constants are finite and not negative, got A = {A:g} and B = {B:g}")
    return Propensity(A, B)


def _store(
    dataset: Dataset,
    raw: RawDataset,
    path: Path,
    folder: Path,
    propensity_origin: str,
) -> ImportReport:
    raw.findings.notes += dataset_notes(dataset)
    try:
        store_dataset(dataset, folder)
    except OSError as error:
        raise XCBenchError(f"cannot store {dataset.name!r} in {folder}: {error.strerror or error}") from None

    return ImportReport(
        dataset=load_stored(folder),
        findings=raw.findings,
        propensity_origin=propensity_origin,
        source=path,
        folder=folder,
    )


def _propensity_origin(given: Propensity | None, raw: RawDataset, name: str) -> str:
    """Say where the constants come from. A name that resembles a published one gives a hint, never a decision."""
    if given:
        return "as asked for"
    if raw.manifest and raw.manifest.propensity:
        return "from the manifest"

    default = "the default; PSP and PSnDCG depend on them"
    published = published_propensity()
    spelling = {known.lower(): known for known in published}
    matches = difflib.get_close_matches(name.lower(), spelling, n=1, cutoff=0.75)
    if not matches:
        return default

    known = spelling[matches[0]]
    constants = published[known]
    if constants == Propensity():
        return f"the default, which is also that of {known}"
    return f"{default}. If this is {known}: --replace --propensity-a {constants.A:g} --propensity-b {constants.B:g}"


def _describe_split(split: Split) -> str:
    labels_per_point = split.Y.nnz / max(1, len(split))
    text = f"{len(split):,} points, {labels_per_point:.2f} labels per point"
    if len(split.filter):
        text += f", {len(split.filter):,} filtered pairs"
    return text


def _line(heading: str, text: str) -> str:
    return f"  {heading:<11}{text}"
