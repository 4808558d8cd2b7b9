"""Processes that play ranks, one training after the other.

They are forked from one that has imported torch and has not used its threads, so that they begin at once.
"""

import multiprocessing
import os
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

__all__ = ["Hangs", "Pool"]

LONGEST = 60.0
"""Seconds after which ranks that wait for each other are an error: long, as a busy machine may start one late."""
Played = tuple[list[dict[str, Any]], tuple[int, int], Any]
"""What :func:`play` returns."""


class Hangs(RuntimeError):
    """Ranks have not come to an end."""


class Pool:
    """Ranks over gloo.

    Parameters
    ----------
    most : int
        Ranks that there are.
    folder : Path
        Where they meet.
    """

    def __init__(self, most: int, folder: Path) -> None:
        self.most, self.folder, self._met = most, folder, 0
        self._ranks: list[tuple[Any, Connection]] = []

    def play(self, setup: Any, place: tuple[int, int], ranks: int, states: list[Any]) -> list[Played]:
        """As :func:`play`, on so many ranks at once. Raises :class:`Hangs`."""
        if not self._ranks:
            self._start()
        self._met += 1
        meeting = self.folder / f"meeting-{os.getpid()}-{self._met}"
        for rank in range(ranks):
            self._ranks[rank][1].send((meeting, setup, place, rank, ranks, states))
        ends, found = monotonic() + 2 * LONGEST, []
        for rank in range(ranks):
            pipe = self._ranks[rank][1]
            if not pipe.poll(max(0.0, ends - monotonic())):
                self.close()
                raise Hangs(f"rank {rank} of {ranks} did not end within {2 * LONGEST:.0f} s")
            try:
                found.append(pipe.recv())
            except EOFError:
                self.close()
                raise Hangs(f"rank {rank} of {ranks} died") from None
        meeting.unlink(missing_ok=True)
        return found

    def _start(self) -> None:
        import torch  # noqa: PLC0415 (only where there are ranks)

        torch.set_num_threads(1)
        context = multiprocessing.get_context("fork")
        for _ in range(self.most):
            ours, theirs = context.Pipe()
            others = [pipe for _, pipe in self._ranks]
            process = context.Process(target=_serve, args=(theirs, [*others, ours]), daemon=True)
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


def _serve(pipe: Connection, others: list[Connection]) -> None:
    """Play until nobody asks any more."""
    for other in others:
        other.close()  # else nobody would see when the other end is gone
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            pipe.send(_play(*pipe.recv()))


def _play(meeting: Path, setup: Any, place: tuple[int, int], rank: int, ranks: int, states: list[Any]) -> Played:
    import torch.distributed as dist  # noqa: PLC0415

    from benchmarks.faults.fuzz.play import play  # noqa: PLC0415

    if ranks == 1:
        return play(setup, place, rank, ranks, states)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=timedelta(seconds=LONGEST)
    )
    try:
        dist.barrier()  # else one that is refused at once is gone while others still look for it
        played = play(setup, place, rank, ranks, states)
        if not played[0] or played[0][-1]["kind"] not in ("refused", "raised"):
            with suppress(RuntimeError):  # of another that was
                dist.barrier()  # what was sent has come
        return played
    finally:
        dist.destroy_process_group()
