"""The verbs `data import`, `data export`, `data stats`, `data synth` and `data rm`."""

from pathlib import Path
from typing import Any, Literal

import cyclopts

from xcbench.cli.options import Flag

app = cyclopts.App(
    name="data",
    help="Import, export and describe datasets.",
    default_parameter=cyclopts.Parameter(negative=()),
)


@app.command(name="import")
def import_(
    path: Path,
    *,
    name: str | None = None,
    title_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    label_separator: str | None = None,
    split: float | None = None,
    split_column: str | None = None,
    group_column: str | None = None,
    seed: int | None = None,
    propensity_a: float | None = None,
    propensity_b: float | None = None,
    content: bool = False,
    from_text: bool = False,
    tokenizer: Literal["words", "wordpieces", "ngrams"] | None = None,
    stop_words: Literal["none", "english"] | None = None,
    min_count: int | None = None,
    max_features: int | None = None,
    cut_unknown: bool = False,
    replace: bool = False,
) -> None:
    """Check every file of a dataset, print what was found, and store it in a form that loads at once.

    Parameters
    ----------
    path
        A folder or zip with files in any form that docs/guides/data-formats.md describes; or one table, whose name ends
        in .csv, .tsv, .jsonl or .parquet, which is split into train and test here.
    name
        The name under which the dataset is stored; by default that of the file or folder.
    title_column
        Of a table: the column of titles; by default `title`.
    label_column
        Of a table: the column of labels; by default `labels`.
    id_column
        Of a table: the column of ids, of which repeated ones are counted.
    label_separator
        What separates the labels within a field; in a folder by default ;, in a table it is found out and said.
    split
        Of a table: the share of rows for test, by default 0.2. Near-duplicates stay on one side.
    split_column
        Of a table: the column that says train or test.
    group_column
        Of a table: the column whose equal values stay on one side, in the place of near-duplicates.
    seed
        Of a table: decides which rows are for test; by default 0.
    propensity_a
        The constant A of the propensity model, on which PSP@k depends; with --propensity-b.
    propensity_b
        The constant B of the propensity model.
    content
        Append the 'content' of JSON points and labels to their titles.
    from_text
        Make features of the titles even where the files hold features.
    tokenizer
        What a feature is, where features are made of titles.
    stop_words
        The words to leave out, where features are made of titles.
    min_count
        Drop features that occur in fewer titles than this.
    max_features
        Keep at most so many features, the most frequent ones.
    cut_unknown
        Cut words that are not in the vocabulary into known words, as in htmlelement.
    replace
        Replace an imported dataset of the same name.
    """
    from xcbench.data.catalog import name_from_path
    from xcbench.data.importing import import_dataset, import_table, propensity_of
    from xcbench.data.readers.single_table import TableColumns
    from xcbench.data.readers.table_files import is_table

    propensity = propensity_of(propensity_a, propensity_b)
    text_options = _given(
        tokenizer=tokenizer,
        stop_words=stop_words,
        min_count=min_count,
        max_features=max_features,
        cut_unknown=cut_unknown or None,
    )
    of_tables = _given(
        title_column=title_column,
        label_column=label_column,
        id_column=id_column,
        split=split,
        split_column=split_column,
        group_column=group_column,
        seed=seed,
    )
    of_both = _given(label_separator=label_separator)
    name = name or name_from_path(path)

    if is_table(path):
        _refuse(_given(content=content or None, from_text=from_text or None), path, "goes with a folder, not one table")
        report = import_table(
            path,
            name,
            TableColumns(**of_tables, **of_both),
            propensity=propensity,
            text_options=text_options or None,
            replace=replace,
        )
    else:
        _refuse(of_tables, path, "goes with one table (.csv, .tsv, .jsonl, .parquet)")
        report = import_dataset(
            path,
            name,
            propensity=propensity,
            text_options=text_options or None,
            with_content=content,
            from_text=from_text,
            replace=replace,
            **of_both,
        )
    print(report)


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that the user gave."""
    return {option: value for option, value in options.items() if value is not None}


def _refuse(given: dict[str, Any], path: Path, reason: str) -> None:
    """Raise an error if the user gave an option that says nothing about this kind of data."""
    from xcbench.errors import InputError

    for option in given:
        spelling = option.replace("_", "-")
        raise InputError(f"{path}: --{spelling} {reason}")


@app.command
def export(
    dataset: str,
    folder: Path,
    *,
    form: Literal["split", "combined", "npz", "json"] = "split",
) -> None:
    """Write a dataset in a form that other tools read, filter files included.

    Parameters
    ----------
    dataset
        A name that `xcbench list datasets` shows, or a path.
    folder
        The folder to make.
    form
        split: trn_X_Xf.txt and so on. combined: train.txt and test.txt. npz: scipy matrices. json: text and targets.
    """
    from xcbench.data.catalog import load_dataset
    from xcbench.data.embedded import embedded_notices
    from xcbench.data.writers import write_dataset

    loaded = load_dataset(dataset)
    write_dataset(loaded, folder, form, embedded_notices(dataset))
    print(f"{dataset} is written to {folder}")


@app.command
def stats(
    dataset: str,
    *,
    json: Flag = False,
    picture: Path | None = None,
) -> None:
    """Print the statistics that papers give of a dataset in their Table 1, and the shape of its tail.

    Parameters
    ----------
    dataset
        A name that `xcbench list datasets` shows, or a path.
    json
        Print one flat JSON object.
    picture
        Also draw the label-frequency curve to this file (.png, .pdf or .svg).
    """
    from xcbench.cli.console import print_json
    from xcbench.data.catalog import load_dataset
    from xcbench.data.stats import draw_frequency_curve, statistics

    loaded = load_dataset(dataset)
    if picture is not None:
        draw_frequency_curve(loaded, picture)

    result = statistics(loaded)
    if json:
        print_json(result.to_dict())
    else:
        print(result)


@app.command
def synth(
    *,
    like: str,
    scale: float = 1.0,
    seed: int = 0,
    name: str | None = None,
    replace: bool = False,
) -> None:
    """Make up a dataset in the shape of a published one: for work on scale, never for claims of accuracy.

    Parameters
    ----------
    like
        The published dataset, such as LF-AmazonTitles-131K.
    scale
        The share of its points and labels.
    seed
        Another seed gives other data of the same shape.
    name
        The name under which the dataset is stored; by default made from `like` and `scale`.
    replace
        Replace a stored dataset of the same name.
    """
    from xcbench.data.binary import store_dataset
    from xcbench.data.catalog import folder_for_new
    from xcbench.data.stats import statistics
    from xcbench.data.synth import default_name, synthesise

    name = name or default_name(like, scale)
    folder = folder_for_new(name, replace)
    dataset = synthesise(like, scale, seed, name)
    store_dataset(dataset, folder)
    print(statistics(dataset))


@app.command
def rm(name: str) -> None:
    """Delete an imported dataset. The records of runs on it stay.

    Parameters
    ----------
    name
        The name of an imported dataset.
    """
    from xcbench.data.catalog import remove_dataset

    print(f"deleted {remove_dataset(name)}")
