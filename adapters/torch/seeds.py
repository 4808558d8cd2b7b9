"""What the workers of a loader draw their random numbers from, as for augmentation: another seed in each epoch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from prunedata.run.epoch import Epoch

__all__ = ["WorkerSeeds", "draw", "drawing_alike"]


@contextmanager
def drawing_alike() -> Iterator[None]:
    """Let what draws from PyTorch's generator on the host draw the same numbers each time, and leave it as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(before)


class WorkerSeeds:
    """Seeds the generator from which PyTorch draws the seed of a loader's workers, when an epoch begins.

    Without it, PyTorch draws from the global generator, once more in an epoch that is resumed, and every random number
    of the model after it would be another. The seed follows from the epoch's own, its number, the rank, and what
    ``torch.manual_seed`` was given, so that an epoch that is begun again has the same.
    """

    def __init__(self, generator: torch.Generator, rank: Callable[[], int]) -> None:
        self._generator, self._rank = generator, rank
        self._instead: tuple[int, int] | None = None
        """A seed of PyTorch's in this process, and the one that stands in its place."""

    @property
    def torchs(self) -> int:
        """PyTorch's own seed; that of the process that a loaded state is of, until this one is seeded anew."""
        own = torch.initial_seed()
        return self._instead[1] if self._instead is not None and self._instead[0] == own else own

    def go_on(self, seed: int) -> None:
        """Take a seed that was saved to be PyTorch's."""
        self._instead = torch.initial_seed(), seed

    def begin(self, epoch: Epoch) -> None:
        """Seed an epoch."""
        told = [epoch.seed % (1 << 64), epoch.number, self._rank(), self.torchs]
        self._generator.manual_seed(int(np.random.SeedSequence(told).generate_state(1, np.uint64)[0]))


def draw(epoch: Epoch, *, persistent: bool) -> None:
    """Draw the number that a loader without a generator of ours draws from PyTorch's own when an epoch begins.

    So the model's dropout is the same with and without us. An epoch that goes on has drawn it before. Persistent
    workers get their seed once in a run.
    """
    if epoch.number == 0 or not persistent:
        torch.empty((), dtype=torch.int64).random_()
