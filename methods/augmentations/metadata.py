"""Label text for methods that know none: every label's title becomes a training point of that label.

DECAF's Table 4 calls this "+ metadata". Its recipe is in an appendix that we do not have; this is our reading of it,
and the same as the set Z1 u D of Gandalf's Table 2. D becomes D u {(z_l, e_l)}.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, TextColumn
from xcbench.errors import InputError
from xcbench.plugins import Augmentation, NoConfig, Run, register_augmentation


@register_augmentation("metadata")
class Metadata(Augmentation[NoConfig]):
    """Label titles as training points, each with itself as the only target (DECAF's "+ metadata")"""

    citation = "Mittal et al., DECAF: Deep Extreme Classification with Label Features, WSDM 2021, Table 4"

    def apply(self, data: Dataset, run: Run) -> Dataset:
        if data.Z is None:
            raise InputError(f"metadata needs label text, which dataset {data.name!r} does not have")

        # A label without words would be a point without words.
        labels = np.flatnonzero(np.diff(data.Z.indptr))
        one_label_each = sp.eye_array(data.label_count, dtype=np.float32, format="csr")[labels]
        train = dataclasses.replace(
            data.train,
            X=sp.vstack([data.train.X, data.Z[labels]], format="csr"),
            Y=sp.vstack([data.train.Y, one_label_each], format="csr"),
            titles=_joined(data.train.titles, data.label_titles, labels),
        )
        return dataclasses.replace(data, train=train)


def _joined(
    titles: TextColumn | None,
    label_titles: TextColumn | None,
    labels: npt.NDArray[np.integer],
) -> TextColumn | None:
    """The titles of points, and behind them those of the given labels."""
    if titles is None or label_titles is None:
        return None
    all_titles = itertools.chain(titles, label_titles.take(labels))
    return TextColumn.of(list(all_titles))
