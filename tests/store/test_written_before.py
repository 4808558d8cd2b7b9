"""Stores and checkpoints that an earlier commit wrote: they open, go on, and end as that commit would have ended them.

The folder written_before holds them, and what wrote them.
"""

import base64
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from prunedata.findings.inspection import inspect
from tests.store.written_before.runs import RUNS, SAMPLES, STOPS, make, outcome, train

FOLDER = Path(__file__).parent / "written_before"


def as_bytes(found):
    return base64.b64decode(found["base64"]) if found.keys() == {"base64"} else found


@pytest.fixture(params=RUNS)
def name(request):
    return request.param


@pytest.fixture
def written(name, tmp_path):
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as packed:
        packed.extractall(tmp_path)
    return tmp_path


def assert_ends_as_expected(run, name, written):
    expected = np.load(written / "expected.npz")
    first = STOPS[name]
    assert run.next_epoch == first
    seen = train(run, name, run.schedule.epochs - first)
    assert np.array_equal(np.packbits([keep for _, keep, _ in seen], axis=1), expected["keep"][first:])
    weights = [0.0 if weights is None else weights.sum() for *_, weights in seen]
    assert np.array_equal(weights, expected["weights"][first:])
    found = outcome(run)
    assert found.keys() == set(expected.files) - {"keep", "weights"}
    for array, values in found.items():
        assert np.array_equal(values, expected[array]), array


@pytest.mark.parametrize("where", ["between", "within"])
def test_a_store_goes_on(name, written, where):
    place = written / f"{where}.zarr"
    found = inspect(place)
    assert (found["samples"], found["epoch"], found["open"]) == (SAMPLES, STOPS[name], where == "within")
    assert_ends_as_expected(make(name, store=place, resume=True), name, written)
    again = make(name, store=place, resume=True)
    assert again.next_epoch == again.schedule.epochs


@pytest.mark.parametrize("where", ["between", "within"])
def test_a_checkpoint_goes_on(name, written, where):
    run = make(name)
    run.load_state_dict(json.loads((written / f"{where}.json").read_text(), object_hook=as_bytes))
    assert_ends_as_expected(run, name, written)


def test_they_are_not_all_trivial(written, name):
    """Samples were pruned, before and after the stop, and were not always the same."""
    keep = np.unpackbits(np.load(written / "expected.npz")["keep"], axis=1)[:, :SAMPLES]
    stop = STOPS[name]
    assert (keep[:stop] == 0).any()
    assert (keep[stop:] == 0).any()
    assert len(np.unique(keep, axis=0)) > 2 or name == "auto"
