"""What is made of finished runs: tables, claims, plots, summaries, and helpers for notebooks.

- `experiments`, `typed_yaml`: a paper's table or figure as a YAML file; `paper`: the figures that the papers print
- `scores`: the figures of stored runs, with intervals and paired tests; `columns`: what can be shown
- `tables`, `claims`: an experiment, filled and tested; `availability`: which of its rows can run
- `render`, `grid`: tables as text, Markdown, LaTeX, HTML or csv
- `plots`, `tradeoff`, `neighbours`, `plot_style`: pictures
- `comparison`: stored runs against each other; `summaries`: small copies of runs; `notebooks`: helpers for notebooks

It reads the store and never a model. It may import every room below it (`runner` and what that imports); only `cli`
imports it.
"""
