"""Datasets: the files on disk, how they are read and checked, and the objects that every other room works on.

Defines the contracts `Dataset` and `TopK`. Holds the readers and writers for every file form of the field, the
conversion of text to TF-IDF features, manifests, the embedded datasets and the synthetic generator.

Imports no other room, only the ground (`defaults`, `disk`, `errors`, `files`, `ranks` and `threads`). Every room but
`kernels` and `nn` may import it, and so may methods.
"""

from xcbench.data.catalog import dataset_names, load_dataset
from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.topk import TopK

__all__ = ["Dataset", "Propensity", "Split", "TextColumn", "TopK", "dataset_names", "load_dataset"]
