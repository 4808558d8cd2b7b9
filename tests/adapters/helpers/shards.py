"""Shards, datasets over them and runs, as tests want them."""

import io
import tarfile

import webdataset as wds

from prunedata import Pruner, Schedule
from tests.adapters.helpers.torch import losses_of

CHANGING = Schedule(5, window=5, start=1, block=2, pruned_per_block=1)
SIZES = [23, 17, 31, 19]
SAMPLES = sum(SIZES)


def write_tar(path, members, *, mode="w"):
    """Write members, (name, bytes) or (name, None) for a folder, and return the path as a string."""
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(data)
            archive.addfile(info, None if data is None else io.BytesIO(data))
    return str(path)


def write_shards(folder, sizes):
    """Shards with the same keys in each. A sample's ``uid`` is its id: its place in all shards."""
    urls, uid = [], 0
    for number, size in enumerate(sizes):
        members = []
        for place in range(size):
            members += [(f"s{place:04d}.uid", str(uid).encode()), (f"s{place:04d}.cls", str(uid % 7).encode())]
            uid += 1
        urls.append(write_tar(folder / f"{number:03d}.tar", members))
    return urls


def start(samples=SAMPLES, **options):
    return Pruner(samples, CHANGING, **{"prune": 0.4, "seed": 5, **options})


def dataset(index, **options):
    return wds.WebDataset(index.urls, **{"shardshuffle": 10, "detshuffle": True, "seed": 1, **options})


def one_epoch(pruned, pruner):
    """Begin an epoch, observe what comes, and return it."""
    epoch = pruner.begin_epoch()
    pairs = list(pruned)
    ids = [number for number, _ in pairs]
    if ids:
        pruner.observe(losses_of(ids, epoch.number), ids)
    return pairs
