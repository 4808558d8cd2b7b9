"""The onset of a validation figure, and how many labels are doubted: by plain rules."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.errors import PrunedataError
from prunedata.plan.onset import TRUST, Figures, check_figure, figure_of, find_onset, trust_in
from tests.common.programs import FEWER

# The onset of a validation figure: found by a plain rule, in constant time, and never by chance alone.


FINITE = st.floats(-1e6, 1e6)


def plain_turn(figures, known=True):
    """The rule over the whole list at once: the first figure whose mean of three has fallen far enough.

    Unless it is ``known`` that more is better, it has to have risen beyond chance before.
    """
    for end in range(3, len(figures) + 1):
        given_so_far = figures[:end]
        means = [np.mean(given_so_far[at - 3 : at]) for at in range(3, end + 1)]
        steps = np.diff(given_so_far)[-6:]
        scatter, rise = 2 * np.std(steps) / math.sqrt(3), max(means) - figures[0]
        fall = max(means) - means[-1]
        pairs = [(fall, max(scatter, 0.05 * rise)), *([] if known else [(rise, scatter)])]
        if all(more > less * (1 + 1e-9) + 1e-9 for more, less in pairs):
            return end - 1
        if all(more > less * (1 - 1e-9) - 1e-9 for more, less in pairs):
            return None  # rounding decides
    return -1


def fed(figures, known=True):
    found = Figures()
    for epoch, figure in enumerate(figures):
        found.add(epoch, figure, known=known)
    return found


@FEWER
@given(st.lists(FINITE, max_size=40), st.booleans())
def test_it_is_the_plain_rule_over_all_figures(figures, known):
    expected, found = plain_turn(figures, known), fed(figures, known)
    if expected is not None:
        assert (-1 if found.onset is None else found.onset) == expected
    assert found.number == len(figures)


@FEWER
@given(st.lists(FINITE, min_size=1, max_size=40), st.integers(-8, 8))
def test_another_scale_or_direction_turns_in_the_same_epoch(figures, power):
    history = [{"number": at, "validation": figure, "lower_is_better": False} for at, figure in enumerate(figures)]
    scaled = [record | {"validation": record["validation"] * 2.0**power} for record in history]
    lower = [record | {"validation": -record["validation"], "lower_is_better": True} for record in history]
    onset = find_onset(history).onset
    assert find_onset(scaled).onset == onset
    assert find_onset(lower).onset == onset


@FEWER
@given(st.lists(st.floats(0, 1), max_size=60))
def test_what_only_rises_never_turns(steps):
    history = [{"number": at, "validation": float(figure)} for at, figure in enumerate(np.cumsum(steps))]
    assert find_onset(history).onset is None


def test_epochs_without_a_figure_are_passed_over():
    curve = [10.0, 40, 60, 70, 75, 78, 79, 78, 74, 68, 60, 52]
    history = [{"number": 2 * at + 1, "validation": figure} for at, figure in enumerate(curve)]
    history += [{"number": 2 * at} for at in range(len(curve))]
    history.sort(key=lambda record: record["number"])
    by_themselves = find_onset([{"number": at, "validation": figure} for at, figure in enumerate(curve)])
    found = find_onset(history)
    assert found.onset == 2 * by_themselves.onset + 1
    assert found.best == 2 * by_themselves.best + 1 == 2 * 7 + 1
    assert found.lost == pytest.approx((78 + 79 + 78) / 3 - (68 + 60 + 52) / 3)


def test_an_unsteady_rise_is_no_turn():
    """Five points from epoch to epoch, as at a high learning rate. By a fall of 0.7 points nearly all would start."""
    rng, started, by_points = np.random.default_rng(0), 0, 0
    for _ in range(200):
        curve = 30 + 40 * (1 - np.exp(-np.arange(30) / 8)) + rng.normal(size=30) * np.linspace(5, 0.5, 30)
        started += find_onset([{"number": at, "validation": one} for at, one in enumerate(curve)]).onset is not None
        means = np.convolve(curve, np.ones(3) / 3, "valid")
        by_points += (np.maximum.accumulate(means) - means > 0.7).any()
    assert by_points > 180
    assert started < 40


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf, "0.5", True, [0.5, 0.6], 10**400, 1e154, -1e300])
def test_what_is_no_finite_number_or_too_large_to_be_squared_is_refused(figure):
    with pytest.raises(PrunedataError, match="validation figure"):
        check_figure(figure, False, [])
    with pytest.raises(PrunedataError, match="Expected the validation figure to be a finite number"):
        find_onset([{"number": 0, "validation": figure}])  # as somebody's history may have it


def test_none_is_refused_and_in_a_history_is_no_figure():
    with pytest.raises(PrunedataError, match="Expected the validation figure to be a finite number"):
        check_figure(None, False, [])
    assert find_onset([{"number": 0, "validation": None}]).number == 0


@FEWER
@given(st.lists(st.floats(-1e100, 1e100), max_size=30), st.booleans())
def test_the_largest_figures_overflow_nowhere(figures, known):
    history = []
    for epoch, figure in enumerate(figures):
        history.append({"number": epoch, "validation": check_figure(figure, True, history), "lower_is_better": True})
    assert math.isfinite(find_onset(history).lost)
    assert math.isfinite(fed(figures, known).lost)


# -- a loss that is given as if more of it were better


@FEWER
@given(st.lists(FINITE, max_size=40), st.integers(1, 3))
def test_what_never_rises_never_turns_unless_somebody_said_that_more_is_better(figures, every):
    falling = sorted(figures, reverse=True)
    history = [{"number": every * at, "validation": figure} for at, figure in enumerate(falling)]
    assert find_onset(history).onset is None
    assert fed(falling, known=False).onset is None


def test_a_noisy_loss_does_not_turn_and_one_that_falls_clearly_is_told():
    rng, onset, told = np.random.default_rng(3), 0, 0
    for _ in range(300):
        length, noise = rng.uniform(3, 15), rng.uniform(0, 0.1)
        curve = 0.3 + 2 * np.exp(-np.arange(30) / length) + noise * rng.normal(size=30)
        found, said = Figures(), False
        for epoch, figure in enumerate(curve):
            found.add(epoch, figure, known=False)
            said = said or found.only_falls
        onset, told = onset + (found.onset is not None), told + said
        assert fed(curve).onset is not None
    assert onset == 0
    assert told == 300


def test_whoever_says_that_more_is_better_is_believed_though_the_first_epoch_was_the_best():
    """A trained network that is tuned on 40 % wrong labels, as recorded."""
    curve = [46.25, 45.65, 44.9, 45.1, 45.1, 43.9, 44.4, 44.35, 43.85, 43.45, 42.95, 43.6, 43.8, 43.5]
    history = [{"number": at, "validation": figure} for at, figure in enumerate(curve)]
    assert find_onset(history).onset is None
    assert find_onset(history).only_falls
    for told in ({"lower_is_better": False}, {"held_out": 100}):
        assert find_onset([record | told for record in history]).onset == 4
    lower = [record | {"validation": -record["validation"], "lower_is_better": True} for record in history]
    assert find_onset(lower).onset == 4


def test_numbers_of_all_kinds_are_taken():
    for figure in (1, 0.5, np.float32(0.5), np.array(0.5)):
        assert check_figure(figure, False, []) == float(figure)


@pytest.mark.parametrize(("before", "now"), [([0.5, 0.61], 62.0), ([0.03], 3.1), ([50.0, 61], 0.62), ([88.0], 0.9)])
def test_fractions_after_percentages_are_refused_and_the_reverse(before, now):
    history = [{"validation": figure} for figure in before]
    with pytest.raises(PrunedataError, match=r"on one scale. Got .*: pass fractions or percentages, not both"):
        check_figure(now, False, history)


@pytest.mark.parametrize(
    ("before", "now", "lower"),
    [
        ([0.01], 0.6, False), ([1.5, 3], 25.0, False), ([-3.0], 40, False), ([2.3, 0.01], 5.0, True),
        ([12.0], 0.1, True), ([0.0, 0.0], 3.5, False), ([50.0, 61.0], 0.0, False),
    ],
)  # fmt: skip
def test_what_a_metric_may_do_is_taken(before, now, lower):
    history = [{"validation": figure, "lower_is_better": lower} for figure in before]
    assert check_figure(now, lower, history) == now


def test_another_direction_halfway_is_refused():
    with pytest.raises(PrunedataError, match=r"of the same kind in every epoch. Got one of which lower is better"):
        check_figure(0.5, True, [{"number": 3, "validation": 0.6}])
    with pytest.raises(PrunedataError, match="Expected lower_is_better to be True, False or None"):
        check_figure(0.5, "no", [])
    assert check_figure(0.5, None, [{"number": 3, "validation": 0.6, "lower_is_better": False}]) == 0.5
    with pytest.raises(PrunedataError, match="of the same kind"):
        check_figure(0.5, None, [{"number": 3, "validation": 0.6, "lower_is_better": True}])


def test_a_figure_counts_upwards():
    assert figure_of({}) is None
    assert figure_of({"validation": 0.5}) == 0.5
    assert figure_of({"validation": 0.5, "lower_is_better": True}) == -0.5


# -- the figure of samples that are held out


@given(st.lists(st.floats(-5, 1e4), min_size=1, max_size=40), st.randoms())
def test_trust_is_the_sum_of_roots_in_whatever_order(losses, random):
    given_losses = np.array(losses)
    expected = np.exp(-np.maximum(given_losses, 0) / 4)
    assert trust_in(given_losses) == pytest.approx(TRUST * expected.sum(), abs=len(losses))
    parts, shuffled = np.array_split(given_losses, 3), given_losses.copy()
    random.shuffle(shuffled)
    assert sum(map(trust_in, parts)) == trust_in(shuffled) == trust_in(given_losses)
    assert 0 <= trust_in(given_losses) <= TRUST * len(losses)


def test_trust_falls_where_the_network_errs_more_though_it_grows_surer():
    """Of 300 samples held out 60 % are right at the best, then 45 %, while it gets from 35 to 81 % sure."""
    right = [min(0.3 + 0.06 * epoch, 0.6) - 0.01 * max(0, epoch - 8) for epoch in range(24)]
    figures: dict[str, list[float]] = {"trust": [], "believed": []}
    for epoch, share in enumerate(right):
        sure = 0.35 + 0.02 * epoch
        chances = np.random.default_rng(epoch).normal(0, 0.3, 300)
        labels = np.where(np.arange(300) < 300 * share, sure, (1 - sure) / 9) * np.exp(chances)
        losses = -np.log(np.minimum(labels, 1))
        figures["trust"].append(trust_in(losses) / (300 * TRUST))
        figures["believed"].append(float(np.mean(losses < math.log(2))))
    onset = {name: fed(of) for name, of in figures.items()}
    assert 8 < onset["trust"].onset <= 16
    assert onset["believed"].onset is None, "how many labels have more than half of the probability goes on rising"
