"""Whether a row of a fold is judged better by the networks that trained on it, or by the one that did not.

    python -m benchmarks.frontier.questions.folds                      a few minutes; prints a table

scikit-learn's digits, a fifth of whose labels are wrong at random. A network is trained on four of five folds, five
times, and one on all. A row is then ranked

- by the run on all: its mean excess, as ``prunedata suspects`` ranks;
- by the four that trained on it, joined as ``prunedata suspects fold-0.zarr fold-1.zarr ...`` joins them;
- by the one that did not: the mean over its epochs of the loss that it has for the row, or cleanlab's label quality at
  its end;
- by all five: the four's ranks and that of its loss in the fifth.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch.nn import functional as F

from benchmarks.common.commands import markdown, program
from benchmarks.pages.wrong_labels import auc, by_cleanlab
from prunedata import Pruner
from prunedata.findings.compare import average_ranks, joined_table
from prunedata.findings.searched import state_of
from prunedata.keys import hash_keys, key_text
from prunedata.store.state import RunState

__all__ = ["main", "measure"]

Floats = NDArray[np.float64]
FOLDS, WRONG, RATE = 5, 0.2, 0.1
NETWORKS = ((0, 15), (64, 15), (256, 40))
"""Hidden units, and epochs."""
WAYS = ("one run on all", "the four, joined", "the fifth: its losses", "the fifth: cleanlab", "all five")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.frontier.questions.folds", __doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for hidden, epochs in NETWORKS:
        found = [measure(hidden, epochs, seed) for seed in options.seeds]
        rows.append([str(hidden or "none"), str(epochs), *(f"{mean(one[way] for one in found):.4f}" for way in WAYS)])
    print(markdown(["hidden units", "epochs", *WAYS], rows))
    return 0


def measure(hidden: int, epochs: int, seed: int) -> dict[str, float]:
    """Return the AUC of each way to rank, for one draw of wrong labels."""
    images, labels = load_digits(return_X_y=True)
    samples, random = len(labels), np.random.default_rng(seed)
    wrong = random.permutation(samples)[: round(WRONG * samples)]
    labels[wrong] = (labels[wrong] + random.integers(1, 10, wrong.size)) % 10
    features, targets = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    fold, losses, probabilities, runs = np.arange(samples) % FOLDS, np.zeros(samples), np.zeros((samples, 10)), []
    for number in range(FOLDS):
        rows, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        run, losses[held], probabilities[held] = _train(features, targets, rows, held, hidden, epochs, seed + number)
        runs.append(run)
    whole, _, _ = _train(features, targets, np.arange(samples), np.arange(0), hidden, epochs, seed)
    joined = _joined(runs, samples)
    ranks = np.empty(samples)
    for number in range(FOLDS):
        held = fold == number
        ranks[held] = (average_ranks(losses[held]) - 0.5) / np.count_nonzero(held)
    scores = (
        whole.mean_excess, joined, losses, by_cleanlab(labels, probabilities), ((FOLDS - 1) * joined + ranks) / FOLDS,
    )  # fmt: skip
    is_wrong = np.isin(np.arange(samples), wrong)
    found = [auc(np.asarray(score, dtype=np.float64), is_wrong) for score in scores]
    return {way: float(one or 0.0) for way, one in zip(WAYS, found, strict=True)}


def _train(
    features: torch.Tensor, labels: torch.Tensor, rows: NDArray[np.int64], held: NDArray[np.int64], hidden: int,
    epochs: int, seed: int,
) -> tuple[RunState, Floats, Floats]:  # fmt: skip
    """Return a run on some rows; and for the others the mean of their losses, and the probabilities at its end."""
    torch.manual_seed(seed)
    first, *more = [torch.nn.Linear(one, other) for one, other in pairwise((64, hidden, 10) if hidden else (64, 10))]
    model = torch.nn.Sequential(first, *(part for layer in more for part in (torch.nn.ReLU(), layer)))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    run = Pruner(epochs=epochs, keys=rows, seed=seed, leave_out="nothing")
    unseen, scores = np.zeros(held.size), torch.zeros(held.size, 10)
    for epoch in run.epochs():
        for ids in epoch.batches(64):
            losses = F.cross_entropy(model(features[rows[ids]]), labels[rows[ids]], reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            run.observe(losses.detach().numpy(), ids)
        with torch.no_grad():
            scores = model(features[held])
            unseen += F.cross_entropy(scores, labels[held], reduction="none").numpy() / epochs
    return state_of(run), unseen, scores.double().softmax(1).numpy()


def _joined(runs: Sequence[RunState], samples: int) -> Floats:
    """Return each row's score in the joined list."""
    table = joined_table(runs, samples)
    row_of = {key_text(int(key)): row for row, key in enumerate(hash_keys(range(samples)))}
    scores = np.zeros(samples)
    scores[[row_of[key] for key in table["key"].tolist()]] = table["score"]
    return scores


if __name__ == "__main__":
    raise SystemExit(main())
