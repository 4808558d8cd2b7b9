"""What is no run, or another one, is refused and left as it is."""

import numpy as np
import pytest
import zarr

from prunedata import Schedule
from prunedata.errors import DamagedStore, ForeignStore, RunExists
from prunedata.policies import DroppingCount, Random
from tests.store.stored_runs import SAMPLES, assert_refused, build, start

OTHERS = [
    {"samples": SAMPLES + 1, "keys": None},
    {"samples": SAMPLES - 1, "keys": None},
    {"schedule": Schedule(7, window=4, start=1, block=2, pruned_per_block=1)},
    {"schedule": Schedule(8, window=4, start=1, block=2, pruned_per_block=1, attenuation=2)},
    {"schedule": Schedule(8, window=4, start=1, block=2, pruned_per_block=1, reading="printed")},
    {"schedule": Schedule(8, window=(4, 4), start=1, block=2, pruned_per_block=1)},
    {"seed": 4},
    {"prune": 0.2},
    {"prune": 91},
    {"policy": Random()},
    {"policy": DroppingCount(tolerance=0.5)},
    {"policy": DroppingCount(by="run")},
    {"batch_size": 32},
]


@pytest.mark.parametrize("change", OTHERS, ids=str)
def test_another_run(tmp_path, change):
    place = tmp_path / "run.zarr"
    build(place)
    said = assert_refused(place, ForeignStore, **change)
    assert next(iter(change)) in str(said)
    with pytest.raises(RunExists):
        start(place, **change)
    start(tmp_path / "young.zarr")  # created, and killed before its first commit
    assert_refused(tmp_path / "young.zarr", ForeignStore, **change)


def test_the_same_run_in_other_words(tmp_path):
    build(tmp_path)
    assert start(tmp_path, resume=True, prune=90, policy=DroppingCount(tolerance=0), seed=np.int64(3)).next_epoch == 6


def zarr_group(place):
    zarr.create_group(place, attributes={"format": 1}).create_array("weights", data=np.zeros(3))


def zarr_run_in_a_group(place):
    build(zarr.create_group(place).store.root / "run")


def zarr_array(place):
    zarr.create_array(place, data=np.arange(SAMPLES))


def old_zarr_group(place):
    zarr.create_group(place, zarr_format=2).create_array("counts-0", data=np.zeros(3))


def old_zarr_array(place):
    zarr.create_array(place, data=np.arange(SAMPLES), chunks=(100,), zarr_format=2)


def folder_with_files(place):
    place.mkdir()
    (place / "notes.txt").write_text("mine")


def folder_with_folders(place):
    (place / "data" / "images").mkdir(parents=True)


def folder_with_a_download(place):
    place.mkdir()
    (place / "film.partial").write_bytes(b"half")


def plain_file(place):
    place.write_text("mine")


FOREIGN = [
    zarr_group,
    zarr_run_in_a_group,
    zarr_array,
    old_zarr_group,
    old_zarr_array,
    folder_with_files,
    folder_with_folders,
    folder_with_a_download,
    plain_file,
]


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_foreign_places(tmp_path, make):
    place = tmp_path / "place"
    make(place)
    # What has an array named as ours is taken for a run without its pointer: no less refused.
    assert_refused(place, DamagedStore if make is old_zarr_group else ForeignStore)
