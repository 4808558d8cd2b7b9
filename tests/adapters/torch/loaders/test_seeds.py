"""What a loader's state and its workers' random numbers are, and what is refused as a state."""

import random
from itertools import islice

import numpy as np
import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError
from tests.adapters.helpers.ranks import WORLD, group, launched, start
from tests.adapters.helpers.torch import BATCH, Items, loader_of, losses_of, make_pruner
from tests.adapters.lightning.helpers import QUIET, Net, pruner_of, trainer_of
from tests.adapters.lightning.helpers import loader_of as loader_of_pairs

# A loader's state that was changed on its way: by a format that makes tensors of numbers, or by a forger.


ARRAYS = [np.array([0, 1]), np.zeros(2), torch.tensor([0, 1]), torch.tensor(0), "x", None, -1, 0.5, True]
FORGED = {
    "epoch": ARRAYS,
    "delivered": ARRAYS,
    "seed": ARRAYS,
    "skipped": ARRAYS,
    "ranks": [*ARRAYS, 0],
    "batch_size": [*ARRAYS, 0],
    "workers": ARRAYS,
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
    with pytest.raises(PrunedataError, match="cannot resume from"):
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


# The random numbers of workers: another in each epoch, rank and run, and the same when a run goes on.


BOTH = pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])


class Noisy(Items):
    """Each sample has what an augmentation may draw, and what its worker says of its own seed."""

    def __getitem__(self, index):
        worker = get_worker_info()
        noise = [torch.rand(()).item(), random.random()]
        return torch.tensor([*noise, 0 if worker is None else worker.seed % 9973], dtype=torch.float64), index


class Run:
    def __init__(self, seed=None, kind=DataLoader, *, workers=2, **options):
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
        self.pruner, self.noise = make_pruner(), {}
        self.loader = wrap(kind(Noisy(), batch_size=BATCH, shuffle=True, num_workers=workers, **options), self.pruner)

    def go(self, epochs=3, stop=None):
        for epoch in self.pruner.epochs():
            for number, (values, index) in enumerate(self.loader):
                self.loader.observe(losses_of(index, epoch.number))
                self.noise.setdefault(epoch.number, []).append(values.tolist())
                if (epoch.number, number) == stop:
                    return self
            if epoch.number == epochs - 1:
                break
        return self

    def states(self):
        return self.pruner.state_dict(), self.loader.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_seed_of_torch_counts(workers):
    first, again, other = (Run(seed, workers=workers).go(2).noise for seed in (1, 1, 2))
    assert first == again
    assert first[0][0] != other[0][0]
    assert first[0][0] != first[1][0]


def seed_by_worker(worker):
    random.seed(get_worker_info().seed % 997)


def test_a_worker_knows_the_seed_that_it_was_given():
    seen = []
    for seed in (1, 2):
        loader = Run(seed, worker_init_fn=seed_by_worker).loader
        loader._pruner.begin_epoch()
        seen.append([values[0].tolist() for values, _ in islice(loader, 2)])
    assert all(ours[1:] != theirs[1:] for ours, theirs in zip(*seen, strict=True))
    assert seen[0][0][1] != seen[0][1][1]  # of two workers


def test_workers_that_stay_go_on_drawing_as_pytorchs_do():
    noise = [Run(seed, persistent_workers=True).go(2).noise for seed in (1, 1, 2)]
    assert noise[0] == noise[1] != noise[2]
    assert noise[0][0][0] != noise[0][1][0]


@BOTH
@pytest.mark.parametrize("stop", [None, (1, 4)], ids=["between", "within"])
def test_a_run_that_goes_on_under_another_seed_draws_as_before(kind, stop):
    """By the loader's state. Within an epoch the workers begin anew, with the seed of that epoch."""
    whole, first = Run(1, kind).go(3).noise, Run(1, kind).go(1 if stop is None else 2, stop)
    states = first.states()
    again = Run(7, kind)
    again.pruner.load_state_dict(states[0])
    again.loader.load_state_dict(states[1])
    again.go(3)
    ours, theirs = ({sample[2] for batch in noise[1] for sample in batch} for noise in (whole, again.noise))
    assert ours == theirs
    assert again.noise[2] == whole[2]
    if stop is None:
        assert again.noise[1] == whole[1]
    torch.manual_seed(8)
    assert again.loader.state_dict()["seed"] == 8


def test_the_state_of_torchs_generator_says_the_seed_too():
    """As most checkpoints have it; then a plain loader needs no state of its own."""
    first = Run(1).go(1)
    state, generator = first.pruner.state_dict(), torch.get_rng_state()
    again = Run(7)
    again.pruner.load_state_dict(state)
    torch.set_rng_state(generator)
    assert again.go(3).noise[2] == Run(1).go(3).noise[2]


class Seeds(Items):
    def __getitem__(self, index):
        return torch.tensor(get_worker_info().seed), index


def first_seed(pruner, loader, *, ids=False):
    """The seed of the first worker in the first epoch."""
    pruner.begin_epoch()
    batch = next(iter(loader))
    return int((batch[1] if ids else batch)[0][0])


def work(rank, folder):
    launched(rank)
    # Not forked: gloo has threads, and a fork of a process that has some may wait for ever.
    options = {"batch_size": 32, "num_workers": 1, "multiprocessing_context": "spawn"}
    samplers = {
        "distributed": DistributedSampler(Items(), num_replicas=WORLD, rank=rank),
        "accelerate": SequentialSampler(Items()),
    }
    found = {}
    with group(rank, folder):
        for name, sampler in samplers.items():
            torch.manual_seed(3)  # all ranks have the same
            pruner, ids = make_pruner(), name == "accelerate"
            loader = wrap(DataLoader(Seeds(), sampler=sampler, **options), pruner, with_ids=ids)
            if ids:
                configuration = DataLoaderConfiguration(even_batches=False)
                loader = Accelerator(cpu=True, dataloader_config=configuration).prepare(loader)
            found[name] = first_seed(pruner, loader, ids=ids)
    return found


@pytest.mark.slow
def test_ranks_draw_other_numbers_from_the_same_seed(tmp_path):
    ours, theirs = start(work, tmp_path)
    assert ours["distributed"] != theirs["distributed"]
    assert ours["accelerate"] != theirs["accelerate"]


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


def test_a_compiled_module_of_lightnings():
    found = []
    for compiled in (False, True):
        pruner, module = pruner_of([10, 6]), Net(schedule=False)
        given = torch.compile(module, backend="eager") if compiled else module
        trainer_of(pruner, max_epochs=2).fit(given, loader_of_pairs(pruner))
        found.append((pruner.counts.tolist(), module.layer.weight.tolist()))
    assert found[0] == found[1]
