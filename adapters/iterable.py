"""Any iterable: ``wrap(raw, pruner, id=...)`` yields the kept samples, each with its id.

The stream reads the mask of the epoch from a file whenever it is iterated, so that it works in workers that were
started in an earlier epoch. Pruned samples are dropped before ``then``, which has what takes time, such as decoding.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from prunedata.errors import LossError, PrunedataError
from prunedata.keys import SampleIds
from prunedata.run.pruner import Pruner
from prunedata.streams.maskfile import MaskFile, Resumable, publish
from prunedata.types import Mask

__all__ = ["Stream", "wrap"]


def wrap(
    raw: Iterable[Any],
    pruner: Pruner,
    *,
    id: str | Callable[[Any], int],
    then: Callable[[Any], Any] | None = None,
    deal: bool = False,
) -> "Stream":
    """Wrap an iterable so that each pass yields the samples that the epoch keeps, as ``(id, sample)``.

    Parameters
    ----------
    raw : iterable
        Yields the same samples in every pass, in any order: a list, an object with ``__iter__``, a torch
        ``IterableDataset``, a Hugging Face ``IterableDataset``. Not an iterator, which can be iterated only once. In a
        DataLoader with several workers it must yield different samples in each worker. A list or a map-style dataset is
        split for you.
    pruner : Pruner
        The run. Iterate the stream inside ``for epoch in pruner.epochs():``.
    id : str or callable
        The key of a raw sample's id, or a function of the raw sample that returns it: an int from 0 to
        ``pruner.samples - 1`` that is always the same for the sample. A position in the stream is not, as each of two
        workers counts from zero. In a run with ``keys=`` it is the sample's key: text, bytes or a whole number.
    then : callable, optional
        Converts a kept raw sample into the delivered one, for example by decoding or augmentation.
    deal : bool
        With several ranks: whether each of them reads all raw samples, in the same order, and the kept ones are dealt
        to them in turn. Then their batches are those of one process. If False, ``raw`` must yield its own share on each
        rank. A list or a map-style dataset is dealt in any case.

    Returns
    -------
    Stream
        An iterable of ``(id, sample)``; with PyTorch imported it is also an ``IterableDataset``. Wrap a DataLoader over
        it by ``prunedata.adapters.torch.wrap``, which removes the ids from its batches.

    Raises
    ------
    PrunedataError
        If ``raw`` is an iterator, or not iterable.
    """
    if isinstance(raw, Iterator):
        raise PrunedataError(
            f"Expected an iterable that can be iterated in every epoch. Got the iterator {type(raw).__name__}: "
            "wrap what makes it in an object whose __iter__ returns a new one."
        )
    if not isinstance(raw, Iterable):
        raise PrunedataError(f"Expected an iterable. Got {type(raw).__name__}.")
    if not (isinstance(id, str) or callable(id)):
        raise PrunedataError(
            f"Expected id as the key of a sample's id, or a function of the sample. Got {id!r}: for tuples, pass "
            "id=lambda sample: sample[0], or another position."
        )
    kind = Stream
    if "torch" in sys.modules:
        from prunedata.adapters.torch import TorchStream  # noqa: PLC0415 (only where torch is in use)

        kind = TorchStream
    return kind(raw, publish(pruner), id, then, deal, SampleIds(pruner.samples, pruner.keys))


class Stream(Resumable):
    """The iterable that :func:`wrap` returns. It has no pruner and no mask, so that it can be sent to workers."""

    def __init__(
        self,
        raw: Iterable[Any],
        mask: MaskFile,
        id: str | Callable[[Any], int],
        then: Callable[[Any], Any] | None,
        deal: bool,
        ids: SampleIds,
    ) -> None:
        self.raw, self.mask, self._id, self._then, self._deal, self._ids = raw, mask, id, then, deal, ids

    place = (0, 1)
    """The rank that iterates it, and the number of ranks: set by the loader, as workers do not know them."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        keep, delivery, delivered = self.mask.read(self._reader()), self.mask.begin_pass(), 0
        (rank, ranks), then = self.place if self._deals() else (0, 1), self._then
        for number, item in islice(self._kept(keep), rank, None, ranks):
            delivery.delivered = delivered = delivered + 1
            yield number, item if then is None else then(item)
        delivery.end()

    def _kept(self, keep: Mask) -> Iterator[tuple[int, Any]]:
        for count, item in enumerate(self._items()):
            if count == keep.size:
                raise LossError(
                    f"Expected at most {count} raw samples in a pass, as the Pruner has. Got more: does the iterable "
                    "never end, or give samples twice, as a mixture that oversamples a source? It has to give each "
                    "sample once and then stop; `for epoch in pruner.epochs():` begins the next pass. To keep a "
                    "mixture, make each repetition a sample of its own: Pruner(its length), with its places as ids."
                )
            number = self._ids.of(self._value_of(item) if isinstance(self._id, str) else self._id(item))
            if keep[number]:
                yield number, item

    def _deals(self) -> bool:
        """Return whether every rank reads all raw samples, and the kept ones are dealt to the ranks."""
        return self._deal

    def _items(self) -> Iterable[Any]:
        return self.raw

    def _reader(self) -> int:
        """Return the number of this worker."""
        return 0

    def _value_of(self, item: Any) -> Any:
        try:
            return item[self._id]
        except (KeyError, IndexError, TypeError):
            has = f"one with {', '.join(map(repr, item))}" if isinstance(item, Mapping) else f"a {type(item).__name__}"
            raise PrunedataError(
                f"Expected raw samples with the key {self._id!r}, as id= says. Got {has}: name the key of a sample's "
                "id, or give a function, id=lambda sample: ..."
            ) from None
