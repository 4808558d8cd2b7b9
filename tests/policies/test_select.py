"""What a pruned epoch keeps, and what it weighs: a policy asked among all samples, or among some of them."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError, RandomPruningWarning
from prunedata.policies import DroppingCount
from prunedata.policies.protocol import Known
from prunedata.policies.selection import keep_mask
from prunedata.run.epoch import Epoch, select
from tests.common.strategies import SEEDS


@dataclass(frozen=True)
class ScoresAll:
    """Scores by everything that is known, so that any of it that is missing or mixed up is noticed."""

    tolerance = 0.0
    needs_losses = True

    def scores(self, known):
        return known.counts + 2 * known.hits + 4 * known.visits + 8 * known.arrays["mine"]


@dataclass(frozen=True)
class WeighsAll(ScoresAll):
    """Weighs by what is kept and by what is known, in another dtype than a run keeps."""

    def weights(self, keep, known):
        return np.where(keep, known.counts + known.arrays["mine"] / 3, 7.0)


@dataclass(frozen=True)
class WronglyShaped(ScoresAll):
    wrong: str = "scores"

    def scores(self, known):
        return known.counts[1:] if self.wrong == "scores" else known.counts

    def weights(self, keep, known):
        return known.counts[1:]


def known_of(samples, num_pruned, seed=0):
    random = np.random.default_rng(seed)
    counts, hits, visits, mine = (random.integers(0, 5, samples) for _ in range(4))
    return Known(counts, hits, visits, {"mine": mine.astype(np.float64)}, num_pruned)


@st.composite
def cases(draw):
    """(known, mask of some samples), fewer to prune than those."""
    among = np.array([*draw(st.lists(st.booleans(), min_size=1, max_size=40)), True])
    return known_of(among.size, draw(st.integers(0, int(among.sum()) - 1)), draw(SEEDS)), among


@given(cases(), SEEDS, st.integers(0, 1000), st.booleans())
def test_the_others_are_as_if_they_were_not_there(case, seed, epoch, weighs):
    known, among = case
    places = np.flatnonzero(among)
    keep, weights = select(WeighsAll() if weighs else ScoresAll(), known, seed=seed, epoch=epoch, among=among)
    few = Known(
        *(array[places] for array in (known.counts, known.hits, known.visits)),
        {"mine": known.arrays["mine"][places]},
        known.num_pruned,
    )
    expected = keep_mask(ScoresAll().scores(few), known.num_pruned, seed=seed, epoch=epoch)
    assert keep.dtype == np.bool_
    assert np.flatnonzero(keep).tolist() == places[expected].tolist()
    if not weighs:
        assert weights is None
        return
    factors = np.where(expected, WeighsAll().weights(expected, few), 0).astype(np.float32)
    assert weights.dtype == np.float32
    assert weights[places].tolist() == factors.tolist()
    assert not weights[~among].any()


@pytest.mark.parametrize("among", [None, np.array([True, False, True, True])])
def test_what_was_selected_is_for_reading_and_a_copy(among):
    known = known_of(4, 1)
    for array in select(WeighsAll(), known, seed=0, epoch=1, among=among):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert known.arrays["mine"].flags.writeable


@pytest.mark.parametrize("wrong", ["scores", "weights"])
def test_numbers_for_other_samples_are_refused_by_name(wrong):
    with pytest.raises(
        PrunedataError, match=rf"^Expected {wrong} of shape \(4,\) from the policy, .*Got shape \(3,\)\.$"
    ):
        select(WronglyShaped(wrong), known_of(4, 1), seed=0, epoch=1)


def test_an_epoch_says_whether_it_is_weighted_and_gives_its_samples_in_either_order():
    keep = np.arange(50) % 5 > 0
    epoch = Epoch(3, True, keep.view(np.uint8), 9, np.ones(50, np.float32))
    assert repr(epoch) == "Epoch(number=3, pruned=True, kept=40 of 50, weighted, seed=9)"
    assert Epoch(3, True, keep.view(np.uint8), 9).weights is None
    ascending = np.flatnonzero(keep).tolist()
    for shuffle, expected in ((False, True), (True, False)):
        order = np.concatenate(list(epoch.order(shuffle=shuffle))).tolist()
        cut = [batch.tolist() for batch in epoch.batches(7, shuffle=shuffle)]
        assert (order == ascending) == expected
        assert sorted(order) == ascending
        assert cut == [order[first : first + 7] for first in range(0, 40, 7)]
    assert np.concatenate(list(epoch.order())).tolist() == order
    assert [batch.tolist() for batch in epoch.batches(7)] == cut
    assert [batch.tolist() for batch in epoch.batches(7, drop_last=True)] == cut[:-1]


@pytest.mark.parametrize("by", ["window", "run"])
def test_an_epoch_that_is_pruned_at_random_for_want_of_hits_is_told(by):
    """In batches of one no loss is above the mean."""

    def train(size):
        run = Pruner(24, Schedule.steady(6, 2), prune=6, policy=DroppingCount(by=by))
        for epoch in run.epochs():
            for ids in epoch.batches(size):
                run.observe(ids / 24.0, ids)

    with pytest.warns(RandomPruningWarning, match="at random") as told:
        train(1)
    assert len({str(one.message) for one in told}) == 1  # else Python would show it for each of the epochs
    train(2)
