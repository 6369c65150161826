"""Defaults that several rooms share. Imports nothing, so that the command line can show them without delay."""

DEFAULT_DATASET = "lf-debian-4k"
"""The dataset of a run for which none is named: the smallest embedded one."""
