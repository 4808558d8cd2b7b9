"""A stream of very many samples: index, mask, and one pass of ids.

Each sample is one byte in a tar file. Nothing is decoded.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import webdataset as wds
from numpy.typing import NDArray
from tqdm import tqdm

from prunedata import Pruner, Schedule
from prunedata.adapters.webdataset import ShardIndex, wrap

__all__ = ["SHARD", "measure", "write_tars"]

SHARD = 1000
MEMBER = 1024
"""A header and one byte, filled up to a block."""
OBSERVED = 100_000
Result = TypeVar("Result")


def measure(folder: Path, samples: int) -> dict[str, Any]:
    """Write the shards into `folder`, and measure in a process of its own, whose memory begins small."""
    urls = write_tars(folder, samples)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, urls, samples, folder / "index.json").result()


def write_tars(folder: Path, samples: int) -> list[str]:
    """Write ``samples`` members ``NNNNNNNNNN.u8`` of one byte, 1,000 a shard, and return the shards' paths."""
    urls = []
    firsts = range(0, samples, SHARD)
    for first in tqdm(firsts, desc=f"writing {samples:,} samples", unit=" shards", leave=False):
        urls.append(str(folder / f"{first // SHARD:07d}.tar"))
        members = _members(np.arange(first, min(first + SHARD, samples)))
        with open(urls[-1], "wb") as file:
            file.write(members.data)
            file.write(bytes(MEMBER))  # the mark of the end
    return urls


def _members(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return one row a member, as tar writes it: 512 bytes of header, then its byte."""
    members = np.zeros((len(numbers), MEMBER), np.uint8)
    members[:, :10] = _digits(numbers, 10, 10)
    for place, text in ((10, b".u8"), (100, b"0000644"), (124, b"00000000001"), (136, b"00000000000")):
        members[:, place : place + len(text)] = np.frombuffer(text, np.uint8)
    for place, text in ((148, b" " * 8), (156, b"0"), (257, b"ustar\x0000")):
        members[:, place : place + len(text)] = np.frombuffer(text, np.uint8)
    members[:, 148:154] = _digits(members[:, :512].sum(axis=1, dtype=np.int64), 8, 6)
    members[:, 154] = 0
    members[:, 512] = numbers % 256
    return members


def _digits(numbers: NDArray[np.int64], base: int, width: int) -> NDArray[np.uint8]:
    digits = numbers[:, None] // base ** np.arange(width)[::-1] % base
    return (digits + ord("0")).astype(np.uint8)


def _measure(urls: list[str], samples: int, path: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"samples": samples, "shards": len(urls), "memory_mib_before": _peak()}

    def timed(name: str, call: Callable[[], Result]) -> Result:
        begun = time.process_time()
        result = call()
        row[f"{name}_seconds"] = time.process_time() - begun
        row[f"memory_mib_{name}"] = _peak()
        return result

    scanned = timed("index", partial(ShardIndex.scan, urls, progress=partial(tqdm, desc="indexing", leave=False)))
    timed("save", partial(scanned.save, path))
    row["index_mib"] = path.stat().st_size / 2**20
    del scanned
    index = timed("load", partial(ShardIndex.load, path))
    pruner = Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=0.5, seed=0)
    pruner.begin_epoch()
    timed("observe", partial(_observe, pruner))
    timed("mask", partial(_next_epoch, pruner))
    timed("pass", partial(_pass, urls, pruner, index))
    return row


def _observe(pruner: Pruner) -> None:
    losses = np.random.default_rng(0).random(OBSERVED)
    for first in range(0, pruner.samples, OBSERVED):
        ids = np.arange(first, min(first + OBSERVED, pruner.samples))
        pruner.observe(losses[: len(ids)], ids)


def _next_epoch(pruner: Pruner) -> None:
    pruner.end_epoch()
    pruner.begin_epoch()


def _pass(urls: list[str], pruner: Pruner, index: ShardIndex) -> None:
    """Pass over the shards once, and see that what is kept comes once each, and nothing else."""
    seen = np.zeros(pruner.samples, np.uint8)
    pairs = wrap(wds.WebDataset(urls, shardshuffle=False), pruner, index)
    for number, sample in tqdm(pairs, total=pruner.current.kept, desc="one pass", leave=False, mininterval=1):
        seen[number] += sample["u8"][0] == number % 256
    if not np.array_equal(seen, pruner.current.keep):
        raise RuntimeError("Expected each kept sample once. Got others: something is wrong.")


def _peak() -> float:
    """The most memory that this process has had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
