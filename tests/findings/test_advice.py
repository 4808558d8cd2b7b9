"""Advice is a pure function of what a run recorded: by its figures whether, by its losses what."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Advice, MeanExcess, PrunedataError, Schedule, advise
from tests.common.marks import FEWER

SCHEDULE = Schedule(30, 30, 20, 5, 4)
TURNS = [10.0, 40, 60, 70, 75, 78, 79, 78, 74, 68, 60, 52]
"""Turned by epoch 9: its highest mean of three ends in epoch 7."""


def history(figures, mean_loss=2.0):
    records = [{"number": at, "kept": 100, "observed": 100, "mean_loss": mean_loss} for at in range(len(figures))]
    return [
        record if figure is None else record | {"validation": figure}
        for record, figure in zip(records, figures, strict=True)
    ]


def test_before_the_turn_it_says_to_watch():
    found = advise(history(TURNS[:7]), SCHEDULE, np.zeros(100, np.float32))
    assert (found.verdict, found.prune, found.policy, found.schedule, found.turned) == ("watch", 0, None, None, None)
    assert found.evidence == ("7 of 7 epochs have a validation figure, and it has not turned so far.",)


def test_without_a_figure_it_says_what_to_call():
    found = advise(history([None] * 30), SCHEDULE, np.zeros(100, np.float32))
    assert found.verdict == "watch"
    assert "call pruner.validated(accuracy)" in found.evidence[0]


def test_of_a_finished_run_that_never_turned_it_says_not_to_prune():
    found = advise(history(list(np.linspace(10, 80, 30))), SCHEDULE, np.zeros(100, np.float32))
    assert found.verdict == "don't prune"
    assert "30 of 30 epochs have a validation figure, and it has not turned" in found.evidence[0]


@FEWER
@given(st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=60), st.none() | st.integers(0, 60))
def test_after_the_turn_it_leaves_out_as_many_as_are_doubted(excess, most):
    found = advise(history(TURNS), SCHEDULE, np.array(excess, np.float32), prune=most)
    wanted = round(sum(1 - math.sqrt(min(1.0, math.exp(-(2.0 + one)))) for one in excess))
    assert found.verdict == "prune"
    assert found.turned == 9
    assert found.prune == min(wanted, len(excess) - 1 if most is None else most, len(excess) - 1)
    assert found.policy == MeanExcess()
    assert found.schedule == Schedule.steady(30, 10)
    assert found.saving_percent == pytest.approx(100 * found.prune * 20 / (30 * len(excess)))
    assert found.shorter == 8
    assert found.lost == pytest.approx((78 + 79 + 78) / 3 - (68 + 60 + 52) / 3)


def test_the_mean_loss_is_that_of_the_epochs_up_to_the_turn():
    records = history(TURNS)
    for record in records[10:]:
        record["mean_loss"] = 1e6
    excess = np.linspace(-2, 2, 100)
    assert advise(records, SCHEDULE, excess).prune == advise(history(TURNS), SCHEDULE, excess).prune


def test_a_turn_in_the_last_epoch_is_advice_for_the_next_run():
    found = advise(history(TURNS), Schedule(12, 12, 6, 1, 1), np.zeros(100, np.float32))
    assert found.schedule.start == 10
    assert advise(history(TURNS[:10]), Schedule(10, 10, 6, 1, 1), np.zeros(100)).schedule.start == 9


@pytest.mark.parametrize("figures", [TURNS[:5], TURNS, [None] * 4, list(range(30))])
def test_it_goes_through_json_and_back(figures):
    found = advise(history(figures), SCHEDULE, np.linspace(-1, 1, 100))
    assert Advice.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "wait"},
        {"policy": None},
        {"schedule": None},
        {"evidence": [3]},
        {"more": 1},
        {"lost": -1.0},
        {"verdict": "fewer epochs"},
        3,
    ],
)
def test_what_is_no_advice_is_refused(change):
    plain = advise(history(TURNS), SCHEDULE, np.zeros(100)).to_dict()
    with pytest.raises(PrunedataError):
        Advice.from_dict(plain | change if isinstance(change, dict) else change)


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(PrunedataError, match=r"Expected mean_excess of shape \(samples,\). Got \(2, 2\)"):
        advise(history(TURNS), SCHEDULE, np.zeros((2, 2)))
