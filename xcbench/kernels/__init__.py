"""Compiled loops and the forms they take: CSR rows, thread fan-out, counter-based random numbers, top-k selection.

Imports no other room; `labels`, `nn`, `shortlist`, `train` and `evaluation` stand on it.
"""
