"""The processes that train one run together: the base class for their communication, one subclass a framework."""

from collections.abc import Sequence

from prunedata.counting.counts import Tally
from prunedata.run.epoch import Epoch
from prunedata.run.waiting import Shared
from prunedata.types import Arrays, Floats


class Group:
    """One process that trains alone. An adapter overrides everything, and passes its object to ``Pruner.join``.

    Each method is called at the same moment of the run in all ``processes``, in the same order; ``rank`` is this one's.
    """

    rank: int = 0
    processes: int = 1

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin or continue an epoch. Raise if the processes are not of one run."""

    def agree(self, what: str, number: float, newest: float) -> None:
        """Raise, naming the processes, unless all have the same number of ``what`` and the same newest (0 if none)."""

    def forget(self) -> None:
        """Forget all comparisons, as the run was loaded from a state."""

    def rejoin(self, part: tuple[int, int]) -> None:
        """Go on within an epoch: raise if the processes were given states of other moments, or one of them twice.

        ``part`` is which of how many processes the state is of; (0, 1) if it is of all together.
        """

    def meet(
        self, sums: Sequence[float], failure: Exception | None, tally: Tally | None, shared: Shared | None
    ) -> Sequence[float]:
        """Meet the other processes before an epoch is merged; return the sums over all of them.

        ``failure`` is what went wrong here. Raise, naming the process, if something went wrong in another one.
        ``tally`` is the one that :meth:`merge` will be given, so that one message can carry it as well; None if it
        is not known yet, as losses wait for the means of their batches. ``shared`` is how these are shared, by
        :meth:`prunedata.Pruner.share_batches`. Raise if the processes differ in it.
        """
        return sums

    def add_up(self, numbers: Floats) -> Floats:
        """Add up an array over all processes, element by element."""
        return numbers

    def merge(self, tally: Tally, arrays: Arrays) -> None:
        """Merge an epoch over all processes, in place: its tally, and the arrays of policies by name."""
