"""A step that happens whole or not at all, though Ctrl-C or another thread comes in between."""

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Uninterrupted"]

Handler = Callable[[int, FrameType | None], Any]
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)
"""Those for which programs commonly have handlers: to stop, or to save a checkpoint."""
# The module's own functions turn numbers into enums, which takes ten times as long as what they do.
_functions = import_module("_signal") if find_spec("_signal") else signal
_handler_of: Callable[[int], Any] = _functions.getsignal
_handle: Callable[[int, Handler], Any] = _functions.signal


class Uninterrupted:
    """A context manager: what is within is not interrupted by a signal's handler, and only one thread is within.

    Signals that come meanwhile are handled at its end, in the order in which they came. Only handlers written in
    Python are put off, and Python runs these in the main thread only; other threads wait for the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self._handlers: dict[int, Handler] = {}
        self._came: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me and me == threading.main_thread().ident:
            self._put_off()
        self._lock.acquire()
        self._owner = me
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            self._lock.release()
            return
        self._owner = None
        self._lock.release()
        if threading.get_ident() == threading.main_thread().ident:
            self._let_come()

    def _put_off(self) -> None:
        self._came = []
        for number in SIGNALS:
            handler = _handler_of(number)
            if callable(handler) and handler != self._note:
                self._handlers[number] = handler  # known before it is replaced
                _handle(number, self._note)

    def _let_come(self) -> None:
        for number, handler in self._handlers.items():
            if _handler_of(number) == self._note:
                _handle(number, handler)
        came, self._came = self._came, []
        for number, frame in came:
            self._handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._owner == threading.get_ident():
            self._came.append((number, frame))
        else:  # just before the step, or just after it
            self._handlers[number](number, frame)
