"""What a policy is: it turns what is known of each sample into a score; the highest are pruned.

The run keeps, for every policy, the counts of Algorithm 1 and each sample's hits and visits of the whole run.
A policy is a small frozen dataclass in a file of its own or beside its kin; adding one touches no other.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from prunedata.checks import real
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
        ``mean_excess``, which every run keeps: how far a sample's losses lay above those of their batches, in the
        mean of its visits. And the policy's own arrays if it is a :class:`Watcher`, by name.
    num_pruned : int
        How many samples will be pruned (PruningNum).
    """

    counts: Counts
    hits: Counts
    visits: Counts
    arrays: Mapping[str, Array]
    num_pruned: int


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
    """A policy that keeps arrays of its own, one number for each sample. They are saved and restored with the run."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """The arrays as a run begins, by name: shape (samples,), an integer or floating dtype of up to 64 bits."""

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Take over some losses, by changing the arrays in place.

        Each sample's visits come in their order, and one at a time: ``ids``, ``losses``, and ``means``, the mean loss
        of each one's batch, all of shape (n,), name a sample once in a call. They are checked, and valid during the
        call only. How the visits of different samples are divided between calls has no meaning.
        """


@runtime_checkable
class Weigher(Protocol):
    """A policy that says how much the loss of each sample counts in a pruned epoch."""

    def weights(self, keep: Mask, known: Known) -> Array:
        """The factor of each sample's loss, shape (samples,). ``keep`` is the epoch's; ``known`` is as in scores.

        Those of pruned samples don't matter: the run makes them 0.
        """


def describe(policy: Policy) -> dict[str, Any]:
    """The policy's name and parameters, as the store records them: plain values, equal to what JSON gives back.

    Raises
    ------
    PrunedataError
        If it is no policy, lacks something that a policy must have, or has a parameter that cannot be stored.
    """
    name = type(policy).__name__
    if isinstance(policy, type):
        name = policy.__name__
        raise PrunedataError(f"Expected a policy such as DroppingCount(). Got the class {name}: call it, {name}().")
    if not is_dataclass(policy) or not policy.__dataclass_params__.frozen:
        raise PrunedataError(_why_not(policy))
    if not callable(getattr(policy, "scores", None)):
        raise PrunedataError(f"Expected {name}.scores(known), which scores each sample. Got none: see Policy.")
    real(f"{name}.tolerance", getattr(policy, "tolerance", None), 0.0)
    needs_losses = getattr(policy, "needs_losses", None)
    if not isinstance(needs_losses, bool | np.bool_):
        raise PrunedataError(f"Expected {name}.needs_losses to be True or False. Got {needs_losses!r}.")
    halves = [part for part in ("arrays", "update") if callable(getattr(policy, part, None))]
    if len(halves) == 1:
        raise PrunedataError(f"Expected {name}.arrays and {name}.update, both or neither. Got {halves[0]} only.")
    kept = {one.name: _plain(f"{name}.{one.name}", getattr(policy, one.name)) for one in fields(policy)}
    if "name" in kept:
        raise PrunedataError(f"Expected fields of {name} with other names than 'name', which is that of the policy.")
    return {"name": name} | kept


def _why_not(policy: object) -> str:
    """The message for what is no frozen dataclass."""
    if not hasattr(policy, "scores"):
        return f"Expected a policy such as DroppingCount() or Random(). Got {policy!r}."
    lack = "isn't frozen" if is_dataclass(policy) else "is not a dataclass"
    name = type(policy).__name__
    return f"Expected a frozen dataclass. Got {name}, which {lack}: write @dataclass(frozen=True) above its class."


def _plain(name: str, value: object) -> Any:
    """A parameter as JSON gives it back, or an error that says what can be stored."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, each) for key, each in value.items()}
    raise PrunedataError(
        f"Expected {name} to be None, a bool, a finite number, a string, or a list, tuple or dict (with strings as "
        f"keys) of these: a store keeps no others. Got {value!r}. Numbers for each sample belong in arrays()."
    )
