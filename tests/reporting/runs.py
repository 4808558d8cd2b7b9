"""Runs of every kind that a report may be asked for."""

import numpy as np

from prunedata import Pruner, Schedule
from prunedata.policies import LossRanked, Random, RunningLoss
from prunedata.run.group import Group

__all__ = ["HOSTILE", "KINDS", "Saved", "Sheet", "train"]

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


LABELS = np.arange(SAMPLES) % 3


def logits(ids):
    """What the network says: the samples whose losses stay high look like the class after theirs."""
    return np.eye(3)[(LABELS[ids] + np.isin(ids, WRONG)) % 3]


def train(pruner, stop=None, observe=True, turn=None, says=lambda ids: None):
    """Train on losses that fall, but for those of every ninth sample. A validation figure falls from ``turn`` on."""
    for epoch in pruner.epochs():
        for ids in epoch.batches(32):
            epoch.apply_weights()
            if observe:
                high = np.isin(ids, WRONG)
                losses = np.where(high, 3.0, 2.0 / (1 + epoch.number) + 0.01 * np.cos(ids))
                pruner.observe(losses, ids, logits=says(ids))
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


def within_an_epoch(pruner, group=None):
    """Stopped after the first batch of its next epoch, of which each process has its own part."""
    if group is not None:
        pruner.join(group)
    pruner.observe(np.ones(8), next(pruner.begin_epoch().batches(8)))
    pruner.commit()
    return pruner


class Rank(Group):
    rank, processes = 0, 2


KINDS = {
    "never_begun": steady,
    "random_without_losses": lambda at: train(steady(at, policy=Random()), observe=False),
    "watches_only": lambda at: train(steady(at, leave_out="nothing", classes=10)),
    "guesses": lambda at: train(steady(at, leave_out="nothing", labels=LABELS), says=logits),
    "finished": lambda at: train(steady(at, policy=RunningLoss(), batch_size=16, classes=10)),
    "unfinished": lambda at: train(Pruner(SAMPLES, Schedule(30, 10, 3, 3, 2, 2), prune=0.2, store=at), stop=14),
    "within_an_epoch": lambda at: within_an_epoch(train(steady(at), stop=7)),
    "auto": lambda at: train(steady(at, policy="auto"), turn=8),
    "auto_before_advice": lambda at: train(steady(at, policy="auto"), stop=3, turn=8),
    "never_pruned": lambda at: train(steady(at), stop=3),
    "all_pruned_but_one": lambda at: train(Pruner(SAMPLES, Schedule(6, 6, 1, 1, 1), prune=0.5, store=at)),
    "one_epoch": lambda at: train(Pruner(SAMPLES, Schedule(1, 1, 1, 1, 1), prune=0.5, store=at, leave_out="nothing")),
    "stopped_in_its_first_epoch": lambda at: within_an_epoch(steady(at)),
    "one_of_two_ranks": lambda at: within_an_epoch(steady(at), Rank()),
    "by_weight": lambda at: train(steady(at, leave_out="weight", batch_size=16)),
    "left_out_for_good": lambda at: train(steady(at, without=WRONG[:5], batch_size=16)),
    "left_out_for_good_by_weight": lambda at: train(steady(at, without=WRONG[:5], leave_out="weight")),
    "held_out": lambda at: train(steady(at, policy="auto", holdout=0.2)),
    "held_out_and_left_out_for_good": lambda at: train(steady(at, holdout=0.2, without=WRONG[:5]), stop=20),
    "held_out_before_its_first_figure": lambda at: steady(at, policy="auto", holdout=0.2),
    "weighed": lambda at: train(steady(at, policy=LossRanked(), leave_out="weight")),
}
"""What makes a run of each kind, with its store at a path, or without one."""


class Saved:
    """A run that has only its state."""

    def __init__(self, state):
        self._state = state

    def state_dict(self):
        return self._state


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
