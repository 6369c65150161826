"""What a dataset is, where it comes from and under which terms: the facts that travel with the files."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Manifest:
    """The facts about one dataset."""

    name: str
