"""Several real processes that train together over gloo."""

import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

__all__ = ["WORLD", "clean_processes", "group", "launched", "meet", "start"]

WORLD = 2
SHARED = ("torch.distributed.fsdp", "prunedata.adapters.torch", "torchdata.stateful_dataloader", "webdataset")
SHARED += ("accelerate", "lightning", "transformers.trainer", "trl.trainer.sft_trainer")
"""Imported once for all ranks, where the tests have imported them, too: each rank takes seconds for them.

``import transformers`` alone imports next to nothing: whoever takes the trainer from it pays for it.
"""


@contextmanager
def group(rank: int, folder: Path, backend: str = "gloo", *, world: int = WORLD, timeout: float = 60) -> Iterator[None]:
    """Be a rank of the group that meets in `folder`, and end when all have come to the end."""
    torch.set_num_threads(1)
    # The workers of a rank's loaders are forked from a process of its own, which has imported nothing: each would anew.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["prunedata.adapters.torch"])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend,
        init_method=f"file://{folder}/meeting-{world}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),  # so that a rank that waits for ever is an error
    )
    yield
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def meet(folder: Path) -> None:
    """Choose a port at which processes meet that are no `group`, but become one by what is `launched`."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        (folder / "port").write_text(str(free.getsockname()[1]))


def launched(rank: int, folder: Path | None = None, world: int = WORLD) -> None:
    """Set what a launcher sets; without the folder in which they `meet`, the port is asked for and not used."""
    port = "1" if folder is None else (folder / "port").read_text()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    torch.set_num_threads(1)


def clean_processes() -> Any:
    """What starts processes that have nothing of this one, but what they would have to import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in SHARED if name in sys.modules])
    return context


def returned(work: Callable[[int, Path], Any], rank: int, folder: Path) -> None:
    """Write what `work` returns where `start` reads it."""
    (folder / f"{rank}.json").write_text(json.dumps(work(rank, folder)))


def start(work: Callable[[int, Path], Any], folder: Path, world: int = WORLD) -> list[Any]:
    """Run ``work(rank, folder)`` in a process for each rank; return what each returned, as JSON has it."""
    context = clean_processes()
    processes = [context.Process(target=returned, args=(work, rank, folder)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * world
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
