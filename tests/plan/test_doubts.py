"""How many labels are doubted: in any unit, of two groups and of one with a tail."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from prunedata.plan.doubts import (
    above_own,
    are_being_learned,
    are_many_worse,
    are_settled,
    are_turned,
    are_worse,
    as_if_visited,
    have_met,
    is_forgetting,
    is_still_learning,
    is_wide,
    loss_at_first,
    lost_from,
    two_groups,
)
from prunedata.plan.doubts import count_doubted as doubted_of
from prunedata.policies.selection import keep_mask

LOSSES = arrays(np.float32, st.integers(0, 200), elements=st.integers(-500, 2000).map(lambda steps: steps / 64))
"""Averages of losses that lie so far apart that another unit does not make two of them equal."""


def count_doubted(averages, **known):
    return doubted_of(two_groups(averages), **known)


def left_out(averages: np.ndarray, *, memorizes: bool = False) -> np.ndarray:
    number = count_doubted(averages, memorizes=memorizes)
    return ~keep_mask(averages, number, seed=0, epoch=0) if averages.size else np.zeros(0, bool)


@given(LOSSES, st.integers(0, 200), st.floats(0.01, 100), st.integers(-100, 100), st.booleans())
def test_nothing_depends_on_the_unit_and_the_zero_of_the_loss(averages, at, unit, zero, memorizes):
    def found(averages, untaught):
        kept = left_out(averages, memorizes=memorizes).tolist()
        return kept, are_many_worse(averages, untaught), wide(averages, untaught)

    untaught = float(np.sort(averages)[at]) + 1 / 256 if at < averages.size else 0.5  # between two averages
    plain, worse = found(averages, untaught), np.count_nonzero(averages > untaught)
    assert plain[1] == (averages.size > 0 and averages.size / 3 <= worse <= 0.45 * averages.size)
    assert found(averages * np.float32(unit), untaught * unit) == plain
    assert found(averages + np.float32(zero), untaught + zero) == plain


def test_no_label_is_doubted_on_which_the_network_is_better_than_at_first():
    averages = np.concatenate([np.linspace(0, 0.1, 80), np.linspace(1, 2, 20)])
    assert [count_doubted(averages, untaught=loss) for loss in (1.0, 1.4, 1.6, 3.0)] == [20, 20, 0, 0]
    assert count_doubted(averages, untaught=3.0, memorizes=True) == 20


def test_means_beyond_float32_are_compared_without_a_warning():
    averages = np.array([1, 3e38], np.float32)
    for untaught, share in ((1e300, 0.0), (-1e300, 1.0)):
        assert are_worse(averages, untaught) == share
    assert are_turned(averages, averages, 1e300) == 0.0


def test_the_loss_at_first_is_half_a_step_before_that_of_the_first_epoch():
    assert [loss_at_first(means) for means in ([], [2.0], [2.0, 1.0, 9.0], [-1.0, -3.0])] == [-np.inf, 2.0, 2.5, 0.0]


def test_where_many_are_worse_than_at_first_all_of_the_upper_group_are_doubted_however_close_it_lies():
    rng = np.random.default_rng(0)
    averages = np.concatenate([rng.normal(0.52, 0.1, 600), rng.normal(0.86, 0.16, 400)])  # two classes, 40 % wrong
    groups = two_groups(averages)
    assert count_doubted(averages, untaught=0.7) < 0.75 * groups.upper
    assert count_doubted(averages, untaught=0.7, many=are_many_worse(averages, 0.7)) == groups.upper
    assert count_doubted(averages, untaught=0.7, many=True) == groups.upper
    assert count_doubted(averages, untaught=3.0, many=True) == 0
    half = rng.normal(0.7, 0.1, 1000)  # of what it has not learned half is in the upper group
    assert count_doubted(half, untaught=0.7, many=True) == 0
    tail = rng.exponential(1, 10_000)  # nothing is learnt, and some samples are hard
    assert are_many_worse(tail, 1.0)
    assert count_doubted(tail, untaught=1.0, many=True) < 100


def flooded(samples=1000, seed=0):
    """Hard tasks have losses of all sizes. Of these, three in ten have a wrong label."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.exponential(0.45, samples * 7 // 10), rng.normal(1.1, 0.5, samples * 3 // 10)])


def wide(averages, untaught):
    return is_wide(two_groups(averages), are_worse(averages, untaught))


def test_a_wide_group_has_more_samples_than_the_tail_of_one():
    averages = flooded()
    groups = two_groups(averages)
    assert 0.65 < groups.apart < 0.75
    assert wide(averages, 0.8)
    assert not wide(averages, 1.2)  # a third of the group has been learned
    assert not wide(averages, 0.2)  # nothing has been learned
    assert not wide(np.concatenate([averages * 0.3, averages[:100] * 0.3 + 2]), 0.1)
    fewer = 0.6 * groups.upper / groups.samples
    assert is_wide(groups, fewer, forgets=True)
    assert not is_wide(groups, fewer)
    assert not is_wide(groups, 0.8 * fewer, forgets=True)
    clear = np.concatenate([np.linspace(0, 0.2, 700), np.linspace(1, 1.2, 300)])
    assert two_groups(clear).apart > 0.75
    assert not wide(clear, 0.5)  # it gets clearer still
    tails = [np.random.default_rng(seed).exponential(1, 20_000) for seed in range(20)]
    assert not any(wide(tail, 0.9) for tail in tails)


@pytest.mark.parametrize("samples", [10, 100, 400])
def test_of_few_samples_a_group_has_to_be_wider(samples):
    tails = [np.random.default_rng(seed).exponential(1, samples) for seed in range(200)]
    assert sum(wide(tail, 0.9) for tail in tails) <= 60
    assert is_wide(two_groups(flooded(400)), 0.3)


def test_means_over_several_labels_have_many_samples_in_the_upper_group_but_few_that_are_worse_than_at_first():
    rng = np.random.default_rng(0)
    each = rng.exponential(1, (4000, 10)) * (rng.random((4000, 10)) < 0.3)  # of ten labels most are learned
    losses = each.mean(1)
    groups = two_groups(losses)
    untaught = float(np.quantile(losses, 1 - 0.55 * groups.upper / groups.samples))
    assert groups.upper > 0.3 * groups.samples
    assert groups.apart > 0.62
    assert groups.median > untaught
    assert not wide(losses, untaught)


@given(LOSSES, LOSSES, st.integers(-500, 2000), st.floats(0.01, 100), st.integers(-100, 100))
def test_samples_turn_that_were_better_than_at_first_and_are_worse(before, losses, at, unit, zero):
    few, untaught = min(before.size, losses.size), at / 64 + 1 / 256  # between two averages
    before, losses = before[:few], losses[:few].copy()
    losses[::7] = np.nan  # these have none
    pairs = [(earlier, newest) for earlier, newest in zip(before, losses, strict=True) if earlier <= untaught]
    share = sum(newest > untaught for _, newest in pairs) / max(1, len(pairs))
    assert are_turned(before, losses, untaught) == share
    unit = np.float32(unit)
    assert are_turned(before * unit, losses * unit, untaught * float(unit)) == share
    assert are_turned(before + zero, losses + zero, untaught + zero) == share


def test_it_is_settled_which_samples_are_worse_once_few_have_turned_in_five_epochs():
    assert not any(map(are_settled, ([], [0.15], [0.15, 0, 0, 0, 0], [0, 0, 0, 0, 0.2])))
    assert all(map(are_settled, ([0.14], [0.15, 0, 0, 0, 0, 0], [0.0] * 9)))


def test_samples_are_being_learned_once_a_tenth_fewer_are_worse_than_at_first():
    assert not any(map(are_being_learned, ([], [0.3], [0.3, 0.28], [0.0, 0.3])))
    assert all(map(are_being_learned, ([0.3, 0.27], [0.2, 0.3, 0.26])))
    assert are_worse(np.array([1.0, 2.0, 3.0, np.nan]), 1.5) == 0.5
    assert are_worse(np.zeros(0), 0.0) == 0


@given(
    st.lists(st.integers(-64, 64), max_size=8), st.lists(st.integers(0, 256), min_size=1, max_size=9),
    st.sampled_from([2.0**-7, 0.5, 100.0]), st.integers(-100, 100),
)  # fmt: skip
def test_whether_a_network_is_still_learning_depends_on_no_unit(within, means, unit, zero):
    plain = is_still_learning(within, means)
    other = [fall * unit for fall in within], [mean * unit + zero * unit for mean in means]
    assert is_still_learning(*other) == plain
    noise = [abs(fall) / 4 for fall in within]
    assert is_forgetting(other[0], [one * unit for one in noise], other[1]) == is_forgetting(within, noise, means)


def test_a_network_is_still_learning_if_losses_fall_within_the_last_epochs_and_not_between_them():
    means = [2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4]
    assert is_still_learning([0.1] * 6, means)
    assert is_still_learning([-1.0] + [0.06] * 5, means)
    assert not is_still_learning([1.0] + [0.04] * 5, means)
    assert not any(is_still_learning([-0.1] * at, means[: at + 1]) for at in range(7))
    assert not is_still_learning([0.1], [2.0])
    assert not is_still_learning([0.0] * 6, means[::-1])
    assert is_still_learning([0.01] * 6, means[::-1])


def test_a_network_memorizes_if_losses_rise_within_epochs_by_more_than_they_fall_between_them():
    means = [2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4]
    still = [0.0] * 6
    assert is_forgetting([0.0] + [-0.11] * 5, still, means)
    assert is_forgetting([-0.11] * 5, still, means[::-1])
    assert not is_forgetting([-1.0] + [-0.09] * 5, still, means)
    assert not any(is_forgetting([0.1] * at, still[:at], means[: at + 1]) for at in range(7))
    assert not is_forgetting([-1.0], still[:1], [2.0])
    assert is_forgetting([-0.2] * 5, [0.07] * 5, means)  # 1, which is more than 0.5 and thrice 0.16
    assert not is_forgetting([-0.2] * 5, [0.08] * 5, means)
    assert not is_forgetting([-1e-7] * 5, still, [3.0] * 6)  # rounded


def test_a_network_that_has_learnt_nothing_has_half_of_the_samples_worse_than_at_first():
    assert not are_many_worse(np.random.default_rng(0).normal(2.3, 0.1, 10_000), 2.3)
    assert not are_many_worse(np.zeros(0), 0.0)


def test_it_is_looked_for_them_after_a_sixth_of_the_run_and_never_before_five_epochs():
    assert [lost_from(epochs) for epochs in (1, 3, 5, 12, 30, 31, 120)] == [5, 5, 5, 5, 5, 6, 20]


@given(LOSSES)
def test_what_a_figure_has_shown_adds_doubts_and_some_samples_are_always_left(averages):
    alone, shown = count_doubted(averages), count_doubted(averages, memorizes=True)
    assert 0 <= alone <= shown <= max(0, averages.size - 1)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.4])
def test_of_two_clear_groups_all_of_the_upper_one_are_doubted(share):
    rng, wrong = np.random.default_rng(0), round(share * 10_000)
    averages = np.concatenate([rng.exponential(0.2, 10_000 - wrong), rng.normal(4, 0.5, wrong)])
    assert count_doubted(averages) == pytest.approx(wrong, rel=0.02)


@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_of_one_group_with_a_waning_tail_hardly_any_are(scale):
    averages = np.random.default_rng(0).exponential(scale, 10_000)
    assert count_doubted(averages) < 100
    assert count_doubted(averages, memorizes=True) > 1500


@pytest.mark.parametrize(
    "averages",
    [[], [1.0], [2.0, 2.0, 2.0], [np.nan, np.inf], [np.nan, 3.0]],
    ids=["none", "one", "equal", "wild", "rest"],
)
def test_where_nothing_differs_nothing_is_doubted(averages):
    assert count_doubted(np.array(averages, np.float32), memorizes=True) == 0


def test_a_loss_out_of_all_proportion_does_not_hide_the_others():
    rng = np.random.default_rng(0)
    averages = np.concatenate([rng.exponential(0.2, 800), rng.normal(4, 0.5, 199), [1e6]])
    assert count_doubted(averages) == pytest.approx(200, rel=0.02)


def test_losses_of_any_size_are_split():
    largest = float(np.finfo(np.float64).max)
    assert count_doubted(np.array([-largest] * 8 + [largest] * 2)) == 2
    assert count_doubted(np.array([0.0] * 8 + [1e-300] * 2)) == 2


def test_groups_have_met_once_they_lie_a_hundredth_nearer_than_at_best():
    rising = [0.6, 0.7, 0.8, 0.795, 0.8]
    assert not any(have_met(rising[:end]) for end in range(len(rising) + 1))
    assert have_met([*rising, 0.789])
    assert not have_met([0.5])


@st.composite
def labelled(draw):
    averages = draw(LOSSES)
    return averages, np.array(draw(st.lists(st.integers(0, 4), min_size=averages.size, max_size=averages.size)), int)


@given(labelled(), st.booleans())
def test_each_is_held_against_the_lowest_tenth_of_its_own_label(given_, some):
    averages, labels = given_
    among = np.arange(averages.size) % 3 != 0 if some else None
    found = above_own(averages, labels, among)
    for loss, label, above in zip(averages, labels, found, strict=True):
        own = sorted(averages[(labels == label) & (True if among is None else among)].astype(float))
        if own:
            assert above == loss - own[(len(own) - 1) // 10]


@given(labelled(), st.integers(1, 6400), st.integers(-100, 100))
def test_beside_their_own_label_the_same_are_doubted_in_any_unit(given_, steps, zero):
    """Of units in which no average is rounded: two that lie equally far above their own lowest would differ."""
    (averages, labels), unit = given_, steps / 64
    found = left_out(above_own(averages, labels))
    assert (left_out(above_own(averages * np.float32(unit), labels)) == found).all()
    assert (left_out(above_own(averages + np.float32(zero), labels)) == found).all()


@given(LOSSES)
def test_of_one_label_it_is_what_it_is_without(averages):
    labels = np.zeros(averages.size, np.uint8)
    assert (left_out(above_own(averages, labels)) == left_out(averages)).all()
    if averages.size:
        groups = two_groups(above_own(averages, labels), averages)
        assert groups.median == two_groups(averages).median


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=20), st.floats(0, 0.99))
def test_a_sample_that_came_seldom_or_often_has_the_average_of_one_that_came_once_an_epoch(samples, decay):
    """Of losses that are all 1, the average after so many visits from 0."""
    visits, epochs = (np.array(each) for each in zip(*samples, strict=True))
    absent = (epochs - visits).astype(np.uint32)
    found = as_if_visited(1 - decay**visits, visits.astype(np.uint8), absent, decay)
    expected = np.where(visits > 0, 1 - decay**epochs, 0)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
