"""What a run is where little is said: the schedule, the policy, the number of samples; and who knows a batch's ids."""

import re

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import LossError, NeverPrunesWarning, PrunedataError, ScheduleError
from prunedata.policies import DroppingCount, Random
from prunedata.run.frameworks import adapter_of, samples_in


def test_epochs_alone_are_a_run_that_decides_by_itself():
    alone, spelt = Pruner(40, epochs=6), Pruner(40, Schedule.steady(6), policy="auto")
    assert alone.standing() == spelt.standing()


def test_a_schedule_alone_is_the_papers():
    schedule = Schedule(6, 6, 1, 2, 1)
    assert Pruner(40, schedule, prune=5).standing() == Pruner(40, schedule, prune=5, policy=DroppingCount()).standing()


def test_epochs_go_with_a_policy_of_ones_own():
    run = Pruner(40, epochs=6, policy=Random(), prune=0.25)
    assert (run.schedule, run.prune, run.policy) == (Schedule.steady(6), 10, Random())


@pytest.mark.parametrize("given", [{}, {"schedule": Schedule.steady(6), "epochs": 6}])
def test_when_to_prune_is_said_once(given):
    with pytest.raises(ScheduleError, match="Expected epochs"):
        Pruner(40, **given)


def test_samples_may_be_the_data_set():
    assert Pruner(list(range(40)), epochs=6).samples == 40
    assert Pruner(np.zeros((40, 2)), epochs=6).samples == 40


def test_a_run_that_knows_no_samples_says_so():
    run = Pruner(epochs=6)
    for use in (
        run.begin_epoch, lambda: run.samples, lambda: run.history, run.commit,
        lambda: run.observe([1.0], [0]), lambda: next(run.epochs()),
    ):  # fmt: skip
        with pytest.raises(PrunedataError, match="has not begun, as its samples"):
            use()
    with pytest.raises(AttributeError, match="no attribute 'sample'"):
        run.sample  # noqa: B018


def test_what_is_wrapped_says_how_many_samples_there_are(tmp_path):
    run = Pruner(epochs=3, policy=Random(), prune=4, store=tmp_path / "run.zarr")
    stream = run.wrap(list(range(16)), id=int)
    assert run.samples == 16
    for epoch in run.epochs():
        seen = [number for number, _ in stream]
        assert len(seen) == epoch.kept
        run.observe(np.ones(len(seen)), seen)
    assert Pruner(16, epochs=3, policy=Random(), prune=4, store=tmp_path / "run.zarr", resume=True).next_epoch == 3


def test_what_has_no_length_needs_the_number():
    with pytest.raises(PrunedataError, match=r"which the generator does not know\. Got none: pass it"):
        Pruner(epochs=3).wrap((number for number in range(3)), id=int)


def test_an_object_of_no_known_library_is_an_iterable():
    assert adapter_of([1])[0] == "iterable"
    assert samples_in([1, 2]) == 2
    assert samples_in(iter([1, 2])) is None


def test_ids_are_needed_where_no_loader_knows_them():
    run = Pruner(8, epochs=2)
    run.begin_epoch()
    with pytest.raises(LossError, match=r"Expected ids with the losses\. Got none, and no wrapped loader"):
        run.observe(np.ones(8))


def test_a_warning_is_of_the_line_that_called():
    with pytest.warns(NeverPrunesWarning) as told:
        Pruner(5000, Schedule(4, 4, 1, 2, 1), prune=20)
    assert told[0].filename == __file__
    with pytest.warns(NeverPrunesWarning) as told:
        Pruner(epochs=1, policy=Random(), prune=0).wrap([1, 2], id=int)
    assert told[0].filename == __file__


def test_ids_and_losses_that_change_places_are_refused():
    run = Pruner(8, epochs=2)
    run.begin_epoch()
    with pytest.raises(LossError, match=re.escape("Expected ids")):
        run.observe(np.arange(8), np.ones(8))


def test_a_run_that_only_watches_needs_no_figure():
    run = Pruner(8, epochs=4, leave_out="nothing")
    for _ in run.epochs():
        run.observe(np.ones(8), np.arange(8))
    assert [record["pruned"] for record in run.history] == [False] * 4
