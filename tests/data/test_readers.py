"""Every form, written by hand, reads as the same small dataset; what contradicts itself is refused."""

import gzip
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data.assemble import assemble
from xcbench.data.quality import dataset_notes
from xcbench.data.readers import archive, read_raw
from xcbench.errors import DataError

# Three training points, two test points, three labels, four features; rows of length 1 from the start.
X_TRAIN = [[0, 0.6, 0, 0.8], [1, 0, 0, 0], [0, 0, 0, 0]]
Y_TRAIN = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
X_TEST = [[0, 0, -1, 0], [0.8, 0, 0.6, 0]]
Y_TEST = [[0, 0, 1], [1, 0, 0]]
Z = [[0, 1, 0, 0], [0, 0, 0, 0], [0.6, 0, 0, 0.8]]
TITLES = {"train": ["red apple", "grüner Baum", ""], "test": ["apple", "tree"], "labels": ["fruit", "wood", "red"]}

SPLIT = {
    "trn_X_Xf.txt": "3 4\n1:0.6 3:0.8\n0:1\n\n",
    "trn_X_Y.txt": "3 3\n0:1 2:1\n\n1:1\n",
    "tst_X_Xf.txt": "2 4\n2:-1\n0:0.8 2:0.6\n",
    "tst_X_Y.txt": "2 3\n2:1\n0:1\n",
    "lbl_X_Xf.txt": "3 4\n1:1\n\n0:0.6 3:0.8\n",
}
COMBINED = {
    "train.txt": "3 4 3\n0,2 1:0.6 3:0.8\n 0:1\n1\n",
    "test.txt": "2 4 3\n2 2:-1\n0 0:0.8 2:0.6\n",
    "Yf.txt": SPLIT["lbl_X_Xf.txt"],
}
LINES = {
    "trn_X.txt": "red apple\ngrüner Baum\n\n",
    "tst_X.txt": "apple\ntree\n",
    "Y.txt": "fruit\nwood\nred\n",
}
JSON = {
    "trn.json": '{"title": "red apple", "target_ind": [0, 2]}\n{"title": "gr\\u00fcner Baum", "target_ind": []}\n'
    '{"uid": 7, "title": "", "target_ind": [1], "target_rel": [1.0]}\n',
    "tst.json": '{"title": "apple", "target_ind": [2]}\n{"title": "tree", "target_ind": [0]}\n',
    "lbl.json": '{"title": "fruit"}\n{"title": "wood", "content": "brown"}\n{"title": "red"}\n',
}
CSV = {
    "train.csv": "id,title,labels\n1,red apple,fruit;red\n2,grüner Baum,\n3,,wood\n",
    "test.csv": 'title,labels\n"apple",red\r\ntree,fruit\n',
    "labels.csv": "label,title\nfruit,\nwood,wood\nred,red\n",
}


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def npz_files(folder, names):
    folder.mkdir(exist_ok=True)
    for name, matrix in zip(names, (X_TRAIN, Y_TRAIN, X_TEST, Y_TEST, Z), strict=True):
        sp.save_npz(folder / name, sp.csr_array(np.array(matrix, np.float64)))
    return folder


def without_header(files):
    return {name: content.split("\n", 1)[1] for name, content in files.items()}


def assert_features(raw):
    for part, expected in ((raw.train.X, X_TRAIN), (raw.test.X, X_TEST), (raw.Z, Z)):
        assert part.matrix.dtype == np.float32
        assert part.matrix.toarray() == pytest.approx(np.array(expected, np.float32), abs=0)


def assert_targets(raw):
    assert raw.train.Y.matrix.toarray().tolist() == Y_TRAIN
    assert raw.test.Y.matrix.toarray().tolist() == Y_TEST


def assert_titles(raw):
    found = {"train": raw.train.titles, "test": raw.test.titles, "labels": raw.label_titles}
    assert {name: list(titles.column) for name, titles in found.items()} == TITLES


@pytest.mark.parametrize(
    "files",
    [
        SPLIT,
        COMBINED,
        without_header(SPLIT),
        {name.replace("lbl_X_Xf", "Yf"): content for name, content in SPLIT.items()},
        {name.replace("tra", "eurlex_tra").replace("tes", "eurlex_tes"): text for name, text in COMBINED.items()},
        {name: content.replace("\n", "\r\n") for name, content in COMBINED.items()},
    ],
    ids=["split", "combined", "headless", "Yf", "named", "crlf"],
)
def test_sparse_text_forms(tmp_path, files):
    raw = read_raw(write(tmp_path / "data", files))
    assert_features(raw)
    assert_targets(raw)
    assert set(raw.files) == set(files)


@pytest.mark.parametrize(
    "names",
    [
        ["trn_X_Xf.npz", "trn_X_Y.npz", "tst_X_Xf.npz", "tst_X_Y.npz", "lbl_X_Xf.npz"],
        ["X.trn.npz", "Y.trn.npz", "X.tst.npz", "Y.tst.npz", "Z.npz"],
    ],
)
def test_scipy_forms(tmp_path, names):
    raw = read_raw(npz_files(tmp_path / "data", names))
    assert_features(raw)
    assert_targets(raw)


@pytest.mark.parametrize("base", [0, 1])
def test_svmlight_counts_from_one_unless_a_zero_occurs(tmp_path, base):
    def shifted(content):
        lines = content.replace(" 0:1\n", "0:1\n").split("\n")[1:]
        words = [
            [w if ":" not in w else f"{int(w.split(':')[0]) + base}:{w.split(':')[1]}" for w in line.split()]
            for line in lines
        ]
        return "\n".join(" ".join(line) for line in words)

    files = {f"{side}.svm": shifted(COMBINED[f"{side}.txt"]) for side in ("train", "test")}
    raw = read_raw(write(tmp_path / "data", files))
    assert raw.train.X.matrix.toarray() == pytest.approx(np.array(X_TRAIN, np.float32), abs=0)
    assert raw.test.X.matrix.toarray() == pytest.approx(np.array(X_TEST, np.float32), abs=0)
    assert_targets(raw)
    assert f"counted from {base} since" in raw.findings.notes[0]


def test_svmlight_beside_files_that_count_from_zero_counts_from_zero(tmp_path):
    headed = {"train.txt": COMBINED["train.txt"], "test.txt": "2 2:-1\n"}
    raw = read_raw(write(tmp_path / "header", headed))
    assert raw.test.X.matrix.toarray().tolist() == [[0, 0, -1, 0]]
    labels = {"train.svm": "1 1:1\n", "test.svm": "0 3:1\n", "Yf.txt": "2 4\n1:1\n3:1\n"}
    raw = read_raw(write(tmp_path / "labels", labels))
    assert raw.test.X.matrix.toarray().tolist() == [[0, 0, 0, 1]]


def test_json_form_plain_and_gzipped(tmp_path):
    raw = read_raw(write(tmp_path / "plain", JSON))
    assert_titles(raw)
    assert_targets(raw)
    packed = {f"{name}.gz": gzip.compress(text.encode()) for name, text in JSON.items()}
    raw = read_raw(write(tmp_path / "packed", packed))
    assert_titles(raw)
    assert_targets(raw)


def test_titles_beside_targets(tmp_path):
    targets = {name: SPLIT[name] for name in ("trn_X_Y.txt", "tst_X_Y.txt")}
    raw = read_raw(write(tmp_path / "data", LINES | targets))
    assert_titles(raw)
    assert_targets(raw)
    assert raw.train.X is None


def test_titles_beside_features(tmp_path):
    raw = read_raw(write(tmp_path / "data", JSON | SPLIT))
    assert_titles(raw)
    assert_features(raw)
    assert_targets(raw)
    assert assemble(raw, "mixed").encoder is None
    assert assemble(raw, "mixed", from_text=True).encoder is not None


def test_csv_form(tmp_path):
    raw = read_raw(write(tmp_path / "data", CSV))
    assert_titles(raw)
    assert_targets(raw)


def test_csv_without_a_label_table_numbers_labels_as_they_come(tmp_path):
    files = {"train.csv": "title,labels\na,x| y \nb,y\n", "test.csv": "title,labels\nc,y|new\n"}
    raw = read_raw(write(tmp_path / "data", files), label_separator="|")
    assert list(raw.label_titles.column) == ["x", "y", "new"]
    assert raw.train.Y.matrix.toarray().tolist() == [[1, 1, 0], [0, 1, 0]]
    assert raw.test.Y.matrix.toarray().tolist() == [[0, 1, 1]]
    assert "labels without training points: 1, of which 1 occur in test" in dataset_notes(assemble(raw, "csv"))


def test_csv_says_when_the_separator_never_occurs(tmp_path):
    files = {"train.csv": "title,labels\na,x|y\n", "test.csv": "title,labels\nc,x|y\n"}
    assert any("--label-separator" in note for note in read_raw(write(tmp_path / "data", files)).findings.notes)


def test_relevance_and_content(tmp_path):
    files = JSON | {"trn.json": '{"title": "a", "content": "b c", "target_ind": [0, 2], "target_rel": [0.5, 2]}\n'}
    folder = write(tmp_path / "data", files)
    raw = read_raw(folder)
    assert raw.train.Y.matrix.toarray().tolist() == [[0.5, 0, 2]]
    assert list(raw.train.titles.column) == ["a"]
    assert [note.split(" have")[0] for note in raw.findings.notes] == ["lbl.json: 1 labels", "trn.json: 1 points"]
    assert all("--content" in note for note in raw.findings.notes)
    raw = read_raw(folder, with_content=True)
    assert list(raw.train.titles.column) == ["a b c"]
    assert list(raw.label_titles.column) == ["fruit", "wood brown", "red"]
    assert not raw.findings.notes


@pytest.mark.parametrize(
    "names",
    [("filter_labels_train.txt", "filter_labels_test.txt"), ("trn_filter_labels.txt", "tst_filter_labels.txt")],
)
def test_filters_under_both_names(tmp_path, names):
    raw = read_raw(write(tmp_path / "data", SPLIT | {names[0]: "2 1\n0 2\n0 2\n", names[1]: ""}))
    assert raw.train.filter.tolist() == [[0, 2], [2, 1]]
    assert raw.test.filter.shape == (0, 2)
    assert raw.findings.repaired == [f"{names[0]}: 1 pairs were repeated: dropped"]


def test_what_is_there_twice_is_read_once_and_said(tmp_path):
    doubles = {"Yf.txt": "nonsense", "train.txt": "nonsense", "train.csv": "nonsense"}
    raw = read_raw(write(tmp_path / "data", SPLIT | doubles))
    assert_features(raw)
    assert raw.findings.notes == ["not read, since other files say the same: Yf.txt, train.csv, train.txt"]


def test_text_becomes_features_of_unit_length(tmp_path):
    dataset = assemble(read_raw(write(tmp_path / "data", JSON)), "text")
    assert dataset.encoder.feature_count == dataset.feature_count
    assert dataset.Z.shape == (3, dataset.feature_count)
    assert sp.linalg.norm(dataset.train.X, axis=1) == pytest.approx([1, 1, 0])
    again = dataset.encoder.encode(["red apple"])
    assert (again.toarray() == dataset.train.X[[0]].toarray()).all()


def test_given_features_get_unit_length(tmp_path):
    files = SPLIT | {"trn_X_Xf.txt": "3 4\n1:3 3:4\n0:7e30\n\n", "lbl_X_Xf.txt": "3 4\n1:9\n\n0:1e-30 3:0\n"}
    dataset = assemble(read_raw(write(tmp_path / "data", files)), "features")
    assert dataset.train.X.toarray() == pytest.approx(np.array([[0, 0.6, 0, 0.8], [1, 0, 0, 0], [0, 0, 0, 0]]))
    assert dataset.Z.toarray() == pytest.approx(np.array([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]))


def test_repairs_are_made_and_said(tmp_path):
    files = SPLIT | {
        "trn_X_Xf.txt": "3 4\n3:0.8 1:0.6\n0:1 2:0\n\n",
        "trn_X_Y.txt": "3 3\n0:1 2:0.25 2:1 2:0.5\n\n1:1\n",
        "tst_X_Y.txt": "2 2\n\n0:1\n",
    }
    raw = read_raw(write(tmp_path / "data", files))
    assert_features(raw)
    assert raw.train.Y.matrix.toarray().tolist() == Y_TRAIN
    assert raw.test.Y.matrix.shape == (2, 3)
    assert raw.findings.repaired == [
        "trn_X_Y.txt: 2 ids were repeated within their row: the largest value kept",
        "trn_X_Xf.txt: 1 rows had unsorted ids: sorted",
        "trn_X_Xf.txt: 1 explicit zeros: dropped",
        "tst_X_Y.txt declares 2 labels, other files 3: 3 taken",
    ]


def test_repeated_features_add_up(tmp_path):
    raw = read_raw(write(tmp_path / "data", SPLIT | {"tst_X_Xf.txt": "2 4\n2:-1\n2:0.5 0:0.8 2:0.125\n"}))
    assert raw.test.X.matrix.toarray().tolist() == [[0, 0, -1, 0], [np.float32(0.8), 0, 0.625, 0]]


def test_observations(tmp_path):
    dataset = assemble(read_raw(write(tmp_path / "data", SPLIT)), "toy")
    assert dataset_notes(dataset) == [
        "training points without labels: 1",
        "training points without features: 1",
        "labels without text: 1",
    ]


def test_manifest_is_read_and_held_to(tmp_path):
    folder = write(tmp_path / "data", JSON)
    files = read_raw(folder).files
    manifest = {"name": "toy", "propensity": {"A": 0.6, "B": 2.6}, "files": files, "text": {"stop_words": "english"}}
    manifest["sizes"] = {"train": 3, "test": 2, "labels": 3}
    write(folder, {"manifest.json": json.dumps(manifest)})
    dataset = assemble(read_raw(folder), "mine")
    assert (dataset.propensity.A, dataset.manifest.name) == (0.6, "mine")
    assert dataset.encoder.options.stop_words == "english"
    write(folder, {"manifest.json": json.dumps(manifest | {"sizes": {"train": 4, "test": 2, "labels": 3}})})
    with pytest.raises(DataError, match="declares 4 for 'train', the files hold 3"):
        assemble(read_raw(folder), "mine")
    write(folder, {"manifest.json": json.dumps(manifest), "tst.json": JSON["tst.json"] + "\n"})
    with pytest.raises(DataError, match="sha256 differs"):
        read_raw(folder)
    write(folder, {"manifest.json": json.dumps(manifest | {"licence": "x", "propensty": {}})})
    with pytest.raises(DataError, match="propensity"):
        read_raw(folder)


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


def test_zip_with_a_folder_inside(tmp_path):
    files = {f"Toy/bow/{name}": content for name, content in SPLIT.items()}
    raw = read_raw(zipped(tmp_path / "toy.zip", files | {"__MACOSX/Toy/._train.txt": "x", "Toy/readme.md": "x"}))
    assert_features(raw)
    assert_targets(raw)


def test_errors_within_a_zip_name_the_zip(tmp_path):
    path = zipped(tmp_path / "toy.zip", SPLIT | {"trn_X_Y.txt": "x"})
    with pytest.raises(DataError) as caught:
        read_raw(path)
    assert str(caught.value).startswith(f"{path}/trn_X_Y.txt, line 1: ")


@pytest.mark.parametrize("name", ["../trn_X_Y.txt", "/tmp/trn_X_Y.txt", "a/../../trn_X_Y.txt", "..\\trn_X_Y.txt"])
def test_zip_that_climbs_out_is_refused(tmp_path, name):
    with pytest.raises(DataError, match="climbs out"):
        read_raw(zipped(tmp_path / "toy.zip", SPLIT | {name: "x"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.zip"]


def test_zip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MIN_UNPACKED_LIMIT", 1000)
    with pytest.raises(DataError, match="unpacking it passed"):
        read_raw(zipped(tmp_path / "toy.zip", SPLIT | {"train.txt": "0" * 10_000_000}))


def test_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MIN_UNPACKED_LIMIT", 1000)
    bomb = gzip.compress(b'{"title": "' + b"a" * 10_000_000 + b'"}')
    with pytest.raises(DataError, match="unpacks to more"):
        read_raw(write(tmp_path / "data", {"trn.json.gz": bomb}))


def test_npz_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MIN_UNPACKED_LIMIT", 1000)
    folder = npz_files(tmp_path / "data", ["X.trn.npz", "Y.trn.npz", "X.tst.npz", "Y.tst.npz", "Z.npz"])
    sp.save_npz(folder / "Z.npz", sp.csr_array((1_000_000, 4)))
    with pytest.raises(DataError, match="unpacks to more"):
        read_raw(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trn_X_Y.txt": "2 3\n0:1\n1:1\n"}, "trn_X_Xf.txt: holds 3 points, but trn_X_Y.txt holds 2"),
        ({"lbl_X_Xf.txt": "2 4\n1:1\n\n"}, "lbl_X_Xf.txt: describes 2 labels, but trn_X_Y.txt has 3"),
        ({"lbl_X_Xf.txt": "4 4\n1:1\n\n\n\n"}, "lbl_X_Xf.txt: describes 4 labels, but trn_X_Y.txt has 3"),
        ({"Y.txt": "a\nb\n"}, "Y.txt: describes 2 labels, but trn_X_Y.txt has 3"),
        ({"trn_X.txt": "a\nb\n"}, "trn_X.txt: holds 2 points, but trn_X_Y.txt holds 3"),
        ({"trn_X.txt": b"a\nb\xe9\nc\n"}, "trn_X.txt, line 2: expected UTF-8"),
        ({"trn_X_Y.txt": "3 3\n0:1 2:-1\n\n1:1\n"}, "negative"),
        ({"trn_X_Y.txt": "3 2000000000\n0:1\n\n1:1\n", "lbl_X_Xf.txt": None}, "2,000,000,000 labels, but only"),
        ({"trn_X_Y.txt": "0:1\n\n2000000000:1\n", "lbl_X_Xf.txt": None}, "2,000,000,001 labels, but only"),
        ({"trn_X_Y.txt": "3 0\n\n\n\n", "tst_X_Y.txt": "2 0\n\n\n", "lbl_X_Xf.txt": None}, "holds no labels"),
        ({"trn_X_Y.txt": "0 3\n", "trn_X_Xf.txt": "0 4\n"}, "holds no points"),
        ({"filter_labels_test.txt": "0 0\n2 0\n"}, "filter_labels_test.txt, line 2: expected a pair within 2 points"),
        ({"tst_X_Y.txt": None}, "holds no targets of test points; expected one of tst_X_Y.txt, test.txt"),
        ({"tst_X_Xf.txt": None}, "holds neither features nor titles of test points"),
        ({"trn_X_Xf.txt": None, "trn_X.txt": "a\nb\nc\n"}, "features and titles must be there for both"),
        ({"tst_X_Y.txt": ""}, "tst_X_Y.txt: the file is empty"),
    ],
)
def test_contradictions_are_refused(tmp_path, changes, message):
    files = {name: content for name, content in (SPLIT | changes).items() if content is not None}
    with pytest.raises(DataError) as caught:
        assemble(read_raw(write(tmp_path / "data", files)), "toy")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[1, 2]", "expected one JSON object a line, got list"),
        (b"{", "expected one JSON object a line"),
        (b"[" * 100_000, "expected one JSON object a line"),
        (b'{"title": 3}', "expected a text as 'title', got int"),
        (b'{"target_ind": 3}', "list of whole numbers as 'target_ind'"),
        (b'{"target_ind": [true]}', "list of whole numbers as 'target_ind'"),
        (b'{"target_ind": [1.0]}', "list of whole numbers as 'target_ind'"),
        (b'{"target_ind": [3]}', "label ids from 0 to 2"),
        (b'{"target_ind": [-1]}', "label ids from 0 to 2"),
        (b'{"target_ind": [1e400]}', "list of whole numbers"),
        (b'{"target_ind": [' + b"9" * 5000 + b"]}", "expected"),
        (b'{"target_ind": [1], "target_rel": [NaN]}', "finite numbers in 'target_rel'"),
        (b'{"target_ind": [1], "target_rel": [1e39]}', "finite numbers in 'target_rel'"),
        (b'{"target_ind": [1], "target_rel": [1, 2]}', "list of 1 numbers as 'target_rel'"),
        (b'{"title": "\xff"}', "expected UTF-8"),
    ],
)
def test_bad_json_is_one_clear_line(tmp_path, line, message):
    files = JSON | {"trn.json": b'{"title": "fine", "target_ind": [0]}\n' + line + b"\n"}
    with pytest.raises(DataError) as caught:
        read_raw(write(tmp_path / "data", files))
    assert message in str(caught.value)
    assert caught.value.line == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        ({"train.csv": "name,labels\na,x\n"}, None, "train.csv: has no column 'title'; found name, labels"),
        ({"train.csv": "title,labels,Title,title\na,x,b,c\n"}, 1, "several columns 'title'"),
        ({"train.csv": "title,labels\na,fruit\nb\n"}, 3, "expected 2 fields as in the header, got 1"),
        ({"train.csv": 'title,labels\na,fruit\nb,"wood\nc,red\nd,red\n'}, 3, "every quoted field closed"),
        ({"train.csv": 'title,labels\n"a\nb",stone\n'}, 2, "label 'stone' is not in labels.csv"),
        ({"train.csv": "title,labels\n"}, None, "holds no points"),
        ({"train.csv": "title,labels\na,stone\n"}, 2, "label 'stone' is not in labels.csv"),
        ({"labels.csv": "label,title\na,\na,\n"}, 3, "listed twice"),
        ({"train.csv": b"title,labels\na,fruit\n\xe9,fruit\n"}, 3, "expected UTF-8"),
    ],
)
def test_bad_csv_is_one_clear_line(tmp_path, changes, line, message):
    with pytest.raises(DataError) as caught:
        read_raw(write(tmp_path / "data", CSV | changes))
    assert message in str(caught.value)
    assert caught.value.line == line


def test_truncated_gzip(tmp_path):
    whole = gzip.compress(JSON["trn.json"].encode())
    with pytest.raises(DataError, match="the gzip file is damaged"):
        read_raw(write(tmp_path / "data", {"trn.json.gz": whole[:-12]}))


def test_paths_that_hold_nothing(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        read_raw(tmp_path / "missing")
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(DataError, match="expected a folder or a zip file"):
        read_raw(tmp_path / "file.txt")
    with pytest.raises(DataError, match="no dataset in any known form"):
        read_raw(tmp_path)
    write(tmp_path / "a", SPLIT)
    write(tmp_path / "b", SPLIT)
    with pytest.raises(DataError, match=r"several datasets \(a, b\)"):
        read_raw(tmp_path)
