"""Steps that happen whole or not at all, also if a signal or another thread comes in between."""

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)
"""The signals for which programs commonly have handlers: to stop, or to save a checkpoint."""
# The functions of the signal module convert numbers to enums, which takes ten times as long as the rest.
_functions = import_module("_signal") if find_spec("_signal") else signal
_handler_of: Callable[[int], Any] = _functions.getsignal
_handle: Callable[[int, Handler], Any] = _functions.signal


class Uninterrupted:
    """A context manager that signal handlers cannot interrupt, and that only one thread at a time can enter.

    Signals that come meanwhile are handled at its end, in the order in which they came. Only handlers written in
    Python are deferred, which Python runs in the main thread only; other threads wait for the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self._handlers: dict[int, Handler] = {}
        self._pending: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me and me == threading.main_thread().ident:
            self._defer()
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
            self._handle_pending()

    def _defer(self) -> None:
        self._pending = []
        for number in SIGNALS:
            handler = _handler_of(number)
            if callable(handler) and handler != self._on_signal:
                self._handlers[number] = handler  # stored before it is replaced
                _handle(number, self._on_signal)

    def _handle_pending(self) -> None:
        for number, handler in self._handlers.items():
            if _handler_of(number) == self._on_signal:
                _handle(number, handler)
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        with ExitStack() as handled:  # a handler may raise, and those after it are called all the same
            for number, frame in reversed(pending):
                handled.callback(self._handlers[number], number, frame)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._owner == threading.get_ident():
            self._pending.append((number, frame))
        else:  # just before the step, or just after it
            self._handlers[number](number, frame)
