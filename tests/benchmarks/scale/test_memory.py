"""How many bytes a sample a run takes: what docs/frameworks/scale.md says."""

import tracemalloc

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.policies import DroppingCount, RunningLoss

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
            pruner.observe(losses[some], ids[some])
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
