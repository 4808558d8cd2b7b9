"""Several batches in one call, and what losses weigh: what travels with deals and comes back, all or none."""

import pickle

import numpy as np
import pytest

from prunedata import Dealer, Pruner, Schedule
from prunedata.errors import LossError, PrunedataError, UnweighedWarning
from prunedata.policies import LossRanked

# Several batches dealt and reported in one call: the same run as one by one, and all or none is recorded.


SCHEDULE = Schedule(4, window=4, start=1, block=2, pruned_per_block=1)


def start(**options):
    return Pruner(60, SCHEDULE, **{"prune": 0.25, "seed": 5, **options})


def losses_of(deal):
    return np.random.default_rng([7, deal.epoch]).random(60)[deal.ids]


def train(dealer, most):
    """Train to the end; return (epoch, number, ids) of every batch, and how many each call gave."""
    made, given = [], []
    while (found := dealer.deal_many("one", most)) is not None:
        given.append(len(found))
        made += [(deal.epoch, deal.number, deal.ids.tolist()) for deal in found]
        assert all(dealer.observe_many([(deal, losses_of(deal)) for deal in found]))
    return made, given


@pytest.mark.parametrize("most", [1, 3, 100])
def test_several_at_a_time_are_the_batches_and_counts_of_one_at_a_time(most):
    one, many = Dealer(start(), 8), Dealer(start(), 8)
    alone = [
        (deal.epoch, deal.number, deal.ids.tolist()) for deal in one.deals("one") if one.observe(deal, losses_of(deal))
    ]
    made, given = train(many, most)
    assert made == alone
    assert max(given) == min(most, 8)  # of one epoch, which has 8 batches
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(one.pruner, name), getattr(many.pruner, name))


def test_if_one_report_is_wrong_none_is_recorded():
    dealer = Dealer(start(), 8)
    first, second = dealer.deal_many("one", 2)
    for wrong in ([np.nan] * 8, np.zeros(7)):
        with pytest.raises(LossError):
            dealer.observe_many([(first, losses_of(first)), (second, wrong)])
    with pytest.raises(PrunedataError, match="Expected newest"):
        dealer.observe_many([(first, losses_of(first))], version=3, newest=2)
    with pytest.raises(PrunedataError, match="no ticket"):
        dealer.observe_many([(first, losses_of(first)), ("no ticket", np.zeros(8))])
    assert dealer.outstanding == {"one": 16}
    assert dealer.pruner.current.remaining.sum() == 60
    twice = dealer.observe_many([(first, losses_of(first))] * 2, version=1, newest=2)
    assert [bool(receipt) for receipt in twice] == [True, False]
    assert dealer.staleness == {1: 1}


def test_a_report_after_the_one_that_ends_the_epoch_is_refused_and_not_lost():
    dealer = Dealer(start(), 60)
    (only,) = dealer.deal_many("one", 5)
    assert [bool(receipt) for receipt in dealer.observe_many([(only, losses_of(only))] * 2)] == [True, False]
    assert dealer.pruner.next_epoch == 1


def test_all_that_a_lost_worker_had_is_dealt_again():
    dealer = Dealer(start(), 8)
    held = dealer.deal_many("doomed", 3)
    assert dealer.lost("doomed") == 24
    again = dealer.deal_many("other", 3)
    assert [deal.number for deal in again] == [deal.number for deal in held]
    assert {deal.attempt for deal in again} == {2}
    assert not any(dealer.observe_many([(deal, losses_of(deal)) for deal in held]))


@pytest.mark.parametrize("most", [0, 1.5, "two"])
def test_what_is_no_number_of_batches_is_refused(most):
    with pytest.raises(PrunedataError, match="Expected most"):
        Dealer(start(), 8).deal_many("one", most)


# What losses weigh reaches workers with their deals; a run whose workers never look at it is warned.


RUNS = {
    "held out": {"holdout": 0.2},
    "left out by weight": {"leave_out": "weight"},
    "weighed": {"policy": LossRanked()},
}


def weigh(run, *, reads, sent=False, light=False):
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
        weigh(RUNS[run], reads=False, sent=sent)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("way", [{}, {"sent": True}, {"sent": True, "light": True}], ids=str)
def test_workers_that_read_them_are_not(run, way):
    assert len(weigh(RUNS[run], reads=True, **way).history) == 4


def test_a_run_without_weights_needs_no_reading():
    weigh({}, reads=False)


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
