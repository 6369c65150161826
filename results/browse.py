# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Read predictions
#
# Figures say how often a method is right; reading says how it is wrong. Two runs side by side on the same test
# points: `+` marks a true label, `.` a pair that the filter leaves out of account (the point itself, or the mirror of a
# training pair).
#
# The store here keeps predictions of these two runs only, the first five of each point. To read others, run them
# (`xcbench run`) and set `store = Store()`.

# %%
import numpy as np

import xcbench
from xcbench.evaluation import Truth
from xcbench.report.notebooks import runs_on, side_by_side
from xcbench.runner.store import Store

store = Store("runs")
data = xcbench.load_dataset("lf-debian-4k")
runs = runs_on(store, data.name)
pair = {name: runs[name][0] for name in ("knn", "knn + text")}
truth = Truth.of(data)
scores = {name: record.evaluate(truth, ["P@5"]).per_point("P@5").numerator for name, record in pair.items()}

# %% [markdown]
# ## Where the second run helps most

# %%
gain = scores["knn + text"] - scores["knn"]
for point in np.argsort(-gain, kind="stable")[:4]:
    print(side_by_side(pair, data, int(point)), end="\n\n")

# %% [markdown]
# ## Where it hurts most

# %%
for point in np.argsort(gain, kind="stable")[:4]:
    print(side_by_side(pair, data, int(point)), end="\n\n")

# %% [markdown]
# ## Where both find nothing, although there is something to find

# %%
lost = np.flatnonzero((scores["knn"] == 0) & (scores["knn + text"] == 0) & (truth.true_count > 0))
print(f"{len(lost):,} of {len(data.test):,} points\n")
for point in np.random.default_rng(0).choice(lost, 4, replace=False):
    print(side_by_side(pair, data, int(point)), end="\n\n")

# %% [markdown]
# ## One point of your choice

# %%
print(side_by_side(pair, data, 7))
