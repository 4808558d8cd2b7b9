"""What a dealer's state and its store go on from: before a figure, and where somebody else wrote them."""

import copy
import math

import numpy as np
import pytest

from prunedata import Dealer, Pruner, Schedule, Wait
from prunedata.errors import NeverPrunesWarning, PrunedataError

# A dealer that is stopped between an epoch's last report and its validation figure goes on as if it had not been.


SAMPLES, FIGURES = 50, [0.2, 0.6, 0.8, 0.9, 0.9, 0.6, 0.4, 0.2, 0.1, 0.1]
KEYS = ("kept", "observed", "mean_loss", "validation")


def made(auto_end, **store):
    schedule = Schedule.steady(len(FIGURES))
    pruner = Pruner(SAMPLES, schedule, prune="30%", policy="auto", seed=3, classes=5, **store)
    return Dealer(pruner, 8, auto_end=auto_end)


def train(auto_end, *, stopped=None, folder=None):
    """Train all epochs; in one, between its last report and its figure, go on from the state, or from the store."""
    store = {} if folder is None else {"store": folder / "run.zarr"}
    dealer = made(auto_end, **store)
    for number, figure in enumerate(FIGURES):
        while dealer.pruner.next_epoch == number and not dealer.is_epoch_done:
            deal = dealer.deal("one")
            assert dealer.observe(deal, np.cos(deal.ids * (1 + deal.epoch)))
        if number == stopped:
            state = dealer.state_dict()
            dealer = made(auto_end, **({**store, "resume": True} if store else {}))
            if not store:
                dealer.load_state_dict(state)
            assert dealer.pruner.awaits_figure
            if not auto_end:
                assert dealer.deal("one") == Wait(number, 0)
        dealer.pruner.validated(figure)
        if not auto_end:
            dealer.end_epoch()
    assert dealer.is_finished
    return [[record.get(key) for key in KEYS] for record in dealer.pruner.history], dealer.pruner.counts.tolist()


@pytest.mark.parametrize("epoch", [0, 5, 9])
@pytest.mark.parametrize("auto_end", [True, False])
def test_from_a_state(auto_end, epoch):
    whole = train(auto_end)
    assert min(kept for kept, *_ in whole[0]) < SAMPLES, "it turns and prunes"
    assert train(auto_end, stopped=epoch) == whole


@pytest.mark.parametrize("epoch", [0, 5])
def test_from_the_store_to_which_the_end_was_committed(epoch, tmp_path):
    assert train(True, stopped=epoch, folder=tmp_path) == train(True)


def test_an_epoch_that_goes_without_its_figure_is_told():
    first = made(False)
    for epoch in range(2):
        for _ in range(7):
            first.observe(deal := first.deal("one"), np.cos(deal.ids))
        if not epoch:
            first.end_epoch()
            first.pruner.validated(0.5)
    dealer = made(True)
    dealer.load_state_dict(first.state_dict())
    assert dealer.pruner.awaits_figure
    with pytest.warns(NeverPrunesWarning, match="epoch 1"):
        assert dealer.deal("one").epoch == 2


# States of dealers that somebody else wrote: an error of the library, and nothing is changed.


MISSING = object()
VALUES = [
    None, True, -1, 2**64, 10**400, -(10**5000), 1.5, math.nan, math.inf, "x", b"x", [], {}, [[]], [1], [[1, 2, 3]],
    [[10**400, 1]], [[0, 10**400]], [[0, 9]], [[math.nan, 1]], {"a": 1}, np.array([1, 2, 3]), object(), MISSING,
]  # fmt: skip
PLACES = [
    ("format",), ("batch_size",), ("run",), ("skipped",), ("skipped", 0), ("skipped", 0, 1),
    ("staleness",), ("staleness", 0), ("staleness", 0, 0), ("newest",),
]  # fmt: skip
LISTS = {("skipped",), ("staleness",)}
"""Where an empty list says that there is nothing."""


def dealing():
    return Dealer(Pruner(50, Schedule.steady(5), prune=5), 8)


@pytest.fixture(scope="module")
def state():
    dealer = dealing()
    for number in range(9):
        deal = dealer.deal("one")
        if number == 8:
            dealer.skip(deal)
        else:
            dealer.observe(deal, np.cos(deal.ids), version=number, newest=number + 1)
    return dealer.state_dict()


def is_possible(place, value):
    """Whether a state may have this, though it is another one."""
    if value is MISSING:
        return place[:-1] in LISTS
    empty = type(value) in (list, dict) and not value
    return place in LISTS and (empty or (place[0] == "staleness" and type(value) is list and value == [[0, 9]]))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_no_value_makes_another_error(state, place):
    for value in VALUES:
        forged = copy.deepcopy(state)
        within = forged
        for step in place[:-1]:
            within = within[step]
        within[place[-1]] = value
        if value is MISSING:
            del within[place[-1]]
        dealer = dealing()
        plain = dealer.state_dict()
        if is_possible(place, value):
            dealer.load_state_dict(forged)
            continue
        with pytest.raises(PrunedataError) as caught:
            dealer.load_state_dict(forged)
        assert str(caught.value).isprintable()
        assert dealer.state_dict() == plain


def test_what_is_no_state_at_all():
    for value in VALUES:
        with pytest.raises(PrunedataError):
            dealing().load_state_dict(value)
