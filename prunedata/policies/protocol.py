"""What a policy is: it turns what is known of each sample into a score; the highest are pruned.

The run keeps, for every policy, the counts of Algorithm 1 and each sample's hits and visits of the whole run.
A policy is a small frozen dataclass in a file of its own or beside its kin; adding one touches no other.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol, runtime_checkable

from prunedata.errors import PrunedataError
from prunedata.types import Array, Counts, Ids, Losses, Mask

__all__ = ["Known", "Policy", "Watcher", "Weigher", "describe"]


@dataclass(frozen=True, eq=False)
class Known:
    """What a run knows when an epoch is about to be pruned: all finished epochs. Not to be changed.

    Attributes
    ----------
    counts : ndarray of unsigned int, shape (samples,)
        DroppingCount: hits in the current window.
    hits, visits : ndarray of unsigned int, shape (samples,)
        Hits, and times observed, in the whole run.
    arrays : mapping of str to ndarray, shape (samples,)
        The policy's own arrays by name, if it is a :class:`Watcher`; otherwise empty.
    pruned : int
        How many samples will be pruned.
    """

    counts: Counts
    hits: Counts
    visits: Counts
    arrays: Mapping[str, Array]
    pruned: int


class Policy(Protocol):
    """What a run asks of a policy. It may be a :class:`Watcher` and a :class:`Weigher` too."""

    @property
    def tolerance(self) -> float:
        """Algorithm 1's tolerance: how far above its batch's mean a loss must lie to be a hit."""

    @property
    def needs_losses(self) -> bool:
        """Whether an epoch without observed losses is an error."""

    def scores(self, known: Known) -> Array:
        """Score each sample, shape (samples,), an integer or floating dtype without NaN; the highest are pruned."""


@runtime_checkable
class Watcher(Protocol):
    """A policy that keeps arrays of its own, one number a sample. They are saved and restored with the run."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """The arrays as a run begins, by name: shape (samples,), an integer or floating dtype."""

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Take over a block of losses, by changing the arrays in place.

        ``ids``, ``losses``, and ``means``, the mean loss of each one's batch, all of shape (n,), are checked, lie in
        the order of observation, may name a sample several times, and are valid during the call only.
        """


@runtime_checkable
class Weigher(Protocol):
    """A policy that says how much the loss of each sample counts in a pruned epoch."""

    def weights(self, keep: Mask, known: Known) -> Array:
        """The factor of each sample's loss, shape (samples,). ``keep`` is the epoch's; ``known`` is as in scores."""


def describe(policy: Policy) -> dict[str, Any]:
    """The policy's name and parameters, as the store records them."""
    if isinstance(policy, type) or not is_dataclass(policy):
        raise PrunedataError(f"Expected a policy such as DroppingCount() or Random(). Got {policy!r}.")
    return {"name": type(policy).__name__, **asdict(policy)}
