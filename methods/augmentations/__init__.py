"""Augmentations: each makes another dataset out of a dataset, for any method (`--augment`)."""
