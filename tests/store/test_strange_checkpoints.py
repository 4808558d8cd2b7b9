"""Checkpoints and advice that nobody wrote as they are: refused with a plain error, and nothing is taken over."""

import json
import tracemalloc
from copy import deepcopy

import numpy as np
import pytest

from prunedata import Pruner
from prunedata.errors import PrunedataError
from prunedata.findings.advice import Advice, advise
from prunedata.plan.schedule import Schedule
from tests.store.stored_runs import observe, standing, start

REMOVED = object()
DEEP = json.loads("[" * 500 + "]" * 500)
VALUES = [
    None, True, -1, 0.5, 10**13, 10**300, "", "x" * 100_000, "\x1b[2J", [], {}, b"", DEEP, REMOVED,
    np.arange(2), np.array(3), np.float64(2.5), memoryview(b"abc"), memoryview(np.zeros((2, 2))), object(), {1, 2},
]  # fmt: skip
FIELDS = [
    (),
    ("format",),
    ("arrays",),
    ("arrays", "hits"),
    ("arrays", "hits", "data"),
    ("arrays", "hits", "dtype"),
    ("arrays", "tally", "dtype"),
    ("arrays", 3),
    ("state",),
    *(
        ("state", name)
        for name in (
            "run", "schedule", "epoch", "open", "complete", "skipped", "observed", "meter", "history", "advice",
            "processes",
        )
    ),
    ("state", "history", 1),
    ("state", "history", 1, "kept"),
    ("state", "meter", "loss_sum"),
    ("state", "run", "samples"),
    ("state", "run", "schedule"),
    ("state", "run", "policy"),
    ("state", "schedule", "epochs"),
    ("state", "schedule", "window"),
]  # fmt: skip

TAKEN = {
    ("format",), ("arrays", 3), ("state", "meter", "loss_sum"), ("state", "schedule", "window"),
    *(("state", name) for name in ("open", "complete", "skipped", "observed", "advice", "processes")),
}  # fmt: skip
"""What may be otherwise, for some values: True is 1, and a window may be of any length."""


def changed(found, path, value):
    if not path:
        return value
    copy = deepcopy(found)
    field = copy
    for name in path[:-1]:
        field = field[name]
    if value is REMOVED:
        field.pop(path[-1], None) if isinstance(field, dict) else field.pop(path[-1])
    else:
        field[path[-1]] = value
    return copy


@pytest.fixture(scope="module")
def saved():
    run = start(None)
    for _ in range(3):
        observe(run)
        run.end_epoch()
    observe(run, 2)
    return run.state_dict()


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(map(str, field)) or "all")
def test_each_field_with_each_kind_of_value(saved, field):
    run = start(None)
    run.load_state_dict(saved)
    before = standing(run)
    for value in VALUES:
        state = changed(saved, field, value)
        other = start(None)
        other.load_state_dict(saved)
        try:
            other.load_state_dict(state)
        except PrunedataError as error:
            assert len(str(error)) < 3000  # noqa: PT017 (some are taken)
            assert str(error).isprintable()  # noqa: PT017
            assert standing(other) == before
        else:  # it says something that can be: another count of skipped samples, or nothing of what has a default
            assert field in TAKEN, value


def test_the_bytes_of_an_array_are_not_made_from_a_number(saved):
    """As Python's bytes(n) would."""
    run = start(None)
    tracemalloc.start()
    with pytest.raises(PrunedataError, match="hits: data to be bytes"):
        run.load_state_dict(changed(saved, ("arrays", "hits", "data"), 200_000_000))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20


def test_a_schedule_in_force_is_of_as_many_epochs_as_was_given(saved):
    state = changed(saved, ("state", "schedule", "epochs"), 1 << 50)
    with pytest.raises(PrunedataError, match=r"run's 8 epochs"):
        start(None).load_state_dict(state)


def test_arrays_may_come_in_any_kind_of_bytes(saved):
    """As other formats of checkpoints give them back."""
    for kind in (bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)):
        state = deepcopy(saved)
        for array in state["arrays"].values():
            array["data"] = kind(array["data"])
        run = start(None)
        run.load_state_dict(state)
        assert run.state_dict()["arrays"] == saved["arrays"]


ADVICE = advise(
    [
        {"number": at, "kept": 100, "observed": 100, "mean_loss": 2.0, "validation": figure}
        for at, figure in enumerate([20.0, 40, 60, 70, 74, 75, 70, 62, 55])
    ],
    Schedule(60, 60, 20, 5, 4),
    np.linspace(-1, 1, 100),
).to_dict()


@pytest.mark.parametrize("field", ADVICE)
def test_advice_with_each_kind_of_value(field):
    assert Advice.from_dict(json.loads(json.dumps(ADVICE))).verdict == "prune"
    refused = 0
    for value in VALUES:
        try:
            found = Advice.from_dict(changed(ADVICE, (field,), value))
        except PrunedataError as error:
            refused += 1
            assert len(str(error)) < 3000  # noqa: PT017
            assert str(error).isprintable()  # noqa: PT017
        else:
            assert Advice.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert refused >= 6


def test_a_run_of_ten_million_epochs_is_made_without_a_look_at_each(tmp_path, monkeypatch):
    looks = []

    def prunes(self, epoch, _prunes=Schedule.prunes):
        looks.append(epoch)
        return _prunes(self, epoch)

    monkeypatch.setattr(Schedule, "prunes", prunes)
    run = Pruner(100, Schedule(10_000_000, 60, 20, 5, 4, 2), prune=20, store=tmp_path / "run.zarr")
    run.begin_epoch()
    run.observe(np.arange(100.0), np.arange(100))
    run.end_epoch()
    again = Pruner(100, Schedule(10_000_000, 60, 20, 5, 4, 2), prune=20, store=tmp_path / "run.zarr", resume=True)
    assert again.next_epoch == 1
    assert len(looks) < 10


@pytest.mark.parametrize("size", [1e31, -1e200])
def test_losses_of_any_size_are_no_reason_to_refuse_a_run(size):
    def make():
        return Pruner(8, Schedule(epochs=4, window=4, start=1, block=1, pruned_per_block=1), prune=2)

    run = make()
    run.begin_epoch()
    run.observe(np.linspace(0.5, 1, 4) * size, np.arange(4))
    again = make()
    again.load_state_dict(run.state_dict())
    assert again.state_dict()["state"]["meter"]["loss_sum"] == run.state_dict()["state"]["meter"]["loss_sum"]
    assert again.counts.tolist() == run.counts.tolist()
