"""What the simulated disk keeps after a power cut, and that the log of calls gives what is really there."""

import os
import random
from pathlib import Path

import pytest

from benchmarks.faults.calls import can_watch
from benchmarks.faults.child import Child
from benchmarks.faults.disk import Disk, Operation, operations, read_in

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
