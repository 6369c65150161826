"""How defaults were chosen: variants of a method, compared on a slice of the training points. Test points play no part.

`NAME.yaml` lists the variants of a method or reranker, `NAME.csv` what they reached (`trials` explains its columns).
`python -m experiments.search decaf` runs the variants of `decaf.yaml`; with `--save` it appends what they reached to
`decaf.csv`.
"""
