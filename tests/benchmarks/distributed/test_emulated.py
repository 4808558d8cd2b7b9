"""Emulated devices and links: slept, moved, counted, and said."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.common.commands import program
from benchmarks.common.data import digits
from benchmarks.common.records import Runs
from benchmarks.distributed import hosts, link
from benchmarks.distributed.arguments import add_task, task_of
from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.emulated import runs
from benchmarks.distributed.emulated.__main__ import UNABLE, main
from benchmarks.distributed.emulated.runs import as_arguments, measure
from benchmarks.distributed.hosts import unable
from benchmarks.distributed.measured.results import read
from benchmarks.distributed.training.in_step import train_as_rank
from benchmarks.distributed.training.replica import Replica
from benchmarks.distributed.training.task import Training, fewer

FEW = fewer(digits(), 64, 16)
EVERY = runs.runs_to_make(tuple(runs.RUNS))


@pytest.mark.parametrize("stretch", [1.0, 2.0, 4.0])
def test_a_device_never_takes_less_than_it_says_times_the_stretch(stretch):
    task = Training(mode="sync", workers=1, epochs=1, batch=32, device_time=0.001, stretch=stretch)
    found = train_as_rank(task, FEW, None)
    assert found["updates"] == 2
    assert found["parts"]["device"] > 0
    assert found["images_per_second"] * stretch <= 1 / 0.001
    assert found["load"] >= 0


def test_an_emulated_device_trains_the_weights_that_the_real_one_trains():
    task = Training(mode="sync", workers=1, epochs=1, batch=32)
    losses = [
        [loss for _, loss in train_as_rank(one, FEW, None)["curve"]]
        for one in (task, replace(task, device_time=0.0001, stretch=2.0, parameters=100_000))
    ]
    assert losses[0] == losses[1]


def test_ballast_is_moved_and_updated_and_the_network_does_not_see_it():
    replica = Replica(Training(parameters=100_000), FEW)
    weights = replica.weights()
    assert weights.shape == (100_000,)
    replica.load_weights(weights + np.float32(1))
    own = replica.weights()[:61_706]
    assert np.allclose(own, weights[:61_706] + 1)
    gradient, losses = replica.gradient(replica.batch(np.arange(4)), 4, None)
    assert (gradient.shape, losses.shape) == ((100_000,), (4,))
    assert np.count_nonzero(gradient[61_706:]) > 38_000
    with pytest.raises(ValueError, match=r"Expected at least the 61,706 weights of lenet\. Got 9"):
        Replica(Training(parameters=9), FEW)


def test_a_device_and_its_links_are_slowed_alike():
    for run in EVERY:
        batch = run.training.batch * run.training.device_time
        if run.group != "loss":
            assert batch == pytest.approx(STUDY.compute_seconds, rel=0.005)
        bits = 8 * STUDY.step_bytes / run.shrink / float(run.rate.removesuffix("bit"))
        assert bits / run.training.stretch == pytest.approx(STUDY.step_bytes / run.gigabytes / 1e9, rel=1e-6)


def test_the_command_that_is_run_gives_the_task_that_was_planned():
    parser = program("train", "")
    add_task(parser, "async")
    for run in EVERY:
        assert task_of(parser.parse_args(as_arguments(run.training))) == run.training


def test_what_is_not_planned_or_cannot_be_run_is_said(monkeypatch, capsys):
    assert main(["run", "--groups", "tables,none"]) == 2
    assert "Got none." in capsys.readouterr().err
    monkeypatch.setattr("benchmarks.distributed.emulated.__main__.unable", lambda: "no ip: install iproute2")
    assert main(["run", "--groups", "loss"]) == UNABLE
    assert main(["list", "--groups", "loss"]) == 0
    assert capsys.readouterr().out.startswith("loss 7.5 GB/s as ")


@pytest.mark.slow
def test_a_cluster_of_namespaces_trains_in_local_steps_and_moves_the_models_bytes(tmp_path):
    if why := unable():
        pytest.skip(f"no network namespaces: {why}")
    pytest.importorskip("ray")
    run = runs.whole(
        "local", Configuration(2, 1), mode="local", local_steps=4, epochs=1, batch=16, device_time=0.001, stretch=1.0
    )
    run = replace(run, samples=256)
    recorded = Runs(tmp_path / "runs.jsonl.bz2")
    assert measure([run], recorded, None) == 0
    (facts,) = read(recorded, "emulated")
    assert facts["visits"] == [256]
    assert 2 <= facts["updates"] <= 4  # a worker that is late leaves its share to the other, which then goes on alone
    assert facts["workers_lost"] == []
    # The server is on the first host: the second pulls and pushes all of the weights in each of its updates,
    # of which it makes one at least.
    assert facts["sent"][1] > 4 * runs.PARAMETERS
    assert "tbf limits to" in facts["emulated"]
    assert measure([run], recorded, None) == 0  # and is not made again
    assert read(recorded, "emulated") == [facts]


# Two hosts in network namespaces: bytes on the link are counted, the model's are as said, nothing is left.


def test_where_namespaces_are_not_allowed_it_says_so(monkeypatch, capsys):
    refused = SimpleNamespace(returncode=1, stderr="mkdir /run/netns failed: Permission denied\n", stdout="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    monkeypatch.setattr(hosts.shutil, "which", lambda name: f"/sbin/{name}")
    assert link.main(["true"]) == link.UNABLE
    assert "Expected to make network namespaces. Got: mkdir /run/netns failed" in capsys.readouterr().err
    monkeypatch.setattr(hosts.shutil, "which", lambda _: None)
    assert hosts.unable() == "no ip and no tc: install iproute2"


def test_the_models_bytes_are_weights_and_gradients_in_each_update():
    printed = json.dumps({"network": "lenet", "outputs": None, "updates": 90})
    weights = 61_706  # LeNet's, for images of one channel
    found = link.expected(printed, seen=round(1.05 * 90 * 2 * 4 * weights))
    assert found == {"updates": 90, "model": 90 * 2 * 4 * weights, "seen_over_model": 1.05}
    assert link.expected("no JSON", seen=10) == {}


REDUCE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(250_000)
dist.all_reduce(ones)
print(dist.get_rank(), ones.sum().item())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_has_a_rank_on_each_host_and_they_talk_over_the_link(tmp_path):
    if why := hosts.unable():
        pytest.skip(f"no network namespaces: {why}")
    program = tmp_path / "reduce.py"
    program.write_text(REDUCE)
    with hosts.hosts(2, "200mbit", ray=False) as pair:
        printed = link.torchrun(pair, [str(program)])
        sent, received = pair.bytes()
    assert printed == "0 500000.0\n"
    # A million bytes each way, their headers, and what the ranks say to find each other.
    assert all(1_000_000 < seen < 1_150_000 for seen in (sent, received))


SEND = f"""
import socket
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    for _ in range(20):
        sender.sendto(bytes(1000), ("{hosts.address(1)}", 9))
"""


def test_bytes_on_the_link_are_counted_and_limited():
    if why := hosts.unable():
        pytest.skip(f"no network namespaces: {why}")
    pair = hosts.Hosts(2, "8mbit")
    try:
        pair.make()
        before = pair.bytes()
        pair.run(0, [sys.executable, "-c", SEND])
        sent = pair.bytes()[0] - before[0]
    finally:
        pair.remove()
    # 1,000 bytes, and 8 of UDP, 20 of IP and 14 of Ethernet; a few of ARP beside them.
    assert 20 * 1042 <= sent < 20 * 1042 + 500
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(name in listed for name in pair.names)
