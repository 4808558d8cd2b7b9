"""Records of runs, and ranks that meet."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.processes.ranks import MeetingFailed, RankFailed, in_ranks, join_group
from benchmarks.common.records import Runs
from tests.common.programs import ROOT

# Recorded runs: what is read is what was added, in the order of keys, in the same bytes; kills and neighbours.


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1)
FACTS = st.dictionaries(st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(KEYS))


@given(st.lists(st.tuples(st.sampled_from(["", "part/", "part-2/", "other/"]), KEYS, FACTS), max_size=8))
def test_what_is_read_is_what_was_added_whatever_it_is(tmp_path_factory, added):
    runs, plain = Runs(tmp_path_factory.mktemp("runs") / "runs.jsonl.bz2"), {}
    for part, name, facts in added:
        runs.add(part + name, facts)
        plain[part + name] = facts
    assert runs.read() == [plain[key] for key in sorted(plain)]
    for part in ("part", "part-2", "other"):
        assert (runs / part).read() == [plain[key] for key in sorted(plain) if key.startswith(f"{part}/")]
        assert (runs / part).names() == {key.partition("/")[2] for key in plain if key.startswith(f"{part}/")}
    assert runs.read("part", "other") == (runs / "part").read() + (runs / "other").read()


def test_parts_are_read_in_the_order_that_is_asked_for(tmp_path):
    runs = Runs(tmp_path / "runs.jsonl.bz2")
    for key in ("suspects/head/b", "suspects/head/a", "suspects/texts/a", "head/a"):
        runs.add(key, {"key": key})
    of = runs / "suspects"
    assert [facts["key"] for facts in of.read("texts", "head")] == [
        f"suspects/{k}" for k in ("texts/a", "head/a", "head/b")
    ]
    assert [facts["key"] for facts in runs.read("head")] == ["head/a"]
    assert of.read("none") == Runs(tmp_path / "none").read() == []


def test_what_is_appended_keeps_its_order(tmp_path):
    runs = Runs(tmp_path / "runs.jsonl.bz2")
    for number in range(12):
        (runs / "kills").append({"number": number})
        (runs / "pairs").append({"number": -number})
    assert [facts["number"] for facts in (runs / "kills").read()] == list(range(12))
    assert [facts["number"] for facts in (runs / "pairs").read()] == [-number for number in range(12)]


def test_the_same_runs_make_the_same_bytes_in_whatever_order_and_at_whatever_time(tmp_path, monkeypatch):
    one, other = Runs(tmp_path / "one.jsonl.bz2"), Runs(tmp_path / "other.jsonl.bz2")
    for number in range(20):
        one.add(f"run {number}", {"number": number})
    monkeypatch.setattr(time, "time", lambda: 2e9)
    for number in reversed(range(20)):
        other.add(f"run {number}", {"number": number})
    assert one.file.read_bytes() == other.file.read_bytes()
    one.add("run 3", {"number": 3})
    assert one.file.read_bytes() == other.file.read_bytes()


RECORD = """
import sys
from benchmarks.common.records import Runs
runs, name = Runs(sys.argv[1]), sys.argv[2]
print("begun", flush=True)
for number in range(int(sys.argv[3])):
    (runs / name).append({"name": name, "number": number, "more": "x" * 5000})
"""


@pytest.fixture
def start():
    """Begin to record in a process of its own; what still runs is ended."""
    begun = []

    def start(file, name, times):
        command = [sys.executable, "-c", RECORD, str(file), name, str(times)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment))
        assert begun[-1].stdout.readline() == b"begun\n"
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_two_processes_record_at_once_and_none_is_lost(tmp_path, start):
    file = tmp_path / "runs.jsonl.bz2"
    for process in [start(file, name, 40) for name in ("one", "two")]:
        assert process.wait() == 0
    for name in ("one", "two"):
        assert [facts["number"] for facts in Runs(file).read(name)] == list(range(40))


def test_after_a_kill_the_runs_are_those_of_before_or_after_and_recording_goes_on(tmp_path, start):
    file = tmp_path / "runs.jsonl.bz2"
    runs, known = Runs(file), 0
    for wait in (0.01, 0.013, 0.017, 0.02, 0.03):
        process = start(file, "killed", 10_000)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = (runs / "killed").read()
        assert len(found) >= known
        assert all(len(facts["more"]) == 5000 for facts in found)
        known = len(found) + 1
        (runs / "killed").append({"number": 0, "more": "x" * 5000})
    assert len((runs / "killed").read()) == known


# Ranks of a group: what rank 0 returns comes back, and what is said when one fails or they cannot meet.


pytest.importorskip("torch")


def add_up(first):
    box = [first + dist.get_rank()] * dist.get_world_size()
    dist.all_gather_object(box, box[0])
    return sum(box), np.arange(3)


def fail_on_one():
    if dist.get_rank() == 1:
        raise LookupError("there is no such thing")
    dist.barrier()


def die_on_one():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_it_returns_what_rank_0_returns():
    total, array = in_ranks(3, add_up, 10)
    assert total == 10 + 11 + 12
    assert array.tolist() == [0, 1, 2]


def test_the_error_of_a_rank_is_told():
    with pytest.raises(RankFailed, match="rank 1 ended with LookupError: there is no such thing"):
        in_ranks(2, fail_on_one)
    with pytest.raises(RankFailed, match=r"Expected 2 ranks .* Got fewer: rank 1 was killed by SIGKILL\. Try again"):
        in_ranks(2, die_on_one, advice=" Try again.")


@pytest.fixture
def meeting(monkeypatch):
    """A port in use, which the environment names as the meeting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        yield taken


def test_a_port_in_use_is_named(meeting):
    with pytest.raises(MeetingFailed, match=r"127\.0\.0\.1:\d+ .*rank 0: a port in use: set MASTER_PORT"):
        join_group(0, 2, within=2)


def test_ranks_that_do_not_come_are_not_waited_for_longer_than_said(meeting):
    meeting.close()
    with pytest.raises(MeetingFailed, match=r"Expected 2 ranks to meet .* within 1 seconds"):
        join_group(0, 2, within=1)
