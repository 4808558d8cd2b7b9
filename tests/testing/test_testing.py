"""The kit for strangers: it passes what is right, and each wrong adapter breaks the clause that it should."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import NeverPrunesWarning, PrunedataError, Pruner
from prunedata.findings.inspection import inspect
from prunedata.testing import CLAUSES, BrokenContract, Case, check_adapter, losses_of
from prunedata.testing import strategies as made
from tests.testing.right_adapters import SIZE, DropsLast, Endless, Right
from tests.testing.wrong_adapters import (
    WRONG,
    KeepsIds,
    Lives,
    ObservesTwice,
    RefusesResume,
    Silent,
    StaleMask,
    StartsOver,
    StopsAtEmptyWorker,
)


def number(batch):
    return batch[-1][-1] if isinstance(batch[-1], tuple) else batch[-1]


def plain(workers):
    return [(np.zeros(SIZE), np.zeros(SIZE, np.int64))]


def weigh(loader, ids, losses):
    return loader.mean(ids, losses)


def case(adapter, **options):
    """A case with all that a case can have, in which one adapter may be wrong."""
    given = {"read": number, "plain": plain, "weigh": weigh, "drop_last": DropsLast, "endless": Endless}
    for name, kind in (("drop_last", DropsLast), ("endless", Endless)):
        if isinstance(adapter, type) and issubclass(adapter, kind):
            given[name], adapter = adapter, Right
    return Case(adapter, **{**given, **options})


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_right_adapter_passes(clause):
    CLAUSES[clause](case(Right))


def test_a_right_adapter_passes_all_at_once():
    check_adapter(**vars(case(Right, samples=43, workers=(0, 1, 3))))
    check_adapter(RefusesResume, read=number, resumes=False)
    check_adapter(Silent, read=number, reports=False)


@pytest.mark.parametrize(
    ("clause", "adapter"),
    [pytest.param(clause, adapter, id=f"{clause}-{adapter.__name__}") for clause in WRONG for adapter in WRONG[clause]],
)
def test_a_wrong_adapter_breaks_its_clause(clause, adapter):
    with pytest.raises(BrokenContract, match=rf"Clause '{clause}' is broken\. Expected .* Got ") as caught:
        CLAUSES[clause](case(adapter))
    assert caught.value.clause == clause
    with pytest.raises(BrokenContract):
        check_adapter(**vars(case(adapter)))


@pytest.mark.parametrize(
    "adapter",
    [
        Lives, StartsOver, KeepsIds, ObservesTwice, StopsAtEmptyWorker,
        *WRONG["reports"], *WRONG["left out"], *WRONG["endless"], *WRONG["weights"], *WRONG["attached once"],
    ],
)  # fmt: skip
def test_one_fault_breaks_one_clause(adapter):
    broken = set()
    for clause, check in CLAUSES.items():
        try:
            check(case(adapter))
        except BrokenContract:
            broken.add(clause)
    assert broken == {clause for clause in WRONG if adapter in WRONG[clause]}


def test_every_clause_has_a_wrong_adapter():
    assert WRONG.keys() == CLAUSES.keys()


def test_a_resume_that_should_be_refused_has_to_be():
    with pytest.raises(BrokenContract, match="as resumes=False"):
        CLAUSES["resume"](case(Right, resumes=False))


def test_a_stale_mask_in_a_second_worker_only_is_found():
    def make(pruner, workers):
        return StaleMask(pruner, workers) if workers else Right(pruner, workers)

    CLAUSES["masks"](case(make, workers=(0,)))
    with pytest.raises(BrokenContract, match="epoch 1 with 2 workers"):
        CLAUSES["masks"](case(make))


def test_without_a_loader_to_compare_with_the_structure_is_not_judged():
    CLAUSES["structure"](case(KeepsIds, plain=None))


def test_a_loader_that_takes_losses_has_to_be_weighed():
    class TakesLosses(Right):
        def observe(self, losses):
            """Like the one of our loader for PyTorch."""

    CLAUSES["weights"](case(Right, weigh=None))
    with pytest.raises(ValueError, match=r"Expected Case\.weigh, as the loader has observe\(\)"):
        CLAUSES["weights"](case(TakesLosses, weigh=None))


def test_a_setting_that_leaves_out_nothing_shows_nothing():
    with pytest.raises(ValueError, match=r"Expected Case\.drop_last to leave something out"):
        CLAUSES["left out"](case(Right, drop_last=Right))


@pytest.mark.parametrize("clause", ["truncation", "resume"])
def test_one_batch_an_epoch_shows_nothing(clause):
    class One(Right):
        def __iter__(self):
            pairs = self.share(0) + (self.share(1) if self.workers > 1 else [])
            ids = np.array([each for each, _ in pairs])
            yield ids, self.batch(ids)

    with pytest.raises(ValueError, match="make them smaller"):
        CLAUSES[clause](case(One))


def test_a_reader_that_reads_something_else_is_told():
    with pytest.raises(BrokenContract, match="Expected numbers from 0 to 60"):
        CLAUSES["once"](case(Right, read=lambda batch: number(batch) + 40))


def test_the_masks_of_the_kit_change_and_their_sizes_go_down_and_up():
    pruner, masks = case(Right).pruner(), []
    for epoch in pruner.epochs():
        masks.append(epoch.keep.tolist())
        kept = np.flatnonzero(epoch.keep)
        pruner.observe(kept, losses_of(kept, epoch.number))
    assert [sum(mask) for mask in masks] == [61, 43, 43, 61, 43, 43]
    assert len({tuple(mask) for mask in masks}) == 5


def test_losses_add_up_alike_in_any_order():
    ids = np.random.default_rng(0).permutation(10_000)
    assert losses_of(ids, 3).sum() == losses_of(np.sort(ids), 3).sum()
    assert np.unique(losses_of(ids, 3)).size == 101


@given(st.integers(1, 30), st.data())
def test_ids_and_losses_are_those_of_a_batch(samples, data):
    for ids, losses in data.draw(made.batches(samples)):
        assert 1 <= ids.size == losses.size <= 10
        assert (ids.dtype, losses.dtype) == (np.int64, np.float64)
        assert 0 <= ids.min() <= ids.max() < samples
        assert np.isfinite(losses).all()


@given(made.runs())
def test_runs_go_on(pruner):
    for epoch in pruner.epochs() if pruner.next_epoch < pruner.schedule.epochs else ():
        kept = np.flatnonzero(epoch.keep)
        pruner.observe(kept, np.ones(kept.size))
    assert [record["number"] for record in pruner.history] == list(range(pruner.schedule.epochs))


@given(made.stores())
def test_stores_hold_their_runs(stored):
    store, pruner = stored
    assert inspect(store)["history"] == pruner.history
    options = {"policy": pruner.policy, "seed": pruner.seed, "batch_size": pruner.batch_size, "prune": pruner.prune}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        again = Pruner(pruner.samples, pruner.schedule, store=store, resume=True, **options)
    assert again.next_epoch == pruner.next_epoch
    assert np.array_equal(again.counts, pruner.counts)


def test_runs_are_drawn_at_every_place():
    places = set()

    @given(made.runs())
    def look(pruner):
        done, epochs = len(pruner.history), pruner.schedule.epochs
        open_ = done < epochs and pruner.next_epoch == done and pruner.state_dict() and is_open(pruner)
        places.add("within" if open_ else "done" if done == epochs else "between" if done else "before")

    look()
    assert places == {"before", "between", "within", "done"}


def is_open(pruner):
    try:
        return pruner.current is not None
    except PrunedataError:
        return False


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import prunedata, prunedata.testing; print('hypothesis' in sys.modules)", "False"),
        ("sys.modules['hypothesis'] = None; import prunedata.testing.strategies", "pip install hypothesis"),
    ],
    ids=["not imported", "not installed"],
)
def test_hypothesis_is_asked_for_by_the_strategies_alone(code, said):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.stdout + done.stderr).strip().splitlines()[-1].endswith(said)
