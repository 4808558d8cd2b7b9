"""The runs that were written by an earlier commit: what they were given, and the losses that they were fed."""

import warnings

from prunedata import DroppingCount, LossRanked, Pruner, RunningLoss, Schedule

SAMPLES = 97
SHORT = Schedule(12, window=4, start=1, block=2, pruned_per_block=1)
RUNS = {
    "dropping-count": {"schedule": SHORT, "prune": 0.3},
    "rewindowed": {"schedule": SHORT, "prune": 0.3, "policy": DroppingCount(0.1, "run"), "seed": 5},
    "running-loss": {"schedule": SHORT, "prune": 0.3, "policy": RunningLoss(0.5), "classes": 10},
    "loss-ranked": {"schedule": SHORT, "prune": 0.3, "policy": LossRanked(), "batch_size": 16},
    "auto": {"schedule": Schedule(60, 60, 20, 5, 4), "prune": 0.5, "policy": "auto", "classes": 10},
}
STOPS = {name: 12 if name == "auto" else 5 for name in RUNS}
"""The epochs after which they were stopped; and once more within the next."""


def make(name, **more):
    given = {**RUNS[name], **more}
    return Pruner(SAMPLES, given.pop("schedule"), **given)


def losses(ids, epoch):
    """Exact on every machine. Those of the first 30 samples stay above a blind guess."""
    return (ids * 37 + epoch * 11) % 64 / 64 + 3.0 * (ids < 30)


def train(run, name, epochs, batches=None):
    """Train so many epochs, the last one for so many batches; return (number, keep, weights) of each."""
    seen = []
    for left in reversed(range(epochs)):
        epoch = run.begin_epoch()
        seen.append((epoch.number, epoch.keep.copy(), epoch.weights))
        for ids in list(epoch.batches(16))[: None if left else batches]:
            run.observe(ids, losses(ids, epoch.number))
        if left or batches is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                run.end_epoch()
        if name == "rewindowed" and epoch.number == 1:
            run.rewindow(3)
    return seen


def outcome(run):
    """Where it stands, as arrays by name."""
    return {"counts": run.counts, "hits": run.hits, "visits": run.visits, **run.arrays}
