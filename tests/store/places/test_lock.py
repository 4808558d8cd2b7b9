"""The lock of a folder: who holds it, who of one process may write, and Ctrl-C while it is taken."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from prunedata.store import lock
from prunedata.store.lock import WriteLock
from prunedata.store.run_store import RunStore

fcntl = pytest.importorskip("fcntl")


class Other:
    """Has a folder open on its own, as another process would, and may lock it."""

    def __init__(self, folder):
        self.descriptor = os.open(folder, os.O_RDONLY)

    def lock(self):
        """Whether nobody else has it locked."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self):
        os.close(self.descriptor)


@pytest.fixture
def other(tmp_path):
    found = Other(tmp_path)
    yield found
    found.close()


def test_a_folder_is_locked_until_its_last_holder_is_gone(tmp_path, other):
    one, two, three = (WriteLock(tmp_path) for _ in range(3))
    (tmp_path / "link").symlink_to(tmp_path)
    four = WriteLock(tmp_path / "link")
    assert one.folder == tmp_path
    assert not other.lock()
    one.release()
    one.release()
    del two
    four.release()
    gc.collect()
    assert not other.lock()
    three.release()
    assert other.lock()


@pytest.mark.parametrize("how", ["the system has none", "the file system has none"])
def test_where_there_are_no_locks_nobody_knows_to_be_alone(tmp_path, monkeypatch, other, how):
    def flock(descriptor, kind):
        raise OSError(95, "Operation not supported")

    if how == "the system has none":
        monkeypatch.setattr(lock, "fcntl", None)
    else:
        monkeypatch.setattr(lock.fcntl, "flock", flock)
    one = WriteLock(tmp_path)
    assert one.claim() is False
    one.check()
    monkeypatch.undo()
    assert other.lock()


def test_a_lock_that_was_lost_is_known_to_be(tmp_path, monkeypatch):
    """A network file system may have given locks before, and give none now."""

    def flock(descriptor, kind):
        raise OSError(37, "No locks available")

    one = WriteLock(tmp_path)
    monkeypatch.setattr(lock.fcntl, "flock", flock)
    two = WriteLock(tmp_path)
    assert not one.claim()
    del two


class InterruptAtLine:
    """Raises SIGINT at one line of the lock, as they are reached; at none if that is 0."""

    def __init__(self, at):
        self.at, self.lines = at, 0

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename != lock.__file__:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self

    def open(self, place):
        sys.settrace(self)
        try:
            store = RunStore(place)
            store.read()
            return store
        finally:
            sys.settrace(None)


def test_ctrl_c_at_every_line_of_the_lock(tmp_path):
    """A notebook keeps the traceback, and with it whatever the interrupted call had in its hands."""
    RunStore(tmp_path / "0").create({})
    count = InterruptAtLine(0)
    count.open(tmp_path / "0").release()
    assert count.lines > 20
    before, kept = signal.signal(signal.SIGINT, signal.default_int_handler), []
    try:
        for at in range(1, count.lines + 1):
            place = Path(tmp_path / str(at))
            store = RunStore(place)
            store.create({"of": at})
            store.release()
            del store
            with pytest.raises(KeyboardInterrupt) as interrupted:
                InterruptAtLine(at).open(place)
            kept.append(interrupted.value)
            again = RunStore(place)
            assert again.read()[0]["of"] == at, f"interrupted at line {at}"
            again.write({}, {})
    finally:
        signal.signal(signal.SIGINT, before)
