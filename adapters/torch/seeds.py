"""The seeds of a loader's workers, which draw random numbers for augmentation: another one in each epoch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from prunedata.run.epoch import Epoch


@contextmanager
def drawing_alike() -> Iterator[None]:
    """Seed PyTorch's generator on the host within the context, and leave it as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(before)


class WorkerSeeds:
    """Seeds the generator from which PyTorch draws the seed of a loader's workers, when an epoch begins.

    Without it, PyTorch would draw that seed from the global generator, once more in an epoch that is resumed, which
    would change every random number of the model after it. The seed follows from the run's, the epoch's number, the
    rank, and what ``torch.manual_seed`` was given, so that a resumed epoch has the same.
    """

    def __init__(self, generator: torch.Generator, rank: Callable[[], int]) -> None:
        self._generator, self._rank = generator, rank
        self._replaced: tuple[int, int] | None = None
        """PyTorch's seed in this process when a state was loaded, and the saved seed to use in its place."""

    @property
    def torchs(self) -> int:
        """PyTorch's own seed; after a state was loaded the saved one, until this process is seeded anew."""
        own = torch.initial_seed()
        return self._replaced[1] if self._replaced is not None and self._replaced[0] == own else own

    def resume(self, seed: int) -> None:
        """Use a saved seed in the place of PyTorch's."""
        self._replaced = torch.initial_seed(), seed

    def begin(self, epoch: Epoch) -> None:
        """Seed the generator for an epoch."""
        entropy = [epoch.seed % (1 << 64), epoch.number, self._rank(), self.torchs]
        self._generator.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))


def draw(epoch: Epoch, *, persistent: bool) -> None:
    """Draw the number that a plain loader draws from PyTorch's global generator when an epoch begins.

    So the model's dropout is the same with and without pruning. Call it only where an epoch begins, and not where one
    is resumed. Persistent workers get their seed once in a run.
    """
    if epoch.number == 0 or not persistent:
        torch.empty((), dtype=torch.int64).random_()
