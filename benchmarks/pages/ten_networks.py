"""The paper's Table 1 for its ten networks: predicted and measured saving of time, on a CPU.

    python -m benchmarks.pages.ten_networks run --data FOLDER     some minutes a network; goes on where it was stopped
    python -m benchmarks.pages.ten_networks table                 the table of docs/evidence/results.md

A few images are enough, as only time is measured. An epoch on all of them, without this library, and a pruned epoch
take turns. Seconds are the processor's. What a pruned epoch saves is then put to the run of the paper: 200 epochs, of
which Algorithm 2 as printed prunes 142, each by a fifth of the samples.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.common.commands import add_images, markdown, program
from benchmarks.common.networks import NETWORKS
from benchmarks.common.timing import made_on
from benchmarks.pages.accuracy import PAPER
from benchmarks.pages.overlap import RESULTS
from benchmarks.study.data import StudyData, study_data
from benchmarks.study.recipe import Recipe
from benchmarks.study.training_step import Images, Trainer
from prunedata import Pruner, Schedule

__all__ = ["RECORDED", "main", "measure", "row", "table"]

RECORDED = RESULTS / "ten-networks"
"""A run for each network."""
SAMPLES, BATCH, PRUNE = 160, 16, "20%"
"""Ten batches, of which a pruned epoch leaves out two; quick networks get a multiple of them."""
LONG = 3.0
"""Seconds that an epoch should take, so that what else happens doesn't count."""
FEWEST, MOST = 3, 15
"""Turns of a network."""
RUN = Schedule(200, 60, 20, 5, 4, 2, "printed")
"""The run whose predicted saving, 14.2 %, is the highest of the paper's Table 1."""


def measure(network: str, data: Path | None, seconds: float, long: float = LONG) -> dict[str, Any]:
    """Time a network's epochs for about so many seconds, and return the facts."""
    given, trainer, images = _made(network, data, SAMPLES)
    _regular(trainer, images)
    samples = SAMPLES * min(50, max(1, round(long / _regular(trainer, images))))
    given, trainer, images = _made(network, data, samples)
    samples = len(images)
    pruner = Pruner(samples, Schedule(MOST + 1, MOST + 1, 1, 1, 1), prune=PRUNE, batch_size=BATCH)
    _pruned(trainer, images, pruner)  # the first epoch warms up, and prunes nothing
    regular: list[float] = []
    pruned: list[float] = []
    while len(regular) < FEWEST or (len(regular) < MOST and sum(regular) + sum(pruned) < seconds):
        regular.append(_regular(trainer, images))
        pruned.append(_pruned(trainer, images, pruner))
    return {
        "network": network, "data": given.name, "samples": samples, "batch_size": BATCH,
        "kept": pruner.history[-1]["kept"], "regular": regular, "pruned": pruned,
        "overhead": [record["overhead"] for record in pruner.history[1:]],
        **made_on("torch", "prunedata", threads=1),
    }  # fmt: skip


def _made(network: str, data: Path | None, samples: int) -> tuple[StudyData, Trainer, Images]:
    recipe, device = Recipe(network=network, samples=samples, batch_size=BATCH), torch.device("cpu")
    given = study_data(recipe, data)
    images = Images(given.train, device)
    return given, Trainer(recipe, images, given.classes), images


def _regular(trainer: Trainer, images: Images) -> float:
    """Seconds of an epoch without this library."""
    began = trainer.clock()
    trainer.begin_epoch(0)
    for ids in torch.randperm(len(images)).split(BATCH):
        trainer.step(ids)
    return trainer.clock() - began


def _pruned(trainer: Trainer, images: Images, pruner: Pruner) -> float:
    """Seconds of the pruner's next epoch."""
    began = trainer.clock()
    epoch = pruner.begin_epoch()
    trainer.begin_epoch(epoch.number)
    for ids in epoch.batches(BATCH):
        losses = trainer.step(torch.from_numpy(np.array(ids)))
        pruner.observe(losses.numpy(), ids)
    pruner.end_epoch()
    return trainer.clock() - began


def row(facts: Mapping[str, Any]) -> dict[str, Any]:
    """One network's figures: medians of its turns, and what they come to in the paper's run, in percent."""
    size, share = facts["batch_size"], len(RUN.pruned_epochs) / RUN.epochs
    predicted = 1 - -(-facts["kept"] // size) / -(-facts["samples"] // size)
    saved = [1 - few / all_ for all_, few in zip(facts["regular"], facts["pruned"], strict=True)]
    return {
        "network": facts["network"], "turns": len(saved),
        "regular_seconds": median(facts["regular"]), "pruned_seconds": median(facts["pruned"]),
        "overhead_seconds": median(facts["overhead"]),
        "lowest_percent": 100 * min(saved), "epoch_percent": 100 * median(saved), "highest_percent": 100 * max(saved),
        "predicted_percent": 100 * predicted * share, "measured_percent": 100 * median(saved) * share,
        "paper_percent": PAPER[facts["network"]][0],
    }  # fmt: skip


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """The figures of all networks as Markdown, in the paper's order."""
    rows = sorted(map(row, results), key=lambda one: NETWORKS.index(one["network"]))
    columns = (
        "network", "turns", "epoch on all", "pruned epoch", "overhead of an epoch", "a pruned epoch saves",
        "the run saves, predicted", "measured", "the paper",
    )  # fmt: skip
    return markdown(columns, map(_cells, rows))


def _cells(one: Mapping[str, Any]) -> list[str]:
    return [
        f"`{one['network']}`", str(one["turns"]), f"{one['regular_seconds']:.2f} s", f"{one['pruned_seconds']:.2f} s",
        f"{1000 * one['overhead_seconds']:.1f} ms",
        f"{one['epoch_percent']:.1f} % ({one['lowest_percent']:.1f} to {one['highest_percent']:.1f})",
        f"{one['predicted_percent']:.1f} %", f"{one['measured_percent']:.1f} %", f"{one['paper_percent']:.2f} %",
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.pages.ten_networks", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("table", help="print the table")
    run = commands.add_parser("run", help="measure the networks that have not been")
    add = run.add_argument
    add_images(run)
    add("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, help="default: all ten")
    add("--seconds", type=float, default=240.0, help="about so many for each network; default: %(default)s")
    given = parser.parse_args(arguments)
    if given.command == "table":
        print(table(RECORDED.read()))
        return 0
    torch.set_num_threads(1)
    done = RECORDED.names()
    for network in tqdm([name for name in given.networks if name not in done], unit=" networks"):
        RECORDED.add(network, measure(network, given.data, given.seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
