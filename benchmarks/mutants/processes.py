"""Forked processes that end in time, within bounds, and with all that they started."""

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable

__all__ = ["FAILED", "bound", "fork", "wait"]

MEMORY = 8 << 30
"""Bytes of address space: a mutant may ask for any amount."""
FAILED = (1, 2, 3, 4)
"""What pytest returns if tests fail, can't be imported, break pytest itself, or tests/conftest.py can't be imported."""


def fork(run: Callable[[], int]) -> int:
    """Run a function in a child, which ends with what it returns."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        os.setpgid(0, 0)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def bound(seconds: float) -> None:
    """Let this process have so many seconds of the processor, and not all of the memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))


def wait(child: int, seconds: float) -> str:
    """What came of a forked test run: ``"killed"``, ``"survived"``, or ``"timeout"`` after so many seconds."""
    end = time.monotonic() + seconds
    found, status = os.waitpid(child, os.WNOHANG)
    while not found and time.monotonic() < end:
        time.sleep(0.005)
        found, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with what its tests have started
    if not found:
        os.waitpid(child, 0)
        return "timeout"
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGXCPU else "killed"
    if os.WEXITSTATUS(status) == 0:
        return "survived"
    if os.WEXITSTATUS(status) not in FAILED:
        raise RuntimeError(f"Expected an exit status of pytest. Got {os.WEXITSTATUS(status)}.")
    return "killed"
