"""With nothing pruned, two ranks of DDP or accelerate train the weights that they train without us, bit for bit."""

import json
import os

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.helpers.untouched import EPOCHS, data, layers, watching
from tests.adapters.torch.test_untouched import train_by_accelerate

CLASS_WEIGHTS = torch.tensor([0.3, 1.1, 5.7])
CASES = {"even": (44, None), "padded": (45, "pad"), "weights of classes": (44, None, CLASS_WEIGHTS)}
ACCELERATED = {  # samples, steps to accumulate over, how accelerate deals
    "even": (48, 1, {}),
    "repeated": (45, 1, {}),
    "accumulated": (45, 2, {}),
    "split": (45, 2, {"split_batches": True}),
}


def train(samples, uneven, weights=None, *, pruned):
    part = TensorDataset(*(tensor[:samples] for tensor in data().tensors))
    batches = DataLoader(part, batch_size=4, sampler=DistributedSampler(part, shuffle=False))
    pruner = Pruner(samples, Schedule(EPOCHS, EPOCHS, 1, 1, 1), prune=0.3, leave_out="nothing")
    batches = wrap(batches, pruner, uneven=uneven) if pruned else batches
    model = layers()
    net, optimizer = DistributedDataParallel(model), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in pruner.epochs() if pruned else range(EPOCHS):
        for features, labels in batches:
            scores = net(features)
            losses = cross_entropy(scores, labels, reduction="none")
            own = None if weights is None else weights[labels]
            mean = batches.observe(losses, weights=own) if pruned else cross_entropy(scores, labels, weight=weights)
            mean.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


def work(rank, folder):
    different = {}
    with group(rank, folder):
        for name, case in CASES.items():
            ours, theirs = (train(*case, pruned=pruned) for pruned in (True, False))
            different[name] = [part for part in theirs if not torch.equal(ours[part], theirs[part])]
    (folder / f"{rank}.json").write_text(json.dumps(different))


def work_by_accelerate(rank, folder):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}  # asked for, but they meet in the folder
    different = {}
    with group(rank, folder):
        for name in json.loads((folder / "cases").read_text()):
            samples, accumulate, deals = ACCELERATED[name]
            given = {"samples": samples, "accumulate": accumulate, "batch_size": 4, **deals}
            ours, theirs = (train_by_accelerate(one, **given).state_dict() for one in (watching(samples), None))
            different[name] = [part for part in theirs if not torch.equal(ours[part], theirs[part])]
    (folder / f"{rank}.json").write_text(json.dumps(different))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_ranks(ranks, name):
    assert [rank[name] for rank in ranks] == [[], []]


@pytest.mark.parametrize(
    "names", [["accumulated"], pytest.param(list(ACCELERATED), marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_two_processes_of_accelerate(names, tmp_path):
    (tmp_path / "cases").write_text(json.dumps(names))
    assert start(work_by_accelerate, tmp_path) == [{name: [] for name in names}] * 2
