"""Whether to record mixup, where a loss has two owners: for both, or not at all.

    python -m benchmarks.frontier.questions.mixed                      some minutes; prints a table

The convolutional network on digits, 40 % of whose labels are wrong at random, is trained for 30 epochs. From epoch 10
on, 40 % are left out by weight, by their mean excess until then. Batches are mixed as in timm: each row with another of
its batch, by one share from Beta(1, 1), in every batch or in every second, by chance. Recorded is

- ``both``: for both owners, the loss by the owner's own label, weighed by its share;
- ``joint``: for both owners, the one loss that is trained on, weighed by their shares;
- ``first``: for the first owner alone, the one loss, which it also decides the weight of, as ``observe`` has it when
  nothing of it is changed;
- ``plain``: what is not mixed, and nothing else.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.commands import markdown, program
from benchmarks.frontier.data.material import HeadTask
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.training.networks import NETWORKS
from benchmarks.frontier.training.policies import RATES
from benchmarks.frontier.training.train import Settings, right

__all__ = ["WAYS", "main", "measure"]

WAYS = (
    (0.0, "plain"), (0.5, "both"), (0.5, "joint"), (0.5, "first"), (0.5, "plain"),
    (1.0, "both"), (1.0, "joint"), (1.0, "first"),
)  # fmt: skip
"""How many of the batches are mixed, and what is recorded."""
EPOCHS, WATCHED, SHARE = 30, 10, 0.4
"""Epochs of a run, those before it leaves out, and what share it leaves out then."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.frontier.questions.mixed", __doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--cache", type=Path, default=Path("frontier-conv-digits.npz"), help="default: %(default)s")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    subject = SUBJECTS["conv-digits"]
    task = subject.load(Path(), None, options.cache).task("random40")
    rows = []
    for mixed, recorded in WAYS:
        found = [measure(task, subject.settings, mixed, recorded, seed) for seed in options.seeds]
        alone = [measure(task, subject.settings, mixed, recorded, seed, share=0.0)[2] for seed in options.seeds]
        cells = [_spread(values, digits) for values, digits in zip(zip(*found, strict=True), (3, 1, 1), strict=True)]
        rows.append([f"{mixed:.0%}", f"`{recorded}`", *cells, _spread(alone, 1)])
    print(markdown(["mixed", "recorded", "AUC", "wrong of left out, %", "accuracy", "nothing left out"], rows))
    return 0


def measure(
    task: HeadTask, settings: Settings, mixed: float, recorded: str, seed: int, share: float = SHARE
) -> tuple[float, float, float]:
    """Train once. Return the AUC of what was recorded, the percentage of wrong labels left out, and the accuracy."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    features, labels, samples = task.train.features, task.train.labels, len(task.train)
    network = NETWORKS[settings.network](features.shape[1], settings.hidden, task.classes, 0.0)
    step = torch.optim.SGD(
        network.parameters(), settings.rate, settings.momentum, weight_decay=settings.weight_decay, nesterov=True
    )
    weights, sums, seen = torch.ones(samples), np.zeros(samples), np.zeros(samples)
    auc, wrong = 0.0, 0.0
    for epoch in range(EPOCHS):
        if epoch == WATCHED:
            excess = sums / np.maximum(seen, 1e-9)
            auc = float(roc_auc_score(task.wrong, excess))
            left_out = np.argsort(-excess)[: round(share * samples)]
            wrong = 100 * float(task.wrong[left_out].mean()) if share else 0.0
            weights[left_out] = 0
        network.train()
        for at, ids in enumerate(np.array_split(random.permutation(samples), -(-samples // settings.batch_size))):
            progress = (epoch + at / (samples / settings.batch_size)) / EPOCHS
            step.param_groups[0]["lr"] = settings.rate * RATES["cosine"](min(1.0, progress))
            mixes = random.random() < mixed
            kept = float(random.beta(1, 1)) if mixes else 1.0
            other = random.permutation(ids) if mixes else ids
            one, two = torch.from_numpy(ids), torch.from_numpy(other)
            scores = network(kept * features[one].float() + (1 - kept) * features[two].float())
            firsts, seconds = (F.cross_entropy(scores, labels[which], reduction="none") for which in (one, two))
            shares = kept * weights[one], (1 - kept) * weights[one if recorded == "first" else two]
            step.zero_grad()
            (
                (shares[0] * firsts + shares[1] * seconds).sum() / (shares[0] + shares[1]).sum().clamp(min=1e-6)
            ).backward()
            step.step()
            if recorded != "plain" or not mixes:
                joint = kept * firsts + (1 - kept) * seconds
                if recorded in ("joint", "first"):
                    firsts = seconds = joint
                part = 1.0 if recorded == "first" else kept
                _record(sums, seen, ids, firsts, part)
                _record(sums, seen, other, seconds, 1 - part)
    return auc, wrong, right(network, task.test)


def _record(
    sums: NDArray[np.float64], seen: NDArray[np.float64], ids: NDArray[np.int64], losses: Tensor, part: float
) -> None:
    """Add up how far losses lie above their batch's mean, and by what share. A batch has each owner once."""
    sums[ids] += part * (losses - losses.mean()).detach().numpy()
    seen[ids] += part


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    raise SystemExit(main())
