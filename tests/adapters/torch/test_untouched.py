"""With nothing pruned, a loop trains the weights that it trains without us, bit for bit: alone, and on ranks."""

import json
from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from tests.adapters.helpers.ranks import group, launched, start
from tests.adapters.helpers.untouched import BATCH, EPOCHS, SAMPLES, Own, assert_same, data, layers, loader, watching

# With nothing pruned, a plain loop trains the weights that it trains without us, bit for bit.


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


# With nothing pruned, two ranks of DDP or accelerate train the weights that they train without us, bit for bit.


CLASS_WEIGHTS = torch.tensor([0.3, 1.1, 5.7])
CASES = {"even": (44, None), "padded": (45, "pad"), "weights of classes": (44, None, CLASS_WEIGHTS)}
ACCELERATED = {  # samples, steps to accumulate over, how accelerate deals
    "even": (48, 1, {}),
    "repeated": (45, 1, {}),
    "accumulated": (45, 2, {}),
    "split": (45, 2, {"split_batches": True}),
}


def train_rank(samples, uneven, weights=None, *, pruned):
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
            ours, theirs = (train_rank(*case, pruned=pruned) for pruned in (True, False))
            different[name] = [part for part in theirs if not torch.equal(ours[part], theirs[part])]
    return different


def work_by_accelerate(rank, folder):
    launched(rank)
    different = {}
    with group(rank, folder):
        for name in json.loads((folder / "cases").read_text()):
            samples, accumulate, deals = ACCELERATED[name]
            given = {"samples": samples, "accumulate": accumulate, "batch_size": 4, **deals}
            ours, theirs = (train_by_accelerate(one, **given).state_dict() for one in (watching(samples), None))
            different[name] = [part for part in theirs if not torch.equal(ours[part], theirs[part])]
    return different


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
