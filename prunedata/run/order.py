"""The order of an epoch: all samples permuted, then the kept ones in that order.

Pruning removes samples from the full order and never reshuffles the rest, and an order depends on nothing but
(samples, seed, epoch). So a run that is resumed in the middle of an epoch goes on where it was: the order is
drawn again and the samples already seen are left out.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from prunedata.checks import integer

TOGETHER = 1 << 21  # samples shuffled together: up to here the whole epoch
NEIGHBOURS = 256  # samples next to each other in the data that stay together where not all of an epoch are
CACHED = 1 << 18  # samples that can be shuffled where memory is fastest
BUCKETS = 8  # at most so many: each costs another pass over what is shuffled together

_ORDER_STREAM = 0x0BDE5


def epoch_order(
    keep: npt.NDArray[np.bool_], *, seed: int, epoch: int, shuffle: bool = True
) -> Iterator[npt.NDArray[np.integer]]:
    """Yield the ids of the kept samples in the order of an epoch, in pieces, each an ndarray of int, shape (n,).

    Up to ``TOGETHER`` samples, the order is a uniform random permutation. Beyond, rows of ``NEIGHBOURS`` samples are
    permuted over the whole epoch, and the samples of ``TOGETHER / NEIGHBOURS`` rows at a time are shuffled together,
    which needs no memory that grows with the epoch but for one number a row. ``keep``, shape (samples,), says which
    samples to yield; any integers are a seed and an epoch, and without ``shuffle`` ids ascend.
    """
    samples = keep.size
    if not shuffle:
        for first in range(0, samples, TOGETHER):
            yield np.flatnonzero(keep[first : first + TOGETHER]) + first
        return
    word = (1 << 64) - 1
    random = np.random.Generator(np.random.SFC64([_ORDER_STREAM, seed & word, epoch & word]))
    everything = bool(keep.all())
    if samples <= TOGETHER:
        for ids in _permuted(random, samples):
            yield ids if everything else ids.compress(keep.take(ids))
        return
    rows = np.arange(-(-samples // NEIGHBOURS), dtype=np.int64)
    random.shuffle(rows)
    for first in range(0, rows.size, TOGETHER // NEIGHBOURS):
        some = rows[first : first + TOGETHER // NEIGHBOURS]
        together = (some[:, None] * NEIGHBOURS + np.arange(NEIGHBOURS)).ravel()
        together = together[together < samples]
        for places in _permuted(random, together.size):
            ids = together.take(places)
            yield ids if everything else ids.compress(keep.take(ids))


def _permuted(random: np.random.Generator, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """A uniform random permutation of ``range(size)``, in pieces.

    A shuffle goes to and fro over all that it shuffles, and waits for memory where that outgrows a cache. So each
    number is thrown into a bucket, and each bucket shuffled by itself.
    """
    # 64 bits although 32 would do: numpy shuffles what is as wide as a pointer a third faster.
    buckets = 1
    while buckets < BUCKETS and size > buckets * CACHED:
        buckets *= 2
    thrown = np.frombuffer(random.bytes(size), dtype=np.uint8) & np.uint8(buckets - 1) if buckets > 1 else None
    for bucket in range(buckets):
        piece = np.arange(size) if thrown is None else np.flatnonzero(thrown == bucket)
        random.shuffle(piece)
        yield piece


def cut_batches(
    pieces: Iterable[npt.NDArray[np.integer]], batch_size: int, *, drop_last: bool = False
) -> Iterator[npt.NDArray[np.integer]]:
    """Cut arrays of ids into batches of ``batch_size``, across their borders; the last may be smaller or dropped."""
    size = integer("batch_size", batch_size, 1)
    rest: npt.NDArray[np.integer] | None = None
    for piece in pieces:
        ids = piece if rest is None or not rest.size else np.concatenate([rest, piece])
        full = ids.size - ids.size % size
        for first in range(0, full, size):
            yield ids[first : first + size]
        rest = ids[full:]
    if rest is not None and rest.size and not drop_last:
        yield rest
