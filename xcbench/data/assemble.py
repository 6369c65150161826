"""From what was read to the `Dataset` that every other room works on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.manifest import Manifest, Sizes
from xcbench.data.matrices import unit_rows
from xcbench.data.raw import FileMatrix, FileTitles, RawDataset, RawSplit
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError


@dataclass(frozen=True)
class Features:
    """The feature matrices of a dataset over one vocabulary; `labels` is None where labels have no text."""

    train: sp.csr_array
    test: sp.csr_array
    labels: sp.csr_array | None


def assemble(
    raw: RawDataset,
    name: str,
    *,
    propensity: Propensity | None = None,
    text_options: Mapping[str, Any] | None = None,
    manifest: Manifest | None = None,
    from_text: bool = False,
) -> Dataset:
    """Make a dataset of what `readers.read_raw` returned.

    Features are computed from the titles where the files hold none, and all rows of features get unit length.

    Parameters
    ----------
    raw
        The content of a folder. Its matrices are changed in place.
    name
        The name of the dataset.
    propensity
        The constants of the propensity model; by default those of the manifest.
    text_options
        Options of `TextEncoder.fit`; by default those of the manifest.
    manifest
        The facts about the dataset; by default the manifest of the folder, or an empty one.
    from_text
        Compute features from the titles even where the files hold features.
    """
    if manifest is None:
        manifest = raw.manifest or Manifest(name)
    if propensity is None:
        propensity = manifest.propensity or Propensity()
    if text_options is None:
        text_options = manifest.text

    features = None
    encoder = None
    if not from_text:
        features = _given_features(raw)
    if features is None:
        encoder, features = _encoded_features(raw, text_options)

    described = dataclasses.replace(
        manifest,
        name=name,
        propensity=propensity,
        files={**manifest.files, **raw.files},
        text=dict(text_options) if encoder else {},
    )
    dataset = Dataset(
        name=name,
        train=_split(raw.train, features.train),
        test=_split(raw.test, features.test),
        Z=features.labels,
        label_titles=_column(raw.label_titles),
        propensity=propensity,
        encoder=encoder,
        manifest=described,
    )
    return _with_sizes(dataset, described, manifest.sizes)


def _given_features(raw: RawDataset) -> Features | None:
    """Return the features of the files, or None where there are only titles."""
    train = raw.train.X
    test = raw.test.X
    if train is None or test is None:
        if raw.train.titles is None or raw.test.titles is None:
            present = train or test
            file = present.file if present else None
            raise DataError("features and titles must be there for both train and test", file)
        return None

    if train.matrix.shape[1] == 0:
        raise DataError("holds no features", train.file)

    Z = None
    if raw.Z:
        Z = unit_rows(raw.Z.matrix)
    return Features(unit_rows(train.matrix), unit_rows(test.matrix), Z)


def _encoded_features(raw: RawDataset, options: Mapping[str, Any]) -> tuple[TextEncoder, Features]:
    if raw.train.titles is None or raw.test.titles is None:
        raise DataError("text features need titles of both train and test points")

    return text_features(
        raw.train.titles.column,
        raw.test.titles.column,
        _column(raw.label_titles),
        options,
    )


def text_features(
    train: Sequence[str],
    test: Sequence[str],
    labels: Sequence[str] | None,
    options: Mapping[str, Any],
) -> tuple[TextEncoder, Features]:
    """Learn one vocabulary from the titles of training points and labels, and encode all titles with it.

    Parameters
    ----------
    train, test
        The titles of the points. Those of test points are encoded, but never learned from.
    labels
        The titles of the labels, or None.
    options
        Options of `TextEncoder.fit`.
    """
    encoder = TextEncoder.fit(itertools.chain(train, labels or ()), **options)

    Z = None
    if labels is not None:
        Z = encoder.encode(labels)
    return encoder, Features(encoder.encode(train), encoder.encode(test), Z)


def _split(raw: RawSplit, X: sp.csr_array) -> Split:
    Y = _required(raw.Y).matrix
    titles = _column(raw.titles)
    return Split(X=X, Y=Y, titles=titles, filter=raw.filter)


def _column(titles: FileTitles | None) -> TextColumn | None:
    if titles is None:
        return None
    return titles.column


def _required(part: FileMatrix | None) -> FileMatrix:
    if part is None:
        raise AssertionError("a reader returns targets for both splits")
    return part


def _with_sizes(dataset: Dataset, manifest: Manifest, declared: Sizes | None) -> Dataset:
    """Check the counts that a manifest declares against the files, and put the actual ones into the manifest."""
    sizes = Sizes(
        train=len(dataset.train),
        test=len(dataset.test),
        labels=dataset.label_count,
        features=dataset.feature_count,
    )
    if declared is not None:
        for key, count in dataclasses.asdict(declared).items():
            actual = getattr(sizes, key)
            if count is not None and count != actual:
                raise DataError(f"the manifest declares {count:,} for {key!r}, the files hold {actual:,}")

    return dataclasses.replace(dataset, manifest=dataclasses.replace(manifest, sizes=sizes))
