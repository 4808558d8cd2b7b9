"""Find out which ranks are lost when the process group has failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import torch.distributed as dist
from torch.distributed import distributed_c10d

from prunedata.errors import PrunedataError

SIGNS = ("gloo", "nccl", "connection closed", "connection reset")
"""Words in the errors of a process group. PyTorch has no class of its own for those of gloo."""
_calls = count()


@contextmanager
def name_lost_ranks(seconds: float = 10) -> Iterator[None]:
    """Name the ranks that no longer answer, if ``torch.distributed`` fails within the context.

    Put it around the loop over ``pruner.epochs()``, on every rank. On the other ranks, a killed rank causes a lost
    connection, and a hanging one the group's timeout: neither error names the rank. So the remaining ranks find out who
    answers, through the store of the group.

    Parameters
    ----------
    seconds : float
        How long to wait for answers after the group has failed.

    Raises
    ------
    PrunedataError
        If ranks don't answer, naming them. An error of the group that all ranks survived is passed on as it is.
    """
    call = next(_calls)  # the same number on every rank, as all run one program
    try:
        yield
    except RuntimeError as error:
        message = str(error).lower()
        of_group = isinstance(error, dist.DistError) or any(sign in message for sign in SIGNS)
        if isinstance(error, PrunedataError) or not of_group:
            raise
        lost = _absent(call, seconds)
        if not lost:
            raise
        names, ranks = ", ".join(map(str, lost)), dist.get_world_size()
        raise PrunedataError(
            f"Expected all {ranks} ranks to train. Got no answer from rank {names} within {seconds:g} s after the "
            "group had failed: look there for the cause, and resume from the last checkpoint, with any number of "
            "ranks."
        ) from error


def _absent(call: int, seconds: float) -> list[int]:
    """Answer the roll call, and return the ranks that don't answer."""
    own, lost = dist.get_rank(), []
    try:
        store = distributed_c10d._get_default_store()
        store.set(f"prunedata/{call}/{own}", "here")
    except RuntimeError:  # rank 0 holds the store, and is lost
        return [0]
    for rank in range(dist.get_world_size()):
        try:
            store.wait([f"prunedata/{call}/{rank}"], timedelta(seconds=seconds))
        except RuntimeError:
            lost.append(rank)
    return lost
