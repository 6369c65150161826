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
# # Compare methods on a dataset
#
# Which method is better, on which labels, and can one tell? Everything is computed from stored predictions; no
# method runs here. To look at runs of your own, set `store = Store()` (the one in `XCBENCH_HOME`) and the dataset.

# %%
# %matplotlib inline
import numpy as np
import pandas as pd

import xcbench
from xcbench.report import experiments
from xcbench.report.notebooks import differences, name_of, runs_on
from xcbench.report.plot_style import canvas
from xcbench.report.plots import bin_bars
from xcbench.runner.store import Store
from xcbench.data import TopK
from xcbench.evaluation import evaluate
from xcbench.shortlist.blend import blend

store = Store("runs")
data = xcbench.load_dataset("lf-debian-4k")
rows = {(row.method, row.ablation) for row in experiments.load("eclare/table2").rows}
runs = {
    name: records
    for name, records in runs_on(store, data.name).items()
    if (records[0].method, records[0].ablations) in rows
    and not records[0].overrides  # `ablations` is about those
    and records[0].ensemble == 1
}
print(f"{data.name}: {len(data.train):,} training points, {len(data.test):,} test points, {data.label_count:,} labels")

# %% [markdown]
# ## Figures
#
# The tidy frame that `xcbench.results()` gives, as a table. Half the 95% interval over test points stands behind ±.

# %%
frame = xcbench.results(store)
frame["name"] = [name_of(store.find(run)) for run in frame["run"]]
frame = frame[(frame["dataset"] == data.name) & frame["name"].isin(runs)].copy()
frame["shown"] = [f"{value:.2f} ±{(high - low) / 2:.2f}" for value, low, high in zip(frame["value"], frame["low"], frame["high"])]
metrics = ["P@1", "P@5", "PSP@1", "PSP@5", "nDCG@5", "R@10", "R@100", "C@5"]
frame.pivot_table(index="name", columns="metric", values="shown", aggfunc="first")[metrics].sort_values("P@1", ascending=False)

# %% [markdown]
# What the runs cost, on the machine that the records name:

# %%
costs = frame.drop_duplicates("run").set_index("name")[["train_seconds", "predict_seconds", "peak_memory", "model_bytes"]]
costs.assign(
    train_s=costs["train_seconds"].round(2),
    predict_ms=(1000 * costs["predict_seconds"] / len(data.test)).round(3),
    peak_mb=(costs["peak_memory"] / 1e6).round(),
    model_mb=(costs["model_bytes"] / 1e6).round(2),
)[["train_s", "predict_ms", "peak_mb", "model_mb"]]

# %% [markdown]
# ## Rare and popular labels
#
# Labels in five groups that hold equal shares of the training pairs, from rare to popular, and what each group adds to
# P@5: the eight best runs, whose sums are in the legend.

# %%
best = sorted(runs, key=lambda name: -runs[name][0].metrics["P@5"].value)[:8]
with canvas(8.5, 3.6) as (picture, (axes,)):
    bin_bars(axes, {name: runs[name] for name in best}, data, "P@5")
    axes.set_xlabel("training points of a label; each bin holds an equal share of all training pairs")
    axes.set_ylabel("contribution to P@5")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8)
picture

# %% [markdown]
# ## Who differs from whom
#
# Row minus column in PSP@1, paired over the test points, for the 14 best. A pair that cannot be told apart (paired
# bootstrap, Holm-corrected over all pairs, 5%) is marked `=` and left white.

# %%
leading = sorted(runs, key=lambda name: -runs[name][0].metrics["PSP@1"].value)[:14]
gap, p_value = differences({name: runs[name] for name in leading}, data, "PSP@1")
with canvas(13, 7) as (picture, (axes,)):
    limit = gap.abs().to_numpy().max()
    axes.imshow(gap.where(p_value <= 0.05, 0.0), cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    for i, row in enumerate(gap.index):
        for j, other in enumerate(gap.columns):
            tied = "" if p_value.loc[row, other] <= 0.05 else " ="
            text = "" if i == j else f"{gap.loc[row, other]:+.1f}{tied}"
            dark = not tied and abs(gap.loc[row, other]) > 0.6 * limit
            axes.text(j, i, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    axes.set_xticks(range(len(gap)), gap.columns, rotation=30, ha="right")
    axes.set_yticks(range(len(gap)), gap.index)
    axes.set_title("PSP@1: row minus column", fontsize=10)
    axes.grid(visible=False)
picture

# %% [markdown]
# ## What they know together
#
# Methods that see label text, one model each, and their predictions fused: the label at place r gets 1 / (1 + r) from
# each of them. What the fusion has and no row does is how far a single model could still go; the last row, one model and
# a ranker of words behind it, has gone most of that way.

# %%
sees_text = [name for name in runs if name in ("eclare", "decaf", "siamese", "knn + text") or name.endswith("+ metadata")]


def votes(predictions):
    worth = np.where(predictions.indices >= 0, 1 / (2 + np.arange(predictions.k)), -np.inf)
    return TopK(predictions.indices, worth.astype(np.float32))


listed = {name: runs[name][0].predictions() for name in sees_text}
listed["fused"] = blend([votes(predictions) for predictions in listed.values()], k=20)
listed["eclare + filtered + sparse"] = runs["eclare + filtered + sparse"][0].predictions()
together = ["P@1", "P@5", "PSP@1", "PSP@5", "R@10"]
pd.DataFrame({name: evaluate(predictions, data, together).values() for name, predictions in listed.items()}).T.round(2)
