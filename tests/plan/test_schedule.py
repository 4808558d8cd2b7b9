import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.errors import PrunedataError, ScheduleError
from prunedata.plan.schedule import Schedule
from tests.common.strategies import schedules

PAPER = (200, 60, 20, 5, 4)

# Shape, then pruned epochs: aligned, aligned with attenuation 2, printed, printed with attenuation 2,
# Formula 3, Formula 4.
REFERENCE = [
    ((200, 60, 20, 5, 4), (96, 131, 97, 142, 96, 96)),
    ((200, 60, 30, 5, 4), (72, 117, 72, 134, 72, 64)),
    ((200, 60, 30, 5, 3), (54, 89, 54, 100, 54, 48)),
    ((60, 30, 10, 8, 2), (12, 13, 10, 12, 16, 18)),
]


@st.composite
def shapes(draw, attenuations=(1.0, 1.3, 1.5, 2.0, 3.0, 10.0)):
    """(epochs, window, start, block, pruned_per_block, attenuation), windows longer than the run included."""
    block = draw(st.integers(1, 12))
    return (
        draw(st.integers(1, 150)),
        draw(st.integers(1, 170)),
        draw(st.integers(1, 60)),
        block,
        draw(st.integers(0, block)),
        draw(st.sampled_from(attenuations)),
    )


@st.composite
def uneven(draw):
    """An aligned schedule with windows of given lengths."""
    epochs, _, *rest = draw(shapes())
    lengths = draw(st.lists(st.integers(1, 50), min_size=1, max_size=12))
    return Schedule(min(epochs, sum(lengths)), tuple(lengths), *rest)


def algorithm_2(epochs, window, start, block, count, attenuation):
    """Lines 1-6 as printed, and Algorithm 1's lines 1-3; results per epoch number E = 1..epochs."""
    prunes, starts, resets = [], [], []
    e = 1
    while e <= epochs:
        if e > window:
            start = int(start / attenuation)
        pruned = False
        if e % window >= start:  # noqa: SIM102 (as printed)
            if e % block < count:
                pruned = True
        prunes.append(pruned)
        starts.append(start)
        resets.append(e % window == 0)
        e += 1
    return prunes, starts, resets


def aligned_loop(epochs, windows, start, block, count, attenuation):
    """The aligned reading by walking the epochs, window after window."""
    prunes, starts, resets = [], [], []
    for k, length in enumerate(windows):
        if k > 0:
            start = max(1, int(start / attenuation))
        for p in range(length):
            prunes.append(p >= start and (p - start) % block < count)
            starts.append(start)
            resets.append(p == 0)
    return prunes[:epochs], starts[:epochs], resets[:epochs]


def facts(schedule):
    every = range(schedule.epochs)
    return (
        [schedule.prunes(e) for e in every],
        [schedule.start_at(e) for e in every],
        [schedule.resets(e) for e in every],
    )


@pytest.mark.parametrize(("shape", "expected"), REFERENCE)
def test_reference_values(shape, expected):
    plain, faster = Schedule(*shape), Schedule(*shape, attenuation=2)
    printed, printed_faster = Schedule(*shape, reading="printed"), Schedule(*shape, 2, "printed")
    counted = [len(s.pruned_epochs) for s in (plain, faster, printed, printed_faster)]
    assert (*counted, plain.formula_3, plain.formula_4) == expected
    divides = shape[0] % shape[1] == 0
    assert plain.pruned_epochs_printed == expected[4 if divides else 5]
    assert plain.formula_corrected == expected[0]
    assert faster.formula_corrected == expected[1]


@given(shapes())
def test_printed_reading_is_algorithm_2_to_the_letter(shape):
    assert facts(Schedule(*shape, reading="printed")) == algorithm_2(*shape)


@given(shapes())
def test_aligned_reading_is_the_loop_over_windows(shape):
    epochs, window, *rest = shape
    windows = [window] * (epochs // window + 1)
    assert facts(Schedule(*shape)) == aligned_loop(epochs, windows, *rest)


@given(uneven())
def test_uneven_windows_are_the_loop_over_windows(s):
    expected = aligned_loop(s.epochs, s.window, s.start, s.block, s.pruned_per_block, s.attenuation)
    assert facts(s) == expected
    assert s.formula_corrected == sum(expected[0])
    assert s.pruned_epochs_printed is None


@given(shapes(), st.sampled_from(["aligned", "printed"]))
def test_pruned_epochs_and_windows_agree_with_the_questions_per_epoch(shape, reading):
    s = Schedule(*shape, reading=reading)
    assert s.pruned_epochs == tuple(e for e in range(s.epochs) if s.prunes(e))
    assert [first for first, _ in s.windows] == [e for e in range(s.epochs) if e == 0 or s.resets(e)]
    assert sum(length for _, length in s.windows) == s.epochs
    assert max(length for _, length in s.windows) <= s.longest_window


@given(shapes())
def test_formulas_3_and_4_are_as_printed(shape):
    n, w, a, r, c, _ = shape
    s = Schedule(*shape)
    per_window = int(np.floor((w - a) / r)) * c + np.mod(w - a, r)
    formula_3 = per_window * (n // w)
    formula_4 = formula_3 + int(np.floor((n % w - a) / r)) * c + np.mod(n % w - a, r)
    assert (s.formula_3, s.formula_4) == (formula_3, formula_4)
    assert s.pruned_epochs_printed == (formula_3 if n % w == 0 else formula_4)
    assert all(type(f) is int for f in (s.formula_3, s.formula_4, s.formula_corrected))


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 8), st.integers(1, 20), st.data())
def test_formula_3_is_exact_where_all_divides(windows, block, blocks, start, data):
    count = data.draw(st.integers(0, block))
    window = start + block * blocks
    s = Schedule(windows * window, window, start, block, count)
    assert s.formula_3 == len(s.pruned_epochs)


def test_the_formulas_know_one_window_length_and_the_corrected_one_only_the_aligned_reading():
    uneven = Schedule.from_milestones(200, (60, 120, 160), 20, 5, 4)
    for name in ("formula_3", "formula_4"):
        with pytest.raises(ScheduleError, match=r"Expected an int window.*\(60, 60, 40, 40\)"):
            getattr(uneven, name)
    with pytest.raises(ScheduleError, match="Expected reading='aligned'"):
        _ = Schedule(*PAPER, reading="printed").formula_corrected


def test_windows_of_milestones():
    s = Schedule.from_milestones(200, [60, 120, 160], 20, 5, 4, 2)
    assert s == Schedule(200, (60, 60, 40, 40), 20, 5, 4, 2)
    assert [e for e in range(200) if s.resets(e)] == [0, 60, 120, 160]
    assert s.longest_window == 60
    assert s.windows == ((0, 60), (60, 60), (120, 40), (160, 40))
    assert Schedule.from_milestones(30, [], 5, 5, 4) == Schedule(30, (30,), 5, 5, 4)


def test_the_rate_may_drop_at_any_epoch_but_the_first():
    assert Schedule.from_milestones(200, [1, 199], 20, 5, 4).window == (1, 198, 1)
    assert Schedule.from_milestones(2, [1], 1, 1, 1).window == (1, 1)


def test_one_epoch_is_a_run():
    assert Schedule.from_milestones(1, [], 1, 1, 1).windows == Schedule.steady(1).windows == ((0, 1),)
    for make in (lambda: Schedule.from_milestones(0, [], 1, 1, 1), lambda: Schedule.steady(0)):
        with pytest.raises(ScheduleError, match=r"Expected epochs to be at least 1\. Got 0\."):
            make()


@pytest.mark.parametrize("milestones", [[120, 60], [60, 60], [0, 60], [200], [60.0], [True]])
def test_milestones_that_do_not_rise_inside_the_run_are_refused(milestones):
    with pytest.raises(ScheduleError, match="milestone"):
        Schedule.from_milestones(200, milestones, 20, 5, 4)


@given(st.one_of(shapes().map(lambda shape: Schedule(*shape)), uneven()), st.integers(1, 40), st.data())
def test_rewindow_begins_a_window_and_leaves_the_past_alone(s, window, data):
    epoch = data.draw(st.integers(0, s.epochs - 1))
    new = s.rewindow(epoch, window)
    for old_fact, new_fact in zip(facts(s), facts(new), strict=True):
        assert new_fact[:epoch] == old_fact[:epoch]
    assert [e for e in range(epoch, s.epochs) if new.resets(e)] == list(range(epoch, s.epochs, window))
    assert (new.epochs, new.start, new.block, new.attenuation) == (s.epochs, s.start, s.block, s.attenuation)
    number = sum(s.resets(e) for e in range(epoch))  # windows begun before: the new one's number
    start = s.start
    for _ in range(number):
        start = max(1, int(start / s.attenuation))
    assert new.start_at(epoch) == start


@pytest.mark.parametrize("epoch", [-1, 200, 3.0, True, None])
def test_epochs_outside_the_run_are_refused(epoch):
    s = Schedule(*PAPER)
    for ask in (s.prunes, s.start_at, s.resets, lambda e: s.rewindow(e, 10)):
        with pytest.raises(ScheduleError, match="Expected epoch to be"):
            ask(epoch)


def test_rewindow_is_refused_for_the_printed_reading_and_for_no_window():
    with pytest.raises(ScheduleError, match="Expected reading='aligned'"):
        Schedule(*PAPER, reading="printed").rewindow(70, 30)
    with pytest.raises(ScheduleError, match="Expected window to be at least 1"):
        Schedule(*PAPER).rewindow(70, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epochs", value) for value in (0, 2.0, True, 2**60)),
        *(("window", value) for value in (0, None, "60", (60, 0, 200), (), (60, 60))),
        ("start", 0), ("block", 0), ("pruned_per_block", -1), ("pruned_per_block", 6), ("reading", "literal"),
        *(("attenuation", value) for value in (0.5, float("nan"), float("inf"), "2", True, None)),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(name, value):
    fields = dict(zip(("epochs", "window", "start", "block", "pruned_per_block"), PAPER, strict=True))
    with pytest.raises(ScheduleError, match=name):
        Schedule(**(fields | {name: value}))
    with pytest.raises(ScheduleError, match="window"):
        Schedule(**(fields | {"window": (100, 100), "reading": "printed"}))
    assert issubclass(ScheduleError, PrunedataError)


def test_numpy_numbers_become_plain_ones():
    s = Schedule(*map(np.int64, PAPER), attenuation=np.float32(2))
    assert s == Schedule(*PAPER, attenuation=2)
    assert [type(v) for v in s.to_dict().values()] == [int] * 5 + [float, str]
    assert type(s.prunes(np.int64(3))) is bool
    assert Schedule(200, np.array([100, 100]), 20, 5, 4) == Schedule(200, [100, 100], 20, 5, 4)
    assert Schedule(200, [100, 100], 20, 5, 4).window == (100, 100)


def test_it_is_frozen_hashable_and_survives_pickle():
    s = Schedule(*PAPER)
    with pytest.raises(AttributeError):
        s.start = 3
    before = hash(s)
    assert s.pruned_epochs is s.pruned_epochs
    assert hash(s) == before
    assert pickle.loads(pickle.dumps(s)) == s


@pytest.mark.parametrize("stored", [None, [], {}, {"epochs": 5}, Schedule(*PAPER).to_dict() | {"extra": 1}])
def test_from_dict_refuses_what_is_no_schedule(stored):
    with pytest.raises(ScheduleError, match="Expected a mapping with the keys"):
        Schedule.from_dict(stored)
    with pytest.raises(ScheduleError, match="Expected start"):
        Schedule.from_dict(Schedule(*PAPER).to_dict() | {"start": "20"})


# -- annealing


@given(
    st.one_of(shapes().map(lambda shape: Schedule(*shape)), uneven()),
    st.sampled_from(["aligned", "printed"]),
    st.data(),
)
def test_the_last_epochs_are_not_pruned_and_nothing_else_changes(s, reading, data):
    if reading == "printed" and isinstance(s.window, int):
        s = replace(s, reading=reading)
    anneal = data.draw(st.integers(0, s.epochs))
    new = replace(s, anneal=anneal)
    assert new.pruned_epochs == tuple(e for e in s.pruned_epochs if e < s.epochs - anneal)
    assert facts(new)[1:] == facts(s)[1:]
    assert new.windows == s.windows
    assert new.pruned_epochs_printed == s.pruned_epochs_printed
    if s.reading == "aligned":
        assert new.formula_corrected == len(new.pruned_epochs)
        assert new.rewindow(s.epochs - 1, 3).anneal == anneal
    assert Schedule.from_dict(json.loads(json.dumps(new.to_dict()))) == new
    assert (new == s) == (anneal == 0)


@pytest.mark.parametrize(
    ("epochs", "anneal", "expected"),
    [
        (200, 0.125, 25),
        (200, 25, 25),
        (10, 0.125, 2),
        (6, 0.1, 1),
        (100, 0.29, 29),
        (10, 0.0, 0),
        (10, 10, 10),
        (10, 1, 1),
    ],
)
def test_a_fraction_is_of_all_epochs_and_rounded_up(epochs, anneal, expected):
    s = Schedule(epochs, 5, 1, 2, 1, anneal=anneal)
    assert (s.anneal, type(s.anneal)) == (expected, int)
    assert s == Schedule(epochs, 5, 1, 2, 1, anneal=expected)
    assert Schedule.from_milestones(epochs, [epochs // 2], 1, 2, 1, anneal=anneal).anneal == expected
    assert not any(s.prunes(e) for e in range(epochs - expected, epochs))


@pytest.mark.parametrize("anneal", [-1, 201, 1.0, 1.5, -0.1, float("nan"), True, None, "0.1"])
def test_annealing_that_makes_no_sense_is_refused(anneal):
    with pytest.raises(ScheduleError, match=r"Expected anneal.* Got"):
        Schedule(*PAPER, anneal=anneal)


def test_annealing_is_recorded_only_where_there_is_some():
    """So runs recorded before it was known stay the same runs."""
    assert "anneal" not in Schedule(*PAPER).to_dict()
    assert Schedule(*PAPER, anneal=0.125).to_dict()["anneal"] == 25
    with pytest.raises(TypeError):
        Schedule(*PAPER, 1.0, "aligned", 25)


@given(st.integers(2, 300))
def test_a_steady_schedule_prunes_every_epoch_from_its_start_on(epochs):
    assert Schedule.steady(epochs).pruned_epochs == tuple(range(-(-epochs // 6), epochs))
    assert Schedule.steady(epochs, epochs - 1).pruned_epochs == (epochs - 1,)
    assert Schedule.steady(epochs, 1, anneal=1).pruned_epochs == tuple(range(1, epochs - 1))
    assert [epoch for epoch in range(epochs) if Schedule.steady(epochs).resets(epoch)] == [0]


@given(schedules())
def test_whether_it_ever_prunes(schedule):
    assert schedule.ever_prunes == bool(schedule.pruned_epochs)
