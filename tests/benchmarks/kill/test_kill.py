"""A training killed with SIGKILL at random instants comes to what it would have come to, to the bit."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kill.__main__ import Outcome, kill_runs, live, main
from benchmarks.kill.worker_numpy import EPOCHS, SAMPLES, result
from prunedata.findings.inspection import inspect
from tests.programs import run_module


@pytest.mark.slow
class TestKills:
    def test_a_run_resumed_from_its_store(self, tmp_path):
        outcome = kill_runs("store", tmp_path, kills=12, seed=1, tick=lambda: None)
        assert asdict(outcome) == {
            **asdict(Outcome("store", kills=12)),
            "runs": outcome.runs,
            "while_saving": outcome.while_saving,
            "while_opening": outcome.while_opening,
        }
        assert outcome.good
        assert outcome.while_saving > 0  # its epochs are so short that most kills fall into a commit
        whole = result(tmp_path / "never-killed")
        assert len(whole["history"]) == EPOCHS
        assert {record["kept"] for record in whole["history"]} == {SAMPLES, SAMPLES * 7 // 10}
        assert sum(whole["hits"]) > SAMPLES

    def test_a_run_resumed_within_an_epoch_from_the_models_checkpoint(self, tmp_path):
        pytest.importorskip("torch")
        outcome = kill_runs("state", tmp_path, kills=4, seed=1, tick=lambda: None)
        assert outcome.good
        assert outcome.kills == 4

    def test_the_program(self, capsys):
        assert main(["--kills", "1", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["kills"], found["torn"], found["lost"], found["different"]) == (1, 0, 0, 0)


@pytest.mark.slow
class TestTheProofCanFail:
    """What would be reported if the store did not hold what it promises."""

    @pytest.fixture
    def stopped(self, tmp_path):
        """A run that was killed once its first epochs were safe."""
        folder = tmp_path / "run"
        folder.mkdir()
        seconds = 0.1
        while not live("store", folder, seconds).epochs("saved"):
            seconds *= 2
        assert not (folder / "result.json").exists()
        return folder

    def test_torn(self, stopped):
        path = stopped / "run.zarr" / "zarr.json"
        path.write_bytes(path.read_bytes()[:-20])
        assert "DamagedStore" in live("store", stopped, None).failed

    def test_lost(self, stopped):
        shutil.rmtree(stopped / "run.zarr")
        assert live("store", stopped, None).epochs("resumed") == 0

    def test_different(self, stopped):
        """A checkpoint that is off by its last bits: the weights that come out are others."""
        # The one that the store names: the kill may have left the next one half written.
        path = stopped / f"model-{inspect(stopped / 'run.zarr')['epoch']}.npz"
        with np.load(path) as file:
            saved = dict(file)
        np.savez(path, **{**saved, "velocity": np.nextafter(saved["velocity"], 1)})
        life = live("store", stopped, None)
        assert life.failed == ""
        whole = stopped.with_name("whole")
        whole.mkdir()
        live("store", whole, None)
        assert result(stopped)["weights"] != result(whole)["weights"]


def test_a_bad_argument_is_refused():
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "benchmarks.kill", "--way", "hope"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice" in done.stderr


@pytest.mark.slow
def test_workers_and_dealers_that_are_killed(tmp_path):
    pytest.importorskip("ray")
    told = run_module("benchmarks.kill.dealt", "--workers", "2", "--dealers", "1", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["workers"], found["dealers"], found["different"], found["unclear"]) == (2, 1, 0, 0)
