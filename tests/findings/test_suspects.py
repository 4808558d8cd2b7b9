"""Which samples are most suspect, how many a top is, and what labels and guesses are called."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import PrunedataError
from prunedata.findings.searched import state_of
from prunedata.findings.suspects import concentration, most_suspect, scores_of, suspicion
from prunedata.findings.table import table_of

COUNTS = st.lists(st.integers(0, 40).flatmap(lambda v: st.tuples(st.integers(0, v), st.just(v))), min_size=1)


def scored(pairs):
    """The scores and the visits of samples with so many hits in so many visits."""
    hits, visits = (np.array(values, dtype=np.uint8) for values in zip(*pairs, strict=True))
    return hits / np.maximum(visits, 1), visits


def places(pairs):
    return suspicion(*scored(pairs))


@given(COUNTS)
def test_the_order_is_that_of_exact_fractions_and_fewer_visits_break_ties(pairs):
    got = places(pairs)
    exact = [(Fraction(h, v), -v) if v else None for h, v in pairs]
    for place, one in zip(got, exact, strict=True):
        assert (place == -1) == (one is None)
        for other_place, other in zip(got, exact, strict=True):
            if one is not None and other is not None:
                assert (place < other_place) == (one < other)


@given(COUNTS, st.integers(0, 60))
def test_the_top_are_the_highest_places_the_worst_first(pairs, top):
    got, order = most_suspect(*scored(pairs), top), places(pairs)
    assert len(set(got.tolist())) == len(got) == min(top, int((order >= 0).sum()))
    assert order[got].tolist() == sorted(order[order >= 0].tolist(), reverse=True)[:top]


def test_what_was_never_observed_has_no_place_and_what_was_left_out_early_has():
    assert places([(4, 4), (1, 1), (3, 10), (0, 0)]).tolist()[-1] == -1
    assert places([(2, 2), (1, 1), (0, 2)]).tolist() == [1, 2, 0]
    assert places([(0, 0)]).tolist() == [-1]
    assert most_suspect(np.zeros(0), np.zeros(0, np.uint8), 3).tolist() == []


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


def watched(loss_in):
    """A run that watches 200 samples for 20 epochs; ``loss_in`` says what each loses in an epoch."""
    run = Pruner(200, epochs=20, leave_out="nothing")
    for epoch in run.epochs():
        for ids in epoch.batches(50):
            run.observe(loss_in(epoch.number)[ids].astype(np.float32), ids)
    return state_of(run)


WRONG, HARD, REST = np.arange(40), np.linspace(10, 0, 160), np.linspace(0, 0.2, 200)


def test_recent_losses_rank_where_they_part_the_samples_more_clearly():
    def losses(epoch):
        found = REST.copy()
        found[len(WRONG) :] += HARD if epoch < 6 else 0
        found[WRONG] += 2
        return found

    run = watched(losses)
    scores = scores_of(run)
    assert set(most_suspect(run.mean_excess, run.visits, 40)) != set(WRONG.tolist())
    assert set(most_suspect(scores, run.visits, 40)) == set(WRONG.tolist())
    assert scores.mean() == pytest.approx(0, abs=1e-6)
    assert set(table_of(run, 40)["id"].tolist()) == set(WRONG.tolist())


def test_the_mean_of_all_epochs_ranks_where_the_network_memorizes():
    def losses(epoch):
        found = REST.copy()
        found[WRONG] += 4 if epoch < 8 else 0
        return found

    run = watched(losses)
    assert (scores_of(run) == run.mean_excess).all()


@pytest.mark.parametrize("names", [["zebra", "ant", "mole"], ["a", "b", "c"], ["c", "b", "a"]])
def test_a_guess_has_the_name_that_samples_with_its_number_have(names):
    numbers = np.arange(200) % 3
    run = Pruner(200, epochs=2, leave_out="nothing")
    for epoch in run.epochs():
        for ids in epoch.batches(50):
            logits = np.eye(3, dtype=np.float32)[(numbers[ids] + 1) % 3]
            run.observe(1 + ids / 200, ids, logits=logits, labels=numbers[ids])
    given = np.array(names)[numbers]
    given[:5] = names[2]  # a few were corrected since
    table = table_of(state_of(run), 200, given)
    assert table["label"].tolist() == given[table["id"]].tolist()
    told, right = table["guess"], np.array(names)[(numbers[table["id"]] + 1) % 3]
    assert told.tolist() == np.where(right == table["label"], "", right).tolist()
