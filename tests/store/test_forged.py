"""Stores and checkpoints that were changed in any place: they open as what they say, or the library says why not."""

import shutil
import warnings
import zlib
from copy import deepcopy
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
from tests.store.stored_runs import contents, pointer, slot
from tests.store.test_strangers import sign

SAMPLES = 60
SCHEDULE = Schedule.steady(16)
REMOVED, EXTRA = object(), object()
NAN = float("nan")


class Tensor:
    """What is neither true nor false, as tensors of several numbers."""

    def __eq__(self, other):
        return self

    __hash__ = None

    def __bool__(self):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


PLAIN = [
    None, True, 0, 1, 2, -1, 7, 0.5, -0.5, 10**15, 2**63, 10**400, -(10**400), 1e18, 1e300, 1e308, NAN, float("inf"),
    -float("inf"), "", "x", "x" * 300, "\x1b[2J", [], {}, [[]], [1, 2], {"": 0}, {"name": "Random"}, REMOVED, EXTRA,
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


def changed(document, path, value):
    if not path:
        return document if value in (REMOVED, EXTRA) else value
    copy = deepcopy(document)
    field = copy
    for key in path[:-1]:
        field = field[key]
    if value is REMOVED:
        del field[path[-1]]
    elif value is not EXTRA:
        field[path[-1]] = value
    elif isinstance(field, dict):
        field["besides"] = 1
    else:
        field.append(1)
    return copy


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


def read_and_resume(place, capsys):
    before = contents(place)
    plainly(lambda: look_at(place), PrunedataError)
    for command in ("inspect {}", "suspects {}", "advise {}", "compare {0} {0}", "doctor {}"):
        assert main(command.format(place).split()) in (0, 1, 2)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert "\x1b" not in out + err
    assert contents(place) == before
    if plainly(lambda: read_run(place), StoreError):
        said, found = read_run(place).state.to_json(), pointer(place)
        for number, sketch in found["sketch"].items():
            assert said["history"][int(number)].pop("sketch") == sketch
        assert said == found["state"]
    if plainly(lambda: start(store=place, resume=True), PrunedataError):
        plainly(lambda: end(start(store=place, resume=True)), PrunedataError)


def end(run):
    go_on(run, 1)
    run.commit()
    assert read_run(run._engine.store.location).state.epoch == run.next_epoch


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


@given(data=st.data())
@settings(FEWER, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_checkpoint_that_says_anything_anywhere(saved, data):
    run = start()
    run.load_state_dict(saved)
    before = run.state_dict()
    path = data.draw(st.sampled_from(list(places(saved))))
    state = changed(saved, path, data.draw(st.sampled_from(STRANGE)))
    if plainly(lambda: run.load_state_dict(state), PrunedataError):
        plainly(lambda: go_on(run, 1), PrunedataError)
    else:
        assert run.state_dict() == before


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
    ],
)
def test_what_can_be_no_state_is_damage(pattern, tmp_path, path, value):
    place = Path(shutil.copytree(pattern, tmp_path / "run.zarr"))
    sign(place, changed(pointer(place), path, value))
    for act in (lambda: inspect(place), lambda: start(store=place, resume=True)):
        with pytest.raises(DamagedStore):
            act()


@pytest.mark.parametrize("name", ["*", "?", "classes?", "by?", "more"])
def test_no_name_means_more_than_itself(pattern, tmp_path, name):
    place = Path(shutil.copytree(pattern, tmp_path / "run.zarr"))
    found = pointer(place)
    found["state"]["run"][name] = None
    sign(place, found)
    with pytest.raises(DamagedStore):
        inspect(place)
