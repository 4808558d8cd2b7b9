"""A forked process that does some work and tells lines; it can be killed at any instant or at any of its calls.

Forked from one process that has imported everything, it begins in milliseconds, and dies as any other.
"""

import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from time import monotonic

from benchmarks.faults.calls import CallOnFile, Notifier, fork, hand_over_calls

__all__ = ["Child", "Decide", "Say"]

Say = Callable[[str], None]
Decide = Callable[[CallOnFile], int]
"""Answers a call: 0 lets it happen, an errno makes it fail, and :attr:`Child.KILL` kills the process before it."""
LONGEST = 60.0
"""Seconds after which a child is taken to hang."""


class Child:
    """A process that runs ``work(say)``.

    Parameters
    ----------
    work : callable
        It may ``say`` lines; one that it ends with an error is told as ``failed ...``.
    watched : bool
        Its calls on files wait for :meth:`follow` to decide on them.

    Attributes
    ----------
    lines : list of str
        What it has said so far.
    killed, hung : bool
        How it ended.
    """

    KILL = -1

    def __init__(self, work: Callable[[Say], object], *, watched: bool = False) -> None:
        self.lines: list[str] = []
        self.killed = self.hung = False
        self._rest = b""
        self._pipe, theirs = os.pipe()
        ours, other = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = fork()
        if not self.pid:
            os.close(self._pipe)
            ours.close()
            _live(work, theirs, other if watched else None)
        os.close(theirs)
        other.close()
        self._notifier: Notifier | None = None
        with ours:
            if watched:
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
                self._notifier = Notifier(descriptors[0])

    def follow(self, decide: Decide | None = None, seconds: float | None = None) -> "Child":
        """Follow the child to its end, and return it; ``seconds`` from now it is killed, if it still lives."""
        ends = monotonic() + (LONGEST if seconds is None else seconds)
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        if self._notifier is not None:
            poll.register(self._notifier.descriptor, select.POLLIN)
        open_pipe = True
        while open_pipe:
            left = ends - monotonic()
            events = dict(poll.poll(max(0.0, left * 1000))) if left > 0 else {}
            if not events:
                self.hung = seconds is None
                self.kill()
                ends = monotonic() + LONGEST
                continue
            if self._pipe in events:
                open_pipe = self._read()
            if self._notifier is None or self._notifier.descriptor not in events:
                continue
            if events[self._notifier.descriptor] & select.POLLIN:
                self._answer(self._notifier, decide)
            else:  # nobody is left to call
                poll.unregister(self._notifier.descriptor)
        return self._bury()

    def wait_for(self, word: str) -> bool:
        """Follow an unwatched child until it says a line that begins so; return whether it did before it ended."""
        while not any(line.startswith(word) for line in self.lines):
            if not self._read():
                return False
        return True

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.killed = True

    def said(self, word: str) -> list[str]:
        """What followed ``word`` in the lines that begin with it."""
        return [line.removeprefix(word).strip() for line in self.lines if line.split(" ", 1)[0] == word]

    @property
    def failed(self) -> str:
        """The error that ended it, or ""."""
        if self.hung:
            return f"it hung for {LONGEST:.0f} seconds after {self.lines[-1:]}"
        return "" if self.killed else "\n".join(self.said("failed"))

    def _answer(self, notifier: Notifier, decide: Decide | None) -> None:
        call = notifier.receive()
        if call is None:
            return
        while select.select([self._pipe], [], [], 0)[0] and self._read():
            pass  # what it said came before what it does
        verdict = 0 if decide is None or self.killed else decide(call)
        if verdict == self.KILL:
            self.kill()
        else:
            notifier.answer(call, verdict)

    def _read(self) -> bool:
        raw = os.read(self._pipe, 1 << 16)
        *whole, self._rest = (self._rest + raw).split(b"\n")
        self.lines += [line.decode() for line in whole]
        return bool(raw)

    def _bury(self) -> "Child":
        _, status = os.waitpid(self.pid, 0)
        os.close(self._pipe)
        if self._notifier is not None:
            self._notifier.close()
        self.killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if status and not self.killed:
            self.lines.append(f"failed with status {status}")
        return self


def _live(work: Callable[[Say], object], pipe: int, wire: socket.socket | None) -> None:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever stops the search stops it in the parent
        # What zarr had begun beside a call that failed.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)

        def say(line: str) -> None:
            os.write(pipe, line.replace("\n", " | ").encode() + b"\n")

        if wire is not None:
            socket.send_fds(wire, [b"calls"], [hand_over_calls()])
        try:
            work(say)
        except BaseException:
            say(f"failed {traceback.format_exc()}")
        status = 0
    finally:
        os._exit(status)
