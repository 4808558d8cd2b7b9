"""Processes of this machine that are the ranks of a gloo group, and what is said when one of them fails."""

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.distributed_c10d import Store

__all__ = ["MeetingFailed", "RankFailed", "in_ranks", "join_group"]

HERE = ("localhost", "127.0.0.1", "::1")
SOON = 3.0
"""Seconds in which the other ranks notice that one is gone."""


class RankFailed(ConnectionError):
    """A process of the group was killed, hangs, or ended with an error; the others cannot go on without it."""


class MeetingFailed(ConnectionError):
    """The ranks could not meet: the port is taken, or not all of them came in time."""


def in_ranks(
    ranks: int,
    work: Callable[..., Any],
    *given: Any,
    within: float = 120.0,
    started: Callable[[list[Any]], None] | None = None,
    advice: str = "",
) -> Any:
    """Call ``work(*given)`` in so many processes, which are a gloo group, and return what rank 0 returns.

    Parameters
    ----------
    ranks : int
    work : callable
        A module's own function. In it ``torch.distributed`` knows the rank and the group.
    *given
        Its arguments, which can be pickled, as what it returns.
    within : float
        Seconds after which a rank that waits for another one gives up.
    started : callable, optional
        Is told the processes, in the order of their ranks, when they were started.
    advice : str
        Is put behind the message of an error.

    Raises
    ------
    RankFailed
        Naming the rank: soon after it was killed, or ``within`` seconds after it stopped answering.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, work.__module__])  # imported once, and not in each rank
    with TemporaryDirectory() as folder:
        place = Path(folder)
        processes: list[Any] = [
            context.Process(target=_rank, args=(rank, ranks, place, within, work, given)) for rank in range(ranks)
        ]
        try:
            for process in processes:
                process.start()
            if started is not None:
                started(processes)
            _wait_for(processes, place, advice)
        finally:
            for process in processes:
                process.kill()
                process.join()
        return pickle.loads((place / "done").read_bytes())


def join_group(rank: int, size: int, within: float, store: Store | None = None) -> None:
    """Be a rank of a gloo group.

    The ranks meet in ``store``, or without one as torchrun's environment says: at MASTER_ADDR and MASTER_PORT.

    Raises
    ------
    MeetingFailed
        If the port is taken, or the others don't come in time.
    """
    host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    where = "a place of their own" if store is not None else f"{host}:{port}"
    if store is not None or host in HERE:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a machine's name may not be known to itself
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=within))
    except (RuntimeError, ValueError) as error:
        taken = "EADDRINUSE" in str(error)
        raise MeetingFailed(
            f"Expected {size} ranks to meet at {where} within {within:g} seconds. Got on rank {rank}: "
            + ("a port in use: set MASTER_PORT to one that is free." if taken else f"{error}")
        ) from error


def _rank(rank: int, ranks: int, place: Path, within: float, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        torch.set_num_threads(1)
        join_group(rank, ranks, within, FileStore(str(place / "meeting"), ranks))
        found = work(*given)
        if rank == 0:
            (place / "done").write_bytes(pickle.dumps(found))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        (place / f"error-{rank}").write_text(f"{type(error).__name__}: {error}")
        raise


def _wait_for(ranks: list[Any], place: Path, advice: str) -> None:
    """Return when all ranks are done. Raise if one fails, naming the one because of which the others do."""
    running = {rank.sentinel: rank for rank in ranks}
    while running:
        for sentinel in wait(list(running)):
            rank = running.pop(sentinel)
            rank.join()
            if rank.exitcode:
                end = time.monotonic() + SOON  # the others fail of it, but for one that hangs
                while running and (left := end - time.monotonic()) > 0:
                    for other in wait(list(running), timeout=left):
                        running.pop(other).join()
                raise RankFailed(_told(ranks, place, advice))


def _told(ranks: list[Any], place: Path, advice: str) -> str:
    killed = [
        f"rank {number} was killed by {signal.Signals(-rank.exitcode).name}"
        for number, rank in enumerate(ranks)
        if rank.exitcode is not None and rank.exitcode < 0
    ]
    hanging = [f"rank {number} does not answer" for number, rank in enumerate(ranks) if rank.exitcode is None]
    failed = [f"rank {number} ended with {_error(place, number)}" for number, rank in enumerate(ranks) if rank.exitcode]
    return f"Expected {len(ranks)} ranks to work together. Got fewer: {'; '.join(killed or hanging or failed)}.{advice}"


def _error(place: Path, rank: int) -> str:
    told = place / f"error-{rank}"
    return told.read_text() if told.exists() else "the error that it printed"
