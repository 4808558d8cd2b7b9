"""What pruning saves of reading and decoding a stream.

    python -m benchmarks.streams                       digits as JPEG, some minutes
    python -m benchmarks.streams --data FOLDER         any image data set in the hub's parquet layout, as CIFAR-10
    python -m benchmarks.streams --scale 10000000      10,000 shards of 1,000 tiny samples: index, mask, one pass

A ratio is processor time of the plain pass, all its threads together, over that of the pruned one: the median over
the repeats. The passes take turns, and all of them decode what they give. ``tensorflow`` runs in parallel on all cores,
as its guide has it. All others run in one thread on one core, where the system lets a program choose: tf.data hands
each sample to a thread and back, and whether that is another core's is luck that changes the time by half.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.common import data
from benchmarks.common.commands import add_images, markdown, positive, program
from benchmarks.common.data import DataFolderError
from benchmarks.common.shards import Shards, write_shards
from benchmarks.common.timing import machine
from benchmarks.streams.many_samples import SHARD, measure
from benchmarks.streams.passes import BATCH, TURNS, Entrant, Passes, one_core, over_parquet, over_tars, race
from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.policies import Random

__all__ = ["main"]

PRUNED = (0.0, 0.2, 0.5)
WAYS = ("plain", "pruned", "after_decode")
FEWER = 2
"""Images larger than 64 px take much longer: so many times fewer of them are measured. Not fewer still, as a pass of
tf.data takes some milliseconds to begin, which a pass over a real data set hides."""
PACKAGES = {
    "webdataset": "webdataset",
    "tensorflow": "tensorflow",
    "tensorflow-one-thread": "tensorflow",
    "iterable": "pyarrow",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        rows = list(_scale(options) if options.scale else _throughput(options))
    except (DataFolderError, PrunedataError) as error:
        parser.error(str(error))
    print(json.dumps(rows, indent=2) if options.json else _table(rows))
    return 0


def _throughput(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    images = data.folder(options.data, progress=True) if options.data else data.digits()
    for pixels in options.pixels:
        samples = options.samples if pixels <= 64 else max(1, options.samples // FEWER)
        with TemporaryDirectory(dir=options.disk) as folder:
            shards = write_shards(Path(folder), images, pixels, samples)
            for adapter in options.adapters:
                for row in _compare(adapter, shards, images.name, options.repeats):
                    yield row | {"hardware": _hardware(options.adapters)}


def _hardware(adapters: Sequence[str]) -> dict[str, str]:
    """The machine, and the versions of what reads. Not by distribution: TensorFlow's has several names."""
    threads = {"threads": "1, of tf.data as many as it likes"} if "tensorflow" in adapters else {}
    return machine(**threads, **{PACKAGES[name]: import_module(PACKAGES[name]).__version__ for name in adapters})


def _compare(adapter: str, shards: Shards, name: str, repeats: int) -> Iterator[dict[str, Any]]:
    passes = ADAPTERS[adapter](shards)
    for share in PRUNED:
        pruner = _open_epoch(shards.samples, share)
        keep = pruner.current.keep
        every, fewer = -(-shards.samples // BATCH), -(-int(keep.sum()) // BATCH)
        entrants = {
            "plain": Entrant(passes.plain, every),
            "pruned": Entrant(passes.pruned(pruner), fewer),
            "after_decode": Entrant(passes.after_decode(keep), fewer),
        }
        if passes.numbered is not None:
            entrants["numbered"] = Entrant(passes.numbered, every)
        title = f"{adapter}, {shards.pixels} px, {share:.0%} pruned"
        cores = nullcontext() if passes.reads_ahead else one_core()
        with cores, tqdm(total=repeats + 1, desc=title, unit=" passes", leave=False) as bar:
            seconds = race(entrants, repeats, bar.update, 1 if passes.reads_ahead else TURNS)
        ratios = {way: _ratios(seconds["plain"], seconds[way]) for way in entrants}
        yield {
            "adapter": adapter,
            "pixels": shards.pixels,
            "pruned": share,
            "ratio": median(ratios["pruned"]),
            "ratio_min": min(ratios["pruned"]),
            "ratio_max": max(ratios["pruned"]),
            "ratio_after_decode": median(ratios["after_decode"]),
            "ratio_numbered": median(ratios["numbered"]) if "numbered" in ratios else None,
            "n": repeats,
            "samples": shards.samples,
            "data": name,
            **{f"{way}_us_a_sample": 1e6 * median(seconds[way]) / shards.samples for way in WAYS},
        }


def _ratios(plain: list[float], other: list[float]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(plain, other, strict=True)]


def _open_epoch(samples: int, share: float) -> Pruner:
    """Return a pruner in an epoch that prunes so many of the samples, drawn at random."""
    some = share or 0.5  # where nothing is to be pruned, the first epoch is looked at, which never is
    pruner = Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=some, policy=Random())
    pruner.begin_epoch()
    if share:
        pruner.observe(np.ones(samples), np.arange(samples))
        pruner.end_epoch()
        pruner.begin_epoch()
    return pruner


def _tensorflow() -> Any:
    return import_module("benchmarks.streams.passes_tensorflow")  # late, as TensorFlow takes seconds to import


ADAPTERS: dict[str, Callable[[Shards], Passes]] = {
    "webdataset": over_tars,
    "tensorflow": lambda shards: _tensorflow().over_records(shards),
    "tensorflow-one-thread": lambda shards: _tensorflow().over_records_in_one_thread(shards),
    "iterable": over_parquet,
}


def _scale(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for samples in options.scale:
        with TemporaryDirectory(dir=options.disk) as folder:
            yield measure(Path(folder), samples) | {"hardware": _hardware(["webdataset"])}


def _table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table of the rows; the machine is named once, above."""
    names = [name for name in rows[0] if name != "hardware"]
    about = ", ".join(f"{name} {value}" for name, value in rows[0]["hardware"].items())
    return f"{about}\n\n{markdown(names, ([_cell(row[name]) for name in names] for row in rows))}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = program(
        "benchmarks.streams",
        "Measure what pruning saves of reading and decoding a stream; or index and read a very long one.",
    )
    here = [name for name in ADAPTERS if find_spec(PACKAGES[name])]
    add = parser.add_argument
    add_images(parser)
    add("--adapters", nargs="+", choices=list(ADAPTERS), default=here, help="default: those installed")
    add("--pixels", type=positive, nargs="+", default=[32, 224], help="default: 32 224")
    add("--samples", type=positive, default=10_000, help=f"default: %(default)s; above 64 px 1/{FEWER} of them")
    add("--repeats", type=positive, default=7, help="default: %(default)s")
    add("--scale", type=positive, nargs="+", metavar="SAMPLES", help=f"measure made shards of {SHARD:,} instead")
    add("--disk", type=Path, metavar="FOLDER", help="where shards are made; default: the temporary folder")
    add("--json", action="store_true", help="print a JSON list instead of a table")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    raise SystemExit(main(sys.argv[1:]))
