"""What can go wrong. Every error of the library is a :class:`PrunedataError`, which is a :class:`ValueError`."""

__all__ = [
    "DamagedStore",
    "DealerDied",
    "DeniedStore",
    "FinishedWarning",
    "ForeignStore",
    "LossError",
    "MissingPackage",
    "NeverPrunesWarning",
    "NotInEpoch",
    "OtherData",
    "PrunedataError",
    "RunExists",
    "ScheduleError",
    "SkippedSamples",
    "StoreError",
    "UnreachableStore",
    "UnweighedWarning",
    "UnwritableStore",
]


class PrunedataError(ValueError):
    """Base of every error that the library raises on purpose."""


class ScheduleError(PrunedataError):
    """A schedule, an amount to prune or a cost that makes no sense."""


class LossError(PrunedataError):
    """Ids or losses that cannot be recorded: wrong shape, dtype or length, unknown ids, NaN or infinite losses."""


class NotInEpoch(PrunedataError, RuntimeError):
    """A verb used outside the part of the run where it has a meaning, as ``observe`` before ``begin_epoch``."""


class OtherData(PrunedataError):
    """The data set is not the one that the run began with: other samples lie at its places."""


class SkippedSamples(PrunedataError):
    """An epoch ended although kept samples were never observed."""


class DealerDied(PrunedataError, ConnectionError):
    """The process that deals a run's batches does not answer: it died, or its node or network did."""


class StoreError(PrunedataError):
    """The store of a run cannot be used. Its kinds say why; nothing in the store was changed."""


class RunExists(StoreError, FileExistsError):
    """The store already holds a run and ``resume=True`` was not given."""


class ForeignStore(StoreError):
    """What lies at the store's address is not a run of prunedata, or is another run than the one described."""


class DamagedStore(StoreError):
    """The store holds a run, but a part of it is missing or does not match its digest."""


class UnwritableStore(StoreError, OSError):
    """The system refused to read or write the store, as where a disk is full; ``errno`` says why."""


class DeniedStore(UnwritableStore, PermissionError):
    """The store may not be read or written by this user, as a folder that is read-only."""


class UnreachableStore(UnwritableStore, ConnectionError):
    """The service that keeps the store does not answer, or refuses; the run goes on in memory, and can commit again."""


class MissingPackage(StoreError, ImportError):
    """The package that opens a store of this kind is not installed."""


class NeverPrunesWarning(UserWarning):
    """The run will not save anything: no epoch, or no sample, is ever pruned."""


class FinishedWarning(UserWarning):
    """The run has no epoch left to train."""


class UnweighedWarning(UserWarning):
    """Samples that are to count nothing were delivered, and nobody asked for the weights of an epoch's losses."""
