"""Workers and dealers that are killed for real."""

import json

import pytest

from tests.common.programs import run_module


@pytest.mark.slow
def test_workers_and_dealers_that_are_killed(tmp_path):
    pytest.importorskip("ray")
    command = ["--workers", "2", "--dealers", "1", "--json"]
    told = run_module("benchmarks.faults.training.dealt", *command, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["workers"], found["dealers"], found["different"], found["unclear"]) == (2, 1, 0, 0)
