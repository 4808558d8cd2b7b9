"""Large runs: measured small, the law, and bytes a sample."""

import shutil
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common.records import Runs
from benchmarks.scale.__main__ import main
from benchmarks.scale.exchange import measure_exchange
from benchmarks.scale.table import fit
from prunedata import Pruner, Schedule
from prunedata.policies import DroppingCount, RunningLoss

ON_LINUX = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read as Linux tells it")


@ON_LINUX
def test_a_run_is_measured_in_a_process_of_its_own_and_recorded(tmp_path, capsys):
    sizes = ("200000", "400000")
    results = Runs(tmp_path / "runs.jsonl.bz2")
    assert main(["run", "--samples", *sizes, "--policy", "running-loss", "--results", str(results.file)]) == 0
    small, large = sorted(results.read(), key=lambda run: run["samples"])
    assert (small["samples"], large["samples"]) == (200_000, 400_000)
    for run in (small, large):
        assert run["kept"] == run["samples"] * 3 // 4
        # Five arrays, in two slots each: three of a byte a sample, two of four. And their metadata.
        assert 22 * run["samples"] <= run["store_bytes"] < 22 * run["samples"] + 25_000
        assert all(step["seconds"] >= 0 for step in run["steps"].values())
    most = [max(step["peak_bytes"] for step in run["steps"].values()) for run in (small, large)]
    assert most[1] > most[0] > 16 * 200_000
    capsys.readouterr()
    assert main(["table", "--results", str(results.file)]) == 0
    assert "| 400,000 " in capsys.readouterr().out


def namespaces():
    """Why no network namespace can be made here; empty if one can."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "unshare and ip are not installed"
    done = subprocess.run(["unshare", "--map-root-user", "--net", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


@ON_LINUX
@pytest.mark.slow
def test_two_ranks_exchange_two_bits_and_a_loss_a_sample():
    pytest.importorskip("torch")
    if why := namespaces():
        pytest.skip(f"no network namespaces: {why}")
    found = measure_exchange(500_000)
    sent = [found["steps"][f"exchange, {kind}"]["sent_bytes"] for kind in ("all", "pruned")]
    assert min(sent) > 0
    assert max(sent) < 4.4 * 500_000, "and what packets say of themselves, more on a busy machine"


def test_a_law_gives_back_what_it_made():
    law = fit({size: 300 + 2.5 * size for size in (10_000_000, 30_000_000, 100_000_000)})
    assert (law.fixed, law.each) == (pytest.approx(300, rel=1e-2), pytest.approx(2.5))
    assert law.at(10) == pytest.approx(325, rel=1e-2)
    beyond = fit({1_000_000: 9e9, 10_000_000: 20.0, 20_000_000: 40.0, 1_000_000_000: 1e9})
    assert beyond.at(30_000_000) == pytest.approx(60.0), "sizes that are not fitted change nothing"
    assert fit({10_000_000: 2.0}) is None


def test_without_namespaces_it_says_what_it_needs(monkeypatch):
    def refused(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "unshare: Operation not permitted")

    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(OSError, match=r"network namespace of their own.*not permitted"):
        measure_exchange(10)


# How many bytes a sample a run takes: what docs/frameworks/scale.md says.


SAMPLES = 1 << 21
FIXED = 6 << 20
"""Bytes of what does not grow with the samples: the block of losses, pieces of the order."""


@pytest.fixture
def traced():
    tracemalloc.start()
    yield tracemalloc.get_traced_memory
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("policy", "within", "most"),
    # Counts, hits, visits and mask: a byte each. The tally of the epoch: four; the mean excess four, and in the epoch
    # four more. At its end new counts beside the old.
    [(DroppingCount(), 16, 19), (RunningLoss(), 24, 27)],
)
def test_a_run_takes_so_many_bytes_a_sample(traced, policy, within, most):
    ids, losses = np.arange(SAMPLES), np.random.default_rng(0).random(SAMPLES, dtype=np.float32)
    before = traced()[0]
    pruner = Pruner(SAMPLES, Schedule(200, 200, 1, 1, 1), prune=0.25, policy=policy)
    for _ in range(2):
        tracemalloc.reset_peak()
        epoch = pruner.begin_epoch()
        for first in range(0, SAMPLES, 1 << 16):
            some = slice(first, first + (1 << 16))
            kept = epoch.keep[some]
            pruner.observe(losses[some][kept], ids[some][kept])
        del epoch
        assert traced()[0] - before < within * SAMPLES + FIXED
        pruner.end_epoch()
        assert traced()[1] - before < most * SAMPLES + FIXED


def test_ranks_are_compared_without_a_copy_of_what_they_know(traced):
    pruner = Pruner(SAMPLES, Schedule(4, 4, 1, 1, 1), prune=0.25)
    before = traced()[0]
    tracemalloc.reset_peak()
    pruner.standing()
    assert traced()[1] - before < SAMPLES // 8
