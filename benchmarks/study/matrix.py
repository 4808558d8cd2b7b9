"""The matrix of runs behind the tables.

Stopped at any time, it goes on with the runs that have no result yet.

python -m benchmarks.study.matrix --data FOLDER --infobatch CHECKOUT --jobs 2
python -m benchmarks.study.matrix --data FOLDER --labels NPZ --parts 1
python -m benchmarks.study.matrix --data FOLDER --infobatch CHECKOUT --jobs 2 --samples 50000 --epochs 60 --parts 2
python -m benchmarks.study.matrix --jobs 2
python -m benchmarks.study.matrix --jobs 2 --network wrn10 --widen 1 --parts 2
"""

import argparse
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from tqdm import tqdm

from benchmarks.common.commands import add_images, add_results, program
from benchmarks.common.records import Runs
from benchmarks.study.arm import Group
from benchmarks.study.arms import ARMS
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.results import RESULTS
from benchmarks.study.train import Options, train

__all__ = ["main", "recipes"]

SEEDS = (0, 1, 2)
TRACED = 32
"""Samples whose losses are kept epoch by epoch where arrays are written."""
Part = tuple[LabelNoise, float, tuple[Group, ...]]
CLEAN, RANDOM20, RANDOM40 = LabelNoise(), LabelNoise("random", 0.2), LabelNoise("random", 0.4)
CONFUSABLE = LabelNoise("confusable", 0.2)
PARTS: tuple[Part, ...] = (
    # What decides most comes first, and every seed of it before the next: a matrix that was stopped can be read.
    (RANDOM40, 0.34, ("late",)),
    (CLEAN, 0.25, ("paper",)),
    (RANDOM20, 0.25, ("paper",)),
    (CONFUSABLE, 0.25, ("paper",)),
    (RANDOM40, 0.25, ("paper",)),
    *((noise, saving, ("paper",)) for noise in (CLEAN, RANDOM20, RANDOM40, CONFUSABLE) for saving in (0.14, 0.40)),
    (RANDOM40, 0.34, ("beside late",)),
    *((noise, 0.25, ("others",)) for noise in (RANDOM20, RANDOM40, CONFUSABLE, CLEAN)),
    (RANDOM40, 0.34, ("others late",)),
    (RANDOM40, 0.34, ("tried",)),
    (RANDOM20, 0.25, ("tried more",)),
    (CLEAN, 0.25, ("tried more",)),
)
"""Kinds of labels, savings, and the groups of arms that are run there; an arm names its groups itself."""
PEOPLES: tuple[Part, ...] = (
    (LabelNoise("worse"), 0.34, ("late",)),
    (LabelNoise("aggre"), 0.14, ("paper",)),
    (LabelNoise("worse"), 0.34, ("beside late",)),
)
"""With people's labels of CIFAR-10, before all others."""
DIGITS: tuple[Part, ...] = tuple(
    (noise, 0.3, ("digits", "digits wrong") if noise.share else ("digits",))
    for noise in (RANDOM40, CLEAN, RANDOM20, CONFUSABLE)
)
"""On scikit-learn's digits, where a run takes seconds: does it hold on data so unlike?"""


def recipes(base: Recipe, seeds: Sequence[int] = SEEDS, parts: Sequence[Part] = PARTS) -> list[Recipe]:
    """Return all runs of the matrix, what decides most first."""
    found: dict[str, Recipe] = {}
    for (noise, saving, groups), seed in product(parts, seeds):
        mine = replace(base, noise=noise, seed=seed)
        arms = [arm.name for arm in ARMS.values() if set(groups).intersection(arm.groups)]
        for recipe in (mine, *(replace(mine, arm=arm, saving=saving) for arm in arms)):
            found.setdefault(recipe.name, recipe)
    return list(found.values())


def _run(task: tuple[Recipe, Options, Runs]) -> str:
    recipe, options, results = task
    if recipe.name not in results.names():  # another matrix may have run it meanwhile
        results.add(recipe.name, train(recipe, options))
    return recipe.name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    given = _parser().parse_args(arguments)
    if given.data is None:
        base = Recipe(
            given.network, samples=None, epochs=given.epochs // 2, batch_size=32, augment=False, widen=given.widen
        )
    else:
        base = Recipe(given.network, samples=given.samples, epochs=given.epochs, widen=given.widen)
    tasks = []
    parts = DIGITS if given.data is None else PARTS if given.labels is None else (*PEOPLES, *PARTS)
    for recipe in recipes(base, given.seeds, parts[: given.parts]):
        arrays = given.arrays and given.arrays / f"{recipe.name}.npz"
        checkpoint = given.results.file.parent / "checkpoints" / f"{recipe.name}.pt"
        options = Options(
            data=given.data, people=given.labels, infobatch=given.infobatch, device=given.device, checkpoint=checkpoint,
            arrays=arrays, every=10, trace=TRACED if arrays else 0,
        )  # fmt: skip
        tasks.append((recipe, options, given.results))
    if given.infobatch is None:
        tasks = [task for task in tasks if not ARMS[task[0].arm].needs_infobatch]
    done = given.results.names()
    todo = [task for task in tasks if task[0].name not in done]
    print(f"{len(tasks)} runs, {len(tasks) - len(todo)} of them done.")
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool, tqdm(total=len(todo), unit=" runs") as bar:
        for name in pool.imap_unordered(_run, todo):
            bar.set_postfix_str(name)
            bar.update()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = program("benchmarks.study.matrix", "The runs behind tables.")
    add = parser.add_argument
    add_images(parser, ", half the epochs")
    add("--labels", type=Path, metavar="NPZ", help="CIFAR-10N's labels in the order of the rows of CIFAR-10")
    add("--seeds", nargs="+", type=int, default=SEEDS, help="default: 0 1 2")
    add("--network", default="lenet", help="default: %(default)s")
    add("--widen", type=int, default=10, help="of wide residual networks; default: %(default)s")
    add("--samples", type=int, default=10_000, help="a fixed part of the images; default: %(default)s")
    add("--epochs", type=int, default=120, help="default: %(default)s")
    add("--parts", type=int, metavar="N", help="only the first N kinds of labels and savings; default: all")
    add("--infobatch", type=Path, metavar="CHECKOUT", help="without it the arm infobatch is left out")
    add("--device", default="cpu", help="cpu or cuda; default: %(default)s")
    add("--jobs", type=int, default=1, help="runs at once, one core each; default: %(default)s")
    add("--arrays", type=Path, metavar="FOLDER", help="write what each sample of each run went through")
    add_results(parser, RESULTS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
