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
# # Dissect one method
#
# Everything that the store holds of one method on one dataset: what each variation changes in the config, what that
# does to the figures, and to which labels. Set `method` to any other that has runs; as it stands, it is the one of
# which most variations are stored.

# %%
# %matplotlib inline
import pandas as pd

import xcbench
from xcbench.evaluation import Truth, frequency_bins
from xcbench.plugins.config import leaves
from xcbench.report.columns import column
from xcbench.report.notebooks import most_varied, runs_on
from xcbench.report.plot_style import canvas, series_style
from xcbench.report.frequency import bin_figures
from xcbench.report.scores import ScoreTable
from xcbench.runner.store import Store

store = Store("runs")
data = xcbench.load_dataset("lf-debian-4k")
all_runs = runs_on(store, data.name)
method = most_varied(all_runs)
runs = {name: records for name, records in all_runs.items() if records[0].method == method}
full = method
variations = [name for name in runs if name != full]
variations

# %% [markdown]
# ## What changes
#
# Config keys whose value differs from the full method's.

# %%
configs = {name: leaves(records[0].config) for name, records in runs.items()}
keys = [key for key in configs[full] if any(config.get(key) != configs[full][key] for config in configs.values())]
changes = {name: {key: config.get(key) for key in keys} for name, config in configs.items()}
pd.DataFrame(changes).T.sort_index()

# %% [markdown]
# ## What it is worth
#
# Differences to the full method with 95% intervals, paired over the test points. An interval that holds 0 decides
# nothing.

# %%
metrics = ["P@1", "P@5", "PSP@1", "PSP@5", "R@10"]
scores = ScoreTable(data, runs, [column(metric) for metric in metrics])
effects = {}
shown = {}
for metric in metrics:
    effects[metric] = {name: scores.contrast(metric, {name: 1.0, full: -1.0}) for name in variations}
    shown[metric] = {name: f"{e.difference:+.2f} [{e.low:+.2f}, {e.high:+.2f}]" for name, e in effects[metric].items()}
pd.DataFrame(shown).loc[variations]

# %%
colour = series_style(0).colour
with canvas(9.0, 1.2 + 0.4 * len(variations), panels=2) as (picture, panels):
    for axes, metric in zip(panels, ["P@1", "PSP@1"]):
        for place, name in enumerate(variations):
            effect = effects[metric][name]
            decided = effect.low > 0 or effect.high < 0
            axes.plot([effect.low, effect.high], [place, place], color=colour, linewidth=2)
            axes.plot(effect.difference, place, "o", color=colour, markerfacecolor=colour if decided else "white")
        axes.axvline(0, color="black", linewidth=1)
        axes.set_yticks(range(len(variations)), variations if axes is panels[0] else [""] * len(variations))
        axes.set_xlabel(f"{metric}, percentage points against {full}")
        axes.set_ylim(len(variations) - 0.5, -0.5)
picture

# %% [markdown]
# ## On which labels
#
# How much each group of labels, from rare to popular in equal shares of the training pairs, gains or loses in P@5.

# %%
frequency = data.label_frequency
bins = frequency_bins(frequency, 5)
truth = Truth.of(data)
by_bin = {name: found.values for name, found in bin_figures(runs, truth, "P@5", bins, 5).items()}
names = [f"{frequency[bins == b].min()}–{frequency[bins == b].max()} points" for b in range(5)]
pd.DataFrame({name: by_bin[name] - by_bin[full] for name in variations}, index=names).T.round(2)
