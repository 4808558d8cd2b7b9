"""Advice is a pure function of what a run recorded: by its figures whether, by its losses what."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Advice, Schedule, advise
from prunedata.errors import PrunedataError
from prunedata.plan.doubts import count_doubted, two_groups
from prunedata.policies import RecentLoss
from tests.common.programs import FEWER

SCHEDULE = Schedule(30, 30, 20, 5, 4)
LOSSES = st.floats() | st.none() | st.integers(-(10**400), 10**400)
TURNS = [10.0, 40, 60, 70, 75, 78, 79, 78, 74, 68, 60, 52]
"""Turned by epoch 9: its highest mean of three ends in epoch 7."""


TWO_GROUPS = np.concatenate([np.linspace(-0.5, 0.2, 70), np.linspace(1, 2, 30)]).astype(np.float32)


def history(figures, mean_loss=0.5):
    records = [{"number": at, "kept": 100, "observed": 100, "mean_loss": mean_loss} for at in range(len(figures))]
    return [
        record if figure is None else record | {"validation": figure}
        for record, figure in zip(records, figures, strict=True)
    ]


def settled(records):
    """The same, of a network that knows which samples are better than at first."""
    return [record | {"turned": 0.1} for record in records]


def test_before_the_turn_it_says_to_watch():
    found = advise(history(TURNS[:7]), SCHEDULE, np.zeros(100, np.float32))
    assert (found.verdict, found.prune, found.policy, found.schedule, found.onset) == ("watch", 0, None, None, None)
    assert found.evidence[1].startswith("7 of 7 epochs")


@pytest.mark.parametrize(
    ("records", "asked"),
    [([], False), (history([None] * 7), True), ([one | {"held_out": 20} for one in history([None] * 7)], False)],
)
def test_a_figure_is_asked_for_where_the_run_takes_one(records, asked):
    """A run that holds samples out takes none; it has none itself where the loop skips these samples."""
    told = advise(records, SCHEDULE, np.zeros(100, np.float32)).evidence[1]
    assert told.startswith("No epoch has a validation figure")
    assert ("validated()" in told) == asked


@pytest.mark.parametrize("figures", [[None] * 30, list(np.linspace(10, 80, 30))], ids=["no figure", "no turn"])
def test_without_a_turn_it_leaves_out_what_is_doubted_in_the_last_third(figures):
    assert advise(history(figures[:19]), SCHEDULE, TWO_GROUPS).verdict == "watch"
    for done in (20, 25, 30):
        found = advise(history(figures[:done]), SCHEDULE, TWO_GROUPS)
        assert (found.verdict, found.prune, found.schedule) == ("prune", 30, Schedule.steady(30, 20))
        assert (found.onset, found.shorter) == (None, None)
        assert found.saving_percent == pytest.approx(10)
        assert "30 of 100 labels" in found.evidence[0]
    assert advise(history(figures), SCHEDULE, TWO_GROUPS, prune=7).prune == 7


def test_where_losses_are_those_of_one_group_it_watches_to_the_end():
    found = advise(history([None] * 30), SCHEDULE, np.random.default_rng(0).exponential(1, 1000))
    assert (found.verdict, found.prune, found.schedule) == ("watch", 0, None)
    assert "0 of 1,000 labels" in found.evidence[0]


def test_once_the_groups_have_met_it_leaves_out_before_the_last_third():
    shares = [0.75, 0.8, 0.795, 0.785]
    for done in (1, 2, 3):
        told = [record | {"apart": share} for record, share in zip(history([None] * done), shares, strict=False)]
        assert advise(told, SCHEDULE, TWO_GROUPS).verdict == "watch"
    told = [record | {"apart": share} for record, share in zip(history([None] * 4), shares, strict=True)]
    found = advise(told, SCHEDULE, TWO_GROUPS)
    assert (found.verdict, found.prune, found.schedule) == ("prune", 30, Schedule.steady(30, 4))
    assert "0.800" in found.evidence[1]
    assert "0.785" in found.evidence[1]


def test_where_many_are_worse_than_at_first_and_the_groups_lie_close_it_leaves_out_at_once():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(0.52, 0.12, 600), rng.normal(0.86, 0.2, 400)])
    groups = two_groups(losses)
    assert groups.apart < 0.7
    for done in (1, 4):
        assert advise(history([None] * done, 0.7), SCHEDULE, losses).verdict == "watch"
    found = advise(settled(history([None] * 5, 0.7)), SCHEDULE, losses)
    assert (found.prune, found.schedule) == (groups.upper, Schedule.steady(30, 5))
    assert "higher losses" in found.evidence[1]
    assert advise(settled(history([None] * 5, 0.9)), SCHEDULE, losses).verdict == "watch"
    apart = np.concatenate([rng.normal(0.4, 0.02, 600), rng.normal(0.9, 0.02, 400)])
    assert advise(settled(history([None] * 5, 0.7)), SCHEDULE, apart).verdict == "watch"  # these will be clearer still


def test_as_long_as_a_network_turns_many_samples_in_an_epoch_nothing_is_left_out_early():
    rng = np.random.default_rng(0)
    many = np.concatenate([rng.normal(0.52, 0.12, 600), rng.normal(0.86, 0.2, 400)])
    wide = np.concatenate([rng.exponential(0.45, 700), rng.normal(1.1, 0.5, 300)])
    shares = [0.4] * 8 + [0.3]
    memorizes = [record | {"worse": share} for record, share in zip(history([None] * 9, 0.9), shares, strict=True)]
    for told, losses in ((history([None] * 9, 0.7), many), (memorizes, wide)):
        assert advise(settled(told), SCHEDULE, losses).verdict == "prune"
        assert advise(told, SCHEDULE, losses).verdict == "watch"  # it is not known
        for epoch, verdict in ((8, "watch"), (4, "watch"), (3, "prune")):  # one of the last five, or one before
            turned = settled(told)
            turned[epoch]["turned"] = 0.15
            assert advise(turned, SCHEDULE, losses).verdict == verdict


def test_where_a_wide_group_is_being_learned_all_of_it_is_left_out():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.exponential(0.45, 700), rng.normal(1.1, 0.5, 300)])
    groups, shares = two_groups(losses), [0.34, 0.33, 0.30]
    assert 0.65 < groups.apart < 0.7
    told = [record | {"worse": share} for record, share in zip(history([None] * 8, 0.9)[5:], shares, strict=True)]
    told = settled(told)
    for done in (6, 7):
        assert advise([*history([None] * 5, 0.9), *told[: done - 5]], SCHEDULE, losses).verdict == "watch"
    found = advise([*history([None] * 5, 0.9), *told], SCHEDULE, losses)
    assert (found.prune, found.schedule, found.onset) == (groups.upper, Schedule.steady(30, 8), None)
    assert "34.0%" in found.evidence[1]
    assert "30.0%" in found.evidence[1]
    clearer = np.concatenate([rng.exponential(0.1, 700), rng.normal(1.1, 0.1, 300)])
    assert advise([*history([None] * 5, 0.9), *told], SCHEDULE, clearer).verdict == "watch"  # that is waited for


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 6, 7])
def test_a_run_of_five_epochs_or_fewer_doubts_labels_and_leaves_none_out(epochs):
    found = advise(history([None] * epochs), Schedule.steady(epochs), TWO_GROUPS)
    assert found.doubted == (30 if epochs > 1 else 0)  # in one epoch losses are high where a sample came early
    assert found.verdict == ("watch" if epochs <= 5 else "prune")
    pruned = 0 if found.schedule is None else sum(found.schedule.prunes(epoch) for epoch in range(epochs))
    assert pruned == (0 if epochs <= 5 else epochs // 3)
    assert (found.saving_percent > 0) == (pruned > 0)


@FEWER
@given(st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=60), st.none() | st.integers(0, 60))
def test_after_the_turn_it_leaves_out_as_many_as_are_doubted(excess, most):
    found = advise(history(TURNS), SCHEDULE, np.array(excess, np.float32), prune=most)
    wanted = count_doubted(two_groups(np.array(excess, np.float32)), memorizes=True)
    assert found.verdict == "prune"
    assert found.onset == 9
    assert found.prune == (wanted if most is None else min(wanted, most))
    assert found.policy == RecentLoss()
    assert found.schedule == Schedule.steady(30, 10)
    assert found.saving_percent == pytest.approx(100 * found.prune * 20 / (30 * len(excess)))
    assert found.shorter == 8
    assert found.doubted == wanted
    assert found.lost == pytest.approx((78 + 79 + 78) / 3 - (68 + 60 + 52) / 3)


@pytest.mark.parametrize("unit", [0.01, 0.05, 20, 100])
def test_the_unit_of_the_loss_has_no_part_in_it(unit):
    for figures in (TURNS, [None] * 30):
        found = advise(history(figures, 0.5 * unit), SCHEDULE, TWO_GROUPS * np.float32(unit))
        assert found == advise(history(figures), SCHEDULE, TWO_GROUPS)
        assert found.prune == 30


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
        {"verdict": "wait"}, {"policy": None}, {"schedule": None}, {"evidence": [3]}, {"more": 1}, {"lost": -1.0}, 3,
        {"verdict": "fewer epochs"},
        {"evidence": "text"}, {"evidence": 3}, {"verdict": np.arange(2)}, {"verdict": ["prune"]}, {"prune": 10**400},
        {"prune": np.arange(2)}, {"saving_percent": 10**400}, {"saving_percent": math.nan}, {"policy": {}},
        {"policy": {"name": np.arange(2)}}, {"policy": np.arange(2)},
        {"schedule": {}}, {"schedule": np.arange(2)}, {"onset": 1e400}, {"shorter": np.arange(2)},
    ],
)  # fmt: skip
def test_what_is_no_advice_is_refused(change):
    plain = advise(history(TURNS), SCHEDULE, np.zeros(100)).to_dict()
    with pytest.raises(PrunedataError):
        Advice.from_dict(plain | change if isinstance(change, dict) else change)


def test_advice_without_one_of_its_fields_is_refused():
    plain = advise(history(TURNS), SCHEDULE, np.zeros(100)).to_dict()
    for name in ("verdict", "policy", "prune", "schedule", "saving_percent", "evidence"):
        with pytest.raises(PrunedataError, match=f"with {name}"):
            Advice.from_dict({other: one for other, one in plain.items() if other != name})


@FEWER
@given(st.lists(LOSSES, min_size=12, max_size=12), st.floats(width=32))
def test_losses_of_any_size_and_none_lead_to_advice(losses, excess):
    """Sums of huge losses are infinite or no number; a store may also be forged."""
    records = [record | {"mean_loss": loss} for record, loss in zip(history(TURNS), losses, strict=True)]
    found = advise(records, SCHEDULE, np.array([excess, 0, 1], np.float32))
    assert found.verdict == "prune"
    assert 0 <= found.prune <= 2


@pytest.mark.parametrize(
    "change",
    [
        {"kept": None}, {"kept": -1}, {"kept": 10**400}, {"number": "3"}, {"mean_loss": "x"}, {"mean_loss": [1.0]},
        {"observed": -1}, {"validation": 10**400}, {"validation": math.nan}, {"validation": "x"}, {"validation": 1e200},
        7,
    ],
)  # fmt: skip
def test_what_is_no_record_of_an_epoch_is_refused(change):
    records = history(TURNS)
    records[3] = records[3] | change if isinstance(change, dict) else change
    with pytest.raises(PrunedataError):
        advise(records, SCHEDULE, np.zeros(100, np.float32))


def test_of_a_run_without_an_epoch_it_says_when_it_begins():
    found = advise([], SCHEDULE, np.zeros(100, np.float32))
    assert found.verdict == "watch"
    assert "from epoch 20 on" in found.evidence[0]


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(PrunedataError, match=r"Expected losses of shape \(samples,\). Got \(2, 2\)"):
        advise(history(TURNS), SCHEDULE, np.zeros((2, 2)))
