"""How defaults were chosen: variants of a method, compared on a slice of the training points. Test points play no part.

`python -m search decaf` runs what `search/decaf.yaml` lists.
"""
