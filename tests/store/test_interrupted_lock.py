"""Ctrl-C while a store is opened: whatever line it comes at, the next try of the same process opens it."""

import signal
import sys
from pathlib import Path

import pytest

from prunedata.store import lock
from prunedata.store.run_store import RunStore


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
            assert again.read() == ({"of": at}, {}), f"interrupted at line {at}"
            again.write({}, {})
    finally:
        signal.signal(signal.SIGINT, before)
