"""Debian's package index as a dataset: which other packages belong with this one?

A point is a package's name and short description; its labels are the packages that it names in the chosen relation
fields; a label's text is that package's own title. The index is the file `Packages` (plain, .gz or .xz) of a release's
`main/binary-amd64`, as apt downloads it. The embedded sets come from Debian 13.7, index sha256 4f2c68d6...:

    python -m xcbench.data.builders.debian lf-debian-4k --index Packages.xz --fields Recommends,Suggests,Enhances
    python -m xcbench.data.builders.debian lf-debian-12k --index Packages.xz
"""

import argparse
import gzip
import lzma
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from xcbench.data.builders import related
from xcbench.data.dataset import Propensity
from xcbench.data.manifest import Manifest

FIELDS = ("Depends", "Recommends", "Suggests", "Enhances")
MAX_LABEL_SHARE = 0.02
NOTICE = """\
This dataset is made of names, short descriptions and relations of the packages in the main archive of Debian
(release 13 "trixie", amd64 index). Credit: the Debian Project, https://www.debian.org/, and the maintainers of its
packages.

Every package of the main archive is free software under the Debian Free Software Guidelines. The short descriptions
are parts of these packages and are distributed under the packages' own licences, all of which allow copying,
modification and redistribution; the text of each is in the package's /usr/share/doc/<package>/copyright.

Debian is a registered trademark of Software in the Public Interest, Inc. This dataset is not made or endorsed by the
Debian Project.
"""


@dataclass(frozen=True)
class Package:
    """What the index says of one package, as far as we use it."""

    name: str
    source: str
    section: str
    title: str
    provides: tuple[str, ...]
    relations: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_paragraph(cls, paragraph: Mapping[str, str]) -> "Package":
        name = paragraph["Package"]
        return cls(
            name=name,
            source=paragraph.get("Source", name).split(" ")[0],
            section=paragraph.get("Section", ""),
            title=f"{name}: {paragraph.get('Description', '')}".strip().rstrip(":"),
            provides=package_names(paragraph.get("Provides", "")),
            relations={field: package_names(paragraph[field]) for field in FIELDS if field in paragraph},
        )

    @property
    def is_debug(self) -> bool:
        return self.name.endswith("-dbgsym") or self.section == "debug"

    @property
    def is_shared_library(self) -> bool:
        return self.section in ("libs", "oldlibs") and not self.name.endswith("-dev")

    @property
    def is_placeholder(self) -> bool:
        """A package that only helps an upgrade says nothing about what belongs with it."""
        return "transitional" in self.title.lower() or "dummy package" in self.title.lower()


def paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The paragraphs of a Debian control file, continuation lines joined."""
    paragraph: dict[str, str] = {}
    field = ""
    for line in lines:
        if not line.strip():
            if paragraph:
                yield paragraph
            paragraph = {}
        elif line[0] in " \t":
            paragraph[field] += " " + line.strip()
        else:
            field, _, value = line.partition(":")
            paragraph[field] = value.strip()
    if paragraph:
        yield paragraph


def package_names(relation: str) -> tuple[str, ...]:
    """The names in a relation field: 'a (>= 1) | b:any [amd64], c' gives a, b, c; alternatives all count."""
    bare = (re.sub(r"[(\[<].*", "", part).split(":")[0].strip() for part in re.split(r"[,|]", relation))
    return tuple(name for name in bare if name)


def relate(packages: Mapping[str, Package], fields: Iterable[str]) -> related.Relations:
    """Which packages name which, after the relations that no person chose are dropped."""
    providers = defaultdict(set)
    for package in packages.values():
        for virtual in package.provides:
            providers[virtual].add(package.name)
    targets: dict[str, set[str]] = {name: set() for name in packages}
    for package in packages.values():
        for field in fields:
            for wanted in package.relations.get(field, ()):
                other = _resolve(wanted, packages, providers)
                if other is None or other.source == package.source:
                    continue  # siblings of one source name each other as a matter of course
                if field == "Depends" and other.is_shared_library:
                    continue  # found by the linker, not chosen by a person
                targets[package.name].add(other.name)
                if field == "Enhances":  # a Suggests seen from the other end
                    targets[other.name].add(package.name)
    kept = related.without_heads(targets, MAX_LABEL_SHARE)
    titles = {name: package.title for name, package in packages.items()}
    return related.Relations(
        targets={name: others for name, others in kept.items() if not packages[name].is_placeholder},
        point_titles=titles,
        label_titles=titles,
        group={name: package.source for name, package in packages.items()},
    )


def read_index(path: Path) -> dict[str, Package]:
    """All packages of an index but debug symbols."""
    with _open_text(path) as file:
        listed = (Package.from_paragraph(paragraph) for paragraph in paragraphs(file))
        return {package.name: package for package in listed if not package.is_debug}


def manifest(name: str, fields: Iterable[str]) -> Manifest:
    """The facts about a dataset built here; `related.write` adds sizes and digests."""
    relations = ", ".join(fields)
    return Manifest(
        name=name,
        title=f"Debian packages that belong together ({relations})",
        task=f"package -> packages that it names under {relations}",
        source="Debian 13 (trixie), index of main/binary-amd64, built by xcbench.data.builders.debian",
        licence="Free under the Debian Free Software Guidelines; see NOTICE.txt",
        citation="The Debian Project. Debian 13 (trixie), package index of the main archive. https://www.debian.org/",
        propensity=Propensity(),
        filter_rule=related.FILTER_RULE,
        split_rule="70/30 by sha1 of the source package, seed 7; each label keeps at least 2 training points",
        text={"tokenizer": "words", "min_count": 2},
    )


def _resolve(name: str, packages: Mapping[str, Package], providers: Mapping[str, set[str]]) -> Package | None:
    """A package by its name; a virtual name with exactly one provider stands for that provider."""
    if name not in packages and len(providers.get(name, ())) == 1:
        (name,) = providers[name]
    return packages.get(name)


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a dataset from a Debian package index.")
    parser.add_argument("out", type=Path, help="the folder to write; its name becomes the dataset's")
    parser.add_argument("--index", type=Path, required=True, help="Packages, Packages.gz or Packages.xz")
    parser.add_argument(
        "--fields", default=",".join(FIELDS), help="relation fields, with commas (default: %(default)s)"
    )
    arguments = parser.parse_args()
    fields = tuple(arguments.fields.split(","))
    if unknown := set(fields) - set(FIELDS):
        parser.error(f"unknown field {', '.join(sorted(unknown))}; known: {', '.join(FIELDS)}")
    relations = relate(read_index(arguments.index), fields)
    print(related.write(arguments.out, relations, manifest(arguments.out.name, fields), {"NOTICE.txt": NOTICE}).sizes)


if __name__ == "__main__":
    main()
