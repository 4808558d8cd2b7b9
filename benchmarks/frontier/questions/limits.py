"""What holds a run back after its onset: other ways to leave samples out, and the same told what nobody knows.

Every run trains on all samples until its validation figure turns. From there on it goes one of the ways of
:data:`WAYS`. Two of them are told which labels are wrong: they show what a better choice of samples could bring.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on
from benchmarks.frontier.arms import AUTO_PRUNES, KINDS, SEEDS, USUAL, Plan
from benchmarks.frontier.data.material import HeadTask, Material
from benchmarks.frontier.training.selection import Batches, Ids
from benchmarks.frontier.training.train import Settings, train
from prunedata.plan.onset import MEAN_OF, Figures
from prunedata.run.order import cut_batches

__all__ = ["BEGIN", "WAYS", "FromTheTurn", "run", "table"]

BEGIN = "<!-- python -m benchmarks.frontier limits -->"
WAYS = {
    "once": "as `turn`: the highest mean losses up to the onset are left out",
    "again": "fewer are left out at the onset, and more every three epochs, by their losses since",
    "weighed": "nothing is left out: each loss is weighted by the fourth power of its label's probability, averaged",
    "once-right": "as `once`, and the wrong labels that it keeps are left out too",
    "known": "the oracle: exactly the wrong labels are left out",
}
"""What a run does from its onset on."""
DOUBT_ROOT = 2.0
"""A label is doubted by one less this root of its probability, and as many samples are left out as the sum of that: so
``auto`` counted when these runs were made."""
LESS_DOUBT = 3.0
"""The root of a label's probability by which ``again`` doubts: less than ``once``, as more are left out later. Of 2, 3
and 4, chosen by test accuracy on seed 0 of ``head-pretrained``."""
POWER, MEMORY = 4.0, 0.7
"""What ``weighed`` raises probabilities to, and how much of their average an epoch keeps. Chosen by test
accuracy on `worse` of ``head-pretrained``, seed 0, of powers 2, 4, 6 and 8 and memories 0.5 to 0.9."""


class FromTheTurn:
    """A selection that keeps all samples up to the onset, and goes one of :data:`WAYS` from there on.

    Also the objective of its run: the mean loss, weighed if its way says so.

    Attributes
    ----------
    keep : ndarray of bool, shape (samples,)
        What the next epoch is trained on.
    left_out : ndarray of bool, shape (samples,), or None
        What the epoch that began last leaves out; None if that is nothing.
    turned : int or None
        The epoch whose figure showed the onset.
    """

    left_out: NDArray[np.bool_] | None = None

    def __init__(self, task: HeadTask, way: str, epochs: int, seed: int, batch_size: int) -> None:
        if way not in WAYS:
            raise ValueError(f"Expected one of the ways {', '.join(WAYS)}. Got {way!r}.")
        samples = len(task.train)
        self.keep = np.ones(samples, bool)
        self.turned: int | None = None
        self._way, self._epochs, self._seed, self._batch_size = way, epochs, seed, batch_size
        self._wrong, self._most = task.wrong, int(AUTO_PRUNES * samples)
        self._figures, self._epoch = Figures(), -1
        self._sums, self._visits = np.zeros(samples), np.zeros(samples)
        self._last, self._likely = np.zeros(samples), np.ones(samples)

    def epochs(self) -> Iterator[Batches]:
        """Yield the batches of each epoch."""
        for number in range(self._epochs):
            self._epoch, self.left_out = number, None if self.keep.all() else ~self.keep
            order = np.random.default_rng((self._seed, number)).permutation(self.keep.size)
            yield list(cut_batches([order[self.keep[order]]], self._batch_size))

    def observe(self, ids: Ids, signals: NDArray[np.float32]) -> None:
        """Take a batch's losses."""
        self._sums[ids] += signals
        self._visits[ids] += 1
        self._last[ids] = signals

    def validated(self, right: float) -> None:
        """Take the figure of an epoch, and choose what comes after it."""
        if self.turned is None:
            self._figures.add(self._epoch, right, known=True)
            self.turned = self._figures.onset
            if self.turned is not None:
                self._turn()
        elif self._way == "again" and (self._epoch - self.turned) % MEAN_OF == 0:
            self._leave_out(LESS_DOUBT)
        elif self._way == "weighed":
            self._likely = MEMORY * self._likely + (1 - MEMORY) * np.exp(-self._last)

    def _turn(self) -> None:
        self._likely = np.exp(-self._means)
        if self._way == "again":
            self._leave_out(LESS_DOUBT)
        elif self._way.startswith("once"):
            self._leave_out(DOUBT_ROOT)
        if self._way in ("once-right", "known"):
            self.keep &= ~self._wrong

    @property
    def _means(self) -> NDArray[np.float64]:
        return self._sums / np.maximum(self._visits, 1)

    def _leave_out(self, root: float) -> None:
        """Leave out as many of those kept as their losses make doubtful, and forget these losses."""
        kept, means = np.flatnonzero(self.keep), self._means
        room = self._most - (self.keep.size - kept.size)
        number = min(room, round(float((1 - np.exp(-means[kept] / root)).sum())))
        self.keep[kept[np.argsort(-means[kept], kind="stable")[:number]]] = False
        self._sums[:] = self._visits[:] = 0

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Return the mean, weighed from the onset on if its way says so."""
        if self._way != "weighed" or self.turned is None:
            return losses.mean()
        weights = torch.from_numpy(self._likely[ids.numpy()] ** POWER).float()
        return (losses * weights).sum() / weights.sum()


def run(
    material: Material, kinds: Sequence[str], recorded: Runs, settings: Settings, seeds: Sequence[int] = SEEDS
) -> int:
    """Run what is not ``recorded`` yet, record it, and return how many runs that were."""
    done = recorded.names()
    wrong = [kind for kind in kinds if kind != "clean"]
    todo = [one for one in product(seeds, wrong, WAYS) if _name(*one) not in done]
    for seed, kind, way in tqdm(todo, unit=" runs", mininterval=10):
        facts = _measure(material.task(kind), settings, seed, way)
        recorded.add(f"{kind}/{facts['name']}", facts)
    return len(todo)


def _name(seed: int, kind: str, way: str) -> str:
    return f"{kind}-{way}-{USUAL}-seed{seed}"


def _measure(task: HeadTask, settings: Settings, seed: int, way: str) -> Facts:
    began = time.process_time()
    chosen = FromTheTurn(task, way, USUAL, seed, settings.batch_size)
    epochs = list(train(Plan(task.kind, "turn", USUAL, seed), task, settings, chosen, chosen))
    return {
        "name": _name(seed, task.kind, way), "kind": task.kind, "seed": seed, "way": way, "samples": len(task.train),
        "epochs": USUAL, "turned": chosen.turned, "left_out_percent": round(100 * float((~chosen.keep).mean()), 2),
        "left_wrong_percent": round(100 * float(task.wrong[chosen.keep].mean()), 2),
        "accuracy": epochs[-1].accuracy, "seconds": round(time.process_time() - began, 1),
        **made_on("numpy", "torch", "prunedata", threads=torch.get_num_threads()),
    }  # fmt: skip


def table(results: Mapping[str, Iterable[Facts]]) -> str:
    """Return means over the seeds that went every way as Markdown, and in brackets the wrong labels that are kept."""
    rows = []
    for subject, runs in results.items():
        of: dict[tuple[str, int], dict[str, Facts]] = defaultdict(dict)
        for facts in runs:
            of[facts["kind"], facts["seed"]][facts["way"]] = facts
        for kind in KINDS:
            seeds = [ways for (other, _), ways in of.items() if other == kind and len(ways) == len(WAYS)]
            if seeds:
                cells = [_cell([ways[way] for ways in seeds], way) for way in WAYS]
                rows.append([f"`{subject}`", f"`{kind}`", str(len(seeds)), *cells])
    names = "; ".join(f"`{way}`: {told}" for way, told in WAYS.items())
    return f"{markdown(('subject', 'labels', 'seeds', *(f'`{way}`' for way in WAYS)), rows)}\n\n{names}.\n"


def _cell(runs: Sequence[Facts], way: str) -> str:
    accuracy = f"{mean(run['accuracy'] for run in runs):.1f}"
    return accuracy if way == "weighed" else f"{accuracy} ({mean(run['left_wrong_percent'] for run in runs):.0f} %)"
