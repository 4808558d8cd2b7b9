"""An adapter in plain Python that is right, and others that are each wrong in one way."""

import numpy as np

from prunedata import PrunedataError, keep_mask
from prunedata.testing import losses_of

SIZE = 6


class Right:
    """An adapter in plain Python, as simple as one can be. Its workers read a share each, in turns.

    The batch of a sample with number i holds i: ``(features, number)``.
    """

    def __init__(self, pruner, workers):
        self.pruner, self.workers = pruner, max(1, workers)

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

    def __iter__(self):
        shares = self.shares()
        while any(shares):
            for share in shares:
                pairs, share[:] = share[:SIZE], share[SIZE:]
                if pairs:
                    yield np.array([each for each, _ in pairs]), self.batch([number for _, number in pairs])


class StaleMask(Right):
    """Its workers copied the mask when they were started."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        self.old = None

    def keep(self):
        if self.old is None:
            self.old = super().keep()
        return self.old


class NoMask(Right):
    def keep(self):
        return np.ones(self.pruner.samples, bool)


class OneAhead(Right):
    """It asks for the current ids when the next batch has been fetched already."""

    def __iter__(self):
        pairs = list(super().__iter__())
        for (_, batch), (ids, _) in zip(pairs, [*pairs[1:], pairs[-1]], strict=True):
            yield ids[: batch[1].size] if ids.size >= batch[1].size else np.resize(ids, batch[1].size), batch


class Position(Right):
    """Its id is a position, which each worker counts from zero."""

    def share(self, worker):
        keep = self.keep()
        own = enumerate(range(worker, self.pruner.samples, self.workers))
        return [(place, number) for place, number in own if keep[place]]


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
            self.pruner.observe(tail, np.zeros(len(tail)))
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
        self.pruner.excuse(self.pruner.samples)
        yield from super().__iter__()


class ObservesAhead(Right):
    """It marks samples as observed when it fetches them."""

    def __iter__(self):
        kept = np.flatnonzero(self.keep())
        self.pruner.observe(kept, np.zeros(kept.size))
        yield from super().__iter__()


class ObservesTwice(Right):
    """It too records the losses that the loop observes: they count twice."""

    def __iter__(self):
        for ids, batch in super().__iter__():
            yield ids, batch
            self.pruner.observe(ids, losses_of(ids, self.pruner.next_epoch))


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


class OwnSeed(Right):
    """It lets a pruner of its own, with another seed, choose."""

    def __init__(self, pruner, workers):
        super().__init__(pruner, workers)
        pruner._engine.seed += 1


WRONG = {
    "ids": [OneAhead, Position, NoIds, ShortIds],
    "masks": [StaleMask, NoMask],
    "once": [Padded, DropsTail],
    "frozen": [Lives, ChoosesItself],
    "resume": [StartsOver, ForgetsMask, FrozenLength, RefusesResume],
    "truncation": [Excuses, ObservesAhead],
    "structure": [KeepsIds, ListsForArrays],
    "parity": [OwnSeed, ObservesTwice, ObservesAhead],
    "empty": [StopsAtEmptyWorker, FailsAtEmptyWorker],
}
