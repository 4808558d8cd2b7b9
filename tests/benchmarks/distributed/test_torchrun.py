"""``sync`` under a launcher: torchrun's ranks train as those that the trainer starts itself."""

import json
from functools import partial

import pytest
import torch
import torch.distributed as dist

from benchmarks.common.data import digits
from benchmarks.common.processes.ranks import RankFailed, in_ranks
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.training.in_step import train_as_rank
from benchmarks.distributed.training.task import Training, fewer
from tests.common.programs import run_module

GIVEN = ("--mode", "sync", "--epochs", "2", "--samples", "200", "--prune", "0.3")


@pytest.mark.slow
def test_torchruns_ranks_make_the_same_weights_and_one_of_them_prints(tmp_path, capsys):
    torchrun = partial(run_module, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    given = ("train", *GIVEN, "--checkpoint")
    told = torchrun("benchmarks.distributed", *given, str(tmp_path / "torchrun"), cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert main([*given, str(tmp_path / "own")]) == 0
    ours, theirs = json.loads(capsys.readouterr().out), json.loads(told.stdout)
    assert theirs["visits"] == ours["visits"] == [200, 140]
    assert [loss for _, loss in theirs["curve"]] == [loss for _, loss in ours["curve"]]
    held, other = (torch.load(tmp_path / name, weights_only=True) for name in ("torchrun", "own"))
    assert torch.equal(held["weights"], other["weights"])
    assert torch.equal(held["average"], other["average"])


def launch(monkeypatch, size):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(size))


def test_as_many_processes_as_replicas_are_expected(monkeypatch):
    launch(monkeypatch, 3)
    with pytest.raises(ValueError, match=r"Expected 2 processes: 2 workers times 1 replicas\. Got 3 from the launcher"):
        main(["train", *GIVEN])


@pytest.mark.parametrize("given", [["train", "--mode", "async"], ["kills", "--mode", "sync"]])
def test_what_starts_its_own_processes_is_refused_under_a_launcher(monkeypatch, given):
    launch(monkeypatch, 2)
    with pytest.raises(ValueError, match="Expected train or throughput with --mode sync under torchrun"):
        main(given)


def differ():
    """A rank of a run in which each rank was given another learning rate."""
    train_as_rank(Training(mode="sync", learning_rate=0.1 * (1 + dist.get_rank())), fewer(digits(), 100, 50), None)


@pytest.mark.slow
def test_ranks_that_disagree_say_in_what():
    with pytest.raises(RankFailed, match=r"ranks that differ \(learning_rate: rank 0 has 0.1, rank 1 has 0.2\)"):
        in_ranks(2, differ)
