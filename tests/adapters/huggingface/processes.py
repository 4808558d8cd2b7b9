"""Processes of one run, as torchrun starts them."""

import os
import socket
from contextlib import closing

import torch

from tests.adapters.helpers.ranks import WORLD

__all__ = ["be_rank", "meet"]


def meet(folder):
    """Choose where the processes meet."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        (folder / "port").write_text(str(free.getsockname()[1]))


def be_rank(rank, folder):
    """Be one of them: accelerate reads it from the environment."""
    torch.set_num_threads(1)
    port = (folder / "port").read_text()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
