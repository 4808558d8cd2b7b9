"""The processes that train one run together: the base class for their communication, one subclass a framework."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from prunedata.counting.counts import Tally
from prunedata.counting.waiting import Shared
from prunedata.errors import PrunedataError
from prunedata.plan.onset import TRUST
from prunedata.run.epoch import Epoch
from prunedata.types import Arrays, Floats


class GroupTotals(NamedTuple):
    """The numbers that a process sends to the others at the end of an epoch, or their sums over all processes."""

    skipped: float  # kept samples that need not be observed
    unseen: float  # those that loaders gave and that the process has not observed, see ``OpenEpoch.unseen``
    delivered: float  # samples that its loaders delivered
    figure_sum: float  # the validation figure, 0 if there is none
    figures: float  # whether there is a validation figure
    lower_is_better: float  # whether lower is better for it
    higher_is_better: float  # whether higher is better for it, explicitly
    agreed: float  # whether it is the same figure on all processes, explicitly
    held_out_trust: float
    """How far the labels of samples held out are trusted, the sum of :func:`prunedata.plan.onset.trust_in`."""
    held_out_seen: float  # samples held out that it observed
    held_out_right: float  # of these, how many have their label as the most likely class
    held_out_judged: float  # of how many with a known label and logits
    guessed: float  # whether logits or labels were observed
    loss_sum: float
    visits: float
    rises: float  # how far the losses lie above recent averages of their samples, the sum
    products: float  # the sum of the products of that with the places of the visits in the epoch
    squares: float  # the sum of its squares

    @property
    def mean_loss(self) -> float | None:
        """Of all visits; None if there are none, or losses so large that their sum is no number."""
        mean = self.loss_sum / self.visits if self.visits else math.inf
        return mean if math.isfinite(mean) else None

    @property
    def within(self) -> dict[str, float]:
        """For the record of the epoch, how far the losses fell from its first visit to its last, if that is a number.

        By a straight line through how far each lies above the recent average of its sample, at equal distances; and
        how far off that is by chance, its standard error.
        """
        visits = self.visits or math.nan
        fall = 12 * (self.rises / 2 - self.products / visits) / visits
        variance = max(0.0, self.squares / visits - (self.rises / visits) * (self.rises / visits))
        found = {"within": fall, "noise": math.sqrt(12 * variance / visits)}
        return found if all(map(math.isfinite, found.values())) else {}

    @property
    def validation(self) -> dict[str, Any]:
        """The validation figure for the epoch's record, the mean over processes; raise if their directions differ."""
        if self.held_out_seen:
            figure = {"validation": self.held_out_trust / (TRUST * self.held_out_seen)}
            return figure | ({"accuracy": self.held_out_right / self.held_out_judged} if self.held_out_judged else {})
        if not self.figures:
            return {}
        if 0 < self.lower_is_better < self.figures:
            raise PrunedataError(
                "Expected validation figures of one kind from all processes. Got some of which lower is better, and "
                "others of which higher is: pass the same metric on all ranks."
            )
        told = {"lower_is_better": bool(self.lower_is_better)} if self.lower_is_better or self.higher_is_better else {}
        return {"validation": self.figure_sum / self.figures} | told


class Group:
    """One process that trains alone. An adapter overrides everything, and passes its object to ``Pruner.join``.

    Each method is called at the same moment of the run in all ``processes``, in the same order; ``rank`` is this one's.
    """

    rank: int = 0
    processes: int = 1

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin or continue an epoch. Raise if the processes are not of one run."""

    def agree(self, what: str, number: int, newest: float) -> None:
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
