"""A training whose batches are poisoned: labels and inputs of what must not be learnt are changed, in each batch.

Each batch's gradient is held to that of a plain loop over what counts.
"""

from contextlib import nullcontext

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Sampler, SubsetRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import watch, wrap
from prunedata.policies import DroppingCount, EasyPruning, LossRanked
from tests.adapters.helpers.torch import SAMPLES, Items, make_pruner

__all__ = ["KINDS", "MODES", "Learner", "counts", "run_of", "train"]

GOOD = np.arange(0, SAMPLES, 9)
"""Left out for good."""
KINDS = {
    "held out": {"holdout": 0.2},
    "by weight": {"leave_out": "weight"},
    "for good": {"without": GOOD},
    "for good, by weight": {"without": GOOD, "leave_out": "weight"},
    "held out, for good": {"holdout": 0.2, "without": GOOD},
    "all of it": {"holdout": 0.2, "without": GOOD, "leave_out": "weight"},
    "weighed": {"policy": LossRanked()},
    "weighed, held out": {"policy": LossRanked(), "holdout": 0.2},
    "weighed, by weight": {"policy": LossRanked(), "leave_out": "weight", "without": GOOD},
    "easy, held out": {"policy": EasyPruning(), "holdout": 0.2},
    "easy, by weight": {"policy": EasyPruning(), "leave_out": "weight", "holdout": 0.1},
}


def run_of(kind, **options):
    return make_pruner(**{"policy": DroppingCount(), "classes": 5, **KINDS[kind], **options})


class Backwards(Sampler):
    """An order of the user's own."""

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        return iter(range(SAMPLES - 1, -1, -1))


def sorting(samples):
    """A collate function that needs an ``id_key``."""
    return torch.utils.data.default_collate(sorted(samples, key=lambda one: one[1] % 5))


class Batches:
    """What is watched."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        order = np.random.default_rng(0).permutation(SAMPLES)
        for first in range(0, SAMPLES, self.size):
            ids = torch.from_numpy(order[first : first + self.size])
            yield None, ids


def _shuffled(run, size, kind=DataLoader, **options):
    return [wrap(kind(Items(), size, shuffle=True, **options), run)]


def _batch_sampler(run, size, **_):
    fixed = [list(range(first, min(first + size, SAMPLES))) for first in range(0, SAMPLES, size)]
    return [wrap(DataLoader(Items(), batch_sampler=fixed[::-1]), run)]


def _stream(run, size, **options):
    raw = [{"n": number} for number in range(SAMPLES)]
    return [wrap(DataLoader(prune_stream(raw, run, id="n", then=lambda one: (0, one["n"])), size, **options), run)]


def _two(run, size, **options):
    generator = torch.Generator().manual_seed(0)
    parts = [SubsetRandomSampler(part, generator) for part in (range(60), range(60, SAMPLES))]
    return [wrap(DataLoader(Items(), size, sampler=part, **options), run) for part in parts]


class Prepared:
    """A loader that accelerate has prepared."""

    def __init__(self, loader, **options):
        from accelerate import Accelerator, DataLoaderConfiguration

        configuration = DataLoaderConfiguration(dispatch_batches=False, **options)
        self._loader, self._prepared = loader, Accelerator(cpu=True, dataloader_config=configuration).prepare(loader)

    def __iter__(self):
        for ids, batch in self._prepared:
            self._ids = ids
            yield batch

    def observe(self, losses):
        return self._loader.observe(losses, self._ids)


MODES = {
    "own loop": _shuffled,
    "stateful": lambda run, size, **options: _shuffled(run, size, StatefulDataLoader, **options),
    "own sampler": lambda run, size, **options: [wrap(DataLoader(Items(), size, sampler=Backwards(), **options), run)],
    "batch sampler": _batch_sampler,
    "stream": _stream,
    "id_key": lambda run, size, **options: [
        wrap(DataLoader(Items(), size, shuffle=True, collate_fn=sorting, **options), run, id_key="id")
    ],
    "two loaders": _two,
    "accelerate": lambda run, size, **options: [
        Prepared(wrap(DataLoader(Items(), size, shuffle=True, **options), run, with_ids=True))
    ],
    "watch": lambda run, size, **_: [watch(Batches(size), run, ids=1)],
}


def counts(epoch, ids):
    """Which samples of a batch are to be learnt."""
    which = np.ones(len(ids), np.bool_) if not epoch.zero_weights else epoch.trained[ids]
    return which & epoch.remaining[ids]  # of what is watched all comes again, once an epoch goes on


class Learner:
    """A network and its losses, poisoned where something must not be learnt."""

    def __init__(self, *, poisoned, half=False):
        torch.manual_seed(0)
        dtype = torch.float32 if half else torch.float64
        self.model = torch.nn.Sequential(
            torch.nn.Linear(3, 8, dtype=dtype), torch.nn.Tanh(), torch.nn.Linear(8, 5, dtype=dtype)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.poisoned, self.dtype = poisoned, dtype
        self.cast = torch.autocast("cpu", torch.bfloat16) if half else nullcontext()
        self.forward = self.model

    def losses(self, epoch, index):
        inputs = torch.stack([index % 7 / 7, index % 11 / 11, index % 3 / 3], 1).to(self.dtype)
        labels = index % 5
        if self.poisoned:
            bad = torch.from_numpy(~counts(epoch, index.numpy()))
            labels, inputs = torch.where(bad, (labels + 1 + index % 4) % 5, labels), inputs.clone()
            inputs[bad] = 3 - inputs[bad]
        with self.cast:
            return cross_entropy(self.forward(inputs), labels, reduction="none")

    def plain(self, epoch, index, losses):
        """The gradient of the mean over what counts, by hand."""
        which = torch.from_numpy(counts(epoch, index.numpy()))
        weights = torch.ones(len(index)) if epoch.weights is None else torch.from_numpy(epoch.weights[index.numpy()])
        mean = (losses * weights)[which].sum() / max(1, int(which.sum()))
        return torch.autograd.grad(mean, list(self.model.parameters()), retain_graph=True)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self):
        return torch.cat([each.detach().ravel() for each in self.model.parameters()])


def train(mode, kind, *, poisoned, size=8, accumulate=1, half=False, stop=None, **options):
    """Train five epochs, and go on after ``stop`` batches from checkpoints; return weights and the largest error."""
    learner, run = Learner(poisoned=poisoned, half=half), run_of(kind)
    loaders, worst, done, before = MODES[mode](run, size, **options), 0.0, 0, []
    while run.next_epoch < run.schedule.epochs:
        epoch = run.begin_epoch()
        for loader, index in ((each, index) for each in loaders for _, index in each):
            losses = learner.losses(epoch, index)
            expected = learner.plain(epoch, index, losses)
            (loader.observe(losses) / accumulate).backward()
            before = before or [torch.zeros_like(each) for each in expected]
            before = [one + other / accumulate for one, other in zip(before, expected, strict=True)]
            got = [each.grad for each in learner.model.parameters()]
            worst = max(worst, *[float((one - other).abs().max()) for one, other in zip(got, before, strict=True)])
            done += 1
            if done % accumulate == 0:
                learner.step()
                before = []
            if done == stop:
                break
        if done == stop:
            stop = None
            states = run.state_dict(), [one.state_dict() for one in loaders if hasattr(one, "state_dict")]
            run = run_of(kind)
            loaders = MODES[mode](run, size, **options)
            run.load_state_dict(states[0])
            for one, state in zip([one for one in loaders if hasattr(one, "state_dict")], states[1], strict=True):
                one.load_state_dict(state)
        else:
            run.end_epoch()
    return learner.weights(), worst
