"""A store as its run uses it: which commit is read, who may write the next, and what is said where that is refused."""

import gc
import re

import numpy as np
import pytest
from zarr.storage import MemoryStore

import prunedata.store.run_store
from prunedata.errors import DamagedStore, DeniedStore, ForeignStore, StoreError
from prunedata.store.durable import write_bytes
from prunedata.store.pointer import Records, encode_pointer
from prunedata.store.run_store import RunStore, read_run
from prunedata.store.slots import Slots
from tests.store.stored_runs import observe, start

TAKEN = np.arange(3, dtype=np.uint8)


class TestMessages:
    """Whose fault it is, at which place, and what was being done there."""

    @pytest.mark.parametrize(
        ("mode", "broken", "call", "told"),
        [
            ("a", "open_location", None, "permission to write {}.*name another store.*last commit is as it was"),
            (
                "r",
                "open_location",
                None,
                r"permission to read {}\. Got none \([^)]*\): change the folder's permissions\.$",
            ),
            ("a", "read_bytes", RunStore.read, r"permission to read {}\."),
            ("r", "read_bytes", RunStore.read, r"permission to read {}\."),
            ("a", "read_bytes", lambda store: store.create({}), r"permission to write {}\."),
            ("a", "write_bytes", lambda store: store.write({}, {}), r"permission to write {}\."),
        ],
    )
    def test_what_the_system_refuses(self, tmp_path, monkeypatch, mode, broken, call, told):
        RunStore(tmp_path).create({})

        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")

        def use():
            store = RunStore(tmp_path, mode=mode)
            if broken == "write_bytes":
                store.read()
                monkeypatch.setattr(prunedata.store.run_store, broken, refuse)
            call(store)

        if broken != "write_bytes":
            monkeypatch.setattr(prunedata.store.run_store, broken, refuse)
        with pytest.raises(DeniedStore, match=f"^Expected {told.format(re.escape(str(tmp_path)))}"):
            use()

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("counts-0", DamagedStore),
            ("open-loss-1", DamagedStore),
            ("counts-2", ForeignStore),
            ("notes.txt", ForeignStore),
            ("zarr.jso", ForeignStore),
            ("zarr.1.partially", ForeignStore),
            ("film.partial", ForeignStore),
            ("zarr.json.1.partial", None),
        ],
    )
    def test_what_lies_where_no_run_is(self, tmp_path, name, error):
        (tmp_path / name).write_bytes(b"")
        if error is None:
            assert RunStore(tmp_path).read() is None
            RunStore(tmp_path).create({})
            return
        told = (
            f"zarr.json in {tmp_path}. It is missing" if error is DamagedStore else rf"at {tmp_path}\. Got \['{name}'\]"
        )
        for call in (RunStore.read, lambda store: store.create({})):
            with pytest.raises(error, match=told):
                call(RunStore(tmp_path))


def test_who_looks_while_the_run_goes_on_sees_a_commit_of_it(tmp_path, monkeypatch):
    """Two commits later the slot that its pointer named is written over: then it looks again."""
    store, reader = RunStore(tmp_path), RunStore(tmp_path, mode="r")
    store.create({})
    store.write({"epoch": 1, "history": []}, {"counts": TAKEN})
    read, commits = Slots.read, [2, 3]

    def overtaken(self, *arguments):
        while commits:
            store.write({"epoch": commits[0], "history": []}, {"counts": TAKEN + commits.pop(0)})
        return read(self, *arguments)

    monkeypatch.setattr(Slots, "read", overtaken)
    state, arrays = reader.read()
    assert (state, arrays["counts"].tolist(), reader.generation) == ({"epoch": 3, "history": []}, [3, 4, 5], 3)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_commit_that_stands_though_it_ended_in_an_error_is_not_written_over(tmp_path, monkeypatch, error):
    """Ctrl-C, or a folder that cannot be synchronised, just when the new pointer stands; then a kill in the next."""
    store = RunStore(tmp_path)
    store.create({})
    store.write({"epoch": 1, "history": []}, {"counts": TAKEN})

    def late(*arguments):
        write_bytes(*arguments)
        raise error

    def killed(*_):
        raise SystemExit

    for cut_short, raised, epoch in ((late, (error, StoreError), 2), (killed, SystemExit, 3), (killed, SystemExit, 3)):
        monkeypatch.setattr(prunedata.store.run_store, "write_bytes", cut_short)
        with pytest.raises(raised):
            store.write({"epoch": epoch, "history": []}, {"counts": TAKEN + epoch})
        state, arrays = RunStore(tmp_path, mode="r").read()
        assert (state, arrays["counts"].tolist()) == ({"epoch": 2, "history": []}, [2, 3, 4])
    monkeypatch.undo()
    store.write({"epoch": 3, "history": []}, {"counts": TAKEN + 3})
    reader = RunStore(tmp_path, mode="r")
    assert (reader.read()[0], reader.generation) == ({"epoch": 3, "history": []}, 3)


def test_a_refused_run_goes_on_when_its_own_commit_is_put_back(tmp_path):
    first = RunStore(tmp_path)
    first.create({"epoch": 0, "history": []})
    first.release()
    store = RunStore(tmp_path)
    store.read()
    own = (tmp_path / "zarr.json").read_bytes()
    (tmp_path / "zarr.json").write_bytes(encode_pointer(1, "somebody", {}, {}, Records())[1])
    with pytest.raises(StoreError, match="Another process has written to it"):
        store.write({"epoch": 1, "history": []}, {})
    (tmp_path / "zarr.json").write_bytes(own)
    store.write({"epoch": 1, "history": []}, {})
    assert RunStore(tmp_path, mode="r").read()[0] == {"epoch": 1, "history": []}


def test_a_run_is_read_without_touching_it(tmp_path):
    place = tmp_path / "run"
    run = start(place)
    for _ in range(2):
        observe(run)
        run.end_epoch()
    (place / "zarr.1.partial").write_bytes(b"")
    del run
    gc.collect()
    found = read_run(place)
    assert (found.generation, found.state.epoch, found.state.visits.tolist()) == (
        2,
        2,
        found.state.arrays["visits"].tolist(),
    )
    assert (place / "zarr.1.partial").exists()
    with pytest.raises(ForeignStore, match=f"Expected a run at {tmp_path}/none. Got nothing"):
        read_run(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ForeignStore, match=f"Expected a run at {tmp_path}/empty. Got nothing"):
        read_run(tmp_path / "empty")
    RunStore(tmp_path / "other").create({"epoch": 3, "history": []})
    with pytest.raises(DamagedStore, match="Expected the state of a run"):
        read_run(tmp_path / "other")


def test_who_has_released_a_store_leaves_it_to_others(tmp_path):
    store = RunStore(tmp_path)
    RunStore(MemoryStore()).release()
    store.release()
    store.create({})
    store.release()
    (tmp_path / "zarr.1.partial").write_bytes(b"")
    other = RunStore(tmp_path)
    other.read()
    assert not (tmp_path / "zarr.1.partial").exists()  # it is alone here, and sweeps
    other.write({}, {})


def test_a_linked_folder_of_an_array_is_read_and_not_gone_on_with(tmp_path):
    store = RunStore(tmp_path / "run")
    store.create({})
    store.write({}, {"counts": TAKEN})
    (tmp_path / "run" / "counts-1").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "counts-1").symlink_to(tmp_path / "elsewhere")
    store.release()
    assert RunStore(tmp_path / "run", mode="r").read()[1]["counts"].tolist() == [0, 1, 2]
    with pytest.raises(StoreError, match="Got counts-1, which is a link"):
        RunStore(tmp_path / "run").read()
