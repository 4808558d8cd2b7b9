"""A loader's state that was changed on its way: by a format that makes tensors of numbers, or by a forger."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError
from tests.adapters.helpers.torch import BATCH, Items, make_pruner

ARRAYS = [np.array([0, 1]), np.zeros(2), torch.tensor([0, 1]), torch.tensor(0), "x", None, -1, 0.5, True]
FORGED = {
    "epoch": ARRAYS,
    "delivered": ARRAYS,
    "seed": ARRAYS,
    "ranks": [*ARRAYS, 0],
    "loader": [np.array([1, 2]), torch.tensor([1.0, 2.0]), "x", 5, {}, [1]],
}


def opened(kind):
    run = make_pruner()
    loader = wrap(kind(Items(), BATCH, shuffle=True), run)
    run.begin_epoch()
    next(iter(loader))
    return run, loader


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in FORGED.items() for value in values])
def test_a_value_of_another_kind_is_refused_at_once(kind, name, value):
    loader = opened(kind)[1]
    with pytest.raises(PrunedataError, match=name):
        loader.load_state_dict(loader.state_dict() | {name: value})
    next(iter(loader))  # nothing was taken over


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("state", [None, "x", [], {}, np.zeros(3), torch.zeros(3), {"epoch": 0, "delivered": 0}])
def test_what_is_no_state_is_refused(kind, state):
    with pytest.raises(PrunedataError):
        opened(kind)[1].load_state_dict(state)


@pytest.mark.parametrize("inner", [{"a": 1}, {"_num_yielded": "x"}])
def test_a_position_that_the_loader_cannot_read_is_refused_when_it_begins(inner):
    run, loader = opened(StatefulDataLoader)
    loader.load_state_dict(loader.state_dict() | {"loader": inner})
    run.begin_epoch()
    with pytest.raises(PrunedataError, match="resume from"):
        next(iter(loader))


def test_a_plain_loader_goes_on_from_the_state_of_a_stateful_one():
    run, loader = opened(StatefulDataLoader)
    loader.observe(torch.rand(BATCH))
    states = run.state_dict(), loader.state_dict()
    run, loader = opened(DataLoader)
    run.load_state_dict(states[0])
    loader.load_state_dict(states[1])
    for _ in run.epochs():
        for _, ids in loader:
            loader.observe(torch.rand(len(ids)))
    assert run.history[0]["observed"] == 103
