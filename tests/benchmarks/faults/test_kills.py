"""What a killed training is held to: torn, lost and different ones are told from one that came through."""

import shutil

import numpy as np
import pytest

from benchmarks.faults.attacks.kills import live
from benchmarks.faults.training.in_numpy import EPOCHS, SAMPLES, result, train
from prunedata.findings.inspection import inspect

# Forked from a process whose threads only wait, as those of zarr do.
pytestmark = pytest.mark.slow


def first_epoch(life):
    return int(life.said("resumed")[0])


@pytest.fixture
def stopped(tmp_path):
    """A run that was killed once its first epochs were safe."""
    folder = tmp_path / "run"
    folder.mkdir()
    seconds = 0.05
    while not live(train, folder, seconds=seconds).said("saved"):
        seconds *= 2
    assert not (folder / "result.json").exists()
    return folder


def test_a_killed_run_comes_to_what_one_that_was_not_comes_to(stopped, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    assert not live(train, whole).failed
    life = live(train, stopped)
    assert not life.failed
    assert first_epoch(life) > 0
    assert result(stopped) == result(whole)
    assert len(result(whole)["history"]) == EPOCHS
    assert {record["kept"] for record in result(whole)["history"]} == {SAMPLES, SAMPLES * 7 // 10}


def test_torn(stopped):
    path = stopped / "run.zarr" / "zarr.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert "DamagedStore" in live(train, stopped).failed


def test_lost(stopped):
    shutil.rmtree(stopped / "run.zarr")
    assert first_epoch(live(train, stopped)) == 0


def test_different(stopped, tmp_path):
    """A checkpoint that is off by its last bits: the weights that come out are others."""
    # The one that the store names: the kill may have left the next one half written.
    path = stopped / f"model-{inspect(stopped / 'run.zarr')['epoch']}.npz"
    with np.load(path) as file:
        saved = dict(file)
    np.savez(path, **{**saved, "velocity": np.nextafter(saved["velocity"], 1)})
    assert not live(train, stopped).failed
    whole = tmp_path / "whole"
    whole.mkdir()
    live(train, whole)
    assert result(stopped)["weights"] != result(whole)["weights"]
