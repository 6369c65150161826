"""The verb `predict`: labels for new text, predicted by the model of a run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from xcbench.cli.console import columns, show_log
from xcbench.cli.options import JsonFlag, Names, thresholds_of

if TYPE_CHECKING:
    from xcbench.data.answers import Answers
    from xcbench.runner.answering import Question, QuestionTable
    from xcbench.runner.model import Model
    from xcbench.runner.store import Record


def predict(
    *,
    run: str | None = None,
    text: Names = (),
    input_: Annotated[Path | None, Parameter(name="--input", allow_leading_hyphen=True)] = None,
    column: str | None = None,
    id_column: str | None = None,
    output: Path | None = None,
    k: int = 10,
    threshold: str | None = None,
    method: str | None = None,
    dataset: str | None = None,
    device: str = "cpu",
    store: Path | None = None,
    json_: JsonFlag = False,
) -> None:
    """Predict labels of new text with the model of a run.

    Parameters
    ----------
    run
        The id of a run, the start of one, or the folder of its record.
    text
        A title; may be given several times.
    input_
        A table (.csv, .tsv, .jsonl or .parquet), or a text file with a title per line; - is the standard input.
    column
        The column of titles in a table; by default `title`, or the only column.
    id_column
        The column of ids, which are written beside the answers; without it rows are numbered from 1.
    output
        The file to write, a row per row of the input: .csv, .tsv, .jsonl or .parquet. Without it answers are printed.
    k
        How many labels per title.
    threshold
        Leave out labels with a lower score than this; auto: than what `xcbench threshold` chose for the run.
    method
        With --run, the file of the run's method, if that is neither built in nor installed. With --dataset, the method.
    dataset
        In the place of --run: predict with the run of --method on this dataset, which is trained first if it is not in
        the store yet.
    device
        Where to predict: cpu, cuda, cuda:N, or auto (a GPU if there is one). A GPU first needs a copy of the model.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print a JSON list with an object for each title.
    """
    show_log()
    from xcbench.runner.answering import QuestionTable, answer_table, answers, check_depth
    from xcbench.runner.environment import check_device, choose_device
    from xcbench.runner.gpus import readable_memory_errors
    from xcbench.runner.model import load_model

    # All that can be wrong is looked at before a model is loaded, let alone trained.
    check_depth(k)
    check_device(device)
    _check_options(text, input_, column or id_column, output, as_json=json_)
    table = None
    if input_ is not None:
        table = QuestionTable.open(input_, column, id_column)
    thresholds = None
    if threshold not in (None, "auto"):
        thresholds = thresholds_of(threshold, None)
    if dataset is None:
        record = _stored_run(run, store)
        file_of_method = method
    else:
        record = _run_on(dataset, method, run, store, device)
        file_of_method = None
    if threshold == "auto":
        thresholds = thresholds_of(threshold, record)
    model = load_model(record, file_of_method)

    device = choose_device(device)
    with readable_memory_errors(device):
        model = model.to(device)
        if table is not None and output is not None:
            rows = answer_table(model, table, output, k, thresholds)
            print(f"{rows:,} rows answered, written to {output}")
        else:
            _print_answers(model, answers(model, _questions(text, table), k, thresholds), as_json=json_)


def _check_options(
    text: tuple[str, ...],
    input_: Path | None,
    column: str | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    from xcbench.data.answers import check_answer_path
    from xcbench.errors import InputError

    if input_ is None and not text:
        raise InputError('nothing to predict: give --text "..." or --input FILE')
    if input_ is None and (column or output):
        raise InputError("--column, --id-column and --output go with --input FILE")
    if output is None:
        return
    if text or as_json:
        raise InputError("--output goes with --input FILE alone, without --text and --json")
    if input_ is not None and output.resolve() == input_.resolve():
        raise InputError(f"{output}: --output is the file of --input, which would be lost; name another one")
    check_answer_path(output)


def _questions(text: tuple[str, ...], table: "QuestionTable | None") -> Iterator["Question"]:
    yield from enumerate(text, 1)
    if table is not None:
        yield from table


def _stored_run(run: str | None, store: Path | None) -> "Record":
    from xcbench.errors import InputError
    from xcbench.runner.store import load_record

    if run is None:
        raise InputError("say which model predicts: --run RUN, or --method METHOD --dataset DATASET to train one")
    return load_record(run, store)


def _run_on(
    dataset: str,
    method: str | None,
    run: str | None,
    store: Path | None,
    device: str,
) -> "Record":
    """Return the run of a method on a dataset, trained now if it is not in the store."""
    from xcbench.errors import InputError
    from xcbench.runner.execute import run as execute
    from xcbench.runner.spec import RunSpec

    if run is not None:
        raise InputError("--run names a finished run and --dataset data to train on; give one of them")
    if method is None:
        raise InputError("--dataset needs --method, the method to train on it")
    return execute(RunSpec(method, dataset), store=store, device=device)


def _print_answers(model: "Model", parts: Iterator["Answers"], *, as_json: bool) -> None:
    shown = []
    for part in parts:
        for row, title in enumerate(part.titles):
            labels = _labels_of_row(model, part, row)
            shown.append({"text": title, "labels": labels, "note": part.notes[row]})

    if as_json:
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(_answer_text(answer) for answer in shown))


def _labels_of_row(model: "Model", answers: "Answers", row: int) -> list[dict[str, Any]]:
    """Return the labels that were predicted for one title, best first."""
    labels = []
    predictions = answers.predictions
    for label, score in zip(predictions.indices[row], predictions.scores[row], strict=True):
        # Label -1 is padding.
        if label < 0:
            continue

        title = None
        if model.label_titles:
            title = model.label_titles[int(label)]
        labels.append({"label": int(label), "title": title, "score": float(score)})
    return labels


def _answer_text(answer: dict[str, Any]) -> str:
    lines = [answer["text"]]
    if answer["note"]:
        lines.append(f"note: {answer['note']}")
    if not answer["labels"]:
        return "\n".join(lines)

    rows = []
    for label in answer["labels"]:
        # Three digits of any size: products of probabilities fall fast, and four decimals would show most of them as 0.
        score = f"{label['score']:#.3g}"
        rows.append((score, str(label["label"]), label["title"] or ""))
    lines.append(columns(("score", "label", "title"), rows, "rr"))
    return "\n".join(lines)
