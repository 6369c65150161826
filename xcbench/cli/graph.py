"""The verb `graph`: a label's neighbours in the label graph."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xcbench.cli.console import columns
from xcbench.cli.options import JsonFlag
from xcbench.defaults import DEFAULT_DATASET

if TYPE_CHECKING:
    from xcbench.report.neighbours import Neighbourhood


def graph(
    *,
    label: str,
    dataset: str = DEFAULT_DATASET,
    kind: Literal["walk", "cooccurrence"] = "walk",
    top: int = 10,
    seed: int = 0,
    picture: Path | None = None,
    json_: JsonFlag = False,
) -> None:
    """Show a label's neighbours in ECLARE's label graph, and the weights of the edges to them.

    Parameters
    ----------
    label
        The label's title, or its number.
    dataset
        A name that `xcbench list datasets` shows, or a path.
    kind
        walk: random walks over points and labels. cooccurrence: points in common.
    top
        How many neighbours a label has in the graph; it is mostly one of them itself.
    seed
        The seed of the random walks.
    picture
        Also draw the neighbourhood to this file (.png, .pdf or .svg).
    json_
        Print one JSON object.
    """
    from xcbench.data import load_dataset
    from xcbench.errors import InputError
    from xcbench.labels.label_graph import LabelGraph
    from xcbench.report.neighbours import draw_neighbourhood, neighbourhood

    if top < 1:
        raise InputError(f"--top is at least 1, got {top}")

    result = neighbourhood(load_dataset(dataset), label, LabelGraph(kind, top=top), seed)
    if picture is not None:
        draw_neighbourhood(result, picture)

    if json_:
        print(json.dumps(_as_json(result)))
        return
    print(f"{result.title} (label {result.label}, {result.training_points} training points)\n")
    print(_as_table(result, "visits" if kind == "walk" else "shared points"))


def _as_json(result: "Neighbourhood") -> dict[str, object]:
    return {
        "label": result.label,
        "title": result.title,
        "neighbours": [asdict(neighbour) for neighbour in result.neighbours],
    }


def _as_table(result: "Neighbourhood", count_title: str) -> str:
    rows = []
    for neighbour in result.neighbours:
        row = (
            f"{neighbour.weight:.3f}",
            f"{neighbour.count:g}",
            f"{neighbour.training_points}",
            neighbour.title,
        )
        rows.append(row)
    return columns(("weight", count_title, "training points", "label"), rows, "rrr ")
