"""The verb `predict`: labels for new text, predicted by the model of a stored run."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from xcbench.cli.console import columns, show_log
from xcbench.cli.options import JsonFlag, Names

if TYPE_CHECKING:
    from xcbench.data import TextColumn, TopK


def predict(
    *,
    run: str,
    text: Names = (),
    input_: Annotated[Path | None, Parameter(name="--input", allow_leading_hyphen=True)] = None,
    k: int = 10,
    method: str | None = None,
    device: str = "cpu",
    store: Path | None = None,
    json_: JsonFlag = False,
) -> None:
    """Predict labels of new text with the model of a stored run.

    Parameters
    ----------
    run
        The id of a run, the start of one, or the folder of its record.
    text
        A title; may be given several times.
    input_
        A file with a title per line; - is the standard input.
    k
        How many labels to show.
    method
        The file of the run's method, if that is neither built in nor installed.
    device
        Where to predict: cpu, cuda, cuda:N, or auto (a GPU if there is one). A GPU first needs a copy of the model.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print a JSON list with an object for each title.
    """
    show_log()
    from xcbench.errors import InputError
    from xcbench.runner.environment import check_device, choose_device
    from xcbench.runner.gpus import readable_memory_errors
    from xcbench.runner.model import load_model
    from xcbench.runner.store import load_record

    if k < 1:
        raise InputError(f"k is at least 1, got {k}")
    titles = [*text, *_read_titles(input_)]
    if not titles:
        raise InputError('nothing to predict: give --text "..." or --input FILE')

    check_device(device)
    model = load_model(load_record(run, store), method)
    device = choose_device(device)
    with readable_memory_errors(device):
        predictions = model.to(device).predict_text(titles, k)
    answers = []
    for row, title in enumerate(titles):
        labels = _labels_of_row(predictions, row, model.label_titles)
        answers.append({"text": title, "labels": labels})

    if json_:
        print(json.dumps(answers, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(_answer_text(answer) for answer in answers))


def _read_titles(path: Path | None) -> list[str]:
    """Return the lines of a file that are not empty."""
    from xcbench.errors import DataError

    if path is None:
        return []

    try:
        if str(path) == "-":
            content = sys.stdin.read()
        else:
            content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path) from None

    return [line.strip() for line in content.splitlines() if line.strip()]


def _labels_of_row(predictions: "TopK", row: int, label_titles: "TextColumn | None") -> list[dict[str, Any]]:
    """Return the labels that were predicted for one title, best first."""
    labels = []
    for label, score in zip(predictions.indices[row], predictions.scores[row], strict=True):
        # Label -1 is padding.
        if label < 0:
            continue

        title = None
        if label_titles:
            title = label_titles[int(label)]
        labels.append({"label": int(label), "title": title, "score": float(score)})
    return labels


def _answer_text(answer: dict[str, Any]) -> str:
    if not answer["labels"]:
        return f"{answer['text']}\nno label found"

    rows = []
    for label in answer["labels"]:
        # Three digits of any size: products of probabilities fall fast, and four decimals would show most of them as 0.
        score = f"{label['score']:#.3g}"
        rows.append((score, str(label["label"]), label["title"] or ""))

    table = columns(("score", "label", "title"), rows, "rr")
    return f"{answer['text']}\n{table}"
