"""The builders of the embedded datasets, on inputs small enough to work out by hand."""

import gzip
import io
import json
import lzma
import sys
import tarfile

import pytest

from xcbench.data.builders import debian, related, wordnet
from xcbench.data.manifest import Manifest
from xcbench.errors import DataError

INDEX = """\
Package: editor
Source: editor-src (1.0)
Section: editors
Depends: libc6 (>= 2.36), speller (>= 2) | other-speller:any [amd64], python3
Recommends: editor-doc, dictionary
Description: edits
 text

Package: editor-doc
Source: editor-src
Description: manual of editor

Package: libc6
Section: libs
Description: C library

Package: speller
Section: text
Provides: spell-api
Enhances: mailer
Description: checks spelling

Package: dictionary
Description: words

Package: mailer
Suggests: spell-api, no-such-package, mailer
Description: reads mail

Package: old-mailer
Suggests: speller
Description: transitional package

Package: mailer-dbgsym
Section: debug
Description: symbols
"""


def index():
    return {p.name: p for p in map(debian.Package.from_paragraph, debian.paragraphs(INDEX.splitlines(keepends=True)))}


def test_a_debian_paragraph_joins_its_continuation_lines():
    package = index()["editor"]
    assert package.title == "editor: edits text"
    assert package.source == "editor-src"
    assert package.relations["Depends"] == ("libc6", "speller", "other-speller", "python3")


def test_package_names_lose_versions_and_architectures():
    assert debian.package_names("a (>= 1) | b:any [amd64], c <!nocheck>, ") == ("a", "b", "c")
    assert debian.package_names("") == ()


def test_debian_relations_are_those_that_a_person_chose(monkeypatch):
    monkeypatch.setattr(debian, "MAX_LABEL_SHARE", 1)
    relations = debian.relate(index(), debian.FIELDS)
    assert relations.targets == {
        # libc6 is a shared library, editor-doc a sibling, other-speller and python3 do not exist
        "editor": {"speller", "dictionary"},
        # 'Enhances' goes both ways, and spell-api has one provider; old-mailer is a placeholder and no point
        "speller": {"mailer"},
        "mailer": {"speller"},
    }
    assert relations.group["editor"] == relations.group["editor-doc"] == "editor-src"
    assert debian.relate(index(), ["Recommends"]).targets == {"editor": {"dictionary"}}


@pytest.mark.parametrize(("name", "opened"), [("Packages", open), ("P.gz", gzip.open), ("P.xz", lzma.open)])
def test_an_index_is_read_packed_or_plain(tmp_path, name, opened):
    with opened(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write(INDEX)
    packages = debian.read_index(tmp_path / name)
    assert len(packages) == 7
    assert "mailer-dbgsym" not in packages


DOG = (
    "02086723 05 n 02 dog 0 Canis_familiaris 0 003 @ 02085998 n 0000 %p 02161170 n 0000 + 01234567 a 0101"
    ' | a member of the genus Canis; of many breeds; "the dog barked all night"'
)
CANINE = "02085998 05 n 01 canine 0 001 ~ 02086723 n 0000 | any of various fissiped mammals"
DOGGED = "01234567 00 s 01 dogged(a) 0 001 ! 99999999 a 0101 | stubborn"


def test_a_wordnet_line_is_taken_apart():
    dog = wordnet.Synset.from_line(DOG)
    assert dog.key == "n02086723"
    assert dog.lemmas == ("dog", "Canis familiaris")
    assert dog.definition == "a member of the genus Canis; of many breeds"
    assert dog.pointers == (("@", "n02085998"), ("%p", "n02161170"), ("+", "a01234567"))
    assert dog.label_title == "dog, Canis familiaris"
    assert dog.point_title == "dog, Canis familiaris: a member of the genus Canis; of many breeds"
    dogged = wordnet.Synset.from_line(DOGGED)
    assert (dogged.key, dogged.lemmas) == ("a01234567", ("dogged",))  # a satellite is filed as an adjective


def test_long_definitions_are_cut():
    synset = wordnet.Synset.from_line("00000001 05 n 01 x 0 000 | " + " ".join(map(str, range(30))))
    assert synset.point_title == "x: 0 1 2 3 4 5 6 7 8 9 10 11"


def test_wordnet_relations_go_up_and_across_but_not_down(tmp_path, monkeypatch):
    monkeypatch.setattr(wordnet, "MAX_LABEL_SHARE", 1)
    licence_line = "  1 This software and database is being provided to you\n"
    with tarfile.open(tmp_path / "w.tgz", "w:gz") as package:
        for name, content in {
            "package/LICENSE": "the licence",
            "package/dict/data.noun": f"{licence_line}{DOG}\n{CANINE}\n",
            "package/dict/data.adj": f"{DOGGED}\n",
            "package/dict/index.noun": "not read",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            package.addfile(info, io.BytesIO(content.encode()))
    known, licence = wordnet.read_package(tmp_path / "w.tgz")
    assert licence == "the licence"
    assert wordnet.relate(known).targets == {"n02086723": {"n02085998", "a01234567"}}


def test_a_package_without_wordnet_is_refused(tmp_path):
    with tarfile.open(tmp_path / "w.tgz", "w:gz"):
        pass
    with pytest.raises(DataError, match="expected WordNet's data files"):
        wordnet.read_package(tmp_path / "w.tgz")


def test_labels_of_too_many_points_are_dropped():
    targets = {"a": {"x", "y"}, "b": {"x"}, "c": {"x", "z"}, "d": set()}
    assert related.without_heads(targets, 0.5) == {"a": {"y"}, "c": {"z"}}
    assert related.without_heads(targets, 1) == {"a": {"x", "y"}, "b": {"x"}, "c": {"x", "z"}}


def many_relations(count=200):
    """Point i is related to five hubs; hub 0 is related back to point p1, which makes mirrored pairs."""
    targets = {f"p{i}": {f"h{i % 5}", f"h{(i + 1) % 5}"} for i in range(count)} | {"h0": {"p1", "h1"}, "lone": {"rare"}}
    titles = {name: f"title of {name}" for name in [*targets, "rare", *(f"h{i}" for i in range(5))]}
    titles["p7"] = "..."
    titles["p8"] = "TITLE of h3!"
    return related.Relations(targets, titles, titles, group={f"p{i}": f"g{i // 2}" for i in range(count)})


def test_a_split_keeps_groups_together_and_labels_learnable():
    relations = many_relations()
    done = related.split(relations)
    sides = {relations.group.get(p, p) for p in done.train}, {relations.group.get(p, p) for p in done.test}
    assert not sides[0] & sides[1]
    assert 0.15 < len(done.test) / (len(done.test) + len(done.train)) < 0.45
    assert list(done.label_id) == ["h0", "h1", "h2", "h3", "h4"]  # 'rare' and 'p1' have one training point at most
    assert "p7" not in done.train.keys() | done.test.keys()  # a title without a word is no point
    assert done == related.split(relations)
    with pytest.raises(DataError, match="nothing is left"):
        related.split(related.Relations({"a": {"b"}}, {"a": "a", "b": "b"}, {"a": "a", "b": "b"}))


def written_rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_what_is_written_is_the_raw_form_with_its_filters(tmp_path, monkeypatch):
    # Even-numbered points, and so the mirrored pair below, go to the test side.
    monkeypatch.setattr(related, "_uniform", lambda key, seed: 0.1 if key.endswith(("0", "2")) else 0.9)
    names = ["a1", "b1", "c1", "d2", "e2"]
    targets = {"a1": {"d2", "e2"}, "b1": {"d2", "a1"}, "c1": {"a1", "e2"}, "d2": {"a1"}, "e2": {"d2"}}
    titles = {name: f"thing {name}" for name in names}
    point_titles = titles | {"e2": "Thing A1"}
    relations = related.Relations(targets, point_titles, titles)
    manifest = related.write(tmp_path / "things", relations, Manifest("things"), {"NOTICE.txt": "thanks"})
    folder = tmp_path / "things"
    assert written_rows(folder / "lbl.json.gz") == [{"uid": n, "title": titles[n]} for n in ("a1", "d2", "e2")]
    assert written_rows(folder / "trn.json.gz")[1] == {"uid": "b1", "title": "thing b1", "target_ind": [0, 1]}
    assert [row["uid"] for row in written_rows(folder / "tst.json.gz")] == ["d2", "e2"]
    assert (folder / "filter_labels_train.txt").read_text() == "0 0\n"  # a1 is itself label 0
    # d2 is label 1, and a1 -> d2 mirrors d2 -> a1; e2 is label 2 and has the very text of label 0
    assert (folder / "filter_labels_test.txt").read_text() == "0 0\n0 1\n1 0\n1 2\n"
    assert (folder / "NOTICE.txt").read_text() == "thanks"
    assert Manifest.from_dict(json.loads((folder / "manifest.json").read_text())) == manifest
    assert (manifest.sizes.train, manifest.sizes.test, manifest.sizes.labels) == (3, 2, 3)
    assert set(manifest.files) == {p.name for p in folder.iterdir()} - {"manifest.json"}


def test_the_command_builds_a_folder(tmp_path, monkeypatch, capsys):
    packages = (f"Package: p{i}\nSuggests: hub-{i % 60}\nDescription: number {i}\n" for i in range(600))
    hubs = (f"Package: hub-{i}\nDescription: hub\n" for i in range(60))
    (tmp_path / "Packages").write_text("\n".join([*packages, *hubs]))
    out = tmp_path / "my-set"
    monkeypatch.setattr(
        sys, "argv", ["debian", str(out), "--index", str(tmp_path / "Packages"), "--fields", "Suggests"]
    )
    debian.main()
    assert "labels=60" in capsys.readouterr().out
    manifest = Manifest.from_dict(json.loads((out / "manifest.json").read_text()))
    assert manifest.name == "my-set"
    assert "Suggests" in manifest.task
    monkeypatch.setattr(sys, "argv", ["debian", str(out), "--index", "x", "--fields", "Sugests"])
    with pytest.raises(SystemExit) as stopped:
        debian.main()
    assert stopped.value.code == 2
