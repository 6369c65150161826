"""The command line: every step in a process of its own, then the table."""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.scale import answer_steps, data_steps, growth, rank_steps, table_steps, training_steps
from benchmarks.scale.place import Place
from benchmarks.scale.row import Row, as_markdown, read_rows, save_csv, save_rows
from xcbench.data.synth import published_name
from xcbench.threads import set_threads

METHODS = ("decaf", "eclare", "astec", "elias")

Step = Callable[[Place], Iterator[Row]]

STEPS: Mapping[str, Step] = {
    "data": data_steps.synthesise_and_store,
    "load": data_steps.load,
    "graph": data_steps.graph,
    "clusters": data_steps.clusters,
    "targets": data_steps.targets,
    **{name: functools.partial(training_steps.train_method, method=name) for name in METHODS},
    **{f"{name}-answers": functools.partial(answer_steps.answer, method=name) for name in METHODS},
    "sparse": answer_steps.sparse_ranker,
}

DISTRIBUTED: Mapping[str, Step] = {
    "data": data_steps.synthesise_and_store,
    "one-process": rank_steps.by_one,
    "two-ranks": rank_steps.by_two,
    "two-ranks-one-killed": rank_steps.with_one_killed,
    "table-local": table_steps.by_local_processes,
    "table-ray-worker-killed": table_steps.with_a_worker_killed,
    "table-ray-run-killed": table_steps.with_a_run_killed,
}


def main(arguments: list[str]) -> int:
    """Run the command line; returns its exit code."""
    if arguments[:1] == ["--growth"]:
        return growth.main(arguments[1:])

    options = _parser().parse_args(arguments)
    place = Place(published_name(options.like), options.scale, options.share)
    place.folder.mkdir(parents=True, exist_ok=True)
    steps = DISTRIBUTED if options.distributed else STEPS
    if options.step:
        set_threads()
        save_rows(place.rows_of(options.step), list(steps[options.step](place)))
        return 0

    for step in steps:
        if place.rows_of(step).exists():
            continue
        print(f"{step} ...", flush=True)
        command = [sys.executable, "-m", "benchmarks", "scale", *arguments, "--step", step]
        code = subprocess.run(command).returncode
        if code:
            print(f"step {step} ended with code {code}; the same command goes on there", file=sys.stderr)
            return code

    rows = [row for step in steps for row in read_rows(place.rows_of(step))]
    print(as_markdown(rows))
    if options.csv:
        save_csv(options.csv, rows)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale")
    parser.add_argument("--like", required=True, help="the published dataset, such as LF-AmazonTitles-131K")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of its points and labels")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the points to shortlist and predict")
    parser.add_argument("--distributed", action="store_true", help="instead: torchrun and Ray, with workers killed")
    parser.add_argument("--csv", type=Path, help="also write the table to this file")
    parser.add_argument("--step", choices={**STEPS, **DISTRIBUTED}, help="one step alone, in this process")
    return parser
