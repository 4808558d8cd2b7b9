"""check_adapter: what is right passes, and each wrong adapter breaks the clause that it should."""

import subprocess
import sys
from pathlib import Path
from unittest import SkipTest

import numpy as np
import pytest

from prunedata.testing import CLAUSES, BrokenContract, Case, SkippedClause, check_adapter, losses_of
from tests.testing.adapters import (
    SIZE,
    WRONG,
    DropsLast,
    Endless,
    HandsOverAtTheEnd,
    HoldsBack,
    KeepsIds,
    Lives,
    NeverForgets,
    NeverHandsOver,
    ObservesTwice,
    OneBatchOfAll,
    RecordsNothing,
    RefusesResume,
    Right,
    Silent,
    StaleMask,
    StartsOver,
    StopsAtEmptyWorker,
)

ROOT = Path(__file__).parents[2]
SKIPPING = """
from prunedata.testing import CLAUSES, Case

def test_left_out():
    CLAUSES["left out"](Case(make_loader=None))
"""


def number(batch):
    return batch[-1][-1] if isinstance(batch[-1], tuple) else batch[-1]


def plain(workers):
    return [(np.zeros(SIZE), np.zeros(SIZE, np.int64))]


def weigh(loader, ids, losses):
    return loader.train(ids, losses)


def case(adapter, **options):
    """A case with all that a case can have, in which one adapter may be wrong."""
    given = {"read": number, "plain": plain, "weigh": weigh, "records": True}
    given |= {"drop_last": DropsLast, "endless": Endless}
    for name, kind in (("drop_last", DropsLast), ("endless", Endless)):
        if isinstance(adapter, type) and issubclass(adapter, kind):
            given[name], adapter = adapter, Right
    return Case(adapter, **{**given, **options})


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_right_adapter_passes(clause):
    CLAUSES[clause](case(Right))


def test_a_right_adapter_passes_all_at_once():
    assert check_adapter(**vars(case(Right, samples=43, workers=(0, 1, 3)))) == {}
    check_adapter(**vars(case(HoldsBack)))
    check_adapter(RefusesResume, read=number, resumes=False)
    check_adapter(Silent, read=number, reports=False)


LACKING = {
    "reports": "reports=False",
    "left out": "it needs drop_last",
    "endless": "it needs endless",
    "structure": "it needs plain",
    "weights": "it needs weigh",
    "records": "it needs weigh and records=True",
}


def test_what_could_not_be_checked_is_returned_with_what_it_lacks():
    assert check_adapter(Right, workers=(0,), read=number, reports=False) == LACKING


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_that_is_not_checked_is_skipped_in_any_test_runner(clause):
    bare = Case(Right, workers=(0,), read=number, reports=False)
    if clause not in LACKING:
        CLAUSES[clause](bare)
        return
    with pytest.raises(SkipTest) as caught:
        CLAUSES[clause](bare)
    assert str(caught.value) == f"Clause '{clause}' was not checked: {LACKING[clause]}."


def test_pytest_shows_a_clause_that_is_not_checked_as_skipped(tmp_path):
    (tmp_path / "test_it.py").write_text(SKIPPING, encoding="utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(run, capture_output=True, encoding="utf-8", check=False, cwd=ROOT)
    assert "1 skipped" in done.stdout, done.stdout


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
        HandsOverAtTheEnd, NeverForgets, NeverHandsOver, OneBatchOfAll, RecordsNothing,
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
    with pytest.raises(SkippedClause):
        CLAUSES["structure"](case(KeepsIds, plain=None))


def test_a_loader_that_takes_losses_has_to_be_weighed():
    class TakesLosses(Right):
        def observe(self, losses):
            """Like the one of our loader for PyTorch."""

    with pytest.raises(SkippedClause):
        CLAUSES["weights"](case(Right, weigh=None))
    with pytest.raises(ValueError, match=r"Expected Case\.weigh, as the loader has observe\(\)"):
        CLAUSES["weights"](case(TakesLosses, weigh=None))


def test_a_setting_that_leaves_out_nothing_shows_nothing():
    with pytest.raises(BrokenContract, match="pass drop_last on to the batches"):
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
        pruner.observe(losses_of(kept, epoch.number), kept)
    assert [sum(mask) for mask in masks] == [61, 43, 43, 61, 43, 43]
    assert len({tuple(mask) for mask in masks}) == 5


def test_losses_add_up_alike_in_any_order():
    ids = np.random.default_rng(0).permutation(10_000)
    assert losses_of(ids, 3).sum() == losses_of(np.sort(ids), 3).sum()
    assert np.unique(losses_of(ids, 3)).size == 101


class Dicts(Right):
    def __iter__(self):
        yield from ({"ids": ids, "batch": batch} for ids, batch in super().__iter__())


class DictBatches(Right):
    def batch(self, numbers):
        return {"number": np.array(numbers)}


@pytest.mark.parametrize(
    ("clause", "make", "options", "message"),
    [
        ("ids", Dicts, {}, r"Expected pairs \(ids, batch\) in .* Got a dict\."),
        ("ids", DictBatches, {"read": np.asarray}, r"Give read=: a batch is a dict\."),
        ("reports", WRONG["reports"][2], {}, "count a batch when the loop gets it, not when it is read ahead"),
        ("reports", WRONG["reports"][4], {}, r"Expected delivery\.end\(\) after the last batch"),
        ("left out", WRONG["left out"][0], {}, r"batch of the epoch\.$"),
        ("resume", NeverHandsOver, {}, "override held_back"),
        ("resume", NeverForgets, {}, "override forget"),
        ("records", RecordsNothing, {}, "all losses of epoch 0 .* Got SkippedSamples: .*[^.]\\.$"),
        ("records", OneBatchOfAll, {}, "record each batch by a call of its own"),
    ],
)
def test_a_broken_clause_says_what_to_do(clause, make, options, message):
    with pytest.raises(BrokenContract, match=message):
        CLAUSES[clause](case(make, **options))
