"""Leave the pairs of the training filter open: a point that is itself a label is no example against that label.

The files `filter_labels_train` list these pairs, and evaluation counts the like of them neither way; but they are in no
point's truth, so that one-vs-all training takes each for a negative, of all negatives the one whose text fits best.
None of the authors' codes does otherwise (methods that can heed this: `Method.can_ignore_pairs`).
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
        Y, pairs = data.train.Y, data.train.filter
        true = np.repeat(np.arange(len(data.train)), np.diff(Y.indptr)) * data.label_count + Y.indices
        pairs = pairs[~np.isin(pairs @ [data.label_count, 1], true)]  # what the data calls true stays so
        if not len(pairs):
            raise InputError(
                f"ignore-filtered needs a training filter, and dataset {data.name!r} has none beside its truth"
            )
        run.log(f"{len(pairs):,} pairs of the training filter are left open")
        return dataclasses.replace(data, train=dataclasses.replace(data.train, ignored=pairs))
