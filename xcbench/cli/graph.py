"""The verb `graph`: a label's neighbours in the label graph."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from xcbench.cli.console import columns


def graph(
    *,
    label: str,
    dataset: str = "lf-debian-4k",
    kind: Literal["walk", "cooccurrence"] = "walk",
    top: int = 10,
    seed: int = 0,
    picture: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Show which labels ECLARE's graph puts next to a label, and how near.

    Parameters
    ----------
    label
        The label's title, or its number.
    dataset
        A name that `xcbench list datasets` shows, or a path.
    kind
        walk: random walks over points and labels. cooccurrence: points in common.
    top
        How many labels a label has in its row of the graph; it is mostly one of them itself.
    seed
        Where the random walks start from.
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
    found = neighbourhood(load_dataset(dataset), label, LabelGraph(kind, top=top), seed)
    if picture is not None:
        draw_neighbourhood(found, picture)
    if json_:
        print(json.dumps({"label": found.label, "title": found.title, "neighbours": [*map(asdict, found.neighbours)]}))
        return
    print(f"{found.title} (label {found.label}, {found.training_points} training points)\n")
    rows = [(f"{n.weight:.3f}", f"{n.count:g}", f"{n.training_points}", n.title) for n in found.neighbours]
    visits = "visits" if kind == "walk" else "shared points"
    print(columns(("weight", visits, "training points", "label"), rows, "rrr "))
