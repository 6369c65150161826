"""Compiled loops, and the forms in which data reaches them.

- `arrays`, `csr`: array types and sparse matrices as kernels take them.
- `parallel`: how kernels are spread over threads.
- `random`: random numbers that are addressed instead of drawn in turn.
- `selection`, `running_topk`, `hash_table`: the k best of many scores, sums by label.
- `sparse_product`, `svm`, `sparse_svm`: sparse products with cut rows, and linear classifiers.
- `memory`: how much memory a piece of work needs.

Imports no other room. `labels`, `nn`, `shortlist`, `train`, `evaluation` and the methods may import it.
"""
