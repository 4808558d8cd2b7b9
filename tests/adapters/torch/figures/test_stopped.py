"""Runs whose policy reads the figures: what a loader follows, and checkpoints between an epoch's end and its figure."""

from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import NeverPrunesWarning
from tests.adapters.helpers.ranks import everyones, group, losses_of, model_of, ready, sampler_of, start, weights_of
from tests.adapters.helpers.torch import SAMPLES, Items

# policy="auto" behind a DataLoader: its length and what it delivers follow the onset from the next epoch on.


FEW, WRONG, LONG = 120, 36, 14


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return FEW

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_follows_the_advice(workers):
    pruner = Pruner(FEW, Schedule.steady(LONG), prune=0.5, policy="auto")
    persistent = {"persistent_workers": True} if workers else {}
    loader = wrap(DataLoader(Numbers(), batch_size=10, shuffle=True, num_workers=workers, **persistent), pruner)
    delivered, lengths = [], []
    for epoch in pruner.epochs():
        lengths.append(len(loader))
        seen = []
        for ids in loader:
            seen += ids.tolist()
            loader.observe(torch.where(ids < WRONG, 3.0, 1.0 / (1 + epoch.number)) + 0.001 * ids)
        delivered.append(sorted(seen))
        pruner.validated(50 + epoch.number - 4 * max(0, epoch.number - 5))
    assert pruner.advice.verdict == "prune"
    pruned, watched = pruner.advice.prune, pruner.advice.onset + 1
    rest = LONG - watched
    assert rest > 2
    assert [len(ids) for ids in delivered] == [FEW] * watched + [FEW - pruned] * rest
    assert lengths == [12] * watched + [-(-(FEW - pruned) // 10)] * rest
    assert all(len(set(ids)) == len(ids) for ids in delivered)
    assert not set(delivered[-1]) & set(range(WRONG))


# A checkpoint between an epoch's last batch and its figure, or between its end and the figure: as never stopped.


EPOCHS = 9
FIGURES = [0.5, 0.6, 0.7, 0.66, 0.5, 0.4, 0.3, 0.25, 0.2]


class Stopped(Exception):
    """The process dies here."""


class Training:
    """A loop of one's own, with all that it saves."""

    def __init__(self, kind=DataLoader, rank=0, world=1, every=1):
        self.pruner = Pruner(SAMPLES, Schedule.steady(EPOCHS), policy="auto", seed=3)
        sampler = sampler_of(rank, world) if world > 1 else None
        self.loader = wrap(kind(Items(), 12 // world, shuffle=sampler is None, sampler=sampler), self.pruner)
        self.model, self.world, self.every = model_of(), world, every
        self.forward = ready(self.model, world)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.5)
        self.stop, self.saved = None, None

    def at(self, place, epoch):
        """Save, and die if that was asked for here."""
        if self.stop == (place, epoch):
            own = self.pruner.state_dict()
            states = everyones(own) if self.world > 1 else [own]
            position = self.loader.state_dict() if self.world == 1 else None
            self.saved = states, position, self.model.state_dict(), self.optimizer.state_dict()
            raise Stopped

    def load(self, saved):
        states, position, model, optimizer = saved
        self.pruner.load_state_dict(states if self.world > 1 else states[0])
        if position is not None:
            self.loader.load_state_dict(position)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def pass_over(self, epoch):
        for _, index in self.loader:
            self.optimizer.zero_grad()
            self.loader.observe(losses_of(self.forward, index)).backward()
            self.optimizer.step()
        self.at("trained", epoch.number)

    def figure(self, number):
        return FIGURES[number] + float(sum(weights_of(self.model))) / 1e6

    def by_epochs(self):
        for epoch in self.pruner.epochs():
            self.pass_over(epoch)
            if (epoch.number + 1) % self.every == 0:
                self.pruner.validated(self.figure(epoch.number))
            self.at("validated", epoch.number)

    def by_hand(self, late=True):
        pruner = self.pruner
        if pruner.awaits_figure and not pruner.is_open:
            pruner.validated(self.figure(pruner.next_epoch - 1), agreed=True)
        while pruner.next_epoch < EPOCHS:
            epoch = pruner.begin_epoch()
            self.pass_over(epoch)
            if not late:
                pruner.validated(self.figure(epoch.number))
            pruner.end_epoch()
            self.at("ended", epoch.number)
            if late:
                pruner.validated(self.figure(epoch.number), agreed=True)

    def found(self):
        return {
            "figures": [record.get("validation") for record in self.pruner.history],
            "kept": [record["kept"] for record in self.pruner.history],
            "counts": self.pruner.counts.tolist(),
            "weights": weights_of(self.model),
        }


def whole(make, loop):
    training = make()
    getattr(training, loop)()
    return training.found()


def resumed(make, loop, stop):
    first = make()
    first.stop = stop
    with pytest.raises(Stopped):
        getattr(first, loop)()
    training = make()
    training.load(first.saved)
    getattr(training, loop)()
    return training.found()


PLACES = {"by_epochs": ("trained", "validated"), "by_hand": ("trained", "ended")}


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("loop", PLACES)
def test_a_run_goes_on_with_the_figure_that_it_would_have_had(kind, loop):
    make = partial(Training, kind)
    expected = whole(make, loop)
    assert min(expected["kept"]) < SAMPLES  # it prunes after the onset
    for place in PLACES[loop]:
        for epoch in (0, 1, 4, 5, EPOCHS - 1):
            assert resumed(make, loop, (place, epoch)) == expected, (place, epoch)


def test_who_validates_every_second_epoch_is_asked_for_no_figure_in_between():
    make = partial(Training, every=2)
    expected = whole(make, "by_epochs")
    assert [figure is None for figure in expected["figures"]] == [True, False] * 4 + [True]
    for epoch in range(EPOCHS):
        assert resumed(make, "by_epochs", ("trained", epoch)) == expected


def test_a_loop_that_leaves_the_figure_out_is_warned():
    first = Training()
    first.stop = ("ended", 4)
    with pytest.raises(Stopped):
        first.by_hand()
    training = Training()
    training.load(first.saved)
    assert training.pruner.awaits_figure
    with pytest.warns(NeverPrunesWarning, match="figure of epoch 4"):
        training.pruner.begin_epoch()


def work(rank, folder):
    with group(rank, folder):
        make, found = partial(Training, rank=rank, world=2), {}
        for loop, places in PLACES.items():
            found[loop] = [whole(make, loop)]
            found[loop] += [resumed(make, loop, (place, epoch)) for place in places for epoch in (1, 5)]
    return found


def test_ranks_go_on_with_it_too(tmp_path):
    first, other = start(work, tmp_path)
    assert first == other
    for loop in PLACES:
        expected, *found = first[loop]
        assert min(expected["kept"]) < SAMPLES
        assert found == [expected] * 4
