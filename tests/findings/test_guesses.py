"""What samples look like, as labels are called: numbers, names, and nothing where it is not known."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import PrunedataError
from prunedata.findings.guesses import labels_and_guesses
from prunedata.findings.searched import state_of
from prunedata.findings.table import suspect_table

SAMPLES = 12
NAMES = ("ape", "bear", "half \ud800 a pair")


def state_with(labels=None, seen=SAMPLES):
    """A run whose network takes each of the first samples for class 1."""
    run = Pruner(SAMPLES, epochs=3, labels=labels, leave_out="nothing")
    run.begin_epoch()
    ids = np.arange(SAMPLES)
    run.observe(np.ones(SAMPLES - seen), ids[seen:])
    run.observe(np.ones(seen), ids[:seen], logits=np.eye(3)[[1] * seen])
    run.end_epoch()
    return run


LABELS = st.lists(st.integers(0, 2), min_size=SAMPLES, max_size=SAMPLES).map(np.array)


@given(LABELS, st.integers(1, SAMPLES), st.booleans())
def test_numbers_stay_numbers_unless_they_have_names(labels, seen, named):
    found = labels_and_guesses(state_of(state_with(seen=seen)), labels, (*NAMES[:2], "cat") if named else ())
    classes = ["ape", "bear", "cat"] if named else [0, 1, 2]
    none = "" if named else -1
    assert found["label"].tolist() == [classes[one] for one in labels]
    expected = [classes[1] if at < seen and labels[at] != 1 else none for at in range(SAMPLES)]
    assert found["guess"].tolist() == expected


@given(LABELS, st.booleans())
def test_names_stand_in_their_order_and_can_be_written(labels, given_to_the_run):
    assume(not given_to_the_run or len(set(labels)) == len(NAMES))  # a name without a sample has no place in logits
    names = np.array(NAMES)[labels]
    run = state_with(names if given_to_the_run else None)
    found = labels_and_guesses(state_of(run), None if given_to_the_run else names)
    for column in found.values():
        "".join(column).encode()
    readable = [name.replace("\ud800", "\ufffd") for name in NAMES]
    assert found["label"].tolist() == [readable[one] for one in labels]
    there = sorted({readable[one] for one in labels})
    if not given_to_the_run and len(there) > 1:
        assert found["guess"].tolist() == ["" if name == there[1] else there[1] for name in found["label"]]


def test_a_run_that_knows_nothing_has_no_columns():
    run = Pruner(SAMPLES, epochs=3)
    run.begin_epoch()
    run.observe(np.ones(SAMPLES), np.arange(SAMPLES))
    assert labels_and_guesses(state_of(run)) == {}


def test_suspects_have_them_beside_the_rest(tmp_path):
    run = Pruner(SAMPLES, epochs=3, store=tmp_path / "run.zarr", labels=np.arange(SAMPLES) % 3, leave_out="nothing")
    run.begin_epoch()
    run.observe(np.arange(SAMPLES) * 1.0, np.arange(SAMPLES), logits=np.eye(3)[(np.arange(SAMPLES) + 1) % 3])
    run.end_epoch()
    table = suspect_table(tmp_path / "run.zarr", top=2)
    assert list(table) == ["id", "hits", "visits", "score", "pruned", "recent", "label", "guess"]
    assert (table["label"].tolist(), table["guess"].tolist()) == ([2, 1], [0, 2])


def test_numbers_of_labels_beyond_their_classes_are_refused():
    state = state_of(state_with(np.arange(SAMPLES) % 3))
    state.arrays["labels"] = np.full(SAMPLES, 9, np.uint8)
    with pytest.raises(PrunedataError, match="Expected labels of 3 classes"):
        _ = state.labels
