"""Verdicts on suspects: read, applied to labels, and left out of a run; and all that is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import OtherData, PrunedataError
from prunedata.findings.verdicts import Verdict, apply_verdicts, judged_wrong, read_verdicts, write_verdicts
from prunedata.keys import hash_keys, key_text

SAVED = "sample,verdict,was,label\r\n4,wrong,1,2\r\n7,right,0,\r\n2,wrong,1,\r\n"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda x: "\0" not in x)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "verdicts.csv"
    path.write_text(SAVED, encoding="utf-8", newline="")
    return path


def test_what_the_page_saves_is_read(saved):
    found = (Verdict(4, "wrong", "1", "2"), Verdict(7, "right", "0"), Verdict(2, "wrong", "1"))
    assert read_verdicts(saved, 8) == found
    assert judged_wrong(saved, 8).tolist() == [2, 4]


def test_labels_are_corrected_and_those_without_another_class_are_told(saved):
    labels = np.array([0, 0, 1, 0, 1, 0, 0, 0], dtype=np.uint8)
    corrected, left = apply_verdicts(read_verdicts(saved), labels)
    assert corrected.tolist() == [0, 0, 1, 0, 2, 0, 0, 0]
    assert corrected.dtype == np.uint8
    assert labels[4] == 1
    assert left == (Verdict(2, "wrong", "1"),)


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True), st.integers(0, 10**6), st.booleans())
def test_any_names_come_back_on_the_rows_that_samples_were_selected_from(tmp_path_factory, names, seed, selected):
    random = np.random.default_rng(seed)
    labels = np.array(random.choice(names, 9), dtype=np.str_)
    rows = random.permutation(9) if selected else np.arange(9)
    wanted = labels.copy().astype("<U40")
    given = []
    for sample in range(0, 9, 2):
        row = int(rows[sample])
        other = next(name for name in names if name != labels[row])
        given.append(Verdict(sample, "wrong", str(labels[row]), str(other), str(row) if selected else ""))
        wanted[row] = other
    path = tmp_path_factory.mktemp("any") / "verdicts.csv"
    write_verdicts(given, path)
    assert read_verdicts(path) == tuple(given)
    assert apply_verdicts(read_verdicts(path), labels)[0].tolist() == wanted.tolist()


@pytest.mark.parametrize("more", [
    Verdict(1, "wrong", "1", "2"),  # its row is not known
    Verdict(1, "wrong", "1", "0", "3"),  # another sample of the same row
    Verdict(1, "wrong", "1", "0", "4"),  # of a longer data set
])  # fmt: skip
def test_a_label_whose_row_is_uncertain_is_not_changed(more):
    with pytest.raises(PrunedataError):
        apply_verdicts([Verdict(0, "wrong", "1", "2", "3"), more], np.array([1, 1, 1, 1]))


def test_half_a_surrogate_pair_is_found_as_a_browser_saves_it():
    labels = np.array(["lone \ud800", "b", "b"])
    corrected, _ = apply_verdicts([Verdict(1, "wrong", "b", "lone \ufffd")], labels)
    assert corrected.tolist() == ["lone \ud800", "lone \ud800", "b"]


def test_a_second_time_is_refused(saved):
    corrected, _ = apply_verdicts(read_verdicts(saved), np.array([0, 0, 1, 0, 1, 0, 0, 0]))
    with pytest.raises(PrunedataError, match="Got '2': the verdicts are about other labels, or were applied"):
        apply_verdicts(read_verdicts(saved), corrected)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Expected a first line with sample and verdict"),
        ("id,verdict\n1,wrong\n", "Got 'id, verdict'"),
        ("sample,verdict\n-1,wrong\n", "Expected the id of a sample in line 2"),
        ("sample,verdict\n1e3,wrong\n", "Got '1e3'"),
        ("sample,verdict\n\u0663,wrong\n", "Expected the id of a sample"),
        ("sample,verdict\n8,wrong\n", "Expected ids from 0 to 7 in line 2"),
        ("sample,verdict\n1,maybe\n", "Expected wrong or right in line 2"),
        ("sample,verdict\n1\n", "Expected wrong or right in line 2"),
        ("sample,verdict\n1,wrong\n1,right\n", "Got two for sample 1"),
        ("sample,verdict,label\n1,right,3\n", "Expected no other label for one that is right"),
        ("sample,verdict,label\n1,wrong," + "x" * 2_000_000 + "\n", "Expected lines of at most"),
    ],
)
def test_what_is_no_file_of_verdicts(tmp_path, text, told):
    path = tmp_path / "verdicts.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PrunedataError, match=told):
        read_verdicts(path, 8)


def test_no_text_and_no_file(tmp_path):
    (tmp_path / "verdicts.csv").write_bytes(b"sample,verdict\n\xff\xfe,wrong")
    with pytest.raises(PrunedataError, match="Expected verdicts in"):
        read_verdicts(tmp_path / "verdicts.csv")
    with pytest.raises(PrunedataError, match="Expected a file of verdicts at"):
        read_verdicts(tmp_path / "none.csv")


@pytest.mark.parametrize("label", ["cat", "256", "-1", "1.0"])
def test_a_label_of_another_kind(label):
    with pytest.raises(PrunedataError, match="Expected a label of uint8 for sample 0"):
        apply_verdicts([Verdict(0, "wrong", "1", label)], np.array([1, 2], dtype=np.uint8))


def test_a_run_leaves_out_what_was_judged_wrong_and_refuses_verdicts_of_other_data(saved):
    for path in (str(saved), saved):
        pruner = Pruner(8, Schedule.steady(4), prune=0.3, without=path)
        assert np.flatnonzero(pruner.without).tolist() == [2, 4]
    with pytest.raises(PrunedataError, match="Expected ids from 0 to 5"):
        Pruner(6, Schedule.steady(4), prune=0.3, without=saved)


def test_a_file_of_ids_leaves_out_all_of_them(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("5\n3\n\n5\n")
    assert judged_wrong(path, 8).tolist() == [3, 5]
    assert np.flatnonzero(Pruner(8, Schedule.steady(4), prune=0.3, without=path).without).tolist() == [3, 5]
    with pytest.raises(PrunedataError, match=r"Expected ids from 0 to 4 in .*ids\.txt\. Got 5: is it of other data"):
        judged_wrong(path, 5)
    path.write_text("5\nthree\n")
    with pytest.raises(PrunedataError, match="Expected a first line with sample and verdict"):
        judged_wrong(path, 8)


KEYED = [f"row {number}" for number in range(8)]


def keyed(tmp_path, rows, name="verdicts.csv"):
    """A file of verdicts on rows 2 and 5, which are wrong, and 7, which is right, of a run over such rows."""
    texts = [key_text(key) for key in hash_keys(rows).tolist()]
    said = [("row 5", "wrong"), ("row 7", "right"), ("row 2", "wrong")]
    write_verdicts(
        [Verdict(rows.index(row), verdict, key=texts[rows.index(row)]) for row, verdict in said], tmp_path / name
    )
    return tmp_path / name


@given(st.permutations(KEYED).flatmap(lambda rows: st.integers(1, 8).map(lambda most: rows[:most])))
def test_verdicts_of_one_split_apply_to_the_same_rows_of_another(tmp_path_factory, rows):
    path = keyed(tmp_path_factory.mktemp("any"), KEYED)
    expected = [row in ("row 2", "row 5") for row in rows]
    found = read_verdicts(path, len(rows), hash_keys(rows))
    assert {rows[one.sample]: one.verdict for one in found} == {
        row: said for row, said in (("row 5", "wrong"), ("row 7", "right"), ("row 2", "wrong")) if row in rows
    }
    assert judged_wrong(path, len(rows), hash_keys(rows)).tolist() == np.flatnonzero(expected).tolist()
    if not all(expected):
        run = Pruner(epochs=4, prune=0, keys=rows, without=path, leave_out="nothing")
        assert run.without.tolist() == expected


def test_keys_come_back_and_without_them_the_ids_hold(tmp_path):
    path = keyed(tmp_path, KEYED)
    assert path.read_text().splitlines()[0] == "sample,verdict,was,label,key"
    assert [one.key for one in read_verdicts(path)] == [
        key_text(hash_keys([row])[0]) for row in ("row 5", "row 7", "row 2")
    ]
    assert judged_wrong(path, 8).tolist() == [2, 5]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sample,verdict,key\n1,wrong,xyz\n", "Expected a key of 16 hexadecimal digits in line 2"),
        ("sample,verdict,key\n,wrong,0123456789abcdef\n", "Expected a run with keys, as verdicts in"),
        ("sample,verdict,key\n,wrong,\n", "Expected the id of a sample in line 2"),
        ("sample,verdict,key\n1,wrong,0123456789abcdef\n1,wrong,\n", "Got two for sample 1"),
    ],
)
def test_what_is_no_verdict_on_a_row(tmp_path, text, told):
    (tmp_path / "verdicts.csv").write_text(text)
    with pytest.raises(PrunedataError, match=told):
        read_verdicts(tmp_path / "verdicts.csv", 8)


def test_a_file_without_ids_is_on_the_rows_that_are_there(tmp_path):
    texts = [key_text(key) for key in hash_keys(["row 3", "row 9"]).tolist()]
    (tmp_path / "verdicts.csv").write_text("sample,verdict,key\n" + "".join(f",wrong,{text}\n" for text in texts))
    assert judged_wrong(tmp_path / "verdicts.csv", 8, hash_keys(KEYED)).tolist() == [3]


@pytest.mark.parametrize("rows", [KEYED, KEYED[::-1]])
def test_a_run_that_learns_its_keys_later_holds_them_against_the_file(tmp_path, rows):
    """A source that has names of its own tells them when it is wrapped, and ids were taken before."""
    run = Pruner(8, epochs=4, prune=0, leave_out="nothing", without=keyed(tmp_path, KEYED))
    if rows == KEYED:
        run.trains_on(lambda ids: [None] * len(ids), lambda: rows)
        return
    with pytest.raises(OtherData, match="Got other rows at 3 of 3: pass keys="):
        run.trains_on(lambda ids: [None] * len(ids), lambda: rows)


def test_in_a_run_without_keys_verdicts_on_rows_are_not_taken_for_its_own(tmp_path):
    """Its rows may be those of another split of as many."""
    path = keyed(tmp_path, KEYED)
    run = Pruner(8, epochs=4, prune=0, leave_out="nothing", without=path)
    with pytest.raises(OtherData, match="Got a run without keys, whose ids may mean other rows: pass keys="):
        run.begin_epoch()
    assert Pruner(8, epochs=4, prune=0, leave_out="nothing", without=judged_wrong(path, 8)).begin_epoch().kept == 6


@pytest.mark.parametrize("rows", [KEYED, KEYED[::-1]])
def test_in_a_stored_run_with_keys_that_is_not_given_them_again_they_are_held_against_its_own(tmp_path, rows):
    run = Pruner(epochs=4, prune=0, leave_out="nothing", keys=rows, store=tmp_path / "run.zarr")
    run.begin_epoch()
    run.observe(np.arange(8.0), np.arange(8))
    run.end_epoch()
    del run
    file = keyed(tmp_path, KEYED)
    again = Pruner(8, epochs=4, prune=0, leave_out="nothing", store=tmp_path / "run.zarr", resume=True, without=file)
    if rows == KEYED:
        assert np.flatnonzero(~again.begin_epoch().keep).tolist() == [2, 5]
        return
    with pytest.raises(OtherData, match="Got other rows at 3 of 3"):
        again.begin_epoch()
