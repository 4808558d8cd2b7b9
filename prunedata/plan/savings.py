"""What a run has saved so far, from its own records alone."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

__all__ = ["savings", "seconds_of_whole_epoch", "would_save"]


def savings(history: Sequence[Mapping[str, Any]], samples: int, batch_size: int | None = None) -> dict[str, Any]:
    """What the finished epochs have saved.

    Parameters
    ----------
    history : sequence of dict
        A record for each finished epoch, as ``Pruner.history``.
    samples : int
        Samples in the data set. A record of an epoch that had others says so itself.
    batch_size : int, optional
        Samples in a batch; without it batches are not known.

    Returns
    -------
    dict
        ``epochs`` that are finished and ``pruned_epochs`` among them; ``visits`` that the run trained on and
        ``visits_saved``, with ``visits_saved_percent`` of all; ``visits_by_weight``, those among ``visits`` that were
        left out by weight, which saves none; ``batches_saved``, or None; ``seconds`` of training,
        ``overhead_seconds`` spent in this library, and ``seconds_saved``: for each pruned epoch, the time of an epoch
        on all samples (:func:`seconds_of_whole_epoch`) less its own. None if there is no epoch of the one or of the
        other kind.
    """
    pruned = [record for record in history if record["kept"] < _whole(record, samples)]
    by_weight = [int(record["by_weight"]) for record in history if record.get("by_weight")]
    full = sum(_whole(record, samples) for record in history)
    visits = sum(int(record["kept"]) for record in history)
    batches = None
    if batch_size is not None:
        batches = sum(
            -(-_whole(record, samples) // batch_size) - -(-int(record["kept"]) // batch_size) for record in history
        )
    whole, seconds = seconds_of_whole_epoch(history, samples), None
    if pruned and whole is not None:
        seconds = sum(whole - float(record["seconds"]) for record in pruned)
    return {
        "epochs": len(history),
        "pruned_epochs": len(pruned) + len(by_weight),
        "visits": visits,
        "visits_saved": full - visits,
        "visits_saved_percent": 100 * (full - visits) / full if full else 0.0,
        "visits_by_weight": sum(by_weight),
        "batches_saved": batches,
        "seconds": sum(float(record["seconds"]) for record in history),
        "overhead_seconds": sum(float(record["overhead"]) for record in history),
        "seconds_saved": seconds,
    }


def would_save(history: Sequence[Mapping[str, Any]], samples: int) -> float:
    """Share of the sample visits that pruning would have saved in a run that only observed, from 0 to 1."""
    return sum(int(one.get("would_prune", 0)) for one in history) / max(1, sum(_whole(one, samples) for one in history))


def seconds_of_whole_epoch(history: Sequence[Mapping[str, Any]], samples: int) -> float | None:
    """Median seconds of the epochs on all samples; None without one.

    The run's first epoch is not among them. It warms up, and so takes longer than others.
    """
    whole = [float(record["seconds"]) for record in history[1:] if record["kept"] >= _whole(record, samples)]
    return median(whole) if whole else None


def _whole(record: Mapping[str, Any], samples: int) -> int:
    """Samples of the epoch had it not been pruned; not those left out for good: regular training lacks them, too."""
    return int(record.get("samples", samples)) - int(record.get("without", 0))
