"""What the ranks of a run tell each other, once an epoch: who saw and hit which sample, and what policies keep."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from prunedata.counting.counts import Tally
from prunedata.counting.joining import join
from prunedata.counting.waiting import Shared, SharedBatches
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.group import Group
from prunedata.run.pruner import Pruner
from prunedata.types import Arrays, Floats

__all__ = ["Ranks", "compare", "everyones"]


class Ranks(Group):
    """The ranks of the default process group."""

    def __init__(self, pruner: Pruner, settings: Sequence[str]) -> None:
        self._settings = settings
        self.processes, self.rank = dist.get_world_size(), dist.get_rank()
        self._pruner = pruner
        self._compared: int | None = None
        """How many settings were compared; None if the run has to be compared, too."""
        self.observed = 0
        """Visits of the epoch on all ranks, as they were told last."""
        self._bits: npt.NDArray[np.uint8] | None = None
        """Those of all ranks' tallies, if they have met and not yet merged."""
        self._repeats = False
        """Whether a rank that has met saw a sample more than once."""

    def begin_epoch(self, epoch: Epoch) -> None:
        """Compare the ranks before the first epoch, and when the run was loaded from a state."""
        self.compare_loaders()

    def agree(self, what: str, number: int, newest: float) -> None:
        """Compare what was given over the ranks."""
        self.compare_loaders()  # ranks of other runs, or places in it, would talk of other things here
        said = everyones([number, newest])
        if (said != said[0]).any():
            told = ", ".join(
                f"rank {rank} has {int(many)}" + (f", the last of them {float(last)!r}" if many else "")
                for rank, (many, last) in enumerate(said)
            )
            raise PrunedataError(
                f"Expected the same {what} on every rank. Got others ({told}): with agreed=True, call validated() on "
                "all ranks with one figure, as the first rank broadcasts it."
            )

    def compare_loaders(self) -> None:
        """Compare the ranks, unless no loader of another kind has come since that was done."""
        if self._compared != len(self._settings):
            compare(self._pruner.standing() | {"loaders": list(self._settings)})
            self._compared = len(self._settings)

    def forget(self) -> None:
        """Compare again."""
        self._compared = None

    def rejoin(self, part: tuple[int, int]) -> None:
        """Compare the states that the ranks were given."""
        self.compare_loaders()
        parts = everyones(part).astype(np.int64)
        of_all = (parts == (0, 1)).all()
        if not of_all and sorted(map(tuple, parts.tolist())) != [(rank, len(parts)) for rank in range(len(parts))]:
            told = ", ".join(
                f"rank {rank} has that of rank {of} of {among}" for rank, (of, among) in enumerate(parts.tolist())
            )
            raise PrunedataError(
                f"Expected each rank to go on from a state of its own, or each from all states. Got others ({told}): "
                "give load_state_dict() the list of all ranks' states, on every rank."
            )

    def meet(
        self, sums: Sequence[float], failure: Exception | None, tally: Tally | None, shared: Shared | None
    ) -> list[float]:
        """Add up over the ranks; raise if one of them failed, naming it, or shares batches otherwise.

        The tally's bits travel with the sums, if no loader of the run shares batches: else ranks may differ in what
        they would send.
        """
        repeats = tally is not None and tally.repeats
        numbers = [*sums, float(failure is not None), float(repeats), *_in_numbers(shared)]
        if tally is None or self._settings:
            said, self._bits = everyones(numbers), None
        else:
            said, self._bits = _met(numbers, tally.bits())
        failed, ways = said[:, len(sums)], said[:, len(sums) + 2 :]
        self._repeats = bool(said[:, len(sums) + 1].any())
        if failed.any() and failure is None:
            rank = int(np.flatnonzero(failed)[0])
            raise PrunedataError(
                f"Expected every rank to end epoch {self._pruner.next_epoch}. Got an error on rank {rank}, which says "
                "what it is: all ranks can end the epoch when it is dealt with."
            )
        if failure is None and (ways != ways[0]).any():
            told = ", ".join(f"rank {rank} has {_way(int(size))}" for rank, (size, *_) in enumerate(ways))
            raise PrunedataError(
                f"Expected every rank to iterate the same loaders in epoch {self._pruner.next_epoch}. Got ranks that "
                f"share batches in other ways ({told})."
            )
        totals = [float(total) for total in said[:, : len(sums)].sum(axis=0)]
        self.observed = int(totals[-1])
        return totals

    def add_up(self, numbers: Floats) -> Floats:
        """Add up over the ranks, element by element."""
        there = torch.from_numpy(np.array(numbers)).to(_device())
        dist.all_reduce(there)
        return there.cpu().numpy()

    def merge(self, tally: Tally, arrays: Arrays) -> None:
        """Merge an epoch's tally and the arrays of policies, in place."""
        met, repeats, self._bits, self._repeats = self._bits, self._repeats, None, False
        if repeats:
            join(tally, arrays, _add_up, _largest, _total)
        else:
            join(tally, arrays, _unite if met is None else lambda one: one.take(met), _largest)


def _in_numbers(shared: Shared | None) -> tuple[int, int, int]:
    """How a rank shares batches, to be compared with the others."""
    if isinstance(shared, SharedBatches):
        return shared.size, shared.shuffle, shared.rest
    return (0 if shared is None else -1), 0, 0


def _way(size: int) -> str:
    """What the first of these numbers means."""
    told = {0: "batches of its own", -1: "steps of a stream"}
    return told.get(size, f"its part of batches of {size}")


def compare(standing: dict[str, Any]) -> None:
    """Raise :class:`PrunedataError` on every rank if the ranks differ, saying in what."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, standing)
    told = []
    for name in dict.fromkeys(name for one in everyone for name in one):
        values = [one.get(name) for one in everyone]
        if any(value != values[0] for value in values):
            told.append(f"{name}: " + ", ".join(f"rank {rank} has {value!r}" for rank, value in enumerate(values)))
    if told:
        raise PrunedataError(
            f"Expected ranks of one run. Got ranks that differ ({'; '.join(told)}). Give all ranks the same arguments, "
            "and let all of them resume, each from the same epoch, or none."
        )


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def everyones(numbers: Sequence[float]) -> npt.NDArray[np.float64]:
    """The numbers of every rank, shape (ranks, numbers)."""
    mine = torch.tensor(numbers, dtype=torch.float64, device=_device())
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return torch.stack(everyone).cpu().numpy()


def _met(
    numbers: Sequence[float], bits: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    """As :func:`everyones` and :func:`_either`, in one message where the backend can."""
    if _device() != "cpu":
        return everyones(numbers), _either(bits)
    mine = np.zeros((dist.get_world_size(), len(numbers)))
    mine[dist.get_rank()] = numbers
    # The others have zeros in this rank's row, so that "or" brings the rows of all ranks to each.
    everyone, bits = np.split(_either(np.concatenate([mine.view(np.uint8).ravel(), bits])), [mine.nbytes])
    return everyone.view(np.float64).reshape(mine.shape), bits


def _either(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Which bits are set on any rank, of those of :meth:`Tally.bits`."""
    if _device() == "cpu":
        there = torch.from_numpy(bits)
        dist.all_reduce(there, op=dist.ReduceOp.BOR)
        return there.numpy()
    # NCCL knows no "or". Who was hit was seen, so that of 0, 1 (seen) and 3 (hit) the largest says both.
    seen, hit = np.unpackbits(bits).reshape(-1, 2).T
    flags = _largest(seen | hit << 1)
    return np.packbits(np.stack([flags & 1, flags >> 1], axis=1))


def _unite(tally: Tally) -> None:
    """Hold which samples were seen and hit on any rank."""
    tally.take(_either(tally.bits()))


def _add_up(tally: Tally) -> None:
    """Hold the sums of the visits and hits on all ranks."""
    tally.observed = int(everyones([tally.observed]).sum())
    # Two counts of 16 bits in one number add up as one number does: no backend adds up unsigned ones.
    there = torch.from_numpy(tally.packed.view(np.int32)).to(_device())
    dist.all_reduce(there)
    tally.packed[:] = there.cpu().numpy().view(np.uint32)


def _largest(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of each sample, the largest value on any rank."""
    there = torch.from_numpy(values).to(_device())
    dist.all_reduce(there, op=dist.ReduceOp.MAX)
    return there.cpu().numpy()


def _total(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of each sample, the sum over all ranks."""
    there = torch.from_numpy(values).to(_device())
    dist.all_reduce(there)
    return there.cpu().numpy()
