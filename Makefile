# `make` alone lists the targets. Every target sets up what it needs.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install test test-all lint bench docs docs-figures wheel clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# The stamp makes a second call start at once; it is older than these files whenever one of them changes.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch --editable '.[dev]'
	@# What numba compiled of modules that have moved since cannot be loaded.
	find xcbench methods -name "*.nb[ic]" -delete
	@touch $@

install: .venv/installed  ## make .venv with xcbench and everything that tests need

test: install lint  ## ruff, mypy and the test suite
	$(BIN)/python -m pytest -q -n 2

# What `make test` skips needs Ray, a browser and LaTeX. The last two are Debian's packages: elsewhere, or without the
# rights to install them, their tests are skipped, and the summary says which.
SYSTEM_PACKAGES := chromium chromium-driver texlive-latex-recommended
test-all: install lint  ## every test: with all extras, and those that take minutes (about an hour)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	-apt-get update -q && apt-get install -y -q --no-install-recommends $(SYSTEM_PACKAGES)
	$(BIN)/python -m pytest -q -n 2 -m "slow or not slow" --durations 20

lint: install  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install  ## measure speed and memory against plain references
	$(BIN)/python -m benchmarks

# Mkdocs would only recommend its successor.
docs: install docs-figures  ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs-figures:  ## put the figures of results/ into README and docs
	$(PYTHON) docs/_site/figures.py

wheel: install  ## a wheel and a source archive in build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist .

clean:  ## remove the environment and every cache
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A paper's table or figure by its name: `make eclare-table5`, `make decaf-figure6 DATASET=lf-debian-12k SEEDS=0,1,2`.
# The names are those of the files in experiments/.
DATASET ?=
SEEDS ?=
# Two runs with a core each end sooner than one after the other with two, but would spoil the times that a table shows.
JOBS ?= 2
TABLES := $(subst /,-,$(patsubst experiments/%.yaml,%,$(wildcard experiments/*/table*.yaml)))
FIGURES := $(subst /,-,$(patsubst experiments/%.yaml,%,$(wildcard experiments/*/figure*.yaml)))
TIMED := $(subst /,-,$(patsubst experiments/%.yaml,%,$(shell grep -lE 'train_s|predict_ms' experiments/*/*.yaml)))
WHERE = $(addprefix --dataset ,$(DATASET)) $(addprefix --seeds ,$(SEEDS))

.PHONY: table2 tables figures results $(TABLES) $(FIGURES)

table2: DATASET := $(or $(DATASET),lf-debian-4k)
table2: pecos eclare-table2  ## ECLARE's Table 2 on the embedded dataset, baselines included

# XR-Linear lives in an environment of its own; made beforehand, no training time has that in it. Without a network the
# table is complete but for that row.
.PHONY: pecos
pecos: .venv/installed
	-$(BIN)/python -m xcbench.methods.baselines.xrlinear

$(TIMED): JOBS := 1

tables: $(TABLES)  ## every table of the papers (one: make eclare-table5 DATASET=... SEEDS=0,1,2)

figures: $(FIGURES)  ## every figure of the papers (one: make eclare-figure7)

RUN ?= missing
results: .venv/installed  ## what results/ holds: tables, records, notebooks (RUN=stale: redo what other code made)
	$(BIN)/python results/refresh.py --run $(RUN)
	$(BIN)/python docs/_site/figures.py

.PHONY: report
report: .venv/installed  ## pages to look at, from what results/ holds: build/report/index.html
	$(BIN)/xcbench report --store results/runs --output build/report

$(TABLES): .venv/installed
	$(BIN)/xcbench table $(subst -,/,$@) $(WHERE) --jobs $(JOBS)

$(FIGURES): .venv/installed
	$(BIN)/xcbench table $(subst -,/,$@) $(WHERE) --jobs $(JOBS)
	$(BIN)/xcbench plot $(subst -,/,$@) $(WHERE) --output build/$@.png
