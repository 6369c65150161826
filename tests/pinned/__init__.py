"""A small trained model of every plug-in, and what it predicts: `runs` is a store of them.

`python -m tests.pinned NAME ...` makes those of the named plug-ins anew, or without names all that are missing.
"""
