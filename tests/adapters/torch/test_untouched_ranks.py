"""With nothing pruned, two ranks of DDP train the weights that they train without us, bit for bit."""

import json

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import prune
from tests.adapters.helpers.ranks import group, start
from tests.adapters.helpers.untouched import EPOCHS, data, layers

pytestmark = pytest.mark.slow
CASES = {"even": (44, None), "padded": (45, "pad")}


def train(samples, uneven, *, pruned):
    part = TensorDataset(*(tensor[:samples] for tensor in data().tensors))
    batches = DataLoader(part, batch_size=4, sampler=DistributedSampler(part, shuffle=False))
    pruner = Pruner(samples, Schedule(EPOCHS, EPOCHS, 1, 1, 1), prune=0.3, observe_only=True)
    batches = prune(batches, pruner, uneven=uneven) if pruned else batches
    model = layers()
    net, optimizer = DistributedDataParallel(model), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in pruner.epochs() if pruned else range(EPOCHS):
        for features, labels in batches:
            losses = cross_entropy(net(features), labels, reduction="none")
            (batches.observe(losses) if pruned else losses.mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


def work(rank, folder):
    different = {}
    with group(rank, folder):
        for name, (samples, uneven) in CASES.items():
            ours, theirs = (train(samples, uneven, pruned=pruned) for pruned in (True, False))
            different[name] = [part for part in theirs if not torch.equal(ours[part], theirs[part])]
    (folder / f"{rank}.json").write_text(json.dumps(different))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", CASES)
def test_two_ranks(ranks, name):
    assert [rank[name] for rank in ranks] == [[], []]
