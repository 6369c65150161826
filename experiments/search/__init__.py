"""How defaults were chosen: variants of a method, compared on a slice of the training points. Test points play no part.

`python -m experiments.search decaf` runs what `experiments/search/decaf.yaml` lists.
"""
