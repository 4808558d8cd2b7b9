"""Labels of commands: what they are read from, what holds none, and what prunedata apply corrects in them."""

import tracemalloc

import numpy as np
import pytest

from prunedata import Pruner
from prunedata.cli.arguments import read_labels
from prunedata.errors import PrunedataError
from prunedata.findings.verdicts import Verdict, judged_wrong, write_verdicts
from prunedata.keys import hash_keys, key_text
from tests.cli.test_cli_suspects import SAMPLES, watch

# prunedata suspects --labels: what labels are read from, and what is said of a file that holds none.


NAMES = ["cat\x1b[2J", "dog", "a, b", "Zürich"]


@pytest.fixture
def file(tmp_path):
    def write(text, name="labels.csv", encoding="utf-8"):
        (tmp_path / name).write_text(text, encoding=encoding)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    "text",
    [
        "3\n1\n2\n",
        "3\r\n1\r\n2",
        "label\n3\n1\n2\n",
        "id,label\n0,3\n1,1\n2,2\n",
        "label,id\n 3 ,0\n1,1\n2,2\n\n",
        "\ufefflabel,id\n3,0\n1,1\n2,2\n",
    ],
)
def test_numbers_are_integers(file, text):
    found = read_labels(file(text), 3)
    assert found.dtype == np.int64
    assert found.tolist() == [3, 1, 2]


def test_names_are_text(file):
    lines = ["cat", '"a, b"', "Zürich", "7"]
    assert read_labels(file("\n".join(lines), "labels.txt"), 4).tolist() == ["cat", "a, b", "Zürich", "7"]
    table = "".join(f"{number},{line}\n" for number, line in enumerate(lines))
    assert read_labels(file(f"id,class\n{table}"), 4, "class").tolist() == ["cat", "a, b", "Zürich", "7"]


def test_names_and_truths_from_numpy(tmp_path):
    np.save(tmp_path / "names.npy", np.array(["cat", "dog"]))
    assert read_labels(str(tmp_path / "names.npy"), 2).tolist() == ["cat", "dog"]
    np.save(tmp_path / "truths.npy", np.array([True, False]))
    found = read_labels(str(tmp_path / "truths.npy"), 2)
    assert (found.dtype.kind, found.tolist()) == ("u", [1, 0])


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("", None, "Expected 3 labels in .*Got 0"),
        ("1\n2\n", None, "Expected 3 labels in .*Got 2"),
        ("1\n\n2\n", None, "Expected 3 labels in .*Got 2"),
        ("class\n1\n2\n3\n", None, "Expected 3 labels in .*Got 4.*--label-column"),
        ("id,class\n0,1\n1,2\n2,3\n", None, "Expected a column label .*Got id, class: name .* --label-column"),
        ("id,label\n0,1\n1,2\n2,3\n", "kind", "Expected a column kind .*Got id, label"),
        ("id,label\n0,1\n1\n2,3\n", None, "Expected a column label in every row of .*Got none in row 3"),
        ("id;label\n0;1\n1;2\n2;3\n", "label", "Got id;label: .* separated by commas"),
        ("", "kind", "Expected a column kind .*Got nothing"),
        ("books\nCDs, vinyl\nCDs, tapes\n", None, "one label a line .*Got 2 fields .* in row 2: .*double quotes"),
    ],
)
def test_what_is_missing_is_told(file, text, column, told):
    with pytest.raises(PrunedataError, match=told):
        read_labels(file(text), 3, column)


def test_what_is_no_text_is_told(file):
    with pytest.raises(PrunedataError, match="UTF-8"):
        read_labels(file("Zürich\n" * 3, encoding="latin-1"), 3)


def test_several_arrays_are_no_labels(tmp_path):
    np.savez(tmp_path / "labels.npz", a=np.arange(3))
    (tmp_path / "labels.npz").rename(tmp_path / "labels.npy")
    with pytest.raises(PrunedataError, match="Got several arrays"):
        read_labels(str(tmp_path / "labels.npy"), 3)


class TestBounded:
    """A file may say more than it holds, and a small one must not take much memory."""

    @pytest.fixture(autouse=True)
    def measured(self):
        tracemalloc.start()
        yield
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 1 << 27

    @pytest.mark.parametrize("shape", [(10**9,), (10**15,), (1 << 62, 1 << 62), (3, 10**9)], ids=str)
    @pytest.mark.parametrize("kind", ["<i8", "<U4", "|u1"])
    def test_an_array_that_is_not_there(self, tmp_path, shape, kind):
        with open(tmp_path / "labels.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
        with pytest.raises(PrunedataError, match="Expected labels"):
            read_labels(str(tmp_path / "labels.npy"), shape[0])

    @pytest.mark.parametrize(
        "header", [b"{'descr': " + b"(" * 5000, b"\xff" * 50, b"{'descr': '<i8'}", b"__import__('os')"]
    )
    def test_a_header_that_is_none(self, tmp_path, header):
        (tmp_path / "labels.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        with pytest.raises(PrunedataError, match=r"as numpy\.save writes them") as caught:
            read_labels(str(tmp_path / "labels.npy"), 3)
        assert str(caught.value).isprintable()

    def test_objects_are_not_made(self, tmp_path):
        np.save(tmp_path / "labels.npy", np.array([{}, [], ()], dtype=object), allow_pickle=True)
        with pytest.raises(PrunedataError, match="Expected labels"):
            read_labels(str(tmp_path / "labels.npy"), 3)

    def test_one_long_name_does_not_make_all_of_them_long(self, file, tmp_path):
        """50,000 names of 4 bytes each would become 200 kB each, 10 GB."""
        path = file("\n".join(["cat"] * 49_999 + ["x" * 50_000]))
        with pytest.raises(PrunedataError, match=r"at most 256 characters .*Got one of 50,000"):
            read_labels(path, 50_000)
        with open(tmp_path / "labels.npy", "wb") as npy:
            np.lib.format.write_array_header_1_0(npy, {"descr": "<U300000", "fortran_order": False, "shape": (3,)})
            npy.truncate(npy.tell() + 3 * 4 * 300_000)
        with pytest.raises(PrunedataError, match="text of up to 256 characters"):
            read_labels(str(tmp_path / "labels.npy"), 3)

    def test_a_line_without_end(self, file):
        with pytest.raises(PrunedataError, match=r"lines of at most 1,048,576 characters"):
            read_labels(file("," * 3_000_000), 3)

    def test_more_lines_than_samples(self, file):
        with pytest.raises(PrunedataError, match=r"Expected 3 labels .*Got 200000"):
            read_labels(file("1\n" * 200_000), 3)


@pytest.mark.parametrize("form", ["lines", "table"])
def test_suspects_by_the_names_of_their_classes(prints, prints_json, tmp_path, form):
    place = watch(tmp_path / "run.zarr", classes=10)  # every fourth sample is wrong: all cats
    names = [NAMES[number % 4] for number in range(SAMPLES)]
    quoted = [f'"{name}"' for name in names]
    if form == "lines":
        text, option = "\n".join(quoted), ""
    else:
        text = "\n".join(["id,kind", *(f"{number},{name}" for number, name in enumerate(quoted))])
        option = "--label-column kind"
    (tmp_path / "labels.csv").write_text(text, encoding="utf-8")
    command = f"suspects {place} --top 30 --labels {tmp_path / 'labels.csv'} {option}"
    found = prints_json(command)["classes"]
    assert [(one["label"], one["suspects"], one["lift"]) for one in found] == [
        ("cat\x1b[2J", 30, 4.0),
        ("Zürich", 0, 0.0),
        ("a, b", 0, 0.0),
        ("dog", 0, 0.0),
    ]
    out = prints(command)
    lines = out.splitlines()
    shown = lines[lines.index("where they gather") + 1 :]
    assert [line[:9] for line in shown] == ["class    ", "cat\\x1b[2", "Zürich   ", "a, b     ", "dog      "]


# prunedata apply: labels as verdicts correct them, in every form that labels have.


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("labels.npy", np.array([0, 1, 2, 0]))
    (tmp_path / "labels.csv").write_text("id,label\n0,cat\n1,dog\n2,dog\n3,cat\n", encoding="utf-8")
    (tmp_path / "verdicts.csv").write_text("sample,verdict,was,label\n1,wrong,1,2\n3,wrong,0,\n", encoding="utf-8")


def test_labels_are_corrected(prints):
    out = prints("apply verdicts.csv --labels labels.npy -o fixed.npy")
    assert out.splitlines() == [
        "2 judged, 2 wrong: 1 corrected -> fixed.npy",
        "1 wrong with no other class: add --rest FILE, and leave them out by Pruner(without=FILE)",
    ]
    assert np.load("fixed.npy").tolist() == [0, 2, 2, 0]
    assert np.load("labels.npy").tolist() == [0, 1, 2, 0]


def test_the_rest_is_for_a_run_to_leave_out(prints):
    assert "-> rest.csv, and" in prints("apply verdicts.csv --labels labels.npy -o fixed.npy --rest rest.csv")
    assert judged_wrong("rest.csv", 4).tolist() == [3]


def test_verdicts_on_other_splits_find_their_rows(prints, refuses, tmp_path):
    one, other = ["a", "b", "c", "d"], ["d", "x", "b", "c"]
    texts = [key_text(int(key)) for key in hash_keys(one)]
    for rows, place in ((other, "keyed.zarr"), (None, "plain.zarr"), (other[:3], "small.zarr")):
        pruner = Pruner(None if rows else 4, epochs=2, keys=rows, leave_out="nothing", store=tmp_path / place)
        for epoch in pruner.epochs():
            pruner.observe(np.ones(pruner.samples), np.flatnonzero(epoch.keep))
    judged = [Verdict(1, "wrong", "1", "2", key=texts[1]), Verdict(3, "wrong", "0", key=texts[3])]
    write_verdicts([*judged, Verdict(0, "wrong", key=texts[0])], "keyed.csv")
    np.save("other.npy", np.array([0, 0, 1, 2]))
    out = prints("apply keyed.csv --labels other.npy --store keyed.zarr -o fixed.npy --rest rest.csv")
    assert out.splitlines()[0] == "2 judged, 2 wrong: 1 corrected -> fixed.npy"
    assert np.load("fixed.npy").tolist() == [0, 0, 2, 2]
    assert judged_wrong("rest.csv", 4, hash_keys(one)).tolist() == [3]
    for place, got in (("plain.zarr", "Got one without keys"), ("small.zarr", "Got one of 3 samples")):
        assert got in refuses(f"apply keyed.csv --labels other.npy --store {place} -o more.npy")
    err = refuses("apply keyed.csv --labels other.npy -o more.npy")
    assert "Expected --store with keyed.csv, because its verdicts are on rows with keys" in err


@pytest.mark.parametrize("name", ["fixed.csv", "fixed.txt", "fixed.npy"])
def test_names_in_every_form(prints, tmp_path, name):
    (tmp_path / "verdicts.csv").write_text('sample,verdict,was,label\n1,wrong,dog,"a, long name"\n', encoding="utf-8")
    out = prints(f"apply verdicts.csv --labels labels.csv -o {name}")
    assert out == f"1 judged, 1 wrong: 1 corrected -> {name}\n"
    assert read_labels(name, 4).tolist() == ["cat", "a, long name", "dog", "cat"]


@pytest.mark.parametrize("lines", [["class", "cat", "cat", "dog", "dog"], ["class", "0", "0", "1", "1"]])
def test_the_name_of_a_column_is_no_label(prints, refuses, tmp_path, lines):
    (tmp_path / "verdicts.csv").write_text(f"sample,verdict,was,label\n1,wrong,{lines[1]},{lines[3]}\n")
    (tmp_path / "labels.txt").write_text("\n".join(lines))
    told = refuses("apply verdicts.csv --labels labels.txt -o fixed.txt")
    assert "Got 'class' in its first line, and in no other. If it is the name of the column" in told
    prints("apply verdicts.csv --labels labels.txt --label-column class -o fixed.txt")
    assert (tmp_path / "fixed.txt").read_text().split() == [*lines[:2], lines[3], *lines[3:]]
    (tmp_path / "labels.txt").write_text("\n".join(["label", *lines]))
    (tmp_path / "verdicts.csv").write_text("sample,verdict,was,label\n0,wrong,class,owl\n")
    prints("apply verdicts.csv --labels labels.txt -o fixed.txt")
    assert (tmp_path / "fixed.txt").read_text().split() == ["label", "owl", *lines[1:]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cat\n dog\n\ndog\ncat", 'cat\n"a, ""b"""\n\ndog\nowl'),
        ('"cat"\n"dog"\n"dog"\n"cat"\n', '"cat"\n"a, ""b"""\n"dog"\n"owl"\n'),
        (
            'id,"label",note\n0,"cat","a\n""b"""\n1,dog, "x"\n2, dog ,\n3,"cat",1.0 ',
            'id,"label",note\n0,"cat","a\n""b"""\n1,"a, ""b""", "x"\n2, dog ,\n3,"owl",1.0 ',
        ),
        ("label\ncat\ndog\ndog\ncat\n", 'label\ncat\n"a, ""b"""\ndog\nowl\n'),
        ('id,label\n0,cat\n1,dog\n2,dog,\n3,cat,"no, end', 'id,label\n0,cat\n1,"a, ""b"""\n2,dog,\n3,owl,"no, end"'),
    ],
)
def test_all_but_the_corrected_labels_stays_byte_for_byte(prints, tmp_path, before, after, mark, end):
    (tmp_path / "verdicts.csv").write_bytes(
        'sample,verdict,was,label\n1,wrong,dog,"a, ""b"""\n3,wrong,cat,owl\n2,wrong,dog,\n'.replace("\n", end).encode()
    )
    (tmp_path / "labels.csv").write_bytes((mark + before.replace("\n", end)).encode())
    prints("apply verdicts.csv --labels labels.csv -o fixed.csv --rest rest.csv")
    assert (tmp_path / "fixed.csv").read_bytes() == (mark + after.replace("\n", end)).encode()
    assert read_labels("fixed.csv", 4).tolist() == ["cat", 'a, "b"', "dog", "owl"]
    assert (tmp_path / "rest.csv").read_bytes() == f"sample,verdict,was,label{end}2,wrong,dog,{end}".encode()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--labels labels.npy -o fixed.json", "Expected --output to end with .npy, .csv or .txt. Got fixed.json."),
        ("--labels none.npy -o fixed.npy", "none.npy"),
        ("--labels labels.csv -o fixed.npy", "Expected label '1' for sample 1, which was judged. Got 'dog'"),
        ("-o fixed.npy", "--labels"),
        ("--labels labels.npy -o labels.npy", "Got labels.npy, which holds the"),
        ("--labels labels.npy -o ../{here}/labels.npy", "which holds the labels"),
        ("--labels labels.npy -o link.npy", "which holds the labels"),
        ("--labels labels.npy -o verdicts.csv", "which holds the verdicts"),
        ("--labels labels.npy -o fixed.npy --rest verdicts.csv", "Expected --rest"),
        ("--labels labels.npy -o fixed.csv --rest ./fixed.csv", "which holds the corrected labels"),
    ],
)
def test_what_is_refused(refuses, tmp_path, options, told):
    (tmp_path / "link.npy").symlink_to(tmp_path / "labels.npy")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert told in refuses(f"apply verdicts.csv {options}".replace("{here}", tmp_path.name))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert not (tmp_path / "fixed.npy").exists()
