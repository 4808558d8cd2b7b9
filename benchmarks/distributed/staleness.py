"""Does pruning survive staleness? Runs with gradients of old weights, with pruning and without, and their tables."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

from benchmarks.common.commands import add_results, gain, markdown, positive
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on
from prunedata import Schedule
from prunedata.policies import DroppingCount, Random, RunningLoss
from prunedata.policies.protocol import Policy

__all__ = [
    "ARMS",
    "RESULTS",
    "STALENESS",
    "SUBJECTS",
    "StaleRun",
    "StaleSubject",
    "add_staleness",
    "markdown_staleness",
    "runs_to_make",
    "staleness",
]

STALENESS = (0, 1, 3, 7)
"""In versions of the weights: what 1, 2, 4 and 8 workers see that take turns."""
ARMS: dict[str, Policy | None] = {
    "regular": None,
    "dropping-count": DroppingCount(),
    "running-loss": RunningLoss(),
    "random": Random(),
    "fewer-epochs": None,
    "dropping-count-late": DroppingCount(),
    "running-loss-late": RunningLoss(),
}
"""The policy of each arm; None where nothing is pruned. All that prune visit as many samples."""
PRUNE = 0.3
"""Share of the samples that a pruned epoch leaves out, from a sixth of the run on."""


@dataclass(frozen=True)
class StaleSubject:
    """Data, and how they are trained on.

    Attributes
    ----------
    title : str
        As tables call it.
    network : str
        "mlp", or a name of ``benchmarks.common.networks``.
    samples : int or None
        The first so many training images; None for all.
    noises : tuple of float
        Shares of labels made wrong at random.
    staleness : tuple of int
    epochs, batch_size : int
    rate, momentum : float
        Of SGD, the learning rate at the start; a cosine takes it to 0. The same at every staleness.
    """

    title: str
    network: str
    samples: int | None
    noises: tuple[float, ...]
    staleness: tuple[int, ...]
    epochs: int
    batch_size: int
    rate: float
    momentum: float


SUBJECTS = {
    "digits": StaleSubject("digits, MLP", "mlp", None, (0.4, 0.2, 0.0), STALENESS, 40, 32, 0.2, 0.0),
    "digits-slower": StaleSubject(
        "digits, MLP, half the learning rate", "mlp", None, (0.4, 0.2, 0.0), (7,), 40, 32, 0.1, 0.0
    ),
    "cifar10": StaleSubject("CIFAR-10, 5,000 images, LeNet", "lenet", 5000, (0.4, 0.0), (0, 7), 30, 64, 0.1, 0.0),
    "digits-momentum": StaleSubject(
        "digits, LeNet, with momentum", "lenet", None, (0.4, 0.2, 0.0), STALENESS, 40, 32, 0.01, 0.9
    ),
}


@dataclass(frozen=True)
class StaleRun:
    """One run: LeNet on some data, with gradients so many versions old."""

    data: str
    arm: str
    noise: float
    staleness: int
    seed: int

    @property
    def subject(self) -> StaleSubject:
        """The data, and how they are trained on."""
        return SUBJECTS[self.data]

    @property
    def epochs(self) -> int:
        """Epochs trained: with fewer epochs, as many as give the visits of a pruned run."""
        of = self.subject.epochs
        pruned = len(Schedule.steady(of).pruned_epochs)
        return round(of - PRUNE * pruned) if self.arm == "fewer-epochs" else of

    @property
    def schedule(self) -> Schedule:
        """Prunes from a sixth of the run on, or from a third if late."""
        return Schedule.steady(self.epochs, -(-self.epochs // 3) if self.arm.endswith("-late") else None)

    @property
    def prune(self) -> float:
        """Share of the samples that a pruned epoch leaves out: more of them if there are fewer such epochs."""
        usual = len(Schedule.steady(self.epochs).pruned_epochs)
        return round(PRUNE * usual / len(self.schedule.pruned_epochs), 6)

    @property
    def name(self) -> str:
        """Tells this run from every other."""
        return f"{self.data}-wrong{100 * self.noise:g}-stale{self.staleness}-{self.arm}-seed{self.seed}"


def runs_to_make(data: str, seeds: int) -> list[StaleRun]:
    """All runs on some data, seed by seed, what decides most first."""
    subject = SUBJECTS[data]
    order = product(range(seeds), subject.noises, subject.staleness, ARMS)
    return [StaleRun(data, arm, noise, staleness, seed) for seed, noise, staleness, arm in order]


PRUNED = tuple(arm for arm in ARMS if arm != "regular")
Group = dict[str, dict[int, Facts]]
"""The runs of one share of wrong labels and one staleness: by arm and seed."""


def markdown_staleness(results: Sequence[Facts]) -> str:
    """Two tables for each of the data that have runs, in Markdown."""
    parts = []
    for data, subject in SUBJECTS.items():
        runs = [run for run in results if run["kind"] == data]
        if runs:
            about = f"{len(runs)} runs on {_one(runs, 'hardware')}, with torch {runs[0]['versions']['torch']}."
            parts += [f"### {subject.title}", about, _found(runs), _accuracy(runs)]
    return "\n\n".join(parts)


def _found(runs: Sequence[Facts]) -> str:
    rows = []
    for noise, staleness, group in _groups(runs):
        regular = list(group.get("regular", {}).values())
        if not noise or not regular:
            continue
        cells = [[run["found"][when][what] for run in regular] for when in ("watched", "end") for what in SCORES]
        cells += [[run["found"]["end"][what] for run in group.get(arm, {}).values()] for what, arm in SCORES.items()]
        age = mean(run["mean_staleness"] for run in regular)
        rows.append([f"{noise:.0%} wrong", str(staleness), f"{age:.1f}", str(len(regular)), *map(_auc, cells)])
    columns = (
        "AUC", "staleness", "its mean", "seeds", "hits, when pruning begins", "running loss, then",
        "hits, at the end", "running loss, at the end", "hits, pruned by them", "running loss, pruned by it",
    )  # fmt: skip
    return markdown(columns, rows)


SCORES = {"counts": "dropping-count", "running-loss": "running-loss"}
"""What finds wrong labels, and the arm that prunes by it."""


def _accuracy(runs: Sequence[Facts]) -> str:
    rows = []
    for noise, staleness, group in _groups(runs):
        regular = group.get("regular", {})
        if regular:
            right = f"{mean(run['accuracy'] for run in regular.values()):.1f}"
            cells = [_gain(regular, group.get(arm, {})) for arm in PRUNED]
            labels = f"{noise:.0%} wrong" if noise else "clean"
            rows.append([labels, str(staleness), str(len(regular)), right, *cells])
    return markdown(("accuracy, %", "staleness", "seeds", "regular", *(NAMES[arm] for arm in PRUNED)), rows)


NAMES = {
    "dropping-count": "`DroppingCount`", "running-loss": "`RunningLoss`", "random": "at random",
    "fewer-epochs": "fewer epochs", "dropping-count-late": "`DroppingCount`, late",
    "running-loss-late": "`RunningLoss`, late",
}  # fmt: skip


def _groups(runs: Sequence[Facts]) -> Iterator[tuple[float, int, Group]]:
    for noise in sorted({run["noise"] for run in runs}, reverse=True):
        for staleness in sorted({run["staleness"] for run in runs if run["noise"] == noise}):
            group: Group = {}
            for run in runs:
                if (run["noise"], run["staleness"]) == (noise, staleness):
                    group.setdefault(run["arm"], {})[run["seed"]] = run
            yield noise, staleness, group


def _auc(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" if values else ""


def _gain(regular: dict[int, Facts], arm: dict[int, Facts]) -> str:
    """Points over regular training with the same seed: mean, and from the lowest to the highest."""
    return gain([run["accuracy"] - regular[seed]["accuracy"] for seed, run in arm.items() if seed in regular])


def _one(runs: Sequence[Facts], name: str) -> str:
    return ", ".join(sorted({run[name] for run in runs}))


RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""Where the runs are recorded, if nobody says otherwise."""


def add_staleness(parser: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of the command."""
    parser.add_argument("--run", choices=SUBJECTS, help="train what is not recorded of these data; else print tables")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="CIFAR-10's parquet files, for --run cifar10")
    parser.add_argument("--seeds", type=positive, default=3, help="default: %(default)s")
    parser.add_argument("--most", type=positive, help="stop after so many runs")
    add_results(parser, RESULTS)


def staleness(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    recorded = options.results / "staleness"
    if options.run is None:
        print(markdown_staleness(recorded.read()))
        return 0
    import torch  # noqa: PLC0415 (it takes seconds, and tables don't need it)

    from benchmarks.distributed.stale_training import task_of, train_stale  # noqa: PLC0415

    torch.set_num_threads(1)
    done = recorded.names()
    for run in [run for run in runs_to_make(options.run, options.seeds) if run.name not in done][: options.most]:
        facts = train_stale(run, task_of(run, options.images)) | made_on("numpy", "torch", "prunedata", threads=1)
        recorded.add(f"{facts['kind']}/{facts['name']}", facts)
        print(facts["name"], facts["accuracy"], facts["found"], flush=True)
    return 0
