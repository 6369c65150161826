"""Speed and memory, always as ratios against a plain reference measured in the same run.

`python -m benchmarks [NAME ...]` runs the modules of this folder and prints what they measured; each module has a
function `measure` that yields `Figure`s.
"""

import xcbench  # noqa: F401  # before torch and numba, whose threads it tames
