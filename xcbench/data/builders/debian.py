"""Debian's package index as a dataset: which other packages belong with this one?

A point is a package's name and short description. Its labels are the packages that it names in the chosen relation
fields. A label's text is that package's own title. The index is the file `Packages` (plain, .gz or .xz) of a release's
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
    """The fields of one package that are used here."""

    name: str
    source: str
    section: str
    title: str
    provides: tuple[str, ...]
    relations: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_paragraph(cls, paragraph: Mapping[str, str]) -> "Package":
        """Make a package of the fields of its paragraph in the index."""
        name = paragraph["Package"]
        source_and_version = paragraph.get("Source", name)
        title = f"{name}: {paragraph.get('Description', '')}"
        return cls(
            name=name,
            source=source_and_version.split(" ")[0],
            section=paragraph.get("Section", ""),
            title=title.strip().rstrip(":"),
            provides=package_names(paragraph.get("Provides", "")),
            relations={field: package_names(paragraph[field]) for field in FIELDS if field in paragraph},
        )

    @property
    def is_debug(self) -> bool:
        """Whether the package holds debug symbols only."""
        return self.name.endswith("-dbgsym") or self.section == "debug"

    @property
    def is_shared_library(self) -> bool:
        """Whether the package is a library that other packages link to."""
        return self.section in ("libs", "oldlibs") and not self.name.endswith("-dev")

    @property
    def is_placeholder(self) -> bool:
        """Whether the package only helps an upgrade, and so says nothing about what belongs with it."""
        title = self.title.lower()
        return "transitional" in title or "dummy package" in title


def paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of a Debian control file, continuation lines joined."""
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
    """Return the names in a relation field: 'a (>= 1) | b:any [amd64], c' gives a, b, c; alternatives all count."""
    names = []
    for part in re.split(r"[,|]", relation):
        without_restrictions = re.sub(r"[(\[<].*", "", part)
        name = without_restrictions.split(":")[0].strip()
        if name:
            names.append(name)
    return tuple(names)


def relate(packages: Mapping[str, Package], fields: Iterable[str]) -> related.Relations:
    """Return which packages name which, without the relations that no person chose.

    Parameters
    ----------
    packages
        All packages by name.
    fields
        The relation fields to use, some of `FIELDS`.
    """
    targets: dict[str, set[str]] = {name: set() for name in packages}
    for field, package, other in _chosen_relations(packages, fields):
        targets[package.name].add(other.name)
        if field == "Enhances":  # the reverse of Suggests
            targets[other.name].add(package.name)

    targets = related.without_heads(targets, MAX_LABEL_SHARE)
    points = [name for name in targets if not packages[name].is_placeholder]
    titles = {name: package.title for name, package in packages.items()}
    return related.Relations(
        targets={name: targets[name] for name in points},
        point_titles=titles,
        label_titles=titles,
        group={name: package.source for name, package in packages.items()},
    )


def _chosen_relations(
    packages: Mapping[str, Package],
    fields: Iterable[str],
) -> Iterator[tuple[str, Package, Package]]:
    """Yield (field, package, other package) for the relations that a person chose."""
    providers = _providers(packages)
    for package in packages.values():
        for field in fields:
            for name in package.relations.get(field, ()):
                other = _resolve(name, packages, providers)
                if other is None or other.source == package.source:
                    continue  # packages of one source name each other as a matter of course
                if field == "Depends" and other.is_shared_library:
                    continue  # found by the linker, not chosen by a person
                yield field, package, other


def read_index(path: Path) -> dict[str, Package]:
    """Return all packages of an index by name, without debug symbols."""
    packages = {}
    with _open_text(path) as file:
        for paragraph in paragraphs(file):
            package = Package.from_paragraph(paragraph)
            if not package.is_debug:
                packages[package.name] = package
    return packages


def manifest(name: str, fields: Iterable[str]) -> Manifest:
    """Return the facts about a dataset built here; `related.write` adds sizes and digests."""
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


def _providers(packages: Mapping[str, Package]) -> dict[str, set[str]]:
    """Return the names of the packages that provide each virtual package."""
    providers = defaultdict(set)
    for package in packages.values():
        for virtual in package.provides:
            providers[virtual].add(package.name)
    return providers


def _resolve(
    name: str,
    packages: Mapping[str, Package],
    providers: Mapping[str, set[str]],
) -> Package | None:
    """Return a package by its name; a virtual name with exactly one provider means that provider."""
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
        "--fields",
        default=",".join(FIELDS),
        help="relation fields, with commas (default: %(default)s)",
    )
    arguments = parser.parse_args()

    fields = tuple(arguments.fields.split(","))
    unknown = set(fields) - set(FIELDS)
    if unknown:
        parser.error(f"unknown field {', '.join(sorted(unknown))}; known: {', '.join(FIELDS)}")

    written = related.write(
        arguments.out,
        relate(read_index(arguments.index), fields),
        manifest(arguments.out.name, fields),
        {"NOTICE.txt": NOTICE},
    )
    print(written.sizes)


if __name__ == "__main__":
    main()
