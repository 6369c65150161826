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
# Which method is better, on which labels, and is the difference significant? Everything is computed from stored runs;
# no method runs here. To look at runs of your own, set `store = Store()` (the one in `XCBENCH_HOME`) and the dataset.

# %%
# %matplotlib inline
import numpy as np
import pandas as pd

import xcbench
from xcbench.data import TopK
from xcbench.evaluation import evaluate
from xcbench.report import experiments
from xcbench.report.notebooks import differences, name_of, runs_on
from xcbench.report.plot_style import canvas
from xcbench.report.plots import bin_bars
from xcbench.runner.store import Store
from xcbench.shortlist.blend import blend

store = Store("runs")
data = xcbench.load_dataset("lf-debian-4k")
rows = {(row.method, row.ablation) for row in experiments.load("eclare/table2").rows}
runs = {}
for name, records in runs_on(store, data.name).items():
    first = records[0]
    is_in_table = (first.method, first.ablations) in rows
    if is_in_table and not first.overrides and first.ensemble == 1:  # `ablations` is about the others
        runs[name] = records
print(f"{data.name}: {len(data.train):,} training points, {len(data.test):,} test points, {data.label_count:,} labels")

# %% [markdown]
# ## Figures
#
# The tidy frame that `xcbench.results()` gives, as a table. Half the 95% interval over test points stands behind ±.

# %%
frame = xcbench.results(store)
frame["name"] = [name_of(store.find(run)) for run in frame["run"]]
frame = frame[(frame["dataset"] == data.name) & frame["name"].isin(runs)].copy()
half_width = (frame["high"] - frame["low"]) / 2
frame["shown"] = [f"{value:.2f} ±{half:.2f}" for value, half in zip(frame["value"], half_width)]
metrics = ["P@1", "P@5", "PSP@1", "PSP@5", "nDCG@5", "R@10", "R@100", "C@5"]
table = frame.pivot_table(index="name", columns="metric", values="shown", aggfunc="first")
table[metrics].sort_values("P@1", ascending=False)

# %% [markdown]
# What the runs cost, on the machine that the records name:

# %%
costs = frame.drop_duplicates("run").set_index("name")
pd.DataFrame(
    {
        "train_s": costs["train_seconds"].round(2),
        "predict_ms": (1000 * costs["predict_seconds"] / len(data.test)).round(3),
        "peak_mb": (costs["peak_memory"] / 1e6).round(),
        "model_mb": (costs["model_bytes"] / 1e6).round(2),
    }
)

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
# ## Which pairs differ
#
# Row minus column in PSP@1, paired over the test points, for the 14 best. A pair that is not significantly different
# (paired bootstrap, Holm-corrected over all pairs, 5%) is marked `=` and left white.

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
# each of them. What the fusion has and no row does is how far a single model could still go; the last row, one model
# and a ranker of words behind it, has gone most of that way.

# %%
sees_text = ["eclare", "decaf", "siamese", "knn + text"]
sees_text = [name for name in runs if name in sees_text or name.endswith("+ metadata")]


def votes(predictions):
    worth = np.where(predictions.indices >= 0, 1 / (2 + np.arange(predictions.k)), -np.inf)
    return TopK(predictions.indices, worth.astype(np.float32))


fused = blend([votes(runs[name][0].predictions()) for name in sees_text], k=20)
together = ["P@1", "P@5", "PSP@1", "PSP@5", "R@10"]
values = {name: runs[name][0].evaluate(data, together).values() for name in sees_text}
values["fused"] = evaluate(fused, data, together).values()
last = "eclare + ignore-filtered + sparse"
values[last] = runs[last][0].evaluate(data, together).values()
pd.DataFrame(values).T.round(2)
