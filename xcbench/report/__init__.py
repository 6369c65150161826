"""What is made of finished runs: tables, claims, plots, and helpers for notebooks.

Reads the store and evaluates stored predictions; only `cli` imports it.
"""
