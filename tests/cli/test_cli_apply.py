"""prunedata apply: labels as verdicts correct them, in every form that labels have."""

import numpy as np
import pytest

from prunedata import Pruner
from prunedata.cli.labels import read_labels
from prunedata.findings.verdicts import Verdict, judged_wrong, write_verdicts
from prunedata.keys import hash_keys, key_text


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("labels.npy", np.array([0, 1, 2, 0]))
    (tmp_path / "labels.csv").write_text("id,label\n0,cat\n1,dog\n2,dog\n3,cat\n", encoding="utf-8")
    (tmp_path / "verdicts.csv").write_text("sample,verdict,was,label\n1,wrong,1,2\n3,wrong,0,\n", encoding="utf-8")


def test_labels_are_corrected(say):
    status, out, err = say("apply verdicts.csv --labels labels.npy -o fixed.npy")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "2 judged, 2 wrong: 1 corrected -> fixed.npy",
        "1 wrong with no other class: add --rest FILE, and leave them out by Pruner(without=FILE)",
    ]
    assert np.load("fixed.npy").tolist() == [0, 2, 2, 0]
    assert np.load("labels.npy").tolist() == [0, 1, 2, 0]


def test_the_rest_is_for_a_run_to_leave_out(say):
    assert "-> rest.csv, and" in say("apply verdicts.csv --labels labels.npy -o fixed.npy --rest rest.csv")[1]
    assert judged_wrong("rest.csv", 4).tolist() == [3]


def test_verdicts_on_other_splits_find_their_rows(say, tmp_path):
    one, other = ["a", "b", "c", "d"], ["d", "x", "b", "c"]
    texts = [key_text(int(key)) for key in hash_keys(one)]
    for rows, place in ((other, "keyed.zarr"), (None, "plain.zarr"), (other[:3], "small.zarr")):
        pruner = Pruner(None if rows else 4, epochs=2, keys=rows, leave_out="nothing", store=tmp_path / place)
        for epoch in pruner.epochs():
            pruner.observe(np.ones(pruner.samples), np.flatnonzero(epoch.keep))
    write_verdicts(
        [
            Verdict(1, "wrong", "1", "2", texts[1]),
            Verdict(3, "wrong", "0", "", texts[3]),
            Verdict(0, "wrong", key=texts[0]),
        ],
        "keyed.csv",
    )
    np.save("other.npy", np.array([0, 0, 1, 2]))
    status, out, err = say("apply keyed.csv --labels other.npy --store keyed.zarr -o fixed.npy --rest rest.csv")
    assert (status, err, out.splitlines()[0]) == (0, "", "2 judged, 2 wrong: 1 corrected -> fixed.npy")
    assert np.load("fixed.npy").tolist() == [0, 0, 2, 2]
    assert judged_wrong("rest.csv", 4, hash_keys(one)).tolist() == [3]
    for place, got in (("plain.zarr", "Got one without keys"), ("small.zarr", "Got one of 3 samples")):
        status, _, err = say(f"apply keyed.csv --labels other.npy --store {place} -o more.npy")
        assert (status, got in err) == (2, True), err


@pytest.mark.parametrize("name", ["fixed.csv", "fixed.txt", "fixed.npy"])
def test_names_in_every_form(say, tmp_path, name):
    (tmp_path / "verdicts.csv").write_text('sample,verdict,was,label\n1,wrong,dog,"a, long name"\n', encoding="utf-8")
    assert say(f"apply verdicts.csv --labels labels.csv -o {name}") == (
        0,
        f"1 judged, 1 wrong: 1 corrected -> {name}\n",
        "",
    )
    assert read_labels(name, 4).tolist() == ["cat", "a, long name", "dog", "cat"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--labels labels.npy -o fixed.json", "Expected --output to end with .npy, .csv or .txt. Got fixed.json."),
        ("--labels none.npy -o fixed.npy", "none.npy"),
        ("--labels labels.csv -o fixed.npy", "Expected label '1' for sample 1, which was judged. Got 'dog'"),
        ("-o fixed.npy", "--labels"),
        (
            "--labels labels.npy -o labels.npy",
            "Expected --output to be a new file. Got labels.npy, which holds the",
        ),
        ("--labels labels.npy -o ../{here}/labels.npy", "which holds the labels"),
        ("--labels labels.npy -o link.npy", "which holds the labels"),
        ("--labels labels.npy -o verdicts.csv", "which holds the verdicts"),
        ("--labels labels.npy -o fixed.npy --rest verdicts.csv", "Expected --rest to be a new file"),
        ("--labels labels.npy -o fixed.csv --rest ./fixed.csv", "which holds the corrected labels"),
    ],
)
def test_what_is_refused(say, tmp_path, options, told):
    (tmp_path / "link.npy").symlink_to(tmp_path / "labels.npy")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, err = say(f"apply verdicts.csv {options}".replace("{here}", tmp_path.name))
    assert (status, out) == (2, "")
    assert told in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert not (tmp_path / "fixed.npy").exists()
