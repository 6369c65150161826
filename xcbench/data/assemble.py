"""From what was read to the `Dataset` that every other room works on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.manifest import Manifest, Sizes
from xcbench.data.matrices import unit_rows
from xcbench.data.raw import RawDataset, RawSplit, Sourced
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError


def assemble(
    raw: RawDataset,
    name: str,
    *,
    propensity: Propensity | None = None,
    text_options: Mapping[str, Any] | None = None,
    manifest: Manifest | None = None,
    from_text: bool = False,
) -> Dataset:
    """Make features of the titles where there are no features (or `from_text` asks for it), and give rows unit length.

    Propensity constants and text options default to those of the manifest, where there is one.
    """
    manifest = manifest or raw.manifest or Manifest(name)
    propensity = propensity or manifest.propensity or Propensity()
    options = dict(manifest.text if text_options is None else text_options)
    features = None if from_text else _given_features(raw)
    encoder = None
    if features is None:
        encoder, features = _encoded_features(raw, options)
    X_train, X_test, Z = features
    files, text = {**manifest.files, **raw.files}, options if encoder else {}
    dataset = Dataset(
        name=name,
        train=_split(raw.train, X_train),
        test=_split(raw.test, X_test),
        Z=Z,
        label_titles=raw.label_titles.column if raw.label_titles else None,
        propensity=propensity,
        encoder=encoder,
        manifest=dataclasses.replace(manifest, name=name, propensity=propensity, files=files, text=text),
    )
    return _with_sizes(dataset, manifest.sizes)


Features = tuple[sp.csr_array, sp.csr_array, sp.csr_array | None]


def _given_features(raw: RawDataset) -> Features | None:
    X_train, X_test = raw.train.X, raw.test.X
    if X_train is None or X_test is None:
        if raw.train.titles is None or raw.test.titles is None:
            lone = X_train or X_test
            raise DataError("features and titles must be there for both train and test", lone.file if lone else None)
        return None
    if X_train.matrix.shape[1] == 0:
        raise DataError("holds no features", X_train.file)
    return unit_rows(X_train.matrix), unit_rows(X_test.matrix), unit_rows(raw.Z.matrix) if raw.Z else None


def _encoded_features(raw: RawDataset, options: Mapping[str, Any]) -> tuple[TextEncoder, Features]:
    if raw.train.titles is None or raw.test.titles is None:
        raise DataError("text features need titles of both train and test points")
    labels = raw.label_titles.column if raw.label_titles else None
    return text_features(raw.train.titles.column, raw.test.titles.column, labels, options)


def text_features(
    train: Sequence[str], test: Sequence[str], labels: Sequence[str] | None, options: Mapping[str, Any]
) -> tuple[TextEncoder, Features]:
    """One vocabulary for points and labels, learned from training points and labels only; X of both sides, and Z."""
    encoder = TextEncoder.fit(itertools.chain(train, labels or ()), **options)
    Z = None if labels is None else encoder.encode(labels)
    return encoder, (encoder.encode(train), encoder.encode(test), Z)


def _split(raw: RawSplit, X: sp.csr_array) -> Split:
    titles: TextColumn | None = raw.titles.column if raw.titles else None
    return Split(X=X, Y=_known(raw.Y).matrix, titles=titles, filter=raw.filter)


def _known(part: Sourced | None) -> Sourced:
    if part is None:
        raise AssertionError("a reader returns targets for both splits")
    return part


def _with_sizes(dataset: Dataset, declared: Sizes | None) -> Dataset:
    """Check the counts that a manifest declares, and write down those that were found."""
    found = Sizes(len(dataset.train), len(dataset.test), dataset.label_count, dataset.feature_count)
    for key, count in dataclasses.asdict(declared).items() if declared else ():
        if count is not None and count != getattr(found, key):
            raise DataError(f"the manifest declares {count:,} for {key!r}, the files hold {getattr(found, key):,}")
    manifest = dataclasses.replace(dataset.manifest or Manifest(dataset.name), sizes=found)
    return dataclasses.replace(dataset, manifest=manifest)
