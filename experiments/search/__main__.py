"""Run the variants of `experiments/search/METHOD.yaml`, or those of a reranker, on a held-out slice; print scores."""

import argparse
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from experiments.search.holdout import held_out
from xcbench.data import load_dataset
from xcbench.evaluation import evaluate
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10")


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m experiments.search", description=__doc__)
    words.add_argument("method")
    words.add_argument("--dataset", default="lf-debian-4k")
    words.add_argument("--fold", type=int, default=0, help="which fifth of the training points to hold out, 0 to 4")
    words.add_argument("--augment", action="append", default=[], help="an augmentation of the slice's training points")
    words.add_argument("--rerank", help="a reranker behind the method")
    words.add_argument("--only", default="", help="variants whose name begins like this")
    words.add_argument("--verbose", action="store_true")
    asked = words.parse_args()
    if asked.verbose:
        logging.basicConfig(level=logging.INFO)
    variants: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
        (Path(__file__).parent / f"{asked.rerank or asked.method}.yaml").read_text("utf-8")
    )
    data = held_out(load_dataset(asked.dataset), fold=asked.fold)
    print(f"{data.name}: {len(data.train)} points to train on, {len(data.test)} held out")
    print("".join(f"{name:>8}" for name in METRICS), f"{'CPU s':>8}  variant", flush=True)
    for name, settings in variants.items():
        if name.startswith(asked.only):
            start = time.process_time()
            around = {"augment": tuple(asked.augment), "rerank": asked.rerank}
            record = run(RunSpec(asked.method, asked.dataset, **around, overrides=settings or {}), data=data)
            seconds = time.process_time() - start
            values = evaluate(record.predictions(), data, METRICS).values()
            print("".join(f"{values[m]:8.2f}" for m in METRICS), f"{seconds:8.1f}  {name}", flush=True)


main()
