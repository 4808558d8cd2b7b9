"""What losses weigh reaches workers with their deals; a run whose workers never look at it is warned."""

import pickle

import numpy as np
import pytest

from prunedata import Dealer, Pruner, Schedule
from prunedata.errors import UnweighedWarning
from prunedata.policies import LossRanked

SAMPLES = 50
RUNS = {
    "held out": {"holdout": 0.2},
    "left out by weight": {"leave_out": "weight"},
    "weighed": {"policy": LossRanked()},
}


def start(**options):
    schedule = Schedule(4, window=4, start=1, block=2, pruned_per_block=1)
    return Pruner(SAMPLES, schedule, **{"prune": 0.3, "seed": 3, **options})


def train(run, *, reads, sent=False, light=False):
    """Train without a model, in this process or by deals that were sent to another one and back."""
    dealer = Dealer(start(**run), 8)
    for deal in dealer.deals("one"):
        mine = pickle.loads(pickle.dumps(deal)) if sent else deal
        if reads:
            assert mine.weights is None or mine.weights.shape == mine.ids.shape
        back = mine.without_arrays() if light else mine
        assert dealer.observe(pickle.loads(pickle.dumps(back)) if sent else back, np.cos(deal.ids))
    assert dealer.is_finished
    return dealer.pruner


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("sent", [False, True], ids=["threads", "processes"])
def test_workers_that_never_read_the_weights_are_warned(run, sent):
    with pytest.warns(UnweighedWarning, match=r"deal\.weights"):
        train(RUNS[run], reads=False, sent=sent)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("way", [{}, {"sent": True}, {"sent": True, "light": True}], ids=str)
def test_workers_that_read_them_are_not(run, way):
    pruner = train(RUNS[run], reads=True, **way)
    assert len(pruner.history) == 4


def test_a_run_without_weights_needs_no_reading():
    train({}, reads=False)


def test_to_show_a_deal_is_not_to_read_its_weights():
    dealer = Dealer(start(holdout=0.2), 8)
    deal = dealer.deal("one")
    assert "weighted" in repr(deal)
    assert not deal.was_read
    assert np.count_nonzero(deal.weights == 0) == np.count_nonzero(dealer.pruner.current.loss_weights(deal.ids) == 0)
    assert deal.was_read


def test_what_travels_back_is_the_deal_without_its_arrays():
    dealer = Dealer(start(holdout=0.2), 8)
    deal = dealer.deal("one")
    light = deal.without_arrays()
    assert not light.ids.size
    assert light.weights is None
    assert dealer.observe(light, np.ones(8))
