"""check_adapter: what is right passes, and each wrong adapter breaks the clause that it should."""

from dataclasses import replace
from itertools import cycle
from unittest import SkipTest

import numpy as np
import pytest

from prunedata import Adapter, Delivery
from prunedata.errors import PrunedataError
from prunedata.policies import keep_mask
from prunedata.testing import CLAUSES, BrokenContract, Case, SkippedClause, check_adapter, losses_of

# An adapter in plain Python that is right, as are its variants with drop_last and over an endless source.


SIZE = 6


class Reports(Adapter):
    """Says what the loaders of a run have delivered."""

    key = "right"

    def begin_epoch(self, epoch):
        if self.delivery is None or self.delivery.epoch != epoch.number:
            self.delivery = Delivery(epoch.number, delivered=0)


class Right:
    """An adapter in plain Python, as simple as one can be. Its workers read a share each, in turns.

    The batch of a sample with number i holds i: ``(features, number)``.
    """

    drop_last = False

    def __init__(self, pruner, workers):
        self.pruner, self.workers = pruner, max(1, workers)
        self.reports = pruner.attach(Reports())

    def keep(self):
        return self.pruner.current.remaining

    def share(self, worker):
        """What a worker gives: pairs of the id it believes in, and the number of the sample."""
        keep = self.keep()
        return [(number, number) for number in range(worker, self.pruner.samples, self.workers) if keep[number]]

    def shares(self):
        return [share for share in map(self.share, range(self.workers)) if share]

    def batch(self, numbers):
        return np.sin(numbers), np.array(numbers)

    def batches(self):
        shares = self.shares()
        while any(shares):
            for share in shares:
                pairs, share[:] = share[:SIZE], share[SIZE:]
                if len(pairs) == SIZE or (pairs and not self.drop_last):
                    yield np.array([each for each, _ in pairs]), self.batch([number for _, number in pairs])

    def dropped(self):
        """How many samples the batches will not have."""
        return sum(len(share) % SIZE for share in self.shares()) if self.drop_last else 0

    def __iter__(self):
        report = self.reports.delivery
        report.delivered, report.left_out = 0, self.dropped()
        for ids, batch in self.batches():
            report.delivered += len(ids)
            yield ids, batch
        report.end()

    def train(self, ids, losses):
        """Record the losses, and return what the loop trains on."""
        self.pruner.observe(losses, ids)
        return self.mean(ids, losses)

    def mean(self, ids, losses):
        """What the loop trains on."""
        weights = self.pruner.current.weights
        return np.mean(losses if weights is None else weights[ids] * losses)


class DropsLast(Right):
    """With a setting of the user's that leaves out batches that are not full."""

    drop_last = True


class Endless(Right):
    """Over a source that gives its samples for ever."""

    def batches(self):
        batch = []
        for came, number in enumerate(self.source()):
            if came == self.pruner.samples:
                raise PrunedataError(f"Expected {came} samples in an epoch. Got more.")
            if self.keep()[number]:
                batch.append(number)
            if len(batch) == SIZE:
                yield np.array(batch), self.batch(batch)
                batch = []

    def source(self):
        return cycle(range(self.pruner.samples))


# Adapters in plain Python that record losses themselves: one that is right, and others that are not.


class Held(Adapter):
    """Losses that are held back, as on a device."""

    key = "held"

    def __init__(self, pruner):
        self.pruner, self.held = pruner, []

    def held_back(self):
        held, self.held = self.held, []
        return held

    def forget(self):
        self.held = []


class HoldsBack(Right):
    """It is right: what it holds back it hands over when it is asked to."""

    held = Held

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.held = pruner.attach(self.held(pruner))

    def train(self, ids, losses):
        self.held.held.append((ids, losses, [len(ids)]))
        return self.mean(ids, losses)


class RecordsNothing(Right):
    def train(self, ids, losses):
        return self.mean(ids, losses)


class HandsOverAtTheEnd(HoldsBack):
    """What is saved within an epoch lacks its losses."""

    held = type("HandsNothingOver", (Held,), {"held_back": Adapter.held_back})

    def __iter__(self):
        yield from super().__iter__()
        for ids, losses, sizes in Held.held_back(self.held):
            self.pruner.record(losses, ids, sizes)


class NeverForgets(HoldsBack):
    """When a state is loaded, it hands over losses from after it."""

    held = type("NoForget", (Held,), {"forget": Adapter.forget})


class OneBatchOfAll(HoldsBack):
    """It hands over all batches as one, with another mean."""

    class held(Held):
        def held_back(self):
            if self.held:
                ids, losses, sizes = (np.concatenate(parts) for parts in zip(*super().held_back(), strict=True))
                yield ids, losses, [sizes.sum()]


class StaleMask(Right):
    """Its workers copied the mask when they were started."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.old = None

    def keep(self):
        if self.old is None:
            self.old = super().keep()
        return self.old


class OneAhead(Right):
    """It asks for the current ids when the next batch has been fetched already."""

    def __iter__(self):
        pairs = list(super().__iter__())
        for (_, batch), (ids, _) in zip(pairs, [*pairs[1:], pairs[-1]], strict=True):
            yield ids[: batch[1].size] if ids.size >= batch[1].size else np.resize(ids, batch[1].size), batch


class NoIds(Right):
    def __iter__(self):
        yield from (batch for _, batch in super().__iter__())


class ShortIds(Right):
    def __iter__(self):
        yield from ((ids[:1], batch) for ids, batch in super().__iter__())


class Padded(Right):
    """It fills the last batch up with the first samples."""

    def share(self, worker):
        pairs = super().share(worker)
        return pairs + pairs[: -len(pairs) % SIZE]


class DropsTail(Right):
    """It leaves out the last batches, and says so to nobody but the pruner, as if they were trained on."""

    def share(self, worker):
        pairs = super().share(worker)
        tail = [number for number, _ in pairs[len(pairs) // SIZE * SIZE :]]
        if tail:
            self.pruner.observe(np.zeros(len(tail)), tail)
        return pairs[: len(pairs) // SIZE * SIZE]


class FrozenLength(Right):
    """Its length is that of the first epoch it saw, as with some trainers."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.length = None

    def __iter__(self):
        pairs = list(super().__iter__())
        self.length = self.length or len(pairs)
        yield from pairs[: self.length]


class Lives(Right):
    """It asks before each batch which samples are still to do, so whoever observes one takes it away."""

    def __iter__(self):
        for ids, batch in super().__iter__():
            left = self.pruner.begin_epoch().remaining[ids]
            if left.any():
                yield ids[left], tuple(part[left] for part in batch)


class ChoosesItself(Right):
    """It selects again for each batch, by the counts so far."""

    def __iter__(self):
        pruned = self.pruner.samples - self.pruner.current.kept
        for ids, batch in super().__iter__():
            left = keep_mask(self.pruner.counts, pruned, seed=self.pruner.seed, epoch=self.pruner.next_epoch)[ids]
            if left.any():
                yield ids[left], tuple(part[left] for part in batch)


class StartsOver(Right):
    """After a resume it begins the epoch anew."""

    def keep(self):
        return self.pruner.current.keep


class ForgetsMask(Right):
    """It resumes by position, but under the mask of an epoch that is whole."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.delivered, self.skip = 0, 0

    def keep(self):
        return np.ones(self.pruner.samples, bool) if self.skip else self.pruner.current.keep

    def __iter__(self):
        pairs = list(super().__iter__())
        self.delivered, self.skip = self.skip, 0
        for pair in pairs[self.delivered :]:
            self.delivered += 1
            yield pair

    def state_dict(self):
        return {"delivered": self.delivered}

    def load_state_dict(self, state):
        self.skip = state["delivered"]


class RefusesResume(Right):
    def __iter__(self):
        if (self.pruner.current.remaining != self.pruner.current.keep).any():
            raise PrunedataError("Expected a whole epoch. Got one that was begun before.")
        yield from super().__iter__()


class Excuses(Right):
    """It tells the pruner that whatever is missing was meant to be."""

    def __iter__(self):
        self.pruner.skip(self.pruner.samples)
        yield from super().__iter__()


class ObservesTwice(Right):
    """It too records the losses that the loop observes: they count twice."""

    def __iter__(self):
        for ids, batch in super().__iter__():
            yield ids, batch
            self.pruner.observe(losses_of(ids, self.pruner.next_epoch), ids)


class KeepsIds(Right):
    """It leaves the ids in the batch."""

    def batch(self, numbers):
        return np.array(numbers), (np.sin(numbers), np.array(numbers))


class ListsForArrays(Right):
    def batch(self, numbers):
        return [np.sin(numbers), np.array(numbers)]


class StopsAtEmptyWorker(Right):
    """A worker that gives nothing ends the epoch for all."""

    def shares(self):
        shares = [self.share(worker) for worker in range(self.workers)]
        return shares if all(shares) else []


class FailsAtEmptyWorker(Right):
    def shares(self):
        if not all(self.share(worker) for worker in range(self.workers)):
            raise ValueError("No samples found.")
        return super().shares()


class Silent(Right):
    """It tells the run nothing."""

    def __iter__(self):
        return self.batches()


class CountsAhead(Right):
    """It counts batches when it fetches them, not when it delivers them."""

    def __iter__(self):
        report, fetched = self.reports.delivery, list(self.batches())
        report.delivered = sum(len(ids) for ids, _ in fetched)
        yield from fetched


class CountsTooFew(Right):
    """It counts a batch when the next one is asked for, and so never the last."""

    def __iter__(self):
        report, before = self.reports.delivery, 0
        report.delivered = 0
        for ids, batch in self.batches():
            report.delivered += before
            before = len(ids)
            yield ids, batch


class NeverEnds(Right):
    """It doesn't say that a pass is over."""

    def __iter__(self):
        self.reports.delivery.end = lambda: None
        yield from super().__iter__()


class DropsNothing(DropsLast):
    """It ignores its own setting."""

    drop_last = False


class DropsInSilence(DropsLast):
    """It leaves out what the user's settings leave out, and doesn't say so."""

    def dropped(self):
        return 0


class LeavesOutAnything(DropsLast):
    """With such a setting, it says that it leaves out whatever is missing."""

    def dropped(self):
        return self.pruner.samples


class LoopsForEver(Endless):
    def batches(self):
        numbers = (number for number in self.source() if self.keep()[number])
        while True:
            batch = [next(numbers) for _ in range(SIZE)]
            yield np.array(batch), self.batch(batch)


class EndsInSilence(Endless):
    """It stops after as many samples as the run has, as if the source had."""

    def source(self):
        return range(self.pruner.samples - self.pruner.samples % SIZE)

    def dropped(self):
        return self.pruner.samples % SIZE


class FailsWithoutReason(Endless):
    def source(self):
        raise RuntimeError("generator raised StopIteration")


class IgnoresWeights(Right):
    def mean(self, ids, losses):
        return np.mean(losses)


class RecordsWeighted(Right):
    """The losses that it records are weighted."""

    def mean(self, ids, losses):
        weights = self.pruner.current.weights
        weighted = losses if weights is None else weights[ids] * losses
        self.pruner.observe(weighted, ids)
        return np.mean(weighted)


class StaleWeights(Right):
    """It keeps the weights of the first epoch that has some."""

    weights = None

    def mean(self, ids, losses):
        if self.weights is None:
            self.weights = self.pruner.current.weights
        return np.mean(losses if self.weights is None else self.weights[ids] * losses)


class AttachesAnew(Right):
    """Each loader has its own part in the run."""

    def __init__(self, pruner, workers):
        self.pruner, self.workers = pruner, max(1, workers)
        self.reports = pruner.attach(type("Own", (Reports,), {"key": None})())


class Holds(Adapter):
    """Holds losses back, for each loader that was made."""

    key = "holds"

    def __init__(self, pruner):
        self.pruner, self.loaders, self.held = pruner, 0, []

    def held_back(self):
        held, self.held = self.held, []
        return [(ids, losses_of(ids, self.pruner.next_epoch), [len(ids)]) for ids in held * (self.loaders - 1)]


class RecordsForEach(Right):
    """Made twice for a run, it records twice."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.holds = pruner.attach(Holds(pruner))
        self.holds.loaders += 1

    def __iter__(self):
        for ids, batch in super().__iter__():
            self.holds.held.append(ids)
            yield ids, batch


class TakesTurns(Right):
    """The loaders of a run share the batches of an epoch."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.reports.loaders = self.place = getattr(self.reports, "loaders", 0) + 1

    def __iter__(self):
        for place, pair in enumerate(super().__iter__()):
            if place % self.reports.loaders + 1 == self.place:
                yield pair


class OwnSeed(Right):
    """It lets a pruner of its own, with another seed, choose."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        engine = pruner._engine
        engine.options = engine.pruning._options = replace(engine.options, seed=engine.options.seed + 1)


WRONG = {
    "ids": [OneAhead, NoIds, ShortIds],
    "masks": [StaleMask],
    "once": [Padded, DropsTail],
    "frozen": [Lives, ChoosesItself],
    "resume": [
        StartsOver, ForgetsMask, FrozenLength, RefusesResume,
        RecordsNothing, HandsOverAtTheEnd, NeverForgets,
    ],
    "truncation": [Excuses],
    "reports": [Excuses, Silent, CountsAhead, CountsTooFew, NeverEnds],
    "left out": [DropsInSilence, LeavesOutAnything, DropsNothing],
    "endless": [LoopsForEver, EndsInSilence, FailsWithoutReason],
    "weights": [IgnoresWeights, RecordsWeighted, StaleWeights],
    "records": [RecordsNothing, OneBatchOfAll, RecordsWeighted, ObservesTwice],
    "attached once": [AttachesAnew, RecordsForEach, TakesTurns],
    "structure": [KeepsIds, ListsForArrays],
    "parity": [OwnSeed, ObservesTwice],
    "empty": [StopsAtEmptyWorker, FailsAtEmptyWorker],
}  # fmt: skip


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
        HandsOverAtTheEnd, NeverForgets, OneBatchOfAll, RecordsNothing,
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


def test_a_stale_mask_in_a_second_worker_only_is_found():
    def make(pruner, workers):
        return StaleMask(pruner, workers) if workers else Right(pruner, workers)

    CLAUSES["masks"](case(make, workers=(0,)))
    with pytest.raises(BrokenContract, match="epoch 1 with 2 workers"):
        CLAUSES["masks"](case(make))


def test_a_loader_that_takes_losses_has_to_be_weighed():
    class TakesLosses(Right):
        def observe(self, losses):
            """Like the one of our loader for PyTorch."""

    with pytest.raises(SkippedClause):
        CLAUSES["weights"](case(Right, weigh=None))
    with pytest.raises(ValueError, match=r"Expected Case\.weigh, as the loader has observe\(\)"):
        CLAUSES["weights"](case(TakesLosses, weigh=None))


@pytest.mark.parametrize("clause", ["truncation", "resume"])
def test_one_batch_an_epoch_shows_nothing(clause):
    class One(Right):
        def __iter__(self):
            pairs = self.share(0) + (self.share(1) if self.workers > 1 else [])
            ids = np.array([each for each, _ in pairs])
            yield ids, self.batch(ids)

    with pytest.raises(ValueError, match="make them smaller"):
        CLAUSES[clause](case(One))


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
    ("clause", "make", "options"),
    [
        ("ids", Dicts, {}), ("ids", DictBatches, {"read": np.asarray}),
        ("once", Right, {"read": lambda batch: number(batch) + 40}), ("resume", Right, {"resumes": False}),
        ("left out", Right, {"drop_last": Right}),
    ],
)  # fmt: skip
def test_what_a_case_says_has_to_be_so(clause, make, options):
    with pytest.raises(BrokenContract, match=f"Clause '{clause}' is broken"):
        CLAUSES[clause](case(make, **options))
