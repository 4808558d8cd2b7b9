"""Adapters in plain Python that record losses themselves: one that is right, and others that are not."""

import numpy as np

from prunedata import Adapter
from tests.testing.right_adapters import Right


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
