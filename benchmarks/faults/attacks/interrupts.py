"""A real signal at each line of the library: Ctrl-C, and on in the same process; or a handler that saves."""

import contextlib
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import prunedata
from benchmarks.faults.attack import Attack, Attempt, Verdict
from benchmarks.faults.story import EPOCHS, LAST, new_run, position, position_at, pruner_state, steps
from prunedata import Pruner
from prunedata.errors import PrunedataError

__all__ = ["HandlersAtLines", "InterruptsAtLines"]

LIBRARY = str(Path(prunedata.__file__).parent)


class _SignalAtLine:
    """Raises a signal at one line of the library, counted over all that runs within; at none if that is 0."""

    def __init__(self, at: int, number: signal.Signals) -> None:
        self.at, self.number, self.lines, self.where = at, number, 0, ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
                signal.raise_signal(self.number)
        return self

    def __enter__(self) -> "_SignalAtLine":
        self.before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)


@contextlib.contextmanager
def _deadline(seconds: float = 30.0) -> Iterator[None]:
    """Raise TimeoutError if what is within hangs."""

    def raise_it(*_: object) -> None:
        raise TimeoutError(f"it hung for {seconds:.0f} seconds")

    # Not one of the signals that the library puts off.
    before = signal.signal(signal.SIGURG, raise_it)
    timer = threading.Timer(seconds, signal.pthread_kill, (threading.main_thread().ident, signal.SIGURG))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGURG, before)


class _Cells:
    """A notebook of two cells, the run and its loop. Run again after an error, they go on where they were."""

    def __init__(self, place: Path, run: Pruner | None = None) -> None:
        self.place, self.run = place, run

    def all(self) -> None:
        """Make the run, and train it to its end."""
        if self.run is None:
            self.run = new_run(self.place, resume=True)
        run = self.run
        while run.next_epoch < EPOCHS:
            for step in steps(run):
                step()
                run.counts  # noqa: B018 (looking cuts blocks)
                if step != run.end_epoch:
                    run.commit()
        run.commit()  # an interrupt may have come between the end of the last epoch and its commit


class _AtLines(Attack):
    """A case is a line, counted as they are reached. All of them are tried, each once."""

    number: signal.Signals
    many, few = 0, 60

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        for whole in ("first", "whole"):  # the first time some lines are reached that are not later
            with _SignalAtLine(0, self.number) as count:
                _Cells(self.place(-1) / whole if whole == "first" else folder / "whole").all()
        self._lines = count.lines

    @property
    def total(self) -> int:
        return self._lines

    @contextlib.contextmanager
    def handled(self, handler: Callable[..., Any]) -> Iterator[None]:
        before = signal.signal(self.number, handler)
        try:
            yield
        finally:
            signal.signal(self.number, before)

    def ended(self, cells: _Cells, where: str) -> Attempt:
        """Judge what two cells came to, in memory and in the store."""
        assert cells.run is not None
        found = position(pruner_state(cells.run)), position_at(cells.place)
        if found == (LAST, LAST):
            return Attempt(Verdict.EXACT)
        return Attempt(Verdict.WRONG, f"signal at {where}: at {found[0]} in memory and {found[1]} in the store")


class InterruptsAtLines(_AtLines):
    name = "interrupts"
    about = "Ctrl-C, a real SIGINT, at a line of the library that is reached; the same process goes on"
    number = signal.SIGINT

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        cells = _Cells(self.place(case) / "run")
        at = _SignalAtLine(case + 1, self.number)
        with self.handled(signal.default_int_handler):
            try:
                with _deadline(), at:
                    cells.all()
            except KeyboardInterrupt as interrupt:
                # A notebook keeps the traceback, and with it what the interrupted call had in its hands.
                self.kept = interrupt
            except Exception as error:
                yield Attempt(Verdict.UNCLEAR, f"Ctrl-C at {at.where} became {error!r}")
                return
        try:
            with _deadline():
                cells.all()
        except TimeoutError as error:
            yield Attempt(Verdict.UNCLEAR, f"Ctrl-C at {at.where}, and then: {error!r}")
        except PrunedataError as error:
            yield Attempt(Verdict.LOST, f"Ctrl-C at {at.where}, and then: {error!r}")
        else:
            yield self.ended(cells, at.where)


class HandlersAtLines(_AtLines):
    name = "handlers"
    about = "a signal whose handler saves a checkpoint and returns, at a line that is reached; both go on"
    number = signal.SIGUSR1

    def attempt(self, case: int, chance: random.Random) -> Iterator[Attempt]:
        cells, saved = _Cells(self.place(case) / "run"), []

        def save(*_: object) -> None:
            if cells.run is not None:
                saved.append(cells.run.state_dict())

        at = _SignalAtLine(case + 1, self.number)
        with self.handled(save):
            try:
                with _deadline(), at:
                    cells.all()
            except Exception as error:
                yield Attempt(Verdict.UNCLEAR, f"a handler at {at.where} led to {error!r}")
                return
        one = self.ended(cells, at.where)
        if one.verdict is Verdict.EXACT and saved:
            other = new_run()
            try:
                other.load_state_dict(saved[0])
                _Cells(cells.place, other).all()
            except (ValueError, RuntimeError) as error:
                one = Attempt(Verdict.LOST, f"the checkpoint of a handler at {at.where}: {error!r}")
            else:
                if position(other.state_dict()) != LAST:
                    one = Attempt(Verdict.WRONG, f"going on from the checkpoint of a handler at {at.where}")
        yield one
