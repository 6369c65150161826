"""The verb `predict`: what a stored run says about new text."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from xcbench.cli.console import columns, show_log


def predict(
    *,
    run: str,
    text: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    input_: Annotated[Path | None, Parameter(name="--input", allow_leading_hyphen=True)] = None,
    k: int = 10,
    method: str | None = None,
    store: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Predict labels of new text with the model of a stored run.

    Parameters
    ----------
    run
        The id of a run, the start of one, or the folder of its record.
    text
        A title; may be given several times.
    input_
        A file with one title a line; - is the standard input.
    k
        How many labels to show.
    method
        The file of the run's method, if that is neither built in nor installed.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print a JSON list with an object for each title.
    """
    show_log()
    from xcbench.errors import InputError
    from xcbench.runner.model import load_model
    from xcbench.runner.store import load_record

    if k < 1:
        raise InputError(f"k is at least 1, got {k}")
    titles = [*text, *_lines(input_)]
    if not titles:
        raise InputError('nothing to predict: give --text "..." or --input FILE')
    model = load_model(load_record(run, store), method)
    found = model.predict_text(titles, k)
    answers = [
        {
            "text": title,
            "labels": [
                {
                    "label": int(label),
                    "title": model.label_titles[int(label)] if model.label_titles else None,
                    "score": float(score),
                }
                for label, score in zip(found.indices[row], found.scores[row], strict=True)
                if label >= 0
            ],
        }
        for row, title in enumerate(titles)
    ]
    print(json.dumps(answers, indent=2, ensure_ascii=False) if json_ else "\n\n".join(map(_text, answers)))


def _lines(path: Path | None) -> list[str]:
    from xcbench.errors import DataError

    if path is None:
        return []
    try:
        lines = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path) from None
    return [line.strip() for line in lines.splitlines() if line.strip()]


def _text(answer: dict[str, Any]) -> str:
    # Three digits of any size: products of probabilities fall fast, and four decimals would call most of them 0.
    rows = [(f"{a['score']:#.3g}", str(a["label"]), a["title"] or "") for a in answer["labels"]]
    return f"{answer['text']}\n" + (columns(("score", "label", "title"), rows, "rr") if rows else "no label found")
