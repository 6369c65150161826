"""Run the variants of `experiments/search/METHOD.yaml`, or of another table, on a held-out slice; print scores."""

import argparse
import logging
import time

from experiments.search.holdout import held_out
from experiments.search.trials import METRICS, append_trial, read_variants
from xcbench.data import load_dataset
from xcbench.defaults import DEFAULT_DATASET
from xcbench.evaluation import evaluate
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec


def main() -> None:
    options = parse_options()
    if options.verbose:
        logging.basicConfig(level=logging.INFO)

    table = options.table or options.rerank or options.method
    data = held_out(load_dataset(options.dataset), fold=options.fold)
    print(f"{data.name}: {len(data.train)} points to train on, {len(data.test)} held out")
    print("".join(f"{name:>8}" for name in METRICS), f"{'CPU s':>8}  variant", flush=True)

    for variant, settings in read_variants(table).items():
        if not variant.startswith(options.only):
            continue

        spec = RunSpec(
            options.method,
            options.dataset,
            augment=tuple(options.augment),
            rerank=options.rerank,
            overrides=settings,
            seed=options.seed,
        )
        start = time.process_time()
        record = run(spec, data=data)
        seconds = time.process_time() - start

        values = evaluate(record.predictions(), data, METRICS).values()
        print("".join(f"{values[name]:8.2f}" for name in METRICS), f"{seconds:8.1f}  {variant}", flush=True)
        if options.save:
            append_trial(
                table,
                variant,
                options.method,
                options.augment,
                options.dataset,
                options.fold,
                record.seed,
                values,
                seconds,
            )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.search", description=__doc__)
    parser.add_argument("method")
    parser.add_argument("--dataset", default=DEFAULT_DATASET)
    parser.add_argument("--fold", type=int, default=0, help="which fifth of the training points to hold out, 0 to 4")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", help="whose variants to run, by default those of the reranker or the method")
    parser.add_argument("--augment", action="append", default=[], help="an augmentation of the slice's training points")
    parser.add_argument("--rerank", help="a reranker behind the method")
    parser.add_argument("--only", default="", help="variants whose name begins like this")
    parser.add_argument("--save", action="store_true", help="append the scores to the csv beside the variants")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
