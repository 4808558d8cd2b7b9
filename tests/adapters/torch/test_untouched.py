"""With nothing pruned, a plain loop trains the weights that it trains without us, bit for bit."""

from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.torch import wrap
from tests.adapters.helpers.untouched import BATCH, EPOCHS, SAMPLES, Own, assert_same, layers, loader, watching


def train(batches, pruner=None, *, accumulate=1, half=False):
    """A loop as users write it. The same, whether there is a pruner or not."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rate = OneCycleLR(optimizer, 0.5, total_steps=EPOCHS * len(batches))
    for _ in range(EPOCHS) if pruner is None else pruner.epochs():
        for number, (features, labels) in enumerate(batches, 1):
            with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
                losses = cross_entropy(model(features), labels, reduction="none")
                loss = losses.mean() if pruner is None else batches.observe(losses)
            (loss / accumulate).backward()
            if number % accumulate == 0 or number == len(batches):
                optimizer.step()
                optimizer.zero_grad()
                rate.step()
    return model


@pytest.mark.parametrize("own", [False, True], ids=["in sequence", "own sampler"])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
@pytest.mark.parametrize("options", [{}, {"half": True, "accumulate": 2}], ids=str)
def test_a_plain_loop(workers, options, own):
    made = [loader(**workers, **({"sampler": Own()} if own else {})) for _ in range(2)]
    pruner = watching()
    assert_same(train(wrap(made[1], pruner), pruner, **options), train(made[0], **options))
    assert [record["observed"] for record in pruner.history] == [45] * EPOCHS


@pytest.mark.parametrize("options", [{"drop_last": True}, {"kind": StatefulDataLoader}], ids=str)
def test_other_loaders(options):
    pruner = watching()
    assert_same(train(wrap(loader(**options), pruner), pruner), train(loader(**options)))


def test_a_generator_of_the_users_own_is_drawn_from_as_ever():
    made = [loader(generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    pruner = watching()
    assert_same(train(wrap(made[1], pruner), pruner), train(made[0]))
    assert torch.equal(made[0].generator.get_state(), made[1].generator.get_state())


def train_by_accelerate(pruner, *, accumulate, samples=SAMPLES, batch_size=BATCH, **configuration):
    """Without dropout: accelerate iterates a loader of its own, which draws from the generator that we gave ours."""
    batches = loader(samples=samples, batch_size=batch_size)
    model, source = layers(), batches if pruner is None else wrap(batches, pruner, with_ids=True)
    model[3] = torch.nn.Identity()
    deals = DataLoaderConfiguration(**configuration)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, dataloader_config=deals)
    net, optimizer, batches = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), source)
    for _ in range(EPOCHS) if pruner is None else pruner.epochs():
        for batch in batches:
            ids, (features, labels) = (None, batch) if pruner is None else batch
            with accelerator.accumulate(net):
                losses = cross_entropy(net(features), labels, reduction="none")
                accelerator.backward(losses.mean() if pruner is None else source.observe(losses, ids))
                optimizer.step()
                optimizer.zero_grad()
    return model


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loop_by_accelerate(accumulate):
    ours, theirs = (train_by_accelerate(pruner, accumulate=accumulate) for pruner in (watching(), None))
    assert_same(ours, theirs)
