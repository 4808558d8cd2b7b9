"""Processes that play ranks, one training after the other.

They are forked from a process of their own, which has imported what they need and started no thread: forked from one
that has threads, as tests are, a rank may wait for ever.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

__all__ = ["Hangs", "Pool", "hangs_after"]

LONGEST = 60.0
"""Seconds after which ranks that wait for each other are an error: long, as a busy machine may start one late."""
Played = tuple[list[dict[str, Any]], tuple[int, int], Any]
"""What :func:`play` returns."""


class Hangs(RuntimeError):
    """Ranks have not come to an end."""


@contextmanager
def hangs_after(seconds: int) -> Iterator[None]:
    """Raise :class:`Hangs` if what is within takes longer, in the main thread of this process."""

    def hangs(*_: object) -> None:
        raise Hangs(f"it did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Pool:
    """Ranks over gloo.

    Parameters
    ----------
    most : int
        Ranks that there are.
    folder : Path
        Where they meet.
    """

    start = "forkserver"
    """How ranks are started; by "fork" they have what this process has, as a library that was broken on purpose."""

    def __init__(self, most: int, folder: Path) -> None:
        self.most, self.folder, self._met = most, folder, 0
        self._ranks: list[tuple[Any, Connection]] = []

    def play(self, setup: Any, place: tuple[int, int], ranks: int, states: list[Any]) -> list[Played]:
        """As :func:`play`, on so many ranks at once. Raises :class:`Hangs`."""
        return self.run(ranks, "benchmarks.faults.fuzz.play", "on_rank", setup, place, states)

    def run(self, ranks: int, module: str, function: str, *arguments: Any) -> list[Any]:
        """Call a function on so many ranks at once; return what it returns on each.

        It is called with the rank, the number of ranks and the arguments, and returns a pair: whether all went well,
        and what to return. Raises :class:`Hangs`.
        """
        if not self._ranks:
            self._start()
        self._met += 1
        meeting = self.folder / f"meeting-{os.getpid()}-{self._met}"
        for rank in range(ranks):
            with suppress(BrokenPipeError):  # it has died, which is said below
                self._ranks[rank][1].send((meeting, rank, ranks, module, function, arguments))
        ends = monotonic() + 2 * LONGEST
        found: dict[int, Any] = {}
        while len(found) < ranks:
            awaited = {rank: self._ranks[rank][1] for rank in range(ranks) if rank not in found}
            ready = wait(list(awaited.values()), max(0.0, ends - monotonic()))
            if not ready:
                self.close()
                raise Hangs(f"{len(awaited)} of {ranks} ranks did not end within {2 * LONGEST:.0f} s")
            for rank, pipe in awaited.items():
                if pipe not in ready:
                    continue
                try:
                    found[rank] = pipe.recv()
                except (EOFError, ConnectionResetError):
                    self.close()
                    raise Hangs(f"rank {rank} of {ranks} died") from None
        meeting.unlink(missing_ok=True)
        return [found[rank] for rank in range(ranks)]

    def _start(self) -> None:
        context: Any = multiprocessing.get_context(self.start)
        if self.start == "forkserver":
            context.set_forkserver_preload([__name__, "benchmarks.faults.fuzz.play", "torch.distributed"])
        for _ in range(self.most):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._ranks.append((process, ours))

    def close(self) -> None:
        """End all ranks."""
        for process, pipe in self._ranks:
            process.kill()
            process.join()
            pipe.close()
        self._ranks = []


def _serve(pipe: Connection) -> None:
    """Play until nobody asks any more."""
    import torch  # noqa: PLC0415 (only where there are ranks)

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            pipe.send(_run(*pipe.recv()))


def _run(meeting: Path, rank: int, ranks: int, module: str, function: str, arguments: tuple[Any, ...]) -> Any:
    import torch.distributed as dist  # noqa: PLC0415

    call = getattr(import_module(module), function)
    if ranks == 1:
        return call(rank, ranks, *arguments)[1]
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=timedelta(seconds=LONGEST)
    )
    try:
        dist.barrier()  # else one that is refused at once is gone while others still look for it
        well, found = call(rank, ranks, *arguments)
        if well:
            with suppress(RuntimeError):  # of another that was
                dist.barrier()  # what was sent has come
        return found
    finally:
        dist.destroy_process_group()
