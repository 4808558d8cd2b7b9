"""Killed trainings, searches of weights and checkpoints, and the simulated disk: what is told apart."""

import os
import random
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from benchmarks.faults.attack import Verdict, search
from benchmarks.faults.attacks.checkpoints import Checkpoints
from benchmarks.faults.attacks.kills import live
from benchmarks.faults.attacks.weights import Weights, WeightsOnRanks
from benchmarks.faults.calls import can_watch
from benchmarks.faults.child import Child
from benchmarks.faults.disk import Disk, Operation, operations, read_in
from benchmarks.faults.training.in_numpy import EPOCHS, SAMPLES, result, train
from benchmarks.faults.weighed.setup import Weighed
from prunedata.findings.inspection import inspect
from prunedata.run.engine import Engine
from prunedata.run.epoch import Epoch

# What a killed training is held to: torn, lost and different ones are told from one that came through.


# Forked from a process whose threads only wait, as those of zarr do.
pytestmark = pytest.mark.slow


def first_epoch(life):
    return int(life.said("resumed")[0])


@pytest.fixture
def stopped(tmp_path):
    """A run that was killed once its first epoch was safe."""
    folder = tmp_path / "run"
    folder.mkdir()
    child = Child(lambda say: train(folder, say))
    assert child.wait_for("saved")
    child.kill()
    child.follow()
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


# The searches of weights and checkpoints: what once failed is exact, and a library broken on purpose is found.


FAILED = [
    Weighed(
        "id_key",
        46,
        8,
        policy="ranked",
        prune=2,
        leave_out="weight",
        figure="within",
        calls=True,
        worlds=(2,),
        stops=(5,),
    ),
    Weighed(
        "id_key", 17, 2, accumulate=3, prune=5, leave_out="weight", holdout=0.3, worlds=(2,), stops=(4,), seed=20905
    ),
    Weighed("stream", 27, 8, drop_last=True, policy="random", prune=8, holdout=0.3, without=2, worlds=(3,), stops=(5,)),
]
"""Trainings on ranks that a search found at fault. In an epoch of the last one no rank has a whole batch."""


def test_what_failed_once_is_exact_or_refused(tmp_path):
    attack = WeightsOnRanks(tmp_path, 0)
    try:
        verdicts = [attack.judge(setup).verdict for setup in FAILED]
    finally:
        attack.close()
    assert verdicts == [Verdict.EXACT, Verdict.EXACT, Verdict.REFUSED]


@pytest.mark.parametrize("loop", ["plain", "loader", "watch by weight"])
def test_samples_that_are_learnt_are_found(tmp_path, monkeypatch, loop):
    setup = Weighed(loop, leave_out="weight", holdout=None if loop == "watch by weight" else 0.2)
    assert Weights(tmp_path, 0).judge(setup).verdict is Verdict.EXACT
    monkeypatch.setattr(Epoch, "_loss_weights", lambda self, ids: np.ones(len(ids), np.float32))
    for module in ("loader", "watch"):
        where = import_module(f"prunedata.adapters.torch.{module}")
        monkeypatch.setattr(where, "mean_of", lambda epoch, ids, losses, *_, **__: losses.mean())
    monkeypatch.setattr(Epoch, "unapplied", 0)
    assert Weights(tmp_path, 0).judge(setup).verdict is Verdict.WRONG


class InOneLoop(Checkpoints):
    """At every moment of one loop."""

    loops = ("plain",)


def test_a_lost_figure_is_found(monkeypatch):
    assert search(InOneLoop, 1, tries=60).good
    monkeypatch.setattr(Engine, "awaits_figure_somewhere", lambda self: False)
    assert search(InOneLoop, 1, tries=60).wrong


# What the simulated disk keeps after a power cut, and that the log of calls gives what is really there.


TOP = Path("/top")


def after(*changes):
    disk = Disk(TOP)
    for kind, path, *more in changes:
        if kind == "write":
            disk.apply(Operation(kind, f"/top{path}", offset=more[0] if len(more) > 1 else 0, data=more[-1]))
        else:
            disk.apply(Operation(kind, f"/top{path}", other=f"/top{more[0]}" if more else ""))
    return disk


def found(disk, times=300):
    """All that may be there after a cut."""
    chance = random.Random(0)
    return [disk.after_a_cut(chance) for _ in range(times)]


FILE = (("make", "/a"), ("write", "/a", b"one"))
SAFE = (*FILE, ("sync", "/a"), ("sync", ""))


def test_what_was_synchronised_is_there():
    assert all(tree == {"a": b"one"} for tree in found(after(*SAFE)))


def test_a_name_needs_its_folder_and_bytes_need_their_file():
    assert {frozenset(tree) for tree in found(after(*FILE, ("sync", "/a")))} == {frozenset(), frozenset("a")}
    bytes_alone = {tree["a"] for tree in found(after(*FILE, ("sync", "")))}
    assert {b"", b"one", b"\0\0\0", b"o"} <= bytes_alone


def test_a_renaming_that_was_not_synchronised_leaves_the_old_or_the_new():
    disk = after(*SAFE, ("make", "/b"), ("write", "/b", b"two"), ("sync", "/b"), ("rename", "/b", "/a"))
    assert disk.now() == {"a": b"two"}
    assert {tree.get("a") for tree in found(disk)} == {b"one", b"two"}
    disk.apply(Operation("sync", "/top"))
    assert all(tree == {"a": b"two"} for tree in found(disk))


def test_what_is_written_over_is_torn_by_sectors():
    disk = after(("make", "/a"), ("write", "/a", bytes(1024)), ("sync", "/a"), ("sync", ""))
    disk.apply(Operation("write", "/top/a", data=b"1" * 1024))
    seen = {tree["a"] for tree in found(disk)}
    assert {b"1" * 512 + bytes(512), bytes(512) + b"1" * 512, bytes(1024), b"1" * 1024} <= seen
    assert all(len(data) == 1024 for data in seen)


def test_a_folder_may_be_gone_with_all_that_is_in_it():
    disk = after(("folder", "/d"), ("make", "/d/a"), ("sync", "/d/a"), ("sync", "/d"))
    assert {frozenset(tree) for tree in found(disk)} == {frozenset(), frozenset({"d", "d/a"})}


def test_removing_and_linking():
    disk = after(*SAFE, ("link", "/a", "/b"), ("remove", "/a"))
    assert disk.now() == {"b": b"one"}
    assert {frozenset(tree) for tree in found(disk)} == {frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")}


def work(top, say):
    (top / "d").mkdir()
    descriptor = os.open(top / "d" / "a", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, b"0123456789")
    os.pwrite(descriptor, b"ab", 4)
    os.ftruncate(descriptor, 8)
    os.fsync(descriptor)
    os.close(descriptor)
    os.link(top / "d" / "a", top / "b")
    os.replace(top / "d" / "a", top / "c")
    (top / "b").unlink()
    try:
        (top / "refused").mkdir()
    except OSError as error:
        say(f"errno {error.errno}")


@pytest.mark.skipif(not can_watch(), reason="needs Linux 5.5 or newer, and to be allowed seccomp's notifications")
def test_the_log_of_a_childs_calls_gives_what_it_wrote_and_a_call_can_be_made_to_fail(tmp_path):
    disk = Disk(tmp_path)

    def decide(call):
        if call.paths[0].endswith("refused"):
            return 28
        if call.is_within(tmp_path):
            for operation in operations(call):
                disk.apply(operation)
        return 0

    child = Child(lambda say: work(tmp_path, say), watched=True).follow(decide)
    assert not child.failed
    assert child.said("errno") == ["28"]
    assert disk.now() == read_in(tmp_path) == {"c": b"0123ab67", "d": None}


@pytest.mark.skipif(not can_watch(), reason="needs Linux 5.5 or newer, and to be allowed seccomp's notifications")
def test_a_child_is_killed_before_a_call(tmp_path):
    child = Child(lambda say: work(tmp_path, say), watched=True)
    child.follow(lambda call: Child.KILL if call.name == "fsync" else 0)
    assert child.killed
    assert read_in(tmp_path) == {"d": None, "d/a": b"0123ab67"}
