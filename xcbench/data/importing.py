"""Import: read, check, store, and say in one block what was found."""

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
from xcbench.data.checks import observe
from xcbench.data.dataset import Dataset, Propensity
from xcbench.data.published import published_propensity
from xcbench.data.raw import Findings, RawDataset
from xcbench.data.readers import read_raw
from xcbench.errors import InputError, XCBenchError


@dataclass(frozen=True)
class ImportReport:
    """A stored dataset and what its import found; `str` is the block for people."""

    dataset: Dataset
    findings: Findings
    propensity_origin: str
    source: Path
    folder: Path

    def __str__(self) -> str:
        data = self.dataset
        lines = [f"{data.name}: imported from {self.source}"]
        files = ", ".join(data.manifest.files) if data.manifest else ""
        lines.append(_line("read", files))
        for name, split in (("train", data.train), ("test", data.test)):
            per_point = split.Y.nnz / max(1, len(split))
            filtered = f", {len(split.filter):,} filtered pairs" if len(split.filter) else ""
            lines.append(_line(name, f"{len(split):,} points, {per_point:.2f} labels per point{filtered}"))
        vocabulary = "learned from the titles" if data.encoder else "as given"
        lines.append(_line("labels", f"{data.label_count:,}"))
        lines.append(_line("features", f"{data.feature_count:,}, {vocabulary}"))
        lines += [_line("repaired", text) for text in self.findings.repaired]
        lines += [_line("note", text) for text in self.findings.notes]
        constants = f"A = {data.propensity.A:g}, B = {data.propensity.B:g}, {self.propensity_origin}"
        lines.append(_line("propensity", constants))
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
    """Check everything that `path` (a folder or zip) holds and store it as `name`.

    A contradiction in the files is a `DataError`, and then nothing is stored.
    """
    path = Path(path).expanduser()
    folder = catalog.free_folder(name, replace)
    raw = read_raw(path, with_content=with_content, label_separator=label_separator)
    dataset = assemble(raw, name, propensity=propensity, text_options=text_options, from_text=from_text)
    if text_options and dataset.encoder is None:
        raw.findings.notes.append("text options change nothing: the files hold features (--from-text makes new ones)")
    raw.findings.notes += observe(dataset)
    try:
        store_dataset(dataset, folder)
    except OSError as error:
        raise XCBenchError(f"cannot store {name!r} in {folder}: {error.strerror or error}") from None
    return ImportReport(load_stored(folder), raw.findings, _origin(propensity, raw, name), path, folder)


def propensity_of(A: float | None, B: float | None) -> Propensity | None:
    """The constants a user gave: both or neither."""
    if A is None and B is None:
        return None
    if A is None or B is None:
        raise InputError("propensity constants come in pairs: give both A and B")
    if not (0 <= A < math.inf and 0 <= B < math.inf):
        raise InputError(f"propensity constants are finite and not negative, got A = {A:g} and B = {B:g}")
    return Propensity(A, B)


def _origin(given: Propensity | None, raw: RawDataset, name: str) -> str:
    """Where the constants come from; a name that resembles a published one is a hint, never a decision."""
    if given:
        return "as asked for"
    if raw.manifest and raw.manifest.propensity:
        return "from the manifest"
    published = published_propensity()
    spelling = {known.lower(): known for known in published}
    near = difflib.get_close_matches(name.lower(), spelling, n=1, cutoff=0.75)
    default = "the default; PSP and PSnDCG depend on them"
    if not near:
        return default
    known = spelling[near[0]]
    constants = published[known]
    if constants == Propensity():
        return f"the default, which is also that of {known}"
    return f"{default}. If this is {known}: --replace --propensity-a {constants.A:g} --propensity-b {constants.B:g}"


def _line(what: str, text: str) -> str:
    return f"  {what:<11}{text}"
