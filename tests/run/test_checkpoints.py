"""What somebody gives load_state_dict: it is refused by an error of the library, and changes nothing."""

import copy

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.policies import RunningLoss

SAMPLES = 12


def make():
    return Pruner(SAMPLES, Schedule.steady(6), prune=3, policy=RunningLoss())


def trained():
    run = make()
    for epoch in run.epochs():
        for ids in epoch.batches(4):
            run.observe(np.cos(ids), ids)
        run.validated(0.5)
        if epoch.number == 2:
            break
    run.observe(np.ones(4), np.arange(4)) if run.begin_epoch() else None
    return run


NO_CHECKPOINTS = [
    None, 5, "state", b"state", object(), {}, [], [5], [None], {1, 2}, np.array(3), np.arange(3), memoryview(b"ab"),
    memoryview(np.zeros((2, 2))), [np.array(3)], np.array([{}], object),
]  # fmt: skip
PLACES = [
    ("format",), ("state",), ("state", "epoch"), ("state", "open"), ("state", "observed"), ("state", "run"),
    ("state", "run", "seed"), ("state", "run", "samples"), ("state", "run", "policy"),
    ("state", "run", "policy", "decay"), ("state", "run", "schedule"), ("state", "run", "schedule", "window"),
    ("state", "schedule", "start"), ("state", "meter", "seconds"), ("state", "history"), ("state", "history", 1),
    ("state", "history", 1, "validation"), ("state", "history", 1, "mean_loss"), ("arrays",), ("arrays", "loss"),
    ("arrays", "counts", "data"), ("arrays", "counts", "dtype"),
]  # fmt: skip
VALUES = [np.arange(2), np.array(3), np.float64(2.5), memoryview(b"abc"), memoryview(np.zeros((2, 2)))]


def in_place(state, place, value):
    changed = copy.deepcopy(state)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return changed


def refused(given):
    run = make()
    before = run.state_dict()["arrays"], run.next_epoch
    with pytest.raises(PrunedataError):
        run.load_state_dict(given)
    assert (run.state_dict()["arrays"], run.next_epoch) == before


@pytest.mark.parametrize("given", NO_CHECKPOINTS, ids=lambda given: type(given).__name__)
def test_what_is_no_checkpoint_is_refused(given):
    refused(given)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_arrays_in_the_place_of_numbers_are_refused(place):
    for value in VALUES:
        if place != ("state", "history", 1, "mean_loss") or type(value) is not np.float64:
            refused(in_place(trained().state_dict(), place, value))


@pytest.mark.parametrize(
    "place", [one for one in PLACES if one != ("format",)], ids=lambda place: ".".join(map(str, place))
)
def test_so_are_tensors(place):
    torch = pytest.importorskip("torch")
    for value in (torch.tensor([1.0, 2.0]), torch.tensor(3), torch.tensor(2.5)):
        refused(in_place(trained().state_dict(), place, value))


def test_arrays_may_come_as_whatever_holds_their_bytes():
    """As formats of checkpoints give them back."""
    state, whole = trained().state_dict(), make()
    whole.load_state_dict(state)
    for kind in (bytearray, memoryview):
        packed = {name: one | {"data": kind(one["data"])} for name, one in state["arrays"].items()}
        run = make()
        run.load_state_dict(state | {"arrays": packed})
        assert run.state_dict()["arrays"] == whole.state_dict()["arrays"]
