"""Datasets: what lives on disk, how it is read and checked, and the form every other room works on.

Holds the contracts `Dataset` and `TopK`, readers and writers for every file form of the field, text to TF-IDF,
manifests, the embedded datasets and the synthetic generator. Imports no other room.
"""

from xcbench.data.catalog import dataset_names, load_dataset
from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.topk import TopK

__all__ = ["Dataset", "Propensity", "Split", "TextColumn", "TopK", "dataset_names", "load_dataset"]
