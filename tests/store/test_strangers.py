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

from prunedata import Pruner
from prunedata.cli.main import main
from prunedata.errors import DamagedStore, ForeignStore, StoreError
from prunedata.findings.inspection import inspect
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
    found = pointer(place) | {"generation": 0, "arrays": {}}
    found["state"] |= {"epoch": 0, "open": False, "history": []}
    found["state"]["run"]["samples"] = 10**15
    sign(place, found)


def endless(**schedule):
    def make(place):
        found = pointer(place)
        for each in (found["state"]["schedule"], found["state"]["run"]["schedule"]):
            each.update({"epochs": 1 << 53}, **schedule)
        sign(place, found)

    return make


def deep(place):
    text = (place / "zarr.json").read_text()
    (place / "zarr.json").write_text(
        text.replace('"loss_sum"', '"x": ' + "[" * 100_000 + "]" * 100_000 + ', "loss_sum"')
    )


def saying(value, *path):
    """A store whose pointer says something else at one place."""
    return lambda place: sign(place, changed(pointer(place), path, value))


def long(name):
    """A store with a file of 3 GB that takes no room on the disk."""

    def make(place):
        with (place / name.format(slot(place))).open("r+b") as file:
            file.truncate(3 << 30)

    return make


def instead(name, put):
    """A store with something else in the place of a file."""

    def make(place):
        path = place / name.format(slot(place))
        path.unlink()
        put(path)

    return make


def device(path):
    path.symlink_to("/dev/zero")


def a_way_out(place):
    """An array of another store beside it."""
    shutil.copytree(place, place.with_name("other.zarr"), dirs_exist_ok=True)
    found = pointer(place)
    found["arrays"]["../other.zarr/hits"] = found["arrays"]["hits"]
    sign(place, found)


POINTER, METADATA, CHUNK = "zarr.json", "hits-{}/zarr.json", "hits-{}/c/0"
RUNS = {"not_committed_yet": not_committed_yet, "endless": endless(window=1), "printed": endless(reading="printed")}
BOMBS = {
    **RUNS,
    "missing_chunks": missing_chunks,
    "compressed": compressed,
    "short_files": short_files,
    "chunks_of_one": chunks_of_one,
    "windows": saying([1] * 3_000_000, "state", "schedule", "window"),
    "long_history": saying([{}] * 1_000_000, "state", "history"),
    "deep": deep,
    "deep_but_readable": saying(DEEP, "state", "run", "policy", "x"),
    "long_pointer": long(POINTER),
    "long_metadata": long(METADATA),
    "long_chunk": long(CHUNK),
    "objects": saying("|O8", "arrays", "hits", "dtype"),
    "records": saying("u1," * 100_000 + "u1", "arrays", "hits", "dtype"),
    "a_way_out": a_way_out,
    "pipe_for_a_pointer": instead(POINTER, os.mkfifo),
    "pipe_for_a_chunk": instead(CHUNK, os.mkfifo),
    "device_for_a_pointer": instead(POINTER, device),
    "device_for_a_chunk": instead(CHUNK, device),
    "link_to_itself": instead(POINTER, lambda path: path.symlink_to("zarr.json")),
}
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
    for name, make in BOMBS.items():
        places.append(Path(shutil.copytree(pattern, tmp_path / name / "run.zarr")))
        make(places[-1])
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, places)],
        capture_output=True, text=True, check=False, timeout=240, cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = {line.split()[1]: line.split()[2:] for line in done.stdout.splitlines() if line.startswith("TOLD")}
    assert done.returncode == 0, done.stderr[-2000:]
    assert told.keys() == BOMBS.keys()
    for name, (read, resumed, *statuses) in told.items():
        assert (read == "taken") == (name in RUNS), name
        assert resumed in {"DamagedStore", "ForeignStore", "UnwritableStore"}, name
        assert statuses[1:] == ["2"] * 3 or name in RUNS, name
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
    run, kept = start(place, resume=True), {}
    for _ in range(2):
        run.commit()  # from now on chunks are written in their place
    for number, chunk in enumerate(sorted(place.glob("*/c/*"))):
        other = tmp_path / f"other-{number}"
        shutil.copy(chunk, other)
        chunk.unlink()
        getattr(chunk, how)(other)
        kept[other] = other.read_bytes()
    run.load_state_dict(start(place.with_name("new.zarr")).state_dict())
    for _ in range(2):
        run.commit()
    assert {other: other.read_bytes() for other in kept} == kept
    assert start(place, resume=True).next_epoch == 0


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
    with pytest.raises(DamagedStore, match=r"Expected an array counts of shape \(301,\), uint8 or .* Got shape \(300"):
        inspect(place)


def file(name):
    """A folder with a file that is no run's."""

    def make(place):
        place.mkdir()
        (place / name).write_text("mine")

    return make


def array(**options):
    return lambda place: zarr.create_array(place, data=np.arange(SAMPLES), **options)


FOREIGN = {
    "zarr group": lambda place: zarr.create_group(place, attributes={"format": 1}).create_array("a", data=np.zeros(3)),
    "run in a zarr group": lambda place: build(zarr.create_group(place).store.root / "run"),
    "zarr array": array(),
    "old zarr array": array(chunks=(100,), zarr_format=2),
    "folders": lambda place: (place / "data" / "images").mkdir(parents=True),
    "plain file": lambda place: place.write_text("mine"),
    **{
        repr(name): file(name)
        for name in ("notes.txt", f"{ESCAPE}.txt", "film.partial", "counts-2", "zarr.jso", "zarr.1.partially")
    },
}
HEADLESS = {
    "old zarr group": lambda place: zarr.create_group(place, zarr_format=2).create_array("counts-0", data=np.zeros(3)),
    "counts-0": file("counts-0"),
    "open-loss-1": file("open-loss-1"),
}
"""Places with an array named as ours, which are taken for runs without their pointer."""


@pytest.mark.parametrize("kind", [*FOREIGN, *HEADLESS])
def test_foreign_places(tmp_path, kind):
    place = tmp_path / "place"
    (FOREIGN | HEADLESS)[kind](place)
    said = str(assert_refused(place, DamagedStore if kind in HEADLESS else ForeignStore))
    assert said.isprintable()
    assert str(place) in said
    assert "Got " in said if kind in FOREIGN else f"zarr.json in {place}. It is missing" in said
