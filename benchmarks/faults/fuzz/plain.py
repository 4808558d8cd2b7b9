"""What a training has to come to, in plain Python: it knows the user's samplers and the paper, and nothing else."""

from itertools import zip_longest
from typing import Any

from benchmarks.faults.fuzz.setup import OWN, STREAMS, Loaded, Setup
from benchmarks.faults.fuzz.sources import given

__all__ = ["Expected", "cut", "expected", "highest_left_out", "mode"]


def cut(ids: list[int], size: int, drop_last: bool) -> list[list[int]]:
    """Batches of a size; the last one may be smaller, or is dropped."""
    batches = [ids[at : at + size] for at in range(0, len(ids), size)]
    return batches[:-1] if drop_last and batches and len(batches[-1]) < size else batches


class Expected:
    """What a pass has to deliver.

    Attributes
    ----------
    sizes : list of list of int
        For each rank, the samples in each of its batches; None where stand-ins make it of no matter.
    batches : list of list of list of int, or None
        For each rank its batches, where the order is known.
    real : int
        How many samples come on all ranks, those left out that stand in for none.
    shares : bool
        Whether what all ranks have for a step is one global batch.
    """

    def __init__(
        self, sizes: list[list[int]], batches: list[list[list[int]]] | None, real: int, *, shares: bool
    ) -> None:
        self.sizes, self.batches, self.real, self.shares = sizes, batches, real, shares

    @property
    def steps(self) -> int:
        return max(map(len, self.sizes), default=0)


def expected(setup: Setup, loader: Loaded, remaining: set[int], number: int, ranks: int) -> Expected:
    """What a pass of this number over a loader has to deliver of what remains."""
    if loader.order in OWN:
        return _own(loader, len(remaining), ranks)
    if loader.order in STREAMS:
        return _stream(setup, loader, remaining, ranks)
    batches = []
    for rank in range(ranks):
        order = given(loader, setup.samples, number, rank, ranks)
        if order and isinstance(order[0], list):
            left = [[each for each in batch if each in remaining] for batch in order]
            batches.append([batch for batch in left if batch])
        else:
            batches.append(cut([each for each in order if each in remaining], loader.batch, loader.drop_last))
    sizes = [[len(batch) for batch in own] for own in batches]
    return Expected(sizes, batches, sum(map(sum, sizes)), shares=False)


def mode(loader: Loaded) -> str:
    """What becomes of an end that cannot be shared evenly."""
    if loader.uneven is not None:
        return loader.uneven
    return "drop" if loader.sampler_drops else "weights"


def _own(loader: Loaded, left: int, ranks: int) -> Expected:
    how, size = mode(loader), loader.batch
    if how == "weights" or ranks == 1:
        full, rest = divmod(left, size * ranks)
        tail = rest and not loader.drop_last
        sizes = [[size] * full + ([max(1, -(-(rest - rank) // ranks))] if tail else []) for rank in range(ranks)]
        return Expected(sizes, None, left - (0 if tail else rest), shares=True)
    each = left // ranks if how == "drop" else -(-left // ranks)
    own = [len(batch) for batch in cut(list(range(each)), size, loader.drop_last)]
    return Expected([own] * ranks, None, min(left, sum(own) * ranks), shares=True)


def _stream(setup: Setup, loader: Loaded, remaining: set[int], ranks: int) -> Expected:
    batches = []
    for rank in range(ranks):
        order = [each for each in range(setup.samples) if each in remaining]
        if loader.order == "shared stream":
            order = [each for each in order if each % ranks == rank]
        else:
            order = order[rank::ranks]
        batches.append(cut(order, loader.batch, loader.drop_last))
    if loader.uneven == "drop":
        batches = [own[: min(map(len, batches))] for own in batches]
    real = sum(len(batch) for own in batches for batch in own)
    steps = list(zip_longest(*batches, fillvalue=[]))
    sizes = [[len(step[rank]) for step in steps] for rank in range(ranks)]
    return Expected(sizes, [[step[rank] for step in steps] for rank in range(ranks)], real, shares=True)


def highest_left_out(scores: list[Any], keep: set[int], slack: float) -> str:
    """Say what is wrong with a choice that is to leave out the highest scores; nothing if nothing is."""
    kept = max((scores[each], each) for each in keep)
    left = [(score, each) for each, score in enumerate(scores) if each not in keep]
    if left and kept[0] - min(left)[0] > slack:  # a difference of fractions is exact
        return f"kept sample {kept[1]} of score {kept[0]}, and left out sample {min(left)[1]} of score {min(left)[0]}"
    return ""
