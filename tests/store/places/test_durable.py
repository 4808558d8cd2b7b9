"""What the local disk holds after a power cut, as far as the order of calls decides it."""

import os
import re
import secrets
import threading
from pathlib import Path

import numpy as np
import pytest

import prunedata.store.durable
from prunedata import Pruner, Schedule
from prunedata.store.durable import DurableStore
from prunedata.store.run_store import RunStore

# What the local disk holds after a power cut, as far as the order of calls decides it.


def test_a_file_is_safe_before_it_has_its_name_and_its_folders_before_the_pointer(tmp_path, monkeypatch):
    """The order of what reaches the disk, seen at the calls that decide it; they do their work."""
    happened = []

    def names(descriptor):
        return os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path)

    def fsync(descriptor, _fsync=os.fsync):
        happened.append(("safe", names(descriptor)))
        _fsync(descriptor)

    def replace(part, path, _replace=Path.replace):
        happened.append(("named", os.path.relpath(path, tmp_path)))
        return _replace(part, path)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    store = RunStore(tmp_path / "deep" / "run")
    store.create({})
    assert happened[:2] == [("safe", "."), ("safe", "deep")]  # where the new folders have their names
    happened.clear()
    store.write({}, {"counts": np.arange(5, dtype=np.uint8)})
    run = "deep/run"
    for file in ("counts-1/zarr.json", "counts-1/c/0", "zarr.json"):
        at = happened.index(("named", f"{run}/{file}"))
        kind, part = happened[at - 1]
        assert kind == "safe"
        assert re.fullmatch(rf"{run}/{file}\.[0-9a-f]{{16}}\.partial", part)
        assert happened[at + 1] == ("safe", str(Path(f"{run}/{file}").parent))
    pointer = happened.index(("named", f"{run}/zarr.json"))
    chunk = happened.index(("named", f"{run}/counts-1/c/0"))
    assert ("safe", run) in happened[: chunk + 1]  # counts-1 is in it
    assert ("safe", f"{run}/counts-1") in happened[happened.index(("named", f"{run}/counts-1/zarr.json")) + 2 : chunk]
    assert pointer == len(happened) - 2


def test_a_chunk_is_written_in_its_place_and_safe_before_the_pointer(tmp_path, monkeypatch):
    """Its slot is not in use: no new name is needed, and none is made safe."""
    store, happened = RunStore(tmp_path), []
    store.create({})
    for number in range(2):
        store.write({}, {"counts": np.full(5, number, dtype=np.uint8)})
    chunk = tmp_path / "counts-1" / "c" / "0"
    where, other = chunk.stat().st_ino, (tmp_path / "counts-0" / "c" / "0").read_bytes()

    def seen(kind):
        def sync_bytes(descriptor):
            happened.append((kind, os.fstat(descriptor).st_ino, chunk.read_bytes()))
            os.fsync(descriptor)

        return sync_bytes

    pointer = tmp_path / "zarr.json"
    before = pointer.read_bytes()
    monkeypatch.setattr(prunedata.store.durable, "_sync_bytes", seen("bytes"))
    store.write({}, {"counts": np.full(5, 7, dtype=np.uint8)})
    assert happened == [("bytes", where, bytes([7] * 5))]
    assert chunk.stat().st_ino == where
    assert pointer.read_bytes() != before
    assert (tmp_path / "counts-0" / "c" / "0").read_bytes() == other


@pytest.mark.parametrize("torn", [b"", b"12", b"12345678"])
def test_a_chunk_that_was_left_torn_is_replaced(tmp_path, torn):
    store = RunStore(tmp_path)
    store.create({})
    for _ in range(2):
        store.write({}, {"counts": np.arange(5, dtype=np.uint8)})
    (tmp_path / "counts-1" / "c" / "0").write_bytes(torn)
    store.write({}, {"counts": np.arange(5, dtype=np.uint8)})
    found = RunStore(tmp_path).read()
    assert found is not None
    assert found[1]["counts"].tolist() == [0, 1, 2, 3, 4]


def test_a_folder_that_somebody_else_made_has_its_name_made_safe_too(tmp_path, monkeypatch):
    """A run that was killed between making its folder and seeing its name safe leaves it to the next one to do so."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    safe = []

    def fsync(descriptor, _fsync=os.fsync):
        safe.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        _fsync(descriptor)

    place = tmp_path / "deep" / "run"
    place.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", fsync)
    RunStore(place).create({})
    assert [str(tmp_path / "deep"), str(tmp_path)] == safe[:2]
    assert str(place) in safe[2:]


def test_files_that_a_writer_puts_in_their_place_meanwhile_do_not_make_a_store_read_only(tmp_path):
    folder, done = tmp_path / "hits-0" / "c", threading.Event()
    folder.mkdir(parents=True)

    def write():
        while not done.is_set():
            parts = [folder / f"{secrets.token_hex(8)}.partial" for _ in range(100)]  # a writer uses no name twice
            for part in parts:
                part.touch()
            for part in parts:
                part.replace(folder / "0")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            DurableStore(tmp_path).check_writable()
    finally:
        done.set()
        writer.join()


# What a killed process made, and did not see safe, is seen safe by the next one.


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs to know what a descriptor is of")
def test_who_goes_on_synchronises_every_folder_of_the_run(tmp_path, monkeypatch):
    def opened():
        return Pruner(50, Schedule(6, 6, 2, 1, 1), prune=10, store=tmp_path / "run.zarr", resume=True)

    first = opened()
    epoch = first.begin_epoch()
    first.observe(np.ones(epoch.kept), np.flatnonzero(epoch.keep))
    first.end_epoch()
    folders = {path for path in (tmp_path / "run.zarr").rglob("*") if path.is_dir()} | {tmp_path / "run.zarr"}
    del first
    synchronised, fsync = set(), os.fsync

    def noted(descriptor):
        synchronised.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    opened()
    assert len(folders) > 3
    assert {str(folder) for folder in folders} <= synchronised
