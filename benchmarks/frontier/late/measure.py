"""Train a run of the study, and record it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from benchmarks.common.records import Facts
from benchmarks.common.timing import made_on
from benchmarks.frontier.data.material import HeadTask
from benchmarks.frontier.late.class_aware import ClassAware
from benchmarks.frontier.late.rules import RULES, Averages, MovingAverages, Rule, above_median, upper_group
from benchmarks.frontier.late.subjects import SUBJECTS, task_of
from benchmarks.frontier.training.networks import NETWORKS
from benchmarks.frontier.training.policies import RATES
from benchmarks.frontier.training.selection import Batches, ByPruner, Ids
from benchmarks.frontier.training.train import Settings, fit, right, scores_of, trust
from prunedata import Pruner, Schedule
from prunedata.plan.doubts import (
    ONE_GROUP,
    above_own,
    are_being_learned,
    are_many_worse,
    are_settled,
    are_turned,
    are_worse,
    count_doubted,
    have_met,
    is_forgetting,
    is_still_learning,
    is_wide,
    late_from,
    loss_at_first,
    lost_from,
    onset_from,
    two_groups,
)
from prunedata.plan.onset import Figures
from prunedata.run.order import cut_batches

__all__ = ["ARMS", "LateSelection", "measure"]

WEIGHTED = "-weighted"
ARMS = (
    "regular", "short", "oracle", "library", *RULES, "class-aware",
    f"regular{WEIGHTED}", f"onset-labels{WEIGHTED}", "ranks",
)  # fmt: skip
"""Regular training, the same for a third of the epochs, without the wrong labels, the library told a figure, each
rule, and one of others. What was recorded as ``auto`` is the library before it had these rules. With ``-weighted`` each
loss is divided by how frequent its label is. ``ranks`` is regular training for two thirds of the epochs: how well wrong
labels are ranked then, and how many of them look like their right class."""
LOOKS = 3
"""Every so many epochs a run looks at what it leaves out."""
MOST = 0.45
"""Share of the samples that is left out at most."""


class LateSelection:
    """Leaves out, from an epoch of the run on, as many samples as a rule counts, those of the highest averages.

    Every third epoch delivers all samples, and the mean loss, which this object returns when it is called with a batch,
    is that of the samples that are trained on. Without a rule every epoch is trained on the same samples.

    Attributes
    ----------
    keep : ndarray of bool, shape (samples,)
        What the epoch is trained on.
    first : ndarray of bool, shape (samples,), or None
        What was left out at first.
    begins : int
        The epoch from which it leaves out.
    """

    left_out: NDArray[np.bool_] | None = None

    def __init__(
        self,
        keep: NDArray[np.bool_],
        rule: Rule | None,
        epochs: int,
        seed: int,
        batch_size: int,
        labels: NDArray[np.integer] | None = None,
        *,
        weighted: bool = False,
    ) -> None:
        self.keep, self.begins = keep.copy(), epochs if rule is None else late_from(epochs)
        self.first: NDArray[np.bool_] | None = None
        self._apart: list[float] = []
        self._worse: list[float] = []
        self._turned: list[float] = []
        self._before, self._newest = np.zeros(keep.size), np.zeros(keep.size)
        self._within: list[float] = []
        self._noise: list[float] = []
        self._rises: list[NDArray[np.float64]] = []
        self._memorizes = False
        self._labels = labels
        self._weights = np.ones(keep.size, np.float32)
        if weighted and labels is not None:  # the mean weight is 1
            names, of, numbers = np.unique(labels, return_inverse=True, return_counts=True)
            self._weights[:] = keep.size / (names.size * numbers[of])
        self._rule, self._averages, self._figures = rule or Rule(""), MovingAverages(keep.size), Figures()
        self._epochs, self._seed, self._batch_size, self._epoch = epochs, seed, batch_size, 0

    def epochs(self) -> Iterator[Batches]:
        """Yield the batches of each epoch."""
        for number in range(self._epochs):
            self._epoch = number
            if number > 1:  # by a straight line through the epoch, from its first visit to its last
                rises = np.concatenate(self._rises)
                places = (np.arange(rises.size) + 0.5) / rises.size - 0.5
                self._within.append(-12 * float((places * rises).mean()))
                self._noise.append(float(rises.std() * (12 / rises.size) ** 0.5))
            self._rises = []
            if self._rule.onset and onset_from(self._epochs) <= number <= self.begins:
                self._see_onset(number)
            since = number - self.begins
            if since >= 0 and since % LOOKS == 0 and (self._rule.looks or not since):
                self._choose()
            looks = self._rule.looks and since >= 0 and since % LOOKS == LOOKS - 1
            self._before = self._averages.now
            order = np.random.default_rng((self._seed, number)).permutation(self.keep.size)
            yield list(cut_batches([order if looks else order[self.keep[order]]], self._batch_size))

    def observe(self, ids: Ids, signals: NDArray[np.float32]) -> None:
        """Take a batch's losses."""
        self._averages.add(ids, signals, self._epoch)
        self._newest[ids] = signals
        self._rises.append(signals - self._before[ids])

    def validated(self, figure: float) -> None:
        """Take the figure of the epoch."""
        if self._rule.turns and self._epoch < self.begins:
            self._figures.add(self._epoch, figure, known=True)
            self.begins = self.begins if self._figures.onset is None else self._epoch + 1

    def _see_onset(self, number: int) -> None:
        compared, averages = self._compared()
        untaught, groups = loss_at_first(self._averages.means), two_groups(compared, averages)
        self._apart.append(groups.apart)
        met = have_met(self._apart) and not (self._rule.many and self._is_learning())
        soon = self._rule.many and number >= lost_from(self._epochs)
        if soon:
            self._worse.append(are_worse(averages, untaught))
            self._turned.append(are_turned(self._before, self._newest, untaught))
            forgets = is_forgetting(self._within, self._noise, self._averages.means)
            learned = self._is_settled() and (met or forgets or are_being_learned(self._worse))
            self._memorizes = learned and is_wide(groups, self._worse[-1], forgets=forgets)
        many = self._are_many(averages, untaught) and groups.apart < ONE_GROUP
        if self._memorizes or ((met or many) and self._count(compared, averages, untaught)):
            self.begins = number

    def _is_learning(self) -> bool:
        return is_still_learning(self._within, self._averages.means)

    def _is_settled(self) -> bool:
        return are_settled(self._turned) and not self._is_learning()

    def _are_many(self, averages: Averages, untaught: float) -> bool:
        return self._rule.many and self._is_settled() and are_many_worse(averages, untaught)

    def _count(self, compared: Averages, averages: Averages, untaught: float) -> int:
        if self._memorizes or self._figures.onset is not None:
            return upper_group(compared, averages, untaught)
        if not self._are_many(averages, untaught):
            return self._rule.count(compared, averages, untaught)
        return count_doubted(two_groups(compared, averages), untaught=untaught, many=True)

    def _choose(self) -> None:
        compared, averages = self._compared()
        number = self._count(compared, averages, loss_at_first(self._averages.means))
        number = min(number, int(MOST * averages.size))
        self.keep[:] = True
        self.keep[np.argsort(-compared, kind="stable")[:number]] = False
        self.first = ~self.keep if self.first is None else self.first

    def _compared(self) -> tuple[Averages, Averages]:
        """What samples are compared by, and the averages that it was made of."""
        averages, compared = self._averages.now, self._rule.compared
        return averages if compared is None or self._labels is None else compared(averages, self._labels), averages

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Return the mean over the samples of the batch that are trained on."""
        keep, weights = (torch.from_numpy(each[ids.numpy()]) for each in (self.keep, self._weights))
        return (losses * keep * weights).sum() / keep.sum().clamp_min(1)


def measure(name: str, kind: str, arm: str, seed: int, folders: dict[str, Path], slower: int = 1) -> Facts:
    """Train one run, at a rate so many times less, and return its facts. Seconds are the processor's."""
    began, subject = time.process_time(), SUBJECTS[name]
    task = task_of(name, kind, seed, folders)
    epochs = subject.epochs // 3 if arm == "short" else subject.epochs
    torch.manual_seed(seed)
    settings = replace(subject.settings, rate=subject.settings.rate / slower)
    network = NETWORKS[settings.network](task.train.features.shape[1], settings.hidden, task.classes, 0.0)
    if arm == "ranks":
        return _ranked(name, kind, seed, task, network) | made_on("numpy", "torch", "prunedata", threads=1)
    labels = task.train.labels.numpy()
    chosen: LateSelection | ByPruner | ClassAware
    if arm in ("library", "class-aware"):
        ours = arm == "library"
        chosen = _today(task, settings, epochs, seed) if ours else ClassAware(labels, epochs, seed, settings.batch_size)
        steps = fit(network, task.train, chosen, epochs, settings, rate_at=RATES[subject.rates])
    else:
        keep = ~task.wrong if arm == "oracle" else np.ones(len(task.train), bool)
        rule, weighted = RULES.get(arm.removesuffix(WEIGHTED)), arm.endswith(WEIGHTED)
        chosen = LateSelection(keep, rule, epochs, seed, settings.batch_size, labels, weighted=weighted)
        steps = fit(network, task.train, chosen, epochs, settings, chosen, rate_at=RATES[subject.rates])
    curve = []
    for _ in steps:
        curve.append(right(network, task.test))
        chosen.validated(trust(network, task.held_out))
    out = ~chosen.keep if isinstance(chosen, LateSelection) else chosen.left_out
    said = scores_of(network, task.test.features).argmax(1)
    classes = [float((said[task.test.labels == one] == one).float().mean()) for one in range(task.classes)]
    return {
        "subject": name, "kind": kind, "arm": arm, "seed": seed, "epochs": epochs, "samples": len(task.train),
        "wrong": int(task.wrong.sum()), "curve": curve, "classes": [round(100 * each, 1) for each in classes],
        "left_out": _found(out, task.wrong), "seconds": round(time.process_time() - began, 1),
        **({"slower": slower} if slower > 1 else {}),
        **_begin(chosen, task.wrong),
        **made_on("numpy", "torch", "prunedata", threads=torch.get_num_threads()),
    }  # fmt: skip


class _Watching(ByPruner):
    """Regular training that the library watches, with what the network returns: beside each loss its scores."""

    def observe(self, ids: Ids, signals: NDArray[np.float32]) -> None:
        """Take a batch's losses and scores."""
        self.pruner.observe(signals[:, 0].copy(), ids, logits=signals[:, 1:])


def _ranked(name: str, kind: str, seed: int, task: HeadTask, network: nn.Module) -> Facts:
    """How well wrong labels are ranked when a run begins late, and how often the network's guess is right."""
    subject, labels = SUBJECTS[name], task.train.labels.numpy()
    pruner = Pruner(len(task.train), epochs=subject.epochs, leave_out="nothing", seed=seed, labels=labels)
    steps = fit(
        network, task.train, _Watching(pruner, subject.settings.batch_size), subject.epochs, subject.settings,
        signal=lambda losses, scores, labels: torch.cat([losses[:, None], scores], 1), rate_at=RATES[subject.rates],
    )  # fmt: skip
    for _ in islice(steps, late_from(subject.epochs)):
        pass
    known = pruner.arrays
    numbers = {
        "mean of all": known["mean_excess"],
        "recent": known["recent"],
        "lowest tenth": above_own(known["recent"], labels),
        "median": above_median(known["recent"], labels),
    }
    auc = {by: round(float(roc_auc_score(task.wrong, given)), 4) for by, given in numbers.items()}
    right = float((known["guess"] == task.truth)[task.wrong].mean())
    return {
        "subject": name, "kind": kind, "arm": "ranks", "seed": seed, "epochs": subject.epochs, "auc": auc,
        "guess": round(right, 4),
    }  # fmt: skip


def _begin(chosen: LateSelection | ByPruner | ClassAware, wrong: NDArray[np.bool_]) -> Facts:
    """From which epoch on it leaves out, and what at first."""
    if isinstance(chosen, LateSelection):
        return {"begins": chosen.begins, "first": _found(chosen.first, wrong)}
    if isinstance(chosen, ClassAware):
        return {"begins": 0}
    turned = chosen.pruner.advice.onset
    return {"begins": None if turned is None else turned + 1}


def _found(out: NDArray[np.bool_] | None, wrong: NDArray[np.bool_]) -> list[int]:
    """How many samples are left out, and how many of these have a wrong label."""
    return [0, 0] if out is None else [int(out.sum()), int((out & wrong).sum())]


def _today(task: HeadTask, settings: Settings, epochs: int, seed: int) -> ByPruner:
    pruner = Pruner(
        len(task.train), Schedule.steady(epochs), prune=MOST, policy="auto", seed=seed, batch_size=settings.batch_size
    )
    return ByPruner(pruner, settings.batch_size)
