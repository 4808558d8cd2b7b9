"""Stores from strangers: whatever they say, a plain error comes, soon, and without eating memory.

The digests are right, as a stranger can compute them.
"""

import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import zarr

from prunedata import Pruner, Schedule
from prunedata.cli.main import main
from prunedata.errors import DamagedStore, ForeignStore, RunExists, StoreError
from prunedata.findings.inspection import inspect
from prunedata.policies import DroppingCount, Random
from prunedata.store.run_store import read_run
from tests.common.programs import ROOT
from tests.store.stored_runs import (
    SAMPLES,
    SCHEDULE,
    assert_refused,
    build,
    changed,
    contents,
    pointer,
    sign,
    slot,
    standing,
    start,
)

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    place = tmp_path_factory.mktemp("pattern") / "run.zarr"
    build(place)
    return place


@pytest.fixture
def place(pattern, tmp_path):
    return Path(shutil.copytree(pattern, tmp_path / "run.zarr"))


DEEP = json.loads("[" * 300 + "]" * 300)


def every_reader(place):
    """What looks at a store or goes on with it."""
    yield lambda: read_run(place)
    yield lambda: inspect(place)
    yield lambda: start(place, resume=True)


def test_what_is_signed_by_hand_is_taken(place, capsys):
    """Or else the tests above would see nothing but wrong digests."""
    before = standing(start(place, resume=True))
    sign(place, pointer(place))
    assert standing(start(place, resume=True)) == before
    found = pointer(place)
    found["state"]["run"]["policy"] = {"name": "Theirs", "what": ESCAPE}
    sign(place, found)
    assert inspect(place)["policy"]["name"] == "Theirs"
    assert main(["inspect", str(place)]) == 0
    assert "name=Theirs, what=\\x1b]0;owned\\x07" in capsys.readouterr().out


def describe(place, name, **changes):
    """Change the metadata of an array."""
    path = place / f"{name}-{slot(place)}" / "zarr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def say(place, samples, kind="|u1", zeros=0):
    """Let a store speak of so many samples, zeros all of them, though its files have what they had."""
    found = pointer(place)
    found["state"]["run"]["samples"] = samples
    digest = zlib.crc32(bytes(zeros))
    for name in found["arrays"]:
        about = {"shape": [samples], "dtype": kind if name != "tally" else "<u4", "crc32": digest}
        found["arrays"][name] = about
        grid = {"name": "regular", "configuration": {"chunk_shape": [samples]}}
        describe(place, name, shape=[samples], chunk_grid=grid, fill_value=0)
    sign(place, found)


LARGE = 600_000_000


def missing_chunks(place):
    say(place, LARGE, zeros=LARGE)
    for chunk in place.glob("*/c/*"):
        chunk.unlink()


def compressed(place):
    """A store of 2 MB that would be read as 1.8 GB."""
    say(place, LARGE, zeros=LARGE)
    packing = zlib.compressobj(1, wbits=31)
    packed = b"".join(packing.compress(bytes(1 << 20)) for _ in range(LARGE >> 20))
    packed += packing.compress(bytes(LARGE % (1 << 20))) + packing.flush()
    for name in pointer(place)["arrays"]:
        codecs = [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]
        describe(place, name, codecs=codecs)
        (place / f"{name}-{slot(place)}" / "c" / "0").write_bytes(packed)


def short_files(place):
    say(place, 10**15)


def chunks_of_one(place):
    say(place, 10**12)
    for name in pointer(place)["arrays"]:
        describe(place, name, chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1]}})


def not_committed_yet(place):
    found = pointer(place) | {"generation": 0, "arrays": {}, "sketch": {}}
    found["state"] |= {"epoch": 0, "open": False, "history": []}
    found["state"]["run"]["samples"] = 10**15
    sign(place, found)


def endless_epochs(place):
    found = pointer(place)
    for schedule in (found["state"]["schedule"], found["state"]["run"]["schedule"]):
        schedule |= {"epochs": 1 << 53, "window": 1}
    sign(place, found)


def endless_epochs_printed(place):
    found = pointer(place)
    for schedule in (found["state"]["schedule"], found["state"]["run"]["schedule"]):
        schedule |= {"epochs": 1 << 53, "reading": "printed"}
    sign(place, found)


def windows(place):
    sign(place, changed(pointer(place), ("state", "schedule", "window"), [1] * 3_000_000))


def long_history(place):
    sign(place, changed(pointer(place), ("state", "history"), [{}] * 1_000_000))


def deep(place):
    text = (place / "zarr.json").read_text()
    (place / "zarr.json").write_text(
        text.replace('"loss_sum"', '"x": ' + "[" * 100_000 + "]" * 100_000 + ', "loss_sum"')
    )


def deep_but_readable(place):
    sign(place, changed(pointer(place), ("state", "run", "policy", "x"), DEEP))


def long_pointer(place):
    with (place / "zarr.json").open("r+b") as file:
        file.truncate(3 << 30)


def long_metadata(place):
    with (place / f"hits-{slot(place)}" / "zarr.json").open("r+b") as file:
        file.truncate(3 << 30)


def long_chunk(place):
    with (place / f"hits-{slot(place)}" / "c" / "0").open("r+b") as file:
        file.truncate(3 << 30)


def objects(place):
    sign(place, changed(pointer(place), ("arrays", "hits", "dtype"), "|O8"))


def records(place):
    sign(place, changed(pointer(place), ("arrays", "hits", "dtype"), "u1," * 100_000 + "u1"))


def a_way_out(place):
    """An array of another store beside it."""
    shutil.copytree(place, place.with_name("other.zarr"), dirs_exist_ok=True)
    found = pointer(place)
    found["arrays"]["../other.zarr/hits"] = found["arrays"]["hits"]
    sign(place, found)


def pipe_for_a_pointer(place):
    (place / "zarr.json").unlink()
    os.mkfifo(place / "zarr.json")


def pipe_for_a_chunk(place):
    chunk = place / f"hits-{slot(place)}" / "c" / "0"
    chunk.unlink()
    os.mkfifo(chunk)


def device_for_a_pointer(place):
    (place / "zarr.json").unlink()
    (place / "zarr.json").symlink_to("/dev/zero")


def device_for_a_chunk(place):
    chunk = place / f"hits-{slot(place)}" / "c" / "0"
    chunk.unlink()
    chunk.symlink_to("/dev/zero")


def link_to_itself(place):
    (place / "zarr.json").unlink()
    (place / "zarr.json").symlink_to("zarr.json")


BOMBS = [
    missing_chunks, compressed, short_files, chunks_of_one, not_committed_yet, endless_epochs, endless_epochs_printed,
    windows, long_history, deep, deep_but_readable, long_pointer, long_metadata, long_chunk, objects, records,
    a_way_out, pipe_for_a_pointer, pipe_for_a_chunk, device_for_a_pointer, device_for_a_chunk, link_to_itself,
]  # fmt: skip
LIMITED = """
import resource, sys
from pathlib import Path
import numpy, zarr
import prunedata, tests.store.stored_runs
from prunedata.cli.main import main
from prunedata.errors import PrunedataError, StoreError
from prunedata.store.run_store import read_run
from tests.store.stored_runs import start

used = 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1])
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), used + (400 << 20)))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
for name in sys.argv[1:]:
    told = []
    for read in (read_run, lambda place: start(Path(place), resume=True)):
        try:
            read(name)
        except StoreError as error:
            told.append(type(error).__name__)
        else:
            told.append("taken")
    for command in ("inspect {}", "suspects {}", "advise {}", "compare {0} {0}"):
        told.append(str(main(command.format(name).split())))
    print("TOLD", Path(name).parent.name, *told, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, to limit the memory of a process")
def test_no_store_eats_memory_or_time(pattern, tmp_path):
    """In a process that may take 400 MB more than it has, and two minutes in all for all of them."""
    places = []
    for make in BOMBS:
        places.append(Path(shutil.copytree(pattern, tmp_path / make.__name__ / "run.zarr")))
        make(places[-1])
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, places)],
        capture_output=True, text=True, check=False, timeout=240, cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = {line.split()[1]: line.split()[2:] for line in done.stdout.splitlines() if line.startswith("TOLD")}
    assert done.returncode == 0, done.stderr[-2000:]
    assert told.keys() == {make.__name__ for make in BOMBS}
    taken = {"not_committed_yet", "endless_epochs", "endless_epochs_printed"}  # they are runs; big ones
    for name, (read, resumed, *statuses) in told.items():
        assert (read == "taken") == (name in taken), name
        assert resumed in {"DamagedStore", "ForeignStore", "UnwritableStore"}, name
        assert statuses[1:] == ["2"] * 3 or name in taken, name
        assert set(statuses) <= {"0", "2"}
    assert "Traceback" not in done.stderr
    assert "MemoryError" not in done.stderr  # it was not even tried
    assert "this machine's memory" not in done.stderr


def test_a_run_goes_nowhere_but_in_its_own_folder(place, tmp_path):
    """A link in a store would let a commit overwrite, and the sweep delete, what lies elsewhere."""
    other = tmp_path / "home"
    other.mkdir()
    (other / "film.partial").write_bytes(b"half")
    for number in (0, 1):
        copy = Path(shutil.copytree(place, tmp_path / f"copy-{number}"))
        shutil.rmtree(copy / f"hits-{number}" / "c")
        shutil.copytree(place / f"hits-{number}" / "c", other, dirs_exist_ok=True)
        (copy / f"hits-{number}" / "c").symlink_to(other)
        before = contents(other)
        with pytest.raises(StoreError, match=r"link to another place"):
            start(copy, resume=True)
        assert contents(other) == before
        assert inspect(copy)["epoch"] == 6  # to look is harmless


@pytest.mark.parametrize("how", ["symlink_to", "hardlink_to"])
def test_a_file_with_a_second_name_is_replaced_and_not_overwritten(place, tmp_path, how):
    """As in a backup by ``cp -al``, or in a store that a stranger has made with a link to another file."""
    kept = {}
    for number, chunk in enumerate(sorted(place.glob("*/c/*"))):
        other = tmp_path / f"other-{number}"
        shutil.copy(chunk, other)
        chunk.unlink()
        getattr(chunk, how)(other)
        kept[other] = other.read_bytes()
    run = start(place, resume=True)
    for _ in range(2):
        run.commit()
    run.load_state_dict(start(place.with_name("new.zarr")).state_dict())
    for _ in range(2):
        run.commit()
    assert {other: other.read_bytes() for other in kept} == kept
    assert start(place, resume=True).next_epoch == 0


def test_names_of_files_are_told_plainly(tmp_path):
    (tmp_path / f"notes{ESCAPE}.txt").write_text("mine")
    with pytest.raises(ForeignStore) as caught:
        start(tmp_path)
    assert str(caught.value).isprintable()


def test_what_is_too_long_to_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("prunedata.store.pointer.MOST", 2000)
    monkeypatch.setattr("prunedata.store.run_store.MOST", 2000)
    run = Pruner(10, SCHEDULE, prune=3, store=tmp_path, seed=3)

    def train():
        for epoch in run.epochs():
            run.observe(np.arange(epoch.kept, dtype=float), np.flatnonzero(epoch.keep))

    with pytest.raises(StoreError, match=r"takes at most 2,000 bytes"):
        train()
    last = Pruner(10, SCHEDULE, prune=3, store=tmp_path, seed=3, resume=True)
    assert last.next_epoch == run.next_epoch - 1 > 0


def test_that_memory_does_not_suffice_is_told(place, monkeypatch):
    def too_large(*_):
        raise MemoryError

    monkeypatch.setattr("prunedata.store.slots.np.empty", too_large)
    with pytest.raises(DamagedStore, match="fit into this machine's memory"):
        inspect(place)


def test_samples_agree(place):
    """The arrays are those of the description, before one of them is read."""
    for name in pointer(place)["arrays"]:
        shutil.rmtree(place / f"{name}-{slot(place)}")
    sign(place, changed(pointer(place), ("state", "run", "samples"), SAMPLES + 1))
    with pytest.raises(DamagedStore, match=r"Expected an array counts of shape \(301,\), unsigned. Got shape \(300,\)"):
        inspect(place)


@pytest.mark.parametrize("high", ["many", -1, 0.5, True, None, 1 << 60])
def test_losses_above_a_blind_guess_are_counted_in_whole_numbers(place, high):
    sign(place, changed(pointer(place), ("state", "history", 2, "high"), high))
    for read in every_reader(place):
        with pytest.raises(StoreError, match="history 2: high"):
            read()


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
