"""The arguments that say what is trained, which several commands share."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.commands import positive, share

if TYPE_CHECKING:
    from benchmarks.common.data import Data
    from benchmarks.distributed.training.task import Training

__all__ = ["add_data", "add_task", "data_of", "task_of"]


def add_task(parser: argparse.ArgumentParser, mode: str | None = None) -> None:
    """Add the arguments of a task; ``mode`` is the default, if there is one."""
    parser.add_argument(
        "--mode", choices=("sync", "async", "mixed", "local"), default=mode, required=mode is None,
        help="sync: all replicas average their gradients in each step. async: workers at their own pace, and "
        "parameter servers. mixed: the replicas of a worker average theirs, workers at their own pace. local: "
        "each worker makes some steps of its own, and then all average what these changed",
    )  # fmt: skip
    parser.add_argument("--workers", type=positive, default=2, help="nodes that train; default: %(default)s")
    parser.add_argument("--replicas", type=positive, default=1, help="of each worker; default: %(default)s")
    parser.add_argument("--servers", type=positive, default=1, help="each has a part of the weights; default: 1")
    parser.add_argument(
        "--placement", choices=("shared", "dedicated"), default="shared",
        help="servers on the workers' nodes, or on nodes of their own; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--epochs", type=positive, default=6, help="default: %(default)s")
    parser.add_argument("--batch", type=positive, default=32, help="samples of a replica; default: %(default)s")
    parser.add_argument("--network", default="lenet", help="as lenet or resnet50; default: %(default)s")
    parser.add_argument("--outputs", type=positive, help="of the network; the study's has 1200. Default: the classes")
    parser.add_argument("--augment", action="store_true", help="crop and mirror images at random")
    parser.add_argument("--prune", type=share, default=0.0, help="share that pruned epochs leave out; default: none")
    parser.add_argument(
        "--policy", default="DroppingCount", help="one of the library's, or module:object; default: %(default)s"
    )
    parser.add_argument("--weights", help="file of a state_dict to start from")
    parser.add_argument("--learning-rate", type=float, default=0.1, help="default: %(default)s, the study's")
    parser.add_argument("--overlap", action="store_true", help="let a gradient travel while the next is computed")
    parser.add_argument(
        "--backup", type=int, metavar="K", help="of sync: servers drop the gradients of the slowest K replicas"
    )
    parser.add_argument(
        "--slow", type=_slow, metavar="RANK:SECONDS", help="slow each step of a replica by so much on purpose"
    )
    parser.add_argument("--local-steps", type=positive, default=8, metavar="H", help="of local; default: %(default)s")
    _add_emulation(parser)
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--within", type=float, default=60.0, help="seconds to wait for a process; default: 60")


def _add_emulation(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of emulated devices."""
    parser.add_argument(
        "--device-time", type=float, default=0.0, metavar="SECONDS",
        help="emulate devices: a step of a replica lasts so long an image, asleep; the study's took 0.0322",
    )  # fmt: skip
    parser.add_argument(
        "--stretch", type=float, default=1.0, metavar="K",
        help="emulated devices are K times slower; limit the links to a K-th, too. Default: 1",
    )  # fmt: skip
    parser.add_argument(
        "--parameters", type=positive, metavar="N",
        help="weights in all: ballast is added to the network's, and moved and updated with them",
    )  # fmt: skip


def _slow(text: str) -> tuple[int, float]:
    rank, _, seconds = text.partition(":")
    return int(rank), float(seconds)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the data."""
    parser.add_argument("--data", type=Path, help="folder of parquet files; default: scikit-learn's digits")
    parser.add_argument("--samples", type=positive, help="train on the first of them only")
    parser.add_argument("--noise", type=share, default=0.0, help="share of labels made wrong; default: none")


def task_of(options: argparse.Namespace, **other: Any) -> "Training":
    """The task that the arguments describe, with some of them replaced."""
    from benchmarks.distributed.training.task import Training  # noqa: PLC0415 (torch takes seconds, and --help needs none)

    given = vars(options) | other
    return Training(**{field.name: given[field.name] for field in fields(Training) if field.name in given})


def data_of(options: argparse.Namespace) -> "Data":
    """The data that they name."""
    from benchmarks.common.data import digits, folder  # noqa: PLC0415
    from benchmarks.distributed.training.task import fewer  # noqa: PLC0415

    data = digits(options.noise) if options.data is None else folder(options.data, options.noise)
    return fewer(data, options.samples, None)
