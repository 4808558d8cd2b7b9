"""What the ranks of a run exchange once an epoch: which samples each observed, their hits, and the policies' arrays."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from prunedata.counting.counts import Tally
from prunedata.counting.joining import join
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.group import Group
from prunedata.run.meter import EpochSums
from prunedata.run.pruner import Pruner
from prunedata.run.waiting import Shared, SharedBatches
from prunedata.types import Arrays, Floats


class Ranks(Group):
    """The ranks of the default process group of ``torch.distributed``."""

    def __init__(self, pruner: Pruner, settings: Sequence[str]) -> None:
        self._settings = settings
        self.processes, self.rank = dist.get_world_size(), dist.get_rank()
        self._pruner = pruner
        self._compared: int | None = None  # how many settings were compared; None if the run has to be compared, too
        self.observed = 0  # visits of the last epoch on all ranks
        self._all_bits: npt.NDArray[np.uint8] | None = None
        """The bits of all ranks' tallies, between :meth:`meet` and :meth:`merge`."""
        self._repeats = False  # whether a rank observed a sample more than once, between :meth:`meet` and :meth:`merge`

    def begin_epoch(self, epoch: Epoch) -> None:
        """Compare the ranks before the first epoch, and when the run was loaded from a state."""
        self.compare_loaders()

    def agree(self, what: str, number: float, newest: float) -> None:
        """Raise unless all ranks have as many of ``what``, and the same newest one."""
        self.compare_loaders()  # ranks of other runs, or at other epochs, would exchange other things here
        numbers = gather_numbers([number, newest])
        if (numbers != numbers[0]).any():
            ranks = _in_words(
                f"{int(many)}" + (f", the last of them {float(last)!r}" if many else "") for many, last in numbers
            )
            raise PrunedataError(
                f"Expected the same {what} on every rank. Got different ones ({ranks}): with agreed=True, call "
                "validated() on all ranks with one figure, as the first rank broadcasts it."
            )

    def compare_loaders(self) -> None:
        """Raise if the ranks differ; skipped if nothing was wrapped in a new way since they were compared."""
        if self._compared != len(self._settings):
            compare(self._pruner.standing() | {"loaders": list(self._settings)})
            self._compared = len(self._settings)

    def forget(self) -> None:
        """Compare again before the next epoch."""
        self._compared = None

    def rejoin(self, part: tuple[int, int]) -> None:
        """Raise unless each rank was given the state of another rank, or each the states of all."""
        self.compare_loaders()
        parts = gather_numbers(part).astype(np.int64)
        of_all = (parts == (0, 1)).all()
        if not of_all and sorted(map(tuple, parts.tolist())) != [(rank, len(parts)) for rank in range(len(parts))]:
            ranks = _in_words(f"that of rank {saved} of {world}" for saved, world in parts.tolist())
            raise PrunedataError(
                f"Expected each rank to resume from a state of its own, or each from all states. Got others ({ranks}): "
                "give load_state_dict() the list of all ranks' states, on every rank."
            )

    def meet(
        self, sums: Sequence[float], failure: Exception | None, tally: Tally | None, shared: Shared | None
    ) -> list[float]:
        """Add up the sums over the ranks; raise, naming the rank, if one failed or shares batches in another way.

        The tally's bits travel with the sums, if no loader of the run shares batches: otherwise ranks may differ in
        what they would send.
        """
        repeats = tally is not None and tally.repeats
        numbers = [*sums, float(failure is not None), float(repeats), *_as_numbers(shared)]
        if tally is None or self._settings:
            gathered, self._all_bits = gather_numbers(numbers), None
        else:
            gathered, self._all_bits = _gather_with_bits(numbers, tally.bits())
        failed, ways = gathered[:, len(sums)], gathered[:, len(sums) + 2 :]
        self._repeats = bool(gathered[:, len(sums) + 1].any())
        if failed.any() and failure is None:
            rank = int(np.flatnonzero(failed)[0])
            raise PrunedataError(
                f"Expected every rank to end epoch {self._pruner.next_epoch}. Got an error on rank {rank}: see its "
                "message there. Once it is dealt with, all ranks can end the epoch."
            )
        if failure is None and (ways != ways[0]).any():
            ranks = _in_words(_sharing_in_words(int(size)) for size, *_ in ways)
            raise PrunedataError(
                f"Expected every rank to iterate the same loaders in epoch {self._pruner.next_epoch}. Got ranks that "
                f"share batches in different ways ({ranks})."
            )
        totals = [float(total) for total in gathered[:, : len(sums)].sum(axis=0)]
        self.observed = int(EpochSums(*totals).visits)
        return totals

    def add_up(self, numbers: Floats) -> Floats:
        """Add up an array over the ranks, element by element."""
        return _reduce(np.array(numbers), dist.ReduceOp.SUM)

    def merge(self, tally: Tally, arrays: Arrays) -> None:
        """Merge an epoch's tally, and the arrays of policies, over the ranks, in place."""
        all_bits, repeats, self._all_bits, self._repeats = self._all_bits, self._repeats, None, False
        if repeats:
            join(tally, arrays, _add_up_tally, _largest, lambda values: _reduce(values, dist.ReduceOp.SUM))
        else:
            bits = _either(tally.bits()) if all_bits is None else all_bits
            join(tally, arrays, lambda own: own.set_bits(bits), _largest)


def _as_numbers(shared: Shared | None) -> tuple[int, int, int]:
    """Return how a rank shares batches as numbers, which the ranks compare."""
    if isinstance(shared, SharedBatches):
        return shared.size, shared.shuffle, shared.rest
    return (0 if shared is None else -1), 0, 0


def _sharing_in_words(size: int) -> str:
    """Return what the first of these numbers means."""
    return {0: "batches of its own", -1: "steps of a stream"}.get(size, f"its part of batches of {size}")


def _in_words(values: Iterable[object]) -> str:
    """Return what each rank has, by rank."""
    return ", ".join(f"rank {rank} has {value}" for rank, value in enumerate(values))


def compare(standing: dict[str, Any]) -> None:
    """Raise :class:`PrunedataError` on every rank if the ranks differ, saying in what."""
    standings: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(standings, standing)
    differences = []
    for name in dict.fromkeys(name for each in standings for name in each):
        values = [each.get(name) for each in standings]
        if any(value != values[0] for value in values):
            differences.append(f"{name}: {_in_words(map(repr, values))}")
    if differences:
        raise PrunedataError(
            f"Expected ranks of one run. Got ranks that differ ({'; '.join(differences)}). Give all ranks the same "
            "arguments, and let all of them resume, each from the same epoch, or none."
        )


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def gather_numbers(numbers: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the numbers of every rank, shape (ranks, numbers)."""
    own = torch.tensor(numbers, dtype=torch.float64, device=_device())
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    return torch.stack(gathered).cpu().numpy()


def _gather_with_bits(
    numbers: Sequence[float], bits: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    """Return what :func:`gather_numbers` and :func:`_either` do, by one message where the backend can."""
    if _device() != "cpu":
        return gather_numbers(numbers), _either(bits)
    table = np.zeros((dist.get_world_size(), len(numbers)))
    table[dist.get_rank()] = numbers
    # The others have zeros in this rank's row, so that a bitwise "or" brings the rows of all ranks to each.
    gathered, bits = np.split(_either(np.concatenate([table.view(np.uint8).ravel(), bits])), [table.nbytes])
    return gathered.view(np.float64).reshape(table.shape), bits


def _either(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return which bits, of those of :meth:`Tally.bits`, are set on any rank."""
    if _device() == "cpu":
        return _reduce(bits, dist.ReduceOp.BOR)
    # NCCL has no bitwise "or". A sample that was hit was seen: of 0, 1 (seen) and 3 (hit) the largest has both bits.
    seen, hit = np.unpackbits(bits).reshape(-1, 2).T
    flags = _largest(seen | hit << 1)
    return np.packbits(np.stack([flags & 1, flags >> 1], axis=1))


def _add_up_tally(tally: Tally) -> None:
    """Add up the visits and hits of all ranks, in place."""
    tally.observed = int(gather_numbers([tally.observed]).sum())
    # Two counts of 16 bits in one number add up as one number does. As int32: no backend adds up unsigned numbers.
    tally.packed[:] = _reduce(tally.packed.view(np.int32), dist.ReduceOp.SUM).view(np.uint32)


def _largest(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the largest value on any rank, element by element."""
    return _reduce(values, dist.ReduceOp.MAX)


def _reduce(values: npt.NDArray[Any], operation: Any) -> npt.NDArray[Any]:
    """Return an array that is reduced over the ranks, element by element."""
    tensor = torch.from_numpy(values).to(_device())
    dist.all_reduce(tensor, op=operation)
    return tensor.cpu().numpy()
