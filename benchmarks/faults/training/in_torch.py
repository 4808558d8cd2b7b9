"""The training to be killed, in PyTorch: it goes on within an epoch, from one checkpoint.

It says what :mod:`benchmarks.faults.training.in_numpy` says.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # optimizers import it at their first step, which would take each forked child seconds
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.faults.child import Say
from benchmarks.faults.training.in_numpy import BATCH, CLASSES, FEATURES, SAMPLES, SEED, data, finish, new_pruner
from prunedata.adapters.torch import wrap

__all__ = ["train"]

EPOCHS = 8
SAVE_EVERY = 3
"""Batches between checkpoints."""


class _Training:
    """A network with dropout. One checkpoint holds model, optimizer, random numbers and pruner."""

    def __init__(self, folder: Path, say: Say) -> None:
        self.say = say
        torch.set_num_threads(1)
        torch.manual_seed(SEED)
        self.path, self.part = folder / "model.pt", folder / "model.part"
        self.model = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 24), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(24, CLASSES)
        ).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.pruner = new_pruner(EPOCHS)
        self.trace: list[list[int]] = []
        """For each epoch the kept ids, and then the ids as they were trained on."""

    def save(self) -> None:
        self.say(f"saving {self.pruner.next_epoch}")
        saved = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "pruner": self.pruner.state_dict(),
            "trace": self.trace,
        }
        torch.save(saved, self.part)
        self.part.replace(self.path)
        self.say(f"saved {self.pruner.next_epoch}")

    def resume(self) -> None:
        if self.path.exists():
            saved = torch.load(self.path)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["random"])
            self.pruner.load_state_dict(saved["pruner"])
            self.trace = saved["trace"]
        self.say(f"resumed {self.pruner.next_epoch}")

    def run(self, loader: Any) -> None:
        batches = 0
        for epoch in self.pruner.epochs():
            if len(self.trace) == epoch.number:
                self.trace.append(np.flatnonzero(epoch.keep).tolist())
            for inputs, targets, ids in loader:
                losses = F.cross_entropy(self.model(inputs), targets, reduction="none")
                self.optimizer.zero_grad()
                loader.observe(losses).backward()
                self.optimizer.step()
                self.trace[-1] += ids.tolist()
                batches += 1
                if batches % SAVE_EVERY == 0:
                    self.save()

    @property
    def weights(self) -> bytes:
        return b"".join(value.numpy().tobytes() for value in self.model.state_dict().values())


def train(folder: Path, say: Say) -> None:
    images, labels = data()
    dataset = TensorDataset(torch.tensor(images), torch.tensor(labels), torch.arange(SAMPLES))
    training = _Training(folder, say)
    inner = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    loader = wrap(inner, training.pruner)
    say("ready")
    training.resume()
    training.run(loader)
    finish(folder, training.pruner, training.trace, training.weights)
