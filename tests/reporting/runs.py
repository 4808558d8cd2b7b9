"""Runs of every kind that a report may be asked for."""

import numpy as np

from prunedata import Pruner, Schedule
from prunedata.policies import LossRanked, Random, RunningLoss
from prunedata.run.group import Group

__all__ = ["HOSTILE", "KINDS", "Sheet", "train"]

SAMPLES = 90
WRONG = np.arange(0, SAMPLES, 9)
"""Whose losses stay high."""
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style><b>&lt;",
    "\u202etxt.exe\u2066 \u200f",
    "nul\x00esc\x1b[31m\x7f\x85",
    "lone \ud800 surrogate",
    "line\u2028and\u2029paragraph",
    "long " * 10_000,
    "W" * 5_000,
    "javascript:alert(1)",
    "{{7*7}} ${7*7}",
)
"""Names and texts as somebody's data may have them."""


def train(pruner, stop=None, observe=True, turn=None):
    """Train on losses that fall, but for those of every ninth sample. A validation figure falls from ``turn`` on."""
    for epoch in pruner.epochs():
        for ids in epoch.batches(32):
            epoch.apply_weights()
            if observe:
                pruner.observe(np.where(np.isin(ids, WRONG), 3.0, 2.0 / (1 + epoch.number) + 0.01 * np.cos(ids)), ids)
        if not observe:
            pruner.skip(epoch.kept)
        if turn is not None:
            pruner.validated(0.5 + 0.02 * min(epoch.number, 2 * turn - epoch.number))
        if epoch.number + 1 == stop:
            break
    pruner.commit()
    return pruner


def steady(place, **options):
    return Pruner(SAMPLES, Schedule.steady(24), prune=0.2, store=place, **options)


def never_begun(place):
    return steady(place)


def random_without_losses(place):
    return train(steady(place, policy=Random()), observe=False)


def watches_only(place):
    return train(steady(place, leave_out="nothing", classes=10))


def finished(place):
    return train(steady(place, policy=RunningLoss(), batch_size=16, classes=10))


def unfinished(place):
    return train(Pruner(SAMPLES, Schedule(30, 10, 3, 3, 2, 2), prune=0.2, store=place), stop=14)


def within_an_epoch(place):
    pruner = train(steady(place), stop=7)
    pruner.observe(np.ones(8), next(pruner.begin_epoch().batches(8)))
    pruner.commit()
    return pruner


def stopped_in_its_first_epoch(place):
    pruner = steady(place)
    pruner.observe(np.ones(8), next(pruner.begin_epoch().batches(8)))
    pruner.commit()
    return pruner


class Rank(Group):
    rank, processes = 0, 2


def one_of_two_ranks(place):
    pruner = steady(place)
    pruner.join(Rank())
    pruner.observe(np.ones(8), next(pruner.begin_epoch().batches(8)))
    pruner.commit()
    return pruner


def by_weight(place):
    return train(steady(place, leave_out="weight", batch_size=16))


def left_out_for_good(place):
    return train(steady(place, without=WRONG[:5], batch_size=16))


def left_out_for_good_by_weight(place):
    return train(steady(place, without=WRONG[:5], leave_out="weight"))


def held_out(place):
    return train(steady(place, policy="auto", holdout=0.2))


def held_out_and_left_out_for_good(place):
    return train(steady(place, holdout=0.2, without=WRONG[:5]), stop=20)


def held_out_before_its_first_figure(place):
    return steady(place, policy="auto", holdout=0.2)


def weighed(place):
    return train(steady(place, policy=LossRanked(), leave_out="weight"))


def auto(place):
    return train(steady(place, policy="auto"), turn=8)


def auto_before_advice(place):
    return train(steady(place, policy="auto"), stop=3, turn=8)


def never_pruned(place):
    return train(steady(place), stop=3)


def all_pruned_but_one(place):
    return train(Pruner(SAMPLES, Schedule(6, 6, 1, 1, 1), prune=0.5, store=place))


def one_epoch(place):
    return train(Pruner(SAMPLES, Schedule(1, 1, 1, 1, 1), prune=0.5, store=place, leave_out="nothing"))


KINDS = {
    one.__name__: one
    for one in (
        never_begun, random_without_losses, watches_only, finished, unfinished, within_an_epoch, auto,
        auto_before_advice, never_pruned, all_pruned_but_one, one_epoch, stopped_in_its_first_epoch, one_of_two_ranks,
        by_weight, left_out_for_good, left_out_for_good_by_weight, held_out, held_out_and_left_out_for_good,
        held_out_before_its_first_figure, weighed,
    )
}  # fmt: skip


class Sheet:
    """A data set of small images or of texts, with class names and keys that mean harm."""

    classes = HOSTILE

    def __init__(self, samples=SAMPLES, texts=False):
        self.targets = np.arange(samples) % len(HOSTILE)
        self.texts = texts

    def __len__(self):
        return self.targets.size

    def __getitem__(self, index):
        label = int(self.targets[index])
        image = np.random.default_rng(index).random((3, 40, 30), dtype=np.float32)
        return {"__key__": HOSTILE[label], "data": HOSTILE[-label] if self.texts else image, "label": label}
