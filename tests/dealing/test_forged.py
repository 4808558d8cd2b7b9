"""States of dealers that somebody else wrote: an error of the library, and nothing is changed."""

import copy
import math

import numpy as np
import pytest

from prunedata import Dealer, Pruner, Schedule
from prunedata.errors import PrunedataError

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
