"""The errors of the library. Each is a :class:`PrunedataError`, which is a :class:`ValueError`."""

import warnings

__all__ = [
    "DamagedStore", "DealerDied", "DeniedStore", "FinishedWarning", "ForeignStore", "LossError", "MissingPackage",
    "NeverPrunesWarning", "NotInEpoch", "OtherData", "PrunedataError", "RandomPruningWarning", "RunExists",
    "ScheduleError", "SkippedSamples", "StoreError", "UnreachableStore", "UnweighedWarning", "UnwritableStore",
]  # fmt: skip


class PrunedataError(ValueError):
    """Base of every error that the library raises on purpose."""


class ScheduleError(PrunedataError):
    """A schedule, a number of samples to prune or a cost is invalid."""


class LossError(PrunedataError):
    """Ids or losses cannot be recorded: wrong shape, dtype or length, unknown ids, NaN or infinite losses."""


class NotInEpoch(PrunedataError, RuntimeError):
    """A method was called at the wrong time or in the wrong thread, such as ``observe`` before ``begin_epoch``."""


class OtherData(PrunedataError):
    """The data set is not the one that the run began with: it has other samples at the same ids."""


class SkippedSamples(PrunedataError):
    """An epoch ended although kept samples were never observed."""


class DealerDied(PrunedataError, ConnectionError):
    """The process that deals a run's batches does not answer: it, its node or the network has failed."""


class StoreError(PrunedataError):
    """The store of a run cannot be used; the subclasses say why. Nothing in the store was changed."""


class RunExists(StoreError, FileExistsError):
    """The store already has a run, and ``resume=True`` was not passed."""


class ForeignStore(StoreError):
    """The store holds something other than a run of prunedata, or a run with other arguments."""


class DamagedStore(StoreError):
    """The store has a run, but a part of it is missing or does not match its digest."""


class UnwritableStore(StoreError, OSError):
    """The system could not read or write the store, for example because a disk is full; ``errno`` says why."""


class DeniedStore(UnwritableStore, PermissionError):
    """The store may not be read or written by this user, for example because its folder is read-only."""


class UnreachableStore(UnwritableStore, ConnectionError):
    """The store's service does not answer, or refuses. The run continues in memory: call ``commit`` again later."""


class MissingPackage(StoreError, ImportError):
    """The package that opens a store of this kind is not installed."""


class NeverPrunesWarning(UserWarning):
    """The run may never leave samples out, or hardly any: its schedule, ``prune`` or validation figure prevents it."""


class FinishedWarning(UserWarning):
    """The run has no epoch left: nothing is trained."""


# Not once for each line of a program: of a search, all trials but the first would train nothing without a word.
warnings.filterwarnings("always", category=FinishedWarning, append=True)


class RandomPruningWarning(UserWarning):
    """All samples have the same score, as no loss was a hit so far: an epoch is pruned at random."""


class UnweighedWarning(UserWarning):
    """The loop did not apply the weights of the epoch's losses, or multiplied losses by weights of their classes."""
