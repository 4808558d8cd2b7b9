"""Which samples are most suspect, how many a top is, and what labels and guesses are called."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import PrunedataError
from prunedata.findings.guesses import labels_and_guesses
from prunedata.findings.searched import state_of
from prunedata.findings.suspects import concentration, most_suspect, suspicion
from prunedata.findings.table import suspect_table
from prunedata.findings.top import count_top

# Which samples are most suspect: the order, what it does not depend on, and the classes in which they gather.


COUNTS = st.lists(st.integers(0, 40).flatmap(lambda v: st.tuples(st.integers(0, v), st.just(v))), min_size=1)


def arrays(pairs, kind=np.uint8):
    hits, visits = (np.array(values, dtype=kind) for values in zip(*pairs, strict=True))
    return hits, visits


def rates(hits, visits):
    return hits / np.maximum(visits, 1)


def places(pairs):
    hits, visits = arrays(pairs)
    return suspicion(rates(hits, visits), visits)


@given(COUNTS)
def test_the_order_is_that_of_exact_fractions_and_fewer_visits_break_ties(pairs):
    got = places(pairs)
    exact = [(Fraction(h, v), -v) if v else None for h, v in pairs]
    for place, one in zip(got, exact, strict=True):
        assert (place == -1) == (one is None)
        for other_place, other in zip(got, exact, strict=True):
            if one is not None and other is not None:
                assert (place < other_place) == (one < other)


@given(COUNTS, st.randoms())
def test_the_order_of_the_samples_does_not_matter(pairs, random):
    order = list(range(len(pairs)))
    random.shuffle(order)
    assert places([pairs[i] for i in order]).tolist() == places(pairs)[order].tolist()


@given(COUNTS, st.integers(0, 60))
def test_the_top_are_the_highest_places_the_worst_first(pairs, top):
    hits, visits = arrays(pairs)
    got, order = most_suspect(rates(hits, visits), visits, top), places(pairs)
    assert len(set(got.tolist())) == len(got) == min(top, int((order >= 0).sum()))
    assert order[got].tolist() == sorted(order[order >= 0].tolist(), reverse=True)[:top]


def test_what_was_never_observed_has_no_place_and_what_was_left_out_early_has():
    assert places([(4, 4), (1, 1), (3, 10), (0, 0)]).tolist()[-1] == -1
    assert places([(2, 2), (1, 1), (0, 2)]).tolist() == [1, 2, 0]
    assert places([(0, 0)]).tolist() == [-1]
    assert most_suspect(np.zeros(0), np.zeros(0, np.uint8), 3).tolist() == []


def test_what_was_pruned_more_often_is_more_suspect_than_its_equal():
    assert most_suspect(rates(*arrays([(60, 60), (10, 10), (9, 10)])), np.array([60, 10, 10]), 2).tolist() == [1, 0]


@given(st.lists(st.integers(-2, 4), min_size=1), st.data())
def test_shares_of_classes_add_up(labels, data):
    ids = data.draw(st.lists(st.integers(0, len(labels) - 1), unique=True))
    got = concentration(np.array(labels), ids)
    assert sum(one.suspects for one in got) == len(ids)
    assert sum(one.samples for one in got) == len(labels)
    assert sum(one.expected for one in got) == pytest.approx(1)
    for one in got:
        assert one.samples == labels.count(one.label)
        assert one.suspects == sum(labels[i] == one.label for i in ids)
        if ids:
            assert one.lift == pytest.approx(one.share / one.expected)
        else:
            assert (one.share, one.lift) == (0.0, None)
    assert [one.lift for one in got] == sorted((one.lift for one in got), key=lambda lift: -(lift or 0))


def test_all_as_suspects_are_spread_evenly():
    assert {one.lift for one in concentration([7, 7, 3, 9], [0, 1, 2, 3])} == {1.0}


@pytest.mark.parametrize(
    ("labels", "ids", "message"),
    [
        ([0.5, 1], [0], "integers or text"),
        ([[1]], [0], "shape"),
        ([1, 2], [2], "2 samples"),
        ([1, 2], [-1], "2 samples"),
    ],
)
def test_labels_that_make_no_sense_are_refused(labels, ids, message):
    with pytest.raises(PrunedataError, match=message):
        concentration(labels, ids)


# How many samples a top is.


@given(st.integers(1, 1000), st.integers(1, 2000))
def test_a_number_is_itself_up_to_all(samples, top):
    assert count_top(top, samples) == min(top, samples)


@given(st.integers(1, 1000), st.integers(1, 99))
def test_a_fraction_is_that_of_the_decimal_rounded_down_and_at_least_one(samples, percent):
    assert count_top(percent / 100, samples) == max(1, samples * percent // 100)


@pytest.mark.parametrize("top", [0, -1, 0.0, 1.0, -0.5, 2.5, float("nan"), True, "3", None])
def test_all_else_is_refused(top):
    with pytest.raises(
        PrunedataError, match=r"Expected top to be a number from 1, or a fraction between 0 and 1\. Got"
    ):
        count_top(top, 10)


# What samples look like, as labels are called: numbers, names, and nothing where it is not known.


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
