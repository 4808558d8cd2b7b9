"""A loop over epochs that is left by break or an error loses no epoch that was seen whole."""

import gc

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import SkippedSamples
from prunedata.findings.inspection import inspect
from prunedata.policies import Random
from tests.common.programs import run_python

SAMPLES = 40
SCHEDULE = Schedule(6, window=3, start=1, block=2, pruned_per_block=1)


def start(place=None, **more):
    return Pruner(SAMPLES, SCHEDULE, prune=10, store=place, resume=place is not None, **more)


def observe(run, epoch, batches=None):
    for ids in list(epoch.batches(8))[:batches]:
        run.observe(np.abs(np.sin(ids * 12.9 + epoch.number * 7.3)), ids)


def finish(run):
    for epoch in run.epochs():
        observe(run, epoch)
    return run.counts.tolist(), run.visits.tolist(), [record["kept"] for record in run.history]


def test_an_epoch_that_was_seen_whole_is_done_and_a_commit_stores_it(tmp_path):
    run = start(tmp_path)
    for epoch in run.epochs():
        observe(run, epoch)
        if epoch.number == 2:
            break
    assert run.next_epoch == len(run.history) == 3
    assert inspect(tmp_path)["epoch"] == 2  # from within, a loop left by an error looks the same
    run.commit()
    assert (inspect(tmp_path)["epoch"], inspect(tmp_path)["open"]) == (3, False)
    assert finish(run) == finish(start())


def test_one_that_was_not_stays_open_and_goes_on(tmp_path):
    run = start(tmp_path)
    for epoch in run.epochs():
        observe(run, epoch, 2 if epoch.number == 2 else None)
        if epoch.number == 2:
            break
    assert (run.next_epoch, inspect(tmp_path)["epoch"]) == (2, 2)
    assert run.current.number == 2
    assert finish(run) == finish(start())


def test_nor_is_one_that_nothing_was_seen_of():
    for policy in (Random(), None):
        run = start(**({} if policy is None else {"policy": policy}))
        for _ in run.epochs():
            break
        assert (run.next_epoch, run.history) == (0, [])
        assert run.current.number == 0


def test_an_error_before_the_model_is_saved_leaves_the_store_where_the_model_is(tmp_path):
    """Else the next start would look for a model that was never saved."""
    run = start(tmp_path)

    def loop():
        for epoch in run.epochs():
            observe(run, epoch)
            if epoch.number == 1:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    gc.collect()
    assert inspect(tmp_path)["epoch"] == 1
    assert finish(run) == finish(start())
    assert inspect(tmp_path)["epoch"] == 6


def test_a_loop_that_is_forgotten_ends_no_later_epoch():
    run = start()
    first = run.epochs()
    observe(run, next(first))
    for epoch in run.epochs():
        observe(run, epoch, None if epoch.number == 0 else 1)
        if epoch.number == 1:
            break
    assert run.next_epoch == 1
    first.close()
    assert run.next_epoch == 1
    assert finish(run) == finish(start())


def test_an_epoch_that_was_ended_by_hand_is_not_ended_twice(tmp_path):
    run = start(tmp_path)
    for epoch in run.epochs():
        observe(run, epoch)
        run.end_epoch()
        break
    assert run.next_epoch == inspect(tmp_path)["epoch"] == 1


def test_what_cannot_be_ended_when_a_loop_is_left_is_told_when_it_goes_on():
    """Python would only print that it ignored the error."""
    run = start()
    left = run.epochs()
    observe(run, next(left), batches=4)
    run.observe(np.full(8, np.nan), np.arange(32, 40))  # waits: of a batch in the middle nothing is checked at once
    left.close()
    assert run.next_epoch == 0
    with pytest.raises(SkippedSamples, match="Got 8 that were not"):
        run.end_epoch()


LEFT_AT_THE_END = """
import numpy as np
from prunedata import Pruner, Schedule

run = Pruner(8, Schedule(4, 4, 1, 1, 1), prune=2, leave_out="nothing")
epochs = run.epochs()
ids, = next(epochs).batches(8)
run.observe(np.ones(8), ids)
print("end")
"""


def test_a_program_that_ends_within_the_loop_ends_quietly(tmp_path):
    done = run_python(LEFT_AT_THE_END, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)
