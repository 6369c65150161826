"""Runs: from the names that a user gives to a finished record. Stage cache, store, launchers, processes.

`xcbench.runner.execute.run` makes a run, `xcbench.runner.store.results` reads what was measured. May import every room
below; only `report` and `cli` import it. (It is not called `run`, so that `xcbench.run` can be a function.)
"""
