"""Check the promises of a policy: the same choice however its run is watched or resumed, and no side effects."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from prunedata.errors import PrunedataError, RandomPruningWarning
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Known, Policy, Watcher, Weigher, describe
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.policies.selection import keep_mask
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Array, Arrays, Ids, Losses

SCHEDULE = Schedule(6, window=3, start=1, block=3, pruned_per_block=2)
BATCH = 7


class BrokenPolicy(AssertionError):
    """A policy breaks one of its promises.

    ``promise`` is one of ``"fields"``, ``"arrays"``, ``"update"``, ``"scores"``, ``"weights"``, ``"buffers"``,
    ``"resume"``.
    """

    def __init__(self, promise: str, message: str) -> None:
        super().__init__(f"Promise '{promise}' is broken. {message}")
        self.promise = promise


def check_policy(policy: Policy, *, samples: int = 40, seed: int = 0) -> None:
    """Check that a policy keeps what a run relies on.

    Parameters
    ----------
    policy : Policy
        It is copied, and left as it is.
    samples : int
        Size of the data set on which it is tried, at least 10.
    seed : int
        Of the losses and the run.

    Raises
    ------
    BrokenPolicy
        An AssertionError that names the first promise that is broken, what was expected, and what came.
    """
    described = _ask("fields", lambda: describe(policy))
    _check_arrays(policy, samples, seed)
    _check_update(policy, samples, seed)
    none, arrays = np.zeros(samples, np.uint8), {MEAN_EXCESS: np.zeros(samples, np.float32)} | _arrays(policy, samples)
    _check_choice(policy, Known(none, none.copy(), none.copy(), arrays, samples // 3))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RandomPruningWarning)  # losses at random may leave it nothing to rank by
        _check_trials(policy, samples, seed, described)


def _check_trials(policy: Policy, samples: int, seed: int, described: dict[str, Any]) -> None:
    """Compare a run with others that were looked at, or resumed."""
    expected = list(_epochs(_Trial(policy, samples, seed)))
    if expected[-1].described != described:
        _broken("fields", f"the fields to stay as they are in a run, {described}", expected[-1].described)
    trials: list[tuple[str, str, dict[str, Any]]] = [
        ("buffers", "in a run whose counts were read after each batch", {"look": True}),
        ("resume", "in a run that was resumed before each epoch", {"resume": "between"}),
        ("resume", "in a run that was resumed within each epoch", {"resume": "within"}),
    ]
    for promise, how, options in trials:
        trial = _Trial(policy, samples, seed, **options)
        for before, after in zip(expected, _epochs(trial), strict=True):
            _check_same(promise, how, before, after)


# -- one method after the other


def _check_arrays(policy: Policy, samples: int, seed: int) -> None:
    _ask("arrays", lambda: _Trial(policy, samples, seed).new_pruner())
    first, second = _arrays(policy, samples), _arrays(policy, samples)
    for name, array in first.items():
        if array is second[name] or np.shares_memory(array, second[name]):
            _broken("arrays", f"a new array {name} from each call of arrays()", "the same one")
        if not array.flags.writeable:
            _broken("arrays", f"an array {name} that can be changed", "one that is read-only")


def _check_update(policy: Policy, samples: int, seed: int) -> None:
    if not isinstance(policy, Watcher):
        return
    policy, random, arrays = copy.deepcopy(policy), np.random.default_rng(seed), _arrays(policy, samples)
    if not arrays:  # then a run doesn't call update
        return
    passed = dict(arrays)
    ids, losses = random.permutation(samples)[:BATCH].astype(np.int64), random.normal(size=BATCH)
    given = {"ids": ids, "losses": losses, "means": np.full(BATCH, losses.mean())}
    with _unchanged("update", given):
        policy.update(passed, **given)
    if passed.keys() != arrays.keys() or any(passed[name] is not array for name, array in arrays.items()):
        _broken("update", "update() to change arrays in place, as in arrays['loss'][ids] = losses", "other arrays")


def _check_choice(policy: Policy, known: Known) -> None:
    """Check ``scores`` and ``weights`` for what is known at one moment."""
    policy = copy.deepcopy(policy)
    given = {"counts": known.counts, "hits": known.hits, "visits": known.visits, **known.arrays}
    with _unchanged("scores", given):
        scores = _numbers("scores", lambda: policy.scores(known), known)
    if _wraps_around(policy, known, scores):
        got = "another: unsigned integers wrap around below zero, so make them floats first"
        _broken("scores", "the same order from scores() when the counts are signed", got)
    if not isinstance(policy, Weigher):
        return
    weigher: Weigher = policy
    keep = keep_mask(scores, known.num_pruned, seed=0, epoch=0)
    with _unchanged("weights", given | {"keep": keep}):
        _numbers("weights", lambda: weigher.weights(keep, known), known)


def _numbers(name: str, ask: Callable[[], Array], known: Known) -> Array:
    """Return the checked result of ``scores`` or ``weights``: a number for each sample, the same in two calls."""
    got, shape = np.array(ask()), known.counts.shape
    kinds = "buif" if name == "scores" else "uif"
    if got.shape != shape or got.dtype.kind not in kinds:
        _broken(name, f"numbers of shape {shape} from {name}()", f"shape {got.shape}, dtype {got.dtype}")
    unusable = np.isnan(got) if name == "scores" else ~np.isfinite(got)
    if unusable.any():
        what = "NaN" if name == "scores" else "NaN or infinite"
        unseen = " (no sample was observed yet)" if not known.visits.any() else ""
        number = np.count_nonzero(unusable)
        _broken(name, f"a number for each sample from {name}()", f"{number} that are {what}{unseen}")
    if not np.array_equal(got, ask()):
        _broken(name, f"the same from {name}() when it is asked twice", "something else")
    return got


@contextmanager
def _unchanged(promise: str, given: Arrays) -> Iterator[None]:
    """Check that the method of a promise leaves its arguments as they are."""
    before = {name: array.copy() for name, array in given.items()}
    yield
    for name, array in given.items():
        if not _equal(array, before[name]):
            _broken(promise, f"{promise}() to leave {name} as it is", "another content")


# -- whole runs


class _Trial(NamedTuple):
    """A run on losses that depend on the epoch and the batch alone; some samples come up several times."""

    policy: Policy
    samples: int
    seed: int
    look: bool = False
    resume: str = ""

    def new_pruner(self) -> Pruner:
        return Pruner(
            self.samples, SCHEDULE, prune=self.samples // 3, policy=copy.deepcopy(self.policy), seed=self.seed
        )

    def resumed(self, pruner: Pruner) -> Pruner:
        again = self.new_pruner()
        again.load_state_dict(pruner.state_dict())
        return again

    def batches(self, epoch: Epoch) -> Iterator[tuple[Ids, Losses]]:
        random = np.random.default_rng([self.seed, epoch.number])
        kept = np.flatnonzero(epoch.keep)
        ids = random.permutation(np.concatenate([kept, random.choice(kept, kept.size)]))
        for first in range(0, ids.size, BATCH):
            batch = ids[first : first + BATCH]
            yield batch, random.normal(2, 1, batch.size).round(1)


class _Chosen(NamedTuple):
    """The choice of a policy for an epoch, and its arrays and fields after it."""

    epoch: Epoch
    arrays: Arrays
    described: dict[str, Any]


def _epochs(trial: _Trial) -> Iterator[_Chosen]:
    pruner = trial.new_pruner()
    while pruner.next_epoch < SCHEDULE.epochs:
        if trial.resume == "between":
            pruner = trial.resumed(pruner)
        _check_choice(pruner.policy, Known(pruner.counts, pruner.hits, pruner.visits, pruner.arrays, pruner.prune))
        epoch = pruner.begin_epoch()
        for place, (ids, losses) in enumerate(trial.batches(epoch)):
            pruner.observe(losses, ids)
            if trial.look:
                _ = pruner.counts
            if trial.resume == "within" and place == 2:
                pruner = trial.resumed(pruner)
                epoch = pruner.begin_epoch()
        epoch.apply_weights()  # nothing is trained here
        pruner.skip(pruner.samples)  # should the mask have changed, that is for the comparison to say
        pruner.end_epoch()
        yield _Chosen(epoch, pruner.arrays, describe(pruner.policy))


def _check_same(promise: str, how: str, expected: _Chosen, got: _Chosen) -> None:
    number = expected.epoch.number
    pairs = {"mask": (expected.epoch.keep, got.epoch.keep), "weights": (expected.epoch.weights, got.epoch.weights)}
    pairs |= {f"array {name}": (array, got.arrays[name]) for name, array in expected.arrays.items()}
    for what, (one, other) in pairs.items():
        same = one is other or (one is not None and other is not None and _equal(one, other))
        if not same:
            _broken(promise, f"the same {what} in epoch {number} {how}", "another")


def _equal(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _arrays(policy: Policy, samples: int) -> Arrays:
    return copy.deepcopy(policy).arrays(samples) if isinstance(policy, Watcher) else {}


def _ask(promise: str, ask: Callable[[], Any]) -> Any:
    """Return the result of ``ask``; an error of the library breaks a promise."""
    try:
        return ask()
    except PrunedataError as error:
        raise BrokenPolicy(promise, str(error)) from None


def _broken(promise: str, expected: str, got: object) -> NoReturn:
    raise BrokenPolicy(promise, f"Expected {expected}. Got {got}.")


MARGIN = 1e-3  # of the span of all scores: a division, for one, may be rounded otherwise for other dtypes


def _wraps_around(policy: Policy, known: Known, scores: Array) -> bool:
    """Whether scores come in another order when the same counts are signed, one size wider.

    A policy need not work with signed counts. Where it doesn't, nothing can be told.
    """
    counts = {name: getattr(known, name) for name in ("counts", "hits", "visits")}
    signed = {name: array.astype(np.promote_types(array.dtype, np.int8)) for name, array in counts.items()}
    try:
        others = np.array(policy.scores(replace(known, **signed)), np.float64)
        order = np.argsort(others, kind="stable")
        up, down = np.diff(others[order]), -np.diff(scores[order].astype(np.float64))
        return bool(((up > MARGIN * np.ptp(others)) & (down > MARGIN * np.ptp(scores.astype(np.float64)))).any())
    except Exception:
        return False
