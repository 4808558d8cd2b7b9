"""Loops of the user's own, as the tests of ``watch`` train them: a small network over points of three classes."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

SAMPLES, BATCH = 120, 16
LIVE_ON = {"num_workers": 2, "persistent_workers": True}


def points(samples=SAMPLES, seed=0):
    """Points of three classes, of which some are labelled as another one, and their places."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, samples)
    values = random.normal(size=(samples, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)[labels]
    wrong = random.random(samples) < 0.1
    labels[wrong] = (labels[wrong] + 1) % 3
    return TensorDataset(torch.from_numpy(values), torch.from_numpy(labels), torch.arange(samples))


DATA, OTHERS = points(), points(70, seed=1)


class Training:
    """A small network and its optimizer, made alike each time; notes the losses of the batches it trains on."""

    placed = staticmethod(lambda targets: targets)
    """The targets on the device that the loop trains on."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.02)
        self.excess, self.visits, self.largest = np.zeros(SAMPLES), np.zeros(SAMPLES, dtype=int), 0

    def note(self, losses, places):
        losses = losses.detach().float().numpy()
        places = places.numpy()
        self.excess[places] += losses - losses.mean()
        self.visits[places] += 1
        self.largest = max(self.largest, len(places))

    def loss(self, values, labels, places, **options):
        logits = self.net(values)
        weight = options.pop("weight", None)
        self.note(F.cross_entropy(logits.detach().float(), labels, reduction="none", **options), places)
        return F.cross_entropy(logits, self.placed(labels), weight=weight, **options)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @property
    def weights(self):
        return torch.cat([each.detach().flatten() for each in self.net.parameters()])


def loader(dataset=DATA, **options):
    return DataLoader(dataset, **{"batch_size": BATCH, "shuffle": True} | options)


def over(train, **options):
    """A loop that trains on each batch of a loader in one way."""

    def loop(training, epochs):
        batches = loader(**options)
        for _ in range(epochs):
            for batch in batches:
                train(training, *batch)

    return loop


def plainly(training, *batch):
    training.step(training.loss(*batch))


class Places(Dataset):
    """Has no labels that could be seen, and is made anew in each epoch."""

    def __init__(self):
        self.data, self.turn = DATA, 0

    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        values, label, _ = DATA[place]
        return {"values": values, "labels": (label + self.turn) % 3, "places": place, "name": str(place)}


def of_dicts(training, epochs):
    for _ in range(epochs):
        for batch in loader(Places()):
            plainly(training, batch["values"], batch["labels"], batch["places"])


class Broken(Dataset):
    """Some of its samples cannot be read."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        return None if place % 7 == 3 else DATA[place]


def but_those(rows):
    return default_collate([row for row in rows if row is not None])


def filled(rows):
    there = [row for row in rows if row is not None]
    return default_collate(there + there[: len(rows) - len(there)])


class Points:
    """A batch that is an object, as graphs are."""

    def __init__(self, rows):
        self.values, self.labels, self.places = default_collate(rows)


def of_objects(training, epochs, collate=Points):
    for _ in range(epochs):
        for batch in loader(collate_fn=collate):
            plainly(training, batch.values, batch.labels, batch.places)


class TwoClasses(Dataset):
    """Points of two classes, one of them rare."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        return DATA[place][0], torch.tensor([float(place % 10 == 0)]), place
