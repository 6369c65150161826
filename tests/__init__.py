import xcbench  # noqa: F401  # before torch and numba, whose threads it tames
