"""The demo: train LeNet on labels of which many are wrong, regularly and pruned, beside what saves as many visits.

    python -m benchmarks.demo                      scikit-learn's digits, about two minutes
    python -m benchmarks.demo --data FOLDER        any image data set in the hub's parquet layout, as CIFAR-10
    python -m benchmarks.demo --saving             the paper's rule and schedule: time saved, predicted and measured
    python -m benchmarks.demo --framework NAME     on a stream, beside map-style: do accuracies agree? A minute

The table goes to stdout, all else to stderr; without --framework a picture of the curves is written as PNG.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.common import data
from benchmarks.common.commands import add_images, positive, program, share
from benchmarks.common.data import DataFolderError
from benchmarks.demo import wrong_labels
from benchmarks.demo.report import draw, draw_accuracy, facts, table
from benchmarks.demo.stream import FRAMEWORKS, compare, stream_table
from benchmarks.demo.training import Setting, batch_seconds, interleave, pruned_run, regular_run
from prunedata import CostModel, Schedule
from prunedata.errors import PrunedataError
from prunedata.policies import DroppingCount, Random

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo with command-line `arguments`; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        kind = _on_stream if options.framework else _saving if options.saving else _wrong_labels
        result = kind(options)
    except (DataFolderError, PrunedataError, ImportError) as error:
        parser.error(str(error))
    show = {_on_stream: stream_table, _saving: table, _wrong_labels: wrong_labels.table}[kind]
    print(json.dumps(result, indent=2) if options.json else show(result))
    return 0


def _wrong_labels(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    options.noise = 0.4 if options.noise is None else options.noise
    setting = _setting(options)
    clean = data.digits() if options.data is None else data.folder(options.data)
    print(
        f"LeNet on {setting.data.name}, {options.noise:.0%} of the labels wrong: {len(setting.data.train):,} images to "
        f"train on, {len(setting.data.test):,} to test with, {setting.schedule.epochs} epochs. Up to four runs, and "
        "one on clean labels.",
        file=sys.stderr,
    )
    with tqdm(total=1, desc="training", unit=" epochs", smoothing=0.05) as bar:
        runs, advice = wrong_labels.train(setting, clean, lambda _: bar.update(), partial(setattr, bar, "total"))
    result = wrong_labels.facts(setting, runs, advice) | {"noise": options.noise, "picture": str(options.picture)}
    title = f"LeNet on {setting.data.name}, {options.noise:.0%} of the labels wrong, seed {setting.seed}"
    draw_accuracy(options.picture, title, {name: run["history"] for name, run in result["runs"].items()})
    return result


def _saving(options: argparse.Namespace) -> dict[str, Any]:
    # One thread unless asked: LeNet gains little from a second, and times vary less beside other programs.
    torch.set_num_threads(options.threads)
    options.noise = options.noise or 0.0
    setting = _setting(options)
    model = CostModel(len(setting.data.train), setting.batch_size, batch_seconds(setting))
    _announce(setting, model)
    runs = {
        "regular": regular_run(setting),
        "dropping-count": pruned_run(setting, DroppingCount()),
        "random": pruned_run(setting, Random()),
    }
    epochs = setting.schedule.epochs
    with tqdm(total=len(runs) * epochs, desc="training", unit=" epochs", smoothing=0.05) as bar:
        interleave(runs, epochs, setting.data.test, lambda _: bar.update())
    result = facts(setting, runs) | {
        "noise": options.noise,
        "threads": options.threads,
        "picture": str(options.picture),
    }
    curves = {
        name: ([epoch.train_loss for epoch in run.epochs], [epoch.test_loss for epoch in run.epochs])
        for name, run in runs.items()
    }
    title = f"LeNet on {setting.data.name}, {result['pruned_samples']:,} of {result['samples']:,} samples pruned"
    noise = f", {options.noise:.0%} of the labels wrong" if options.noise else ""
    draw(options.picture, f"{title}{noise}, seed {setting.seed}", setting.schedule, curves)
    return result


def _on_stream(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    options.noise = options.noise or 0.0
    setting = _setting(options)
    seeds = options.seeds or (5 if options.data is None else 3)
    train, test = len(setting.data.train), len(setting.data.test)
    print(
        f"LeNet on {setting.data.name}: {train:,} images to train on, {test:,} to test with, "
        f"{setting.schedule.epochs} epochs, {seeds} seeds, map-style and by {options.framework}.",
        file=sys.stderr,
    )
    return compare(setting, options.framework, seeds) | {"noise": options.noise, "threads": options.threads}


def _setting(options: argparse.Namespace) -> Setting:
    """Fill in what was not given."""
    small = options.data is None
    epochs = options.epochs or ((20 if options.framework else 60) if small else 15)
    window = options.window or max(2, epochs // 3)
    start = options.start or max(1, round(0.3 * window))
    # Checked before the data are read, which may take long.
    schedule = Schedule(epochs, window, start, options.block, options.pruned_per_block, options.attenuation)
    return Setting(
        data.digits(options.noise) if small else data.folder(options.data, options.noise, progress=True),
        network="lenet",
        schedule=schedule,
        prune=options.prune or (0.25 if options.saving or options.framework else 0.4),
        batch_size=options.batch_size or (32 if small else 128),
        learning_rate=options.learning_rate,
        seed=options.seed,
    )


def _announce(setting: Setting, model: CostModel) -> None:
    """Say what is coming and how long it will take."""
    cost = model.predict(setting.schedule, setting.prune)
    minutes = (cost.regular_seconds + 2 * cost.pruned_seconds) / 60
    train, test = len(setting.data.train), len(setting.data.test)
    strip = "".join("#" if setting.schedule.prunes(epoch) else "." for epoch in range(setting.schedule.epochs))
    print(
        f"LeNet on {setting.data.name}: {train:,} images to train on, {test:,} to test with, "
        f"{setting.schedule.epochs} epochs, three runs.\n"
        f"Pruned epochs (#): {strip}\n"
        f"Expected: {minutes:.1f} minutes of training, {1e3 * model.batch_time:.1f} ms a batch, plus tests.",
        file=sys.stderr,
    )


def _amount(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


def _parser() -> argparse.ArgumentParser:
    parser = program(
        "benchmarks.demo", "Train LeNet at one seed where labels are wrong: regular, pruned, at random, fewer epochs."
    )
    add = parser.add_argument
    add_images(parser)
    add(
        "--noise",
        type=share,
        metavar="SHARE",
        help="share of training labels made wrong at random; default: 0.4, with --saving or --framework 0",
    )
    add("--saving", action="store_true", help="train by the paper's rule and schedule, and measure the time saved")
    add("--framework", choices=FRAMEWORKS, help="train on a stream by it, and map-style by torch")
    add("--seeds", type=positive, help="of --framework: how many, from --seed on; default: 5 on digits, else 3")
    add("--epochs", type=positive, help="default: 60 on digits, 20 with --framework, else 15")
    add("--window", type=positive, help="epochs after which counts start anew; default: a third of all")
    add(
        "--start",
        type=positive,
        help="epochs of a window before pruning; default: three tenths of the window",
    )
    add("--block", type=int, default=5, help="default: %(default)s")
    add("--pruned-per-block", type=int, default=4, help="default: %(default)s")
    add("--attenuation", type=float, default=2.0, help="default: %(default)s")
    add(
        "--prune",
        type=_amount,
        help="samples or share of them; default: at most 0.4, with --saving or --framework 0.25",
    )
    add("--batch-size", type=positive, help="default: 32 on digits, else 128")
    add("--learning-rate", type=float, default=0.02, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--threads", type=positive, default=1, help="of torch; default: %(default)s")
    add("--picture", type=Path, default=Path("prunedata-demo.png"), metavar="PNG", help="default: %(default)s")
    add("--json", action="store_true", help="print one JSON object instead of the table")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    raise SystemExit(main())
