"""Stores and checkpoints that were changed in any place: they open as what they say, or the library says why not."""

import json
import shutil
import tracemalloc
import warnings
import zlib
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.cli.main import main
from prunedata.errors import DamagedStore, PrunedataError, StoreError
from prunedata.findings.compare import compare
from prunedata.findings.inspection import advise_now, inspect
from prunedata.findings.table import suspect_table
from prunedata.reporting.report import report
from prunedata.store.run_store import read_run
from tests.common.programs import FEWER
from tests.store.stored_runs import EXTRA, REMOVED, changed, contents, pointer, sign, slot

SAMPLES = 60
SCHEDULE = Schedule.steady(16)
NAN = float("nan")


class Tensor:
    """What is neither true nor false, as tensors of several numbers."""

    def __eq__(self, other):
        return self

    __hash__ = None

    def __bool__(self):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


DEEP = json.loads("[" * 300 + "]" * 300)
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
PLAIN = [
    None, True, 0, 1, 2, -1, 7, 0.5, -0.5, 10**15, 2**63, 10**400, -(10**400), 1e18, 1e300, 1e308, NAN, float("inf"),
    -float("inf"), "", "x", "x" * 100_000, ESCAPE, DEEP, [], {}, [[]], [1, 2], {"": 0}, {"name": "Random"}, REMOVED,
    EXTRA,
]  # fmt: skip
STRANGE = [*PLAIN, b"", np.arange(2), np.float64(NAN), np.int64(3), Tensor(), (1, 2), {1, 2}, {3: 4}, Schedule]


def start(**more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Pruner(SAMPLES, SCHEDULE, prune="20%", policy="auto", classes=3, **more)


def go_on(run, epochs, batches=None):
    for _ in range(epochs):
        epoch = run.begin_epoch()
        for ids in epoch.batches(20):
            run.observe(np.abs(np.sin(ids * 12.9 + epoch.number)) + (ids < 6), ids)
        run.validated(50 + epoch.number - 4 * max(0, epoch.number - 7))
        run.end_epoch()
    for ids in list(run.begin_epoch().batches(20))[:batches] if batches else ():
        run.observe(np.ones(len(ids)), ids)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    place = tmp_path_factory.mktemp("pattern") / "run.zarr"
    run = start(store=place)
    go_on(run, 12, batches=1)
    assert run.advice is not None
    run.commit()
    return place


@pytest.fixture(scope="module")
def saved(pattern):
    return start(store=pattern, resume=True).state_dict()


def places(value, path=()):
    """The way to everything in a document."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def plainly(act, *kinds):
    """Whether it goes well; if not, by an error of the library that can be told."""
    try:
        act()
    except kinds as error:
        assert len(str(error)) < 3000  # noqa: PT017
        assert str(error).isprintable()  # noqa: PT017
        return False
    return True


def look_at(place):
    """All that reads a store."""
    run = read_run(place).state
    advise_now(run)
    suspect_table(place)
    compare((run.mean_excess, run.visits), (run.mean_excess, run.visits))
    inspect(place)
    report(place, compare=place)


def read(place, capsys):
    """It is read or refused as the library does; no command has a traceback, or prints escapes; nothing is changed."""
    plainly(lambda: read_run(place), StoreError)
    plainly(lambda: inspect(place), StoreError)
    plainly(lambda: start(store=place, resume=True), PrunedataError)
    before = contents(place)  # a run that goes on says so, if it was described in other words
    for command in ("inspect {}", "inspect {} --json", "suspects {}", "advise {}", "compare {0} {0}", "doctor {}"):
        assert main(command.format(place).split()) in (0, 1, 2)
        out, err = capsys.readouterr()
        assert err.count("\n") <= 1
        assert "\x1b" not in out + err
        assert "\x07" not in out + err
    assert contents(place) == before


def read_and_resume(place, capsys):
    read(place, capsys)
    plainly(lambda: look_at(place), PrunedataError)
    if plainly(lambda: read_run(place), StoreError):
        assert read_run(place).state.to_json() == pointer(place)["state"]
    if plainly(lambda: start(store=place, resume=True), PrunedataError):
        plainly(lambda: end(start(store=place, resume=True)), PrunedataError)


def end(run):
    go_on(run, 1)
    run.commit()
    assert read_run(run._engine.store.location).state.epoch == run.next_epoch


@pytest.mark.parametrize("part", range(4))
def test_each_place_of_a_store_with_two_kinds_of_values(pattern, tmp_path, capsys, part):
    place, found = Path(shutil.copytree(pattern, tmp_path / "run.zarr")), pointer(pattern)
    for at, path in enumerate(list(places(found))[1 + part :: 4]):
        for value in (PLAIN[7 * at % len(PLAIN)], PLAIN[(7 * at + 13) % len(PLAIN)]):
            sign(place, changed(found, path, value))
            if plainly(lambda: read_run(place), StoreError):  # what is refused is refused alike by all that reads
                read(place, capsys)


@given(data=st.data())
@settings(FEWER, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_store_that_says_anything_anywhere(pattern, tmp_path, capsys, data):
    place = Path(shutil.copytree(pattern, tmp_path / "run.zarr", dirs_exist_ok=True))
    found = pointer(pattern)
    for _ in range(data.draw(st.integers(1, 2))):
        if not isinstance(found, dict):
            break
        path = data.draw(st.sampled_from(list(places(found))[1:]))
        found = changed(found, path, data.draw(st.sampled_from(PLAIN)))
    if not isinstance(found, dict):
        return
    sign(place, found)
    read_and_resume(place, capsys)


@given(data=st.data())
@settings(FEWER, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_store_whose_arrays_hold_anything(pattern, tmp_path, capsys, data):
    """Also of another dtype or length, each with its digest."""
    place = Path(shutil.copytree(pattern, tmp_path / "run.zarr", dirs_exist_ok=True))
    found = pointer(pattern)
    name = data.draw(st.sampled_from(sorted(found["arrays"])))
    about = found["arrays"][name]
    path = place / f"{name}-{slot(place)}" / "c" / "0"
    kind = data.draw(st.sampled_from([about["dtype"]] * 4 + ["|u1", "<i8", "<f2", "<f8"]))
    values = np.full(data.draw(st.sampled_from([SAMPLES] * 4 + [0, 1, SAMPLES + 1])), 0, kind)
    fill = data.draw(st.sampled_from([0, 1, 255, NAN, float("inf"), -1e30]))
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values[::2] = fill
    else:
        values[::2] = fill if abs(fill) < 1e9 else 255
    raw = values.tobytes()
    path.write_bytes(raw)
    about |= {"shape": [values.size], "dtype": kind, "crc32": zlib.crc32(raw)}
    sign(place, found)
    read_and_resume(place, capsys)


@pytest.mark.parametrize("part", range(4))
def test_each_place_of_a_checkpoint_with_each_kind_of_value(saved, part):
    """Nothing is taken over from one that is refused, and one that is taken goes on."""

    def resumed(state):
        run = start()
        run.load_state_dict(state)
        return run

    run = resumed(saved)
    before = run.state_dict()
    for at, path in enumerate(list(places(saved))[part::4]):
        for value in STRANGE:
            state = changed(saved, path, value)
            if not plainly(partial(run.load_state_dict, state), PrunedataError):
                assert run.state_dict() == before
                continue
            if at % 4 == 0:
                plainly(partial(go_on, run, 1), PrunedataError)
            run = resumed(saved)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("state", "history", 3, "validation"), 10**400),
        (("state", "history", 3, "mean_loss"), NAN),
        (("state", "history", 3, "seconds"), 10**400),
        (("state", "history", 3, "seconds"), 1e300),
        (("state", "advice", "evidence"), REMOVED),
        (("state", "advice"), {}),
        (("state", "advice", "policy"), {"name": "RecentLoss", "other": [NAN]}),
        (("state", "meter", "figure_sum"), 10**400),
        (("state", "run", "policy", "name"), 3),
        (("state", "run", "other"), 3),
        (("generation",), 10**400),
        *((("arrays", name), REMOVED) for name in ("high", "open-high", "open-recent", "recent")),
        *((("state", "history", 2, "high"), high) for high in ("many", -1, 0.5, True, None, 1 << 60)),
    ],
)
def test_what_can_be_no_state_is_damage(pattern, tmp_path, path, value):
    place = Path(shutil.copytree(pattern, tmp_path / "run.zarr"))
    sign(place, changed(pointer(place), path, value))
    with pytest.raises(DamagedStore):
        start(store=place, resume=True)
    if path[-1] != "recent":  # which arrays a policy has, only the run itself knows
        with pytest.raises(DamagedStore):
            inspect(place)


@pytest.mark.parametrize("name", ["*", "?", "classes?", "by?", "more"])
def test_no_name_means_more_than_itself(pattern, tmp_path, name):
    place = Path(shutil.copytree(pattern, tmp_path / "run.zarr"))
    found = pointer(place)
    found["state"]["run"][name] = None
    sign(place, found)
    with pytest.raises(DamagedStore):
        inspect(place)


def test_the_bytes_of_an_array_are_not_made_from_a_number(saved):
    """As Python's bytes(n) would."""
    run = start()
    tracemalloc.start()
    with pytest.raises(PrunedataError, match="hits: data to be bytes"):
        run.load_state_dict(changed(saved, ("arrays", "hits", "data"), 200_000_000))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20


def test_a_schedule_in_force_is_of_as_many_epochs_as_was_given(saved):
    state = changed(saved, ("state", "schedule", "epochs"), 1 << 50)
    with pytest.raises(PrunedataError, match=r"run's 16 epochs"):
        start().load_state_dict(state)


def test_arrays_may_come_in_any_kind_of_bytes(saved):
    """As other formats of checkpoints give them back."""
    for kind in (bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)):
        state = deepcopy(saved)
        for array in state["arrays"].values():
            array["data"] = kind(array["data"])
        run = start()
        run.load_state_dict(state)
        assert run.state_dict()["arrays"] == saved["arrays"]


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
