"""What losses show of wrong labels after one, two and three epochs, and by which figure to rank then.

    python -m benchmarks.frontier.questions.early run --texts FOLDER --cifar FOLDER --labels NPZ --traces FOLDER
    python -m benchmarks.frontier.questions.early table [--page docs/tools/watch.md]
    python -m benchmarks.frontier.questions.early texts [--page docs/bad-data.md]

Only what a folder is given for is run, and nothing that is recorded. ``--texts`` has the eight files of texts, see
:mod:`benchmarks.frontier.data.texts`; ``--traces`` has the recorded losses of a deep network. Three seeds take an hour
and a half of one core, most of it for MiniLM.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.common.commands import add_results, markdown, program, show
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on
from benchmarks.frontier.data.material import HeadTask
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.suspects import new_network, unseen
from benchmarks.frontier.training.selection import Batches, Ids, Unpruned
from benchmarks.frontier.training.train import Settings, fit, scores_of
from benchmarks.pages.wrong_labels import auc, by_cleanlab, precision_at

__all__ = ["BEGIN", "LENGTHS", "RANKED", "RESULTS", "Watching", "main", "measure", "of_trace", "table", "texts"]

BEGIN = "<!-- python -m benchmarks.frontier.questions.early {} -->"
"""Above a table of a page, by the command that prints it."""
RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
CACHES = Path(__file__).parents[1] / "checkpoints"
LENGTHS = (1, 2, 3)
"""Epochs after which suspects are ranked. The last is a run's length; a run of one epoch is made too."""
FIRST = 50
"""As many are looked at."""
PLACES = {"minilm-texts": "texts", "head-texts": "texts", "head": "cifar", "conv-cifar10": "cifar"}
"""Subjects, and which folder each is made from."""
SHOWN = {
    "minilm-texts": ("random20",), "head-texts": ("worse", "random20"), "head": ("worse", "random20"),
    "conv-cifar10": ("worse", "random20"),
}  # fmt: skip
MEAN, LAST, COUNTS, AFTER = "mean excess", "excess of the last epoch", "hits over visits", "one pass more"
RANKED = (MEAN, LAST, COUNTS, AFTER)
"""Ways to rank: the first is what ``prunedata suspects`` ranks by, the last looks at all samples after the epoch."""
UNSEEN = "cleanlab, cross-validated"


class Watching(Unpruned):
    """All samples, in the order of :class:`Unpruned`; how far above its batch's mean each loss was, by epoch."""

    def __init__(self, seed: int, epochs: int, samples: int, batch_size: int) -> None:
        super().__init__(seed, epochs, samples, batch_size)
        self.excess: list[NDArray[np.float64]] = []

    def epochs(self) -> Iterator[Batches]:
        """Yield the batches of each epoch."""
        for batches in super().epochs():
            self.excess.append(np.zeros(self._samples))
            yield batches

    def observe(self, ids: Ids, signals: NDArray[np.float32]) -> None:
        """Take a batch's losses."""
        self.excess[-1][ids] = signals - signals.mean()


def measure(task: HeadTask, settings: Settings, seed: int, epochs: int) -> Facts:
    """Train for so many epochs, and rank after each."""
    torch.manual_seed(seed)
    network = new_network(task, settings)
    watching = Watching(seed, epochs, len(task.train), settings.batch_size)
    found = []
    for _ in fit(network, task.train, watching, epochs, settings):
        found.append({name: _found(scores, task.wrong) for name, scores in _ranked(watching.excess).items()})
        found[-1][AFTER] = _found(_losses(network, task), task.wrong)
    return _facts(task, seed, epochs, found)


def by_folds(task: HeadTask, settings: Settings, seed: int, epochs: int) -> Facts:
    """As cleanlab asks for: networks trained on the other folds for as many epochs."""
    torch.manual_seed(seed)
    scores = by_cleanlab(task.train.labels.numpy(), unseen(task, settings, seed, epochs))
    return _facts(task, seed, epochs, [{UNSEEN: _found(scores, task.wrong)}])


def of_trace(losses: NDArray[np.floating], wrong: NDArray[np.bool_]) -> list[Facts]:
    """Rank by recorded losses, shape (epochs, samples), after each epoch: above the mean of all, not of a batch."""
    excess = [each.astype(np.float64) - float(each.mean(dtype=np.float64)) for each in losses]
    return [
        {name: _found(scores, wrong) for name, scores in _ranked(excess[:number]).items()}
        for number in range(1, len(excess) + 1)
    ]


def _ranked(excess: Sequence[NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {MEAN: np.mean(excess, 0), LAST: excess[-1], COUNTS: np.mean([each > 0 for each in excess], 0)}


@torch.no_grad()
def _losses(network: nn.Module, task: HeadTask) -> NDArray[np.float64]:
    scores = scores_of(network, task.train.features).float()
    return F.cross_entropy(scores, task.train.labels, reduction="none").double().numpy()


def _found(scores: NDArray[np.float64], wrong: NDArray[np.bool_]) -> Facts:
    ties = np.random.default_rng(0).random(scores.size)  # counts tie
    first = np.lexsort((ties, -scores))[:FIRST]
    return {
        "auc": round(auc(scores, wrong) or 0.0, 4),
        "first": round(float(wrong[first].mean()), 4),
        "tenth": round(precision_at(scores, wrong, wrong.size // 10), 4),
    }


def _facts(task: HeadTask, seed: int, epochs: int, found: list[Facts]) -> Facts:
    return {
        "kind": task.kind, "seed": seed, "samples": len(task.train), "epochs": epochs,
        "wrong_percent": round(100 * float(task.wrong.mean()), 2), "found": found,
        **made_on("numpy", "torch", "prunedata", threads=torch.get_num_threads()),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.frontier.questions.early", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run what is not recorded yet")
    add_results(run, RESULTS)
    for name, what in (
        ("texts", "texts that people rated"), ("cifar", "CIFAR-10"), ("traces", "recorded losses of a deep network"),
    ):  # fmt: skip
        run.add_argument(f"--{name}", type=Path, metavar="FOLDER", help=f"files of {what}")
    run.add_argument("--labels", type=Path, metavar="NPZ", help="CIFAR-10N's labels, in the order of CIFAR-10's rows")
    run.add_argument("--subjects", nargs="+", choices=PLACES, default=list(PLACES), help="default: all")
    run.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    run.set_defaults(do=_run)
    for name, text_of in (("table", table), ("texts", texts)):
        command = commands.add_parser(name, help=(text_of.__doc__ or "").partition(".")[0])
        add_results(command, RESULTS)
        command.add_argument("--page", type=Path, metavar="MD", help="write between the markers of this page instead")
        command.set_defaults(do=partial(_print, name, text_of))
    given = parser.parse_args(arguments)
    status: int = given.do(given)
    return status


def _run(given: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    if given.traces is not None:
        with np.load(given.traces / "trace-resnet18-worse.npz") as file:
            losses, wrong = file["losses"][: max(LENGTHS)], file["wrong"]
        facts = {"kind": "worse", "seed": 0, "samples": wrong.size, "epochs": 30, "found": of_trace(losses, wrong)}
        given.results.add("resnet18/worse/3-seed0", facts | {"wrong_percent": round(100 * float(wrong.mean()), 2)})
    for seed, (subject, source) in tqdm(list(product(given.seeds, PLACES.items())), mininterval=10):
        folder, of = vars(given)[source], SUBJECTS[subject]
        if folder is None or subject not in given.subjects:
            continue
        material = of.load(folder, given.labels, CACHES / f"frontier-{subject}.npz")
        ways = {f"{max(LENGTHS)}": partial(measure, epochs=max(LENGTHS))}
        if subject == "minilm-texts":
            ways |= {"1": partial(measure, epochs=1), "folds": partial(by_folds, epochs=max(LENGTHS))}
        for kind, way in product(SHOWN[subject], ways):
            place, name = given.results / subject / kind, f"{way}-seed{seed}"
            if name not in place.names():
                place.add(name, ways[way](material.task(kind), of.settings, seed))
    return 0


def _print(name: str, text_of: Callable[[Runs], str], given: argparse.Namespace) -> int:
    return show(text_of(given.results), BEGIN.format(name), given.page)


def table(results: Runs) -> str:
    """Print how well labels are ranked after each epoch."""
    rows = []
    for subject in ("minilm-texts", "head-texts", "head", "conv-cifar10", "resnet18"):
        of: dict[str, list[Facts]] = defaultdict(list)
        for run in (results / subject).read():
            if len(run["found"]) == max(LENGTHS):
                of[run["kind"]].append(run)
        for kind, runs in of.items():
            for way in RANKED:
                if way in runs[0]["found"][0]:
                    cells = [f"{mean(run['found'][epoch - 1][way]['auc'] for run in runs):.3f}" for epoch in LENGTHS]
                    wrong = f"{runs[0]['wrong_percent']:.0f} %"
                    rows.append([f"`{subject}`", f"`{kind}`", wrong, str(len(runs)), way, *cells])
    heads = ("subject", "labels", "wrong", "seeds", "ranked by", *(f"after {epoch}" for epoch in LENGTHS))
    return markdown(heads, rows) + "\n"


def texts(results: Runs) -> str:
    """Print the share that is wrong among the first, of texts."""
    rows = []
    for way, ranked, told in (
        ("1", MEAN, "one epoch, watched"), ("1", AFTER, "one epoch, and a pass more over all texts"),
        ("3", MEAN, "three epochs, watched"), ("folds", UNSEEN, "cleanlab, three folds of three epochs"),
    ):  # fmt: skip
        runs = [run for run in (results / "minilm-texts" / "random20").read() if _way(run) == way]
        last = [run["found"][-1][ranked] for run in runs]
        epochs = {"1": "1", "3": "3", "folds": "6"}[way]
        figures = [_figure([one[name] for one in last]) for name in ("first", "auc")]
        rows.append([told, epochs, str(len(runs)), *figures])
    return markdown(("", "epochs trained", "seeds", f"wrong of the first {FIRST}", "AUC"), rows) + "\n"


def _way(run: Facts) -> str:
    return "folds" if UNSEEN in run["found"][0] else str(run["epochs"])


def _figure(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else ""


if __name__ == "__main__":
    raise SystemExit(main())
