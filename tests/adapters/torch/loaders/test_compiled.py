"""``observe`` within a step that torch.compile compiled: the graph breaks there, and all else is as without it."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from prunedata.adapters.lightning import observe
from prunedata.adapters.torch import wrap
from tests.adapters.helpers.torch import loader_of, make_pruner
from tests.adapters.lightning.helpers import QUIET, pruner_of, trainer_of
from tests.adapters.lightning.helpers import loader_of as loader_of_pairs

# PyTorch 2.13 says it itself, wherever a graph breaks in a function that is given a tensor with a history.
pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")]


@pytest.fixture(autouse=True)
def anew():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def gradients(backend, with_ids):
    """The gradient of each step of two epochs, and the counts."""
    torch.manual_seed(0)
    pruner, model = make_pruner(), torch.nn.Linear(3, 5)
    loader = wrap(loader_of(), pruner, with_ids=with_ids)

    def step(features, index, ids):
        losses = torch.nn.functional.cross_entropy(model(features), index % 5, reduction="none")
        return loader.observe(losses * 2, ids, labels=index % 5) * 3

    if backend:
        step = torch.compile(step, backend=backend)
    found = []
    for epoch in pruner.epochs():
        for batch in loader:
            ids, (features, index) = batch if with_ids else (None, batch)
            model.zero_grad()
            step(features, index, ids).backward()
            found.append(model.weight.grad.clone())
        if epoch.number == 1:
            break
    return torch.stack(found), pruner.counts.copy()


@pytest.mark.parametrize(("backend", "with_ids"), [("eager", False), ("aot_eager", False), ("eager", True)])
def test_a_compiled_step_records_and_learns_as_any(backend, with_ids):
    plain, compiled = gradients(None, with_ids), gradients(backend, with_ids)
    assert torch.allclose(plain[0], compiled[0])
    assert np.array_equal(plain[1], compiled[1])
    assert plain[1].any()


class Small(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        features, ids = batch
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            self.layer(features)[:, 0], (ids % 2).float(), reduction="none"
        )
        return observe(self, losses)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def test_a_compiled_module_of_lightnings():
    found = []
    for compiled in (False, True):
        pruner, module = pruner_of([10, 6]), Small()
        given = torch.compile(module, backend="eager") if compiled else module
        trainer_of(pruner, max_epochs=2).fit(given, loader_of_pairs(pruner))
        found.append((pruner.counts.tolist(), module.layer.weight.tolist()))
    assert found[0] == found[1]
