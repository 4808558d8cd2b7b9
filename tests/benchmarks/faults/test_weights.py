"""The searches of weights and checkpoints: what once failed is exact, and a library broken on purpose is found."""

from importlib import import_module

import numpy as np
import pytest

from benchmarks.faults.attack import Verdict, search
from benchmarks.faults.attacks.checkpoints import Checkpoints
from benchmarks.faults.attacks.weights import Weights, WeightsOnRanks
from benchmarks.faults.weighed.setup import Weighed
from prunedata.run.engine import Engine
from prunedata.run.epoch import Epoch

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
"""Trainings on ranks that a search found at fault."""


def test_what_failed_once_is_exact(tmp_path):
    attack = WeightsOnRanks(tmp_path, 0)
    try:
        assert [attack.judge(setup).verdict for setup in FAILED] == [Verdict.EXACT] * len(FAILED)
    finally:
        attack.close()


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
