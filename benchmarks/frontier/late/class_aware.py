"""RCAP, a rule of others that knows the classes, to compare ours with (Hassan, Khare and Paik, 2025, PMLR 286).

It prunes to save time: in every epoch it draws a share of the samples anew. It is written here from its formulas. The
numbers of each class are those of its authors' code where no class has too few samples; else that code draws more than
the share.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.training.selection import Batches, Ids
from prunedata.run.order import cut_batches

__all__ = ["ClassAware"]


class ClassAware:
    """Draws more samples of classes that do badly, and within a class more of those with a high loss.

    An epoch has ``share`` of the samples. A class gets a part of them in proportion to ``sqrt(loss x frequency)``; its
    loss is the sum of the weights of the samples that the epoch before drew of it. A sample's weight within its class
    is the softmax of ``loss / temperature``, by its newest loss, which is at most that of a network that guesses.

    Parameters
    ----------
    labels : ndarray of int, shape (samples,)
    epochs, seed, batch_size : int
    share, temperature : float
        Temperature 3 was the best of 1/4, 1 and 3 on `letter`, `satimage` and `magic` with thinned classes, seed 0.

    Attributes
    ----------
    left_out : ndarray of bool, shape (samples,), or None
        What the epoch that began last leaves out.
    """

    left_out: NDArray[np.bool_] | None = None

    def __init__(
        self,
        labels: NDArray[np.integer],
        epochs: int,
        seed: int,
        batch_size: int,
        share: float = 0.7,
        temperature: float = 3.0,
    ) -> None:
        names, self._labels = np.unique(labels, return_inverse=True)
        self._sizes = np.bincount(self._labels).astype(np.float64)
        self._guessing = float(np.log(names.size))
        self._losses = np.full(labels.size, self._guessing)
        self._epochs, self._seed, self._batch_size = epochs, seed, batch_size
        self._drawn, self._temperature = round(share * labels.size), temperature

    def epochs(self) -> Iterator[Batches]:
        """Yield the batches of each epoch."""
        for number in range(self._epochs):
            random = np.random.default_rng((self._seed, number))
            weights = self._weights()
            own = weights if self.left_out is None else weights * ~self.left_out
            numbers = self._numbers(np.bincount(self._labels, own).astype(np.float64))
            ids = np.concatenate([
                random.choice(np.flatnonzero(self._labels == one), many, replace=False, p=weights[self._labels == one])
                for one, many in enumerate(numbers)
            ])  # fmt: skip
            self.left_out = np.ones(self._labels.size, bool)
            self.left_out[ids] = False
            yield list(cut_batches([random.permutation(ids)], self._batch_size))

    def _weights(self) -> NDArray[np.float64]:
        """Each sample's share of the weight of its class, shape (samples,)."""
        weights = np.exp((self._losses - self._guessing) / self._temperature)
        return np.asarray(weights / np.bincount(self._labels, weights)[self._labels])

    def _numbers(self, losses: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many samples to draw of each class. What a class has too few samples for, the others get."""
        parts = np.sqrt(losses * self._sizes)
        numbers, open_ = self._sizes.copy(), np.ones(self._sizes.size, bool)
        while open_.any():
            left = self._drawn - self._sizes[~open_].sum()
            wanted = parts * left / parts[open_].sum()
            full = open_ & (wanted >= self._sizes)
            if not full.any():
                numbers[open_] = wanted[open_]
                break
            open_ &= ~full
        return np.asarray(np.minimum(np.ceil(numbers), self._sizes), np.int64)

    def observe(self, ids: Ids, signals: NDArray[np.float32]) -> None:
        """Take a batch's losses."""
        self._losses[ids] = np.clip(signals, 0, self._guessing)

    def validated(self, right: float) -> None:
        """Nothing goes by it."""
