"""Baselines of the papers' tables, one file each. Underscored files are what several of them share."""
