"""Bad input: what came and what to do is said, and nothing is lost by it."""

import re

import numpy as np
import pytest

from prunedata import Pruner, Schedule, errors
from prunedata.errors import (
    FinishedWarning,
    LossError,
    NeverPrunesWarning,
    NotInEpoch,
    PrunedataError,
    ScheduleError,
    SkippedSamples,
)
from prunedata.policies import DroppingCount, Random

SCHEDULE = Schedule(4, window=4, start=1, block=1, pruned_per_block=1)
IDS = np.arange(8)
FINE = np.linspace(0.0, 1.0, 8)


@pytest.fixture
def run():
    """A run of 8 samples, of which 2 are pruned from its second epoch on; its first epoch is open."""
    pruner = Pruner(8, SCHEDULE, prune=2)
    pruner.begin_epoch()
    return pruner


def changed(values, **places):
    values = values.copy()
    for place, value in places.items():
        values[int(place[1:])] = value
    return values


BAD_VALUES = [
    (IDS, changed(FINE, _3=np.nan), ["finite losses", "[nan]", "samples [3]"]),
    (IDS, changed(FINE, _5=np.inf), ["finite losses", "[inf]", "samples [5]"]),
    (IDS, changed(FINE, _0=-np.inf, _7=np.nan), ["finite losses", "[-inf, nan]", "samples [0, 7]"]),
    (IDS, np.full(8, np.nan), ["[nan, nan, nan, nan, nan, ... 8 in all]", "[0, 1, 2, 3, 4, ... 8 in all]"]),
    (IDS, np.full(8, 1e308), ["sum is finite", "1e+308", "... 8 in all"]),
    (changed(IDS, _2=8), FINE, ["ids from 0 to 7", "[8]"]),
    (changed(IDS, _2=-1), FINE, ["ids from 0 to 7", "[-1]"]),
    (changed(IDS, _2=-3, _4=10**12), FINE, ["ids from 0 to 7", "[-3, 1000000000000]"]),
    (changed(IDS, _1=99), changed(FINE, _6=np.nan), ["ids from 0 to 7", "[99]", "finite losses", "samples [6]"]),
]


@pytest.mark.parametrize(("ids", "losses", "told"), BAD_VALUES)
@pytest.mark.parametrize("position", [0, 5])
def test_bad_values_name_the_batch_and_cost_only_it(run, ids, losses, told, position):
    taken = 0
    if position == 0:
        with pytest.raises(LossError) as error:
            run.observe(losses, ids)
    else:
        for number in range(7):
            run.observe(*((losses, ids) if number == position else (FINE, IDS)))
        taken = 6
        with pytest.raises(LossError) as error:
            run.end_epoch()
    for fact in [*told, f"batch {position} of this epoch"]:
        assert fact in str(error.value)
    # All others are recorded, and the epoch can go on.
    assert run.counts.tolist() == [0] * 4 + [taken] * 4
    run.observe(FINE, IDS)
    run.end_epoch()
    assert run.visits.tolist() == [taken + 1] * 8


@pytest.mark.parametrize(
    ("ids", "losses", "told"),
    [
        (IDS.astype(float), FINE, "integer dtype.*float64"),
        (IDS > 3, FINE, "integer dtype.*bool"),
        (IDS.astype(str), FINE, r"integer dtype.*<U\d+: an id is the place of a sample"),
        (np.array([2**63, *range(7)], np.uint64), FINE, "Got 9223372036854775808"),
        ([2**63 - 1, *range(7)], FINE, "Got .9223372036854775807. in batch"),
        ([None] * 8, FINE, "integer dtype.*object"),
        (IDS[:, None], FINE, r"ids of shape \(n,\).*Got shape \(8, 1\)"),
        (3, 1.0, r"ids of shape \(n,\).*Got shape \(\)"),
        (IDS, FINE > 0.5, "floating dtype.*bool"),
        (IDS, FINE.astype(complex), "floating dtype.*complex128"),
        (IDS, FINE.astype(str), "floating dtype.*<U"),
        (IDS, FINE[:, None], r"losses of shape \(n,\).*squeeze.*Got shape \(8, 1\)"),
        (IDS, np.tile(FINE, (8, 1)), r"losses of shape \(n,\).*Got shape \(8, 8\)"),
        (IDS, np.float64(0.5), r"losses of shape \(n,\).*reduction='none'.*Got shape \(\)"),
        (IDS, 0.5, r"reduction='none'.*Got shape \(\)"),
        (IDS[:1], 0.5, r"losses.reshape\(1\), as the batch is one sample.*Got shape \(\)"),
        (IDS, None, r"Got shape \(\), object"),
        (IDS, FINE[:7], "one loss for each id. Got 8 ids and 7 losses"),
        (IDS[:7], FINE, "one loss for each id. Got 7 ids and 8 losses"),
        (IDS[:1], FINE, "one loss for each id. Got 1 ids and 8 losses"),
        (IDS, FINE[:1], "one loss for each id. Got 8 ids and 1 losses"),
        (IDS, [], "one loss for each id. Got 8 ids and 0 losses"),
        ([], FINE, "one loss for each id. Got 0 ids and 8 losses"),
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_what_is_no_batch_is_refused_at_once_wherever_it_stands(run, ids, losses, told, before):
    for _ in range(before):
        run.observe(FINE, IDS)
    with pytest.raises(LossError, match=told):
        run.observe(losses, ids)
    assert run.counts.tolist() == [0] * 4 + [before] * 4
    run.observe(FINE, IDS)
    run.end_epoch()
    assert run.visits.tolist() == [before + 1] * 8


@pytest.mark.parametrize(
    ("ids", "losses"), [([[0], [1, 2]], [0.1, 0.2]), ([0, 1], [[0.1], [0.2, 0.3]]), ([10**30], [0.1])]
)
def test_what_is_no_array_is_a_value_error(run, ids, losses):
    with pytest.raises(ValueError, match=r"shape"):
        run.observe(losses, ids)


def test_verbs_outside_an_epoch_say_where_they_belong():
    pruner = Pruner(8, SCHEDULE, prune=2)
    verbs = (lambda: pruner.observe(FINE, IDS), pruner.end_epoch, lambda: pruner.current)
    for verb in verbs:
        with pytest.raises(NotInEpoch, match=r"Expected an open epoch. Got none.*epochs"):
            verb()
    for _ in pruner.epochs():
        pruner.observe(FINE, IDS)
    for verb in verbs:
        with pytest.raises(NotInEpoch, match=r"Expected an open epoch. Got none"):
            verb()
    with pytest.raises(NotInEpoch, match=r"Expected one of 4 epochs to begin. Got none: all are done"):
        pruner.begin_epoch()
    with pytest.warns(FinishedWarning, match=r"finished its 4 epochs.*resume=True") as caught:
        assert list(pruner.epochs()) == []
    assert caught[0].filename == __file__  # it points at the call
    assert pruner.visits.tolist() == [4] * 8  # a refused batch left nothing behind


def test_a_restored_run_wants_its_epoch_begun(run):
    run.observe(FINE[:3], IDS[:3])
    run.load_state_dict(run.state_dict())
    with pytest.raises(NotInEpoch, match=r"begin_epoch.* before observe"):
        run.observe(FINE, IDS)
    assert run.begin_epoch().remaining.tolist() == [False] * 3 + [True] * 5


@pytest.mark.parametrize("policy", [DroppingCount(), Random()])
def test_forgotten_batches_are_reported_and_can_be_made_up_for(policy):
    pruner = Pruner(8, SCHEDULE, prune=2, policy=policy)
    epochs = pruner.epochs()
    next(epochs)
    pruner.observe(FINE[:3], IDS[:3])
    with pytest.raises(SkippedSamples, match=r"all 8 kept samples of epoch 0.*Got 5 that were not.*observe\(\)"):
        next(epochs)
    assert (pruner.next_epoch, pruner.history, pruner.visits.tolist()) == (0, [], [1] * 3 + [0] * 5)
    pruner.observe(FINE[3:], IDS[3:])
    epoch = next(pruner.epochs())
    assert (epoch.number, pruner.next_epoch, len(pruner.history)) == (1, 1, 1)
    pruner.observe(np.ones(2), np.flatnonzero(~epoch.keep))  # pruned samples stand for no kept one
    pruner.observe(np.ones(3), np.flatnonzero(epoch.keep)[[0, 0, 1]])  # nor does one that came twice
    with pytest.raises(SkippedSamples, match=r"all 6 kept samples of epoch 1.*Got 4 that were not"):
        pruner.end_epoch()


def test_an_epoch_without_any_loss_is_an_error_where_the_policy_needs_them():
    pruner = Pruner(8, SCHEDULE, prune=2)
    epochs = pruner.epochs()
    next(epochs)
    with pytest.raises(SkippedSamples, match=r"all 8 kept samples of epoch 0.*Got 8 that were not"):
        next(epochs)
    blind = Pruner(8, SCHEDULE, prune=2, policy=Random())
    assert [epoch.kept for epoch in blind.epochs()] == [8, 6, 6, 6]
    assert [record["mean_loss"] for record in blind.history] == [None] * 4


NEVER = {
    "pruned_per_block is 0": (Schedule(4, 4, 1, 1, 0), {"prune": 2}, "no epoch.*start.*pruned_per_block"),
    "start is beyond the window": (Schedule(4, 2, 2, 1, 1), {"prune": 2}, "no epoch"),
    "prune is 0": (SCHEDULE, {"prune": 0}, "keep all 8 samples: raise prune"),
    "the fraction is less than one sample": (SCHEDULE, {"prune": 0.1}, "keep all 8 samples"),
    "whole batches are all": (SCHEDULE, {"prune": 2, "batch_size": 8}, "keep all 8 samples.*lower batch_size"),
}


@pytest.mark.parametrize("why", NEVER)
def test_a_run_that_never_prunes_warns_and_runs(why):
    schedule, options, told = NEVER[why]
    with pytest.warns(NeverPrunesWarning, match=told) as caught:
        pruner = Pruner(8, schedule, **options)
    assert caught[0].filename == __file__  # it points at the call
    for epoch in pruner.epochs():
        assert epoch.keep.all()
        pruner.observe(FINE, IDS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prune": 8}, "less than the 8 samples. Got 8: prune = all leaves nothing"),
        ({"prune": 1.0}, "fraction between 0 and 1.*Got 1.0"),
        ({"prune": None}, "prune.*Got none"),
        ({"samples": 0}, "samples to be at least 1. Got 0"),
        ({"samples": 2.5}, "samples to be an integer. Got 2.5"),
        ({"seed": 1.5}, "seed to be an integer. Got 1.5"),
        ({"seed": 2**64}, f"seed.*Got {2**64}"),
        ({"batch_size": 0}, "batch_size to be at least 1. Got 0"),
        ({"batch_size": 2.0}, "batch_size to be an integer. Got 2.0"),
        ({"schedule": (4, 4, 1, 1, 1)}, r"Expected a Schedule. Got \(4"),
        ({"schedule": 30}, "Expected a Schedule. Got 30: pass a number of epochs as epochs="),
        ({"samples": SCHEDULE, "schedule": None}, r"Got a Schedule: write Pruner\(samples, schedule\)"),
        ({"policy": "random"}, "policy.*Got 'random'"),
        ({"policy": Random}, r"policy.*Got the class Random: call it, Random\(\)"),
        ({"resume": True}, "store to resume from"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, told):
    arguments = {"samples": 8, "schedule": SCHEDULE, "prune": 2, **options}
    with pytest.raises(PrunedataError, match=told) as caught:
        Pruner(arguments.pop("samples"), arguments.pop("schedule"), **arguments)
    # Of a schedule or an amount only: a seed is none.
    assert isinstance(caught.value, ScheduleError) == ("prune" in options)


def test_a_window_that_makes_no_sense_changes_nothing(run):
    for window in (0, -1, 2.5, "4"):
        with pytest.raises(ScheduleError, match=f"window.*Got {re.escape(repr(window))}"):
            run.rewindow(window)
    assert run.schedule is SCHEDULE
    printed = Pruner(8, Schedule(4, 4, 1, 1, 1, reading="printed"), prune=2)
    with pytest.raises(ScheduleError, match=r"reading='aligned'.*Got 'printed'"):
        printed.rewindow(2)
    for _ in range(3):
        run.observe(FINE, IDS)
        run.end_epoch()
        run.begin_epoch()
    with pytest.raises(ScheduleError, match=r"epoch.*from 0 to 3. Got 4"):
        run.rewindow(2)  # the last epoch is open: no window can begin after it


def test_all_errors_are_of_one_family():
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, PrunedataError) for kind in kinds if not issubclass(kind, Warning))
    assert issubclass(PrunedataError, ValueError)
    assert issubclass(NeverPrunesWarning, UserWarning)


def test_a_sample_observed_more_often_than_can_be_counted_is_an_error(run):
    run.observe(FINE, IDS)
    run.observe(np.ones(65_535), np.zeros(65_535, dtype=np.int64))
    with pytest.raises(LossError, match="at most 65535 times in an epoch"):
        run.end_epoch()
    assert run.history == []
