"""Adapters that are right, and recorders of what they are asked for."""

from itertools import cycle

import numpy as np

from prunedata import Adapter, Delivery
from prunedata.errors import PrunedataError

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


class RecordsHalf(Right):
    def train(self, ids, losses):
        self.pruner.observe(losses[::2], ids[::2])
        return self.mean(ids, losses)


class HandsOverAtTheEnd(HoldsBack):
    """What is saved within an epoch lacks its losses."""

    held = type("HandsNothingOver", (Held,), {"held_back": Adapter.held_back})

    def __iter__(self):
        yield from super().__iter__()
        for ids, losses, sizes in Held.held_back(self.held):
            self.pruner.record(losses, ids, sizes)


class NeverHandsOver(HoldsBack):
    held = type("HandsNothingOver", (Held,), {"held_back": Adapter.held_back})


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
