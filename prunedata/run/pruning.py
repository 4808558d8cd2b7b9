"""When a run prunes and how much, as it stands: by its schedule, or by what it was advised."""

from typing import Literal

from prunedata.errors import PrunedataError
from prunedata.findings.advice import ADVISED_POLICY, Advice, advise
from prunedata.plan.cost import number_kept
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy, describe
from prunedata.run.counts import SampleCounts
from prunedata.run.state import warn_if_idle
from prunedata.types import Array

__all__ = ["Pruning", "policy_of"]


def policy_of(policy: Policy | Literal["auto"], classes: int | None) -> Policy:
    """Return the policy that a run was given, or with ``"auto"`` the one that would be advised."""
    if not isinstance(policy, str):
        describe(policy)  # refuses what is none
        return policy
    if policy != "auto":
        raise PrunedataError(f'Expected a policy such as DroppingCount(), or "auto". Got {policy!r}.')
    if classes is None:
        raise PrunedataError(
            'Expected classes, the number of classes, with policy="auto". Got none: without '
            "them a run cannot tell wrong labels from hard samples, and would never prune."
        )
    return ADVISED_POLICY


class Pruning:
    """What a run was told to prune, and with ``auto`` what it was advised once enough had been watched.

    Parameters
    ----------
    samples : int
    schedule : Schedule
    prune : int
        Samples that a pruned epoch leaves out; with ``auto`` the most.
    batch_size : int or None
        Round the kept samples up to whole batches.
    auto : bool
        Prune nothing before advice has come, and then as advised.
    observe_only : bool
        Prune nothing at all, but know what would have been.
    """

    def __init__(
        self, samples: int, schedule: Schedule, prune: int, batch_size: int | None, *, auto: bool, observe_only: bool
    ) -> None:
        self.given = self.schedule = schedule
        self.auto, self.observe_only = auto, observe_only
        self.advice: Advice | None = None
        self._samples, self._most, self._batch_size = samples, prune, batch_size
        if not (observe_only or auto):
            warn_if_idle(schedule, samples, samples - self.amount)

    @property
    def amount(self) -> int:
        """How many samples a pruned epoch leaves out, whole batches kept."""
        most = self._most if self.advice is None else min(self._most, self.advice.prune)
        return self._samples - number_kept(self._samples, most, self._batch_size)

    @property
    def longest_window(self) -> int:
        """The most epochs that a count can run over."""
        return min(self.schedule.longest_window, self.schedule.epochs)

    def would_prune(self, epoch: int) -> bool:
        """Whether epoch number ``epoch`` would be pruned if the run did not only observe."""
        decided = not self.auto or (self.advice is not None and self.advice.verdict == "prune")
        return decided and self.schedule.prunes(epoch)

    def prunes(self, epoch: int) -> bool:
        """Whether epoch number ``epoch`` is pruned."""
        return not self.observe_only and self.would_prune(epoch)

    def kept_in(self, epoch: int) -> int:
        """How many samples epoch number ``epoch`` trains on."""
        return self._samples - self.amount if self.prunes(epoch) else self._samples

    def ask(self, known: SampleCounts, high: Array | None, done: int) -> bool:
        """With ``auto``, ask for advice on what ``done`` epochs have shown; return whether it has come just now."""
        if not self.auto or self.advice is not None:
            return False
        advice = advise(known.hits, known.visits, high, done, self.given, self._samples, prune=self._most)
        if advice.verdict == "watch":
            return False
        self.restore(advice.schedule or self.schedule, advice)
        return True

    def restore(self, schedule: Schedule, advice: Advice | None) -> None:
        """Go on by this schedule, and this advice."""
        self.schedule, self.advice = schedule, advice
