"""Ignore the pairs of the training filter: a point that is itself a label is no example against that label.

The files `filter_labels_train` list these pairs, and evaluation counts such pairs neither way. But no point has them as
true labels, so that one-vs-all training takes each for a negative, and for the one whose text fits best of all. None of
the authors' codes does otherwise. Methods that can ignore pairs say so: `Method.can_ignore_pairs`.
"""

import dataclasses

import numpy as np

from xcbench.data import Dataset
from xcbench.errors import InputError
from xcbench.plugins import Augmentation, NoConfig, Run, register_augmentation


@register_augmentation("ignore-filtered")
class IgnoreFiltered(Augmentation[NoConfig]):
    """Pairs of the training filter (points that are the label itself) count neither as true nor as false"""

    ignores_pairs = True

    def apply(self, data: Dataset, run: Run) -> Dataset:
        Y = data.train.Y
        pairs = data.train.filter
        points = np.repeat(np.arange(len(data.train)), np.diff(Y.indptr))
        true_pairs = points * data.label_count + Y.indices
        is_true = np.isin(pairs @ [data.label_count, 1], true_pairs)
        ignored = pairs[~is_true]  # true pairs stay true
        if not len(ignored):
            raise InputError(
                f"ignore-filtered needs a training filter, and dataset {data.name!r} has none besides its truth"
            )

        run.log(f"{len(ignored):,} pairs of the training filter are ignored in training")
        train = dataclasses.replace(data.train, ignored=ignored)
        return dataclasses.replace(data, train=train)
