"""A real process is killed among others, or hangs: they say which one it was, and any number goes on exactly."""

import json
import os
import signal
import time
from functools import partial

import pytest
import torch

from prunedata.adapters.torch import name_lost_ranks
from prunedata.errors import PrunedataError
from tests.adapters.helpers.ranks import Trained, clean_processes, group

WORLD, VICTIM = 3, 1
SAVED, KILLED = 12, 14
"""Batches after which all ranks save their states, and those after which one is killed. The first epoch has 9."""
SECONDS = 3
HUNG = 4
"""Seconds after which a group takes a rank that hangs for lost."""


def save(folder, rank, trained, steps):
    if steps == SAVED:
        state = {"model": trained.plain.state_dict(), "pruner": trained.pruner.state_dict()}
        torch.save(state, folder / f"saved-{rank}.pt")
    if steps == KILLED and rank == VICTIM:
        (folder / "ready").write_text("kill me")
        time.sleep(100)


def train(rank, folder, world=WORLD, timeout=30, seconds=SECONDS):
    """Write what a rank is told that survives another."""
    try:
        with group(rank, folder, world=world, timeout=timeout):
            trained = Trained(rank, world)
            try:
                with name_lost_ranks(seconds):
                    trained.go(after_step=partial(save, folder, rank))
            except PrunedataError as error:
                (folder / f"told-{rank}.json").write_text(json.dumps([str(error), str(error.__cause__)]))
                raise
    finally:
        os._exit(3)  # the group cannot be taken down in good order any more


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder in which three ranks have trained, one of which was killed."""
    folder = tmp_path_factory.mktemp("killed")
    context = clean_processes()
    ranks = [context.Process(target=train, args=(rank, folder)) for rank in range(WORLD)]
    for rank in ranks:
        rank.start()
    for _ in range(3600):
        if (folder / "ready").exists() or ranks[VICTIM].exitcode is not None:
            break
        time.sleep(0.05)
    os.kill(ranks[VICTIM].pid, signal.SIGKILL)
    for rank in ranks:
        rank.join(100)
        rank.kill()
    assert ranks[VICTIM].exitcode == -signal.SIGKILL
    return folder


def test_those_that_are_left_name_the_one_that_was_killed(killed):
    for rank in {*range(WORLD)} - {VICTIM}:
        told, _ = json.loads((killed / f"told-{rank}.json").read_text())
        assert "Expected all 3 ranks to train. Got no answer from rank 1 within 3 s" in told


def test_another_number_of_ranks_goes_on_exactly(killed):
    one, rest = Trained(0, 1).go().found(), Trained(0, 1)
    saved = [torch.load(killed / f"saved-{each}.pt", weights_only=True) for each in range(WORLD)]
    rest.plain.load_state_dict(saved[0]["model"])
    rest.pruner.load_state_dict([each["pruner"] for each in saved])
    found = rest.go().found()
    for name in ("visits", "observed", "arrays", "lengths"):
        assert found[name] == one[name]
    assert found["counts"][-1] == one["counts"][-1]
    assert found["weights"] == pytest.approx(one["weights"], abs=1e-9)
    assert len(found["log"][0]["batches"]) == len(one["log"][1]["batches"]) - (SAVED - 9)


def hang(rank, folder):
    """Be one of two, of which one hangs. They wait for each other's imports, as the group's timeout is short."""
    (folder / f"here-{rank}").touch()
    while not (folder / f"here-{1 - rank}").exists():
        time.sleep(0.01)
    train(rank, folder, world=2, timeout=HUNG, seconds=1)


@pytest.mark.slow  # another way to be lost than being killed, which is quick
def test_the_one_that_is_left_names_one_that_hangs(tmp_path):
    context = clean_processes()
    ranks = [context.Process(target=hang, args=(rank, tmp_path)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    ranks[0].join(100)
    assert ranks[VICTIM].exitcode is None
    for rank in ranks:
        rank.kill()
        rank.join()
    told, cause = json.loads((tmp_path / "told-0.json").read_text())
    assert "Expected all 2 ranks to train. Got no answer from rank 1 within 1 s" in told
    assert f"Timed out waiting {HUNG}000ms" in cause


def test_an_error_that_is_none_of_the_groups_is_passed_on():
    with pytest.raises(RuntimeError, match="of my own"), name_lost_ranks():
        raise RuntimeError("of my own")
