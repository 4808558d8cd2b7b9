"""Ranks of a group: what rank 0 returns comes back, and what is said when one fails or they cannot meet."""

import os
import signal
import socket

import numpy as np
import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from benchmarks.common.processes.ranks import MeetingFailed, RankFailed, in_ranks, join_group


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
