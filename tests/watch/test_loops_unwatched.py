"""Loops that cannot be watched, of which one line says why; and whole scripts, that train as unwatched."""

from functools import partial
from itertools import cycle, islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset, default_collate

from tests.watch.loops import (
    BATCH,
    DATA,
    LIVE_ON,
    OTHERS,
    SAMPLES,
    Broken,
    Points,
    TwoClasses,
    filled,
    loader,
    of_objects,
    over,
    plainly,
)
from tests.watch.watched import rows_told, run_both, watched


def own_loss(training, values, labels, places):
    training.step(-F.log_softmax(training.net(values), 1)[range(len(labels)), labels].mean())


def by_angles(training, values, labels, places):
    """Compares outputs with each other, though by targets."""
    alike = torch.where(labels == labels.flip(0), 1, -1)
    training.step(F.cosine_embedding_loss(training.net(values), training.net(values.flip(0)), alike))


def own_target(training, values, labels, places):
    training.step(F.mse_loss(training.net(values), torch.zeros(len(labels), 3)))


def made_up(training, values, labels, places):
    """Its targets are of one class, as in a contrastive loss, where the data set has no labels but that number."""
    training.step(F.cross_entropy(training.net(values), torch.zeros(len(values), dtype=torch.int64)))


def of_no_labels(training, epochs, batches=None, **options):
    unlabeled = TensorDataset(DATA.tensors[0], torch.zeros(SAMPLES), DATA.tensors[2])
    for _ in range(epochs if batches is None else 1):
        for batch in islice(loader(unlabeled, **options), batches):
            made_up(training, *batch)


def of_the_first(training, epochs):
    """Its targets are those of the first batch, whatever batch it is."""
    for _ in range(epochs):
        for values, labels, _ in loader(shuffle=False):
            training.step(F.cross_entropy(training.net(values), DATA.tensors[1][: len(labels)].clone()))


def in_halves(training, values, labels, places):
    for half in (slice(0, 8), slice(8, BATCH)):
        training.step(F.cross_entropy(training.net(values[half]), labels[half]))


def longest_first(rows):
    return default_collate(sorted(rows, key=lambda row: row[0][0].item()))


def objects_longest_first(rows):
    return Points(sorted(rows, key=lambda row: row[0][0].item()))


def but_the_first(rows):
    return default_collate(rows[1:])


SLICES = [slice(at, at + BATCH) for at in range(0, SAMPLES, BATCH)]
KEYED = {str(at): row for at, row in enumerate(DATA)}


def of_two(training, epochs):
    for _ in range(epochs):
        for (values, labels, _), (others, theirs, _) in zip(loader(), loader(OTHERS), strict=False):
            both = F.cross_entropy(training.net(values), labels) + F.cross_entropy(training.net(others), theirs)
            training.step(both)


class OfOneClass(TwoClasses):
    """Images in a folder, whose class is 0."""

    def __getitem__(self, place):
        return DATA[place][0], 0


def with_a_generator(training, epochs):
    """As of a GAN, whose labels say which images are generated: 0, as the class of all."""
    for _ in range(epochs):
        for values, _ in loader(OfOneClass()):
            real, generated = (training.net(each)[:, 0].sigmoid() for each in (values, torch.rand(values.shape)))
            loss = F.binary_cross_entropy(real, torch.ones(len(real)))
            training.step(loss + F.binary_cross_entropy(generated, torch.zeros(len(real))))


def of_pairs(training, values, labels, places):
    """Compares the samples of a batch, the first one of which has the same numbers as places in the data set."""
    found = F.normalize(training.net(values))
    training.step(F.cross_entropy(found @ found.T, torch.arange(len(values))))


def in_a_cycle(training, epochs):
    for batch in islice(cycle(loader()), epochs * 8):
        plainly(training, *batch)


def in_one_list(training, epochs):
    batches = list(loader())
    for _ in range(epochs):
        for batch in batches:
            plainly(training, *batch)


def in_long_lists(training, epochs):
    for _ in range(epochs):
        for batch in list(loader(batch_size=1)):
            plainly(training, *batch)


@pytest.mark.parametrize("loop", [in_a_cycle, in_one_list])
def test_where_the_batches_of_a_pass_come_again_the_next_are_not_watched(loop, watch):
    _, (run,), told = watch(loop)
    assert [line for line in told.splitlines() if "watched no longer: it trains on batches that it has kept" in line]
    assert [record["observed"] for record in run.history] == [SAMPLES]


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        (over(own_loss), "not watched: its loop calls no loss function"),
        (over(by_angles), "not watched: its loop calls no loss function of PyTorch's that compares outputs"),
        (over(own_target), "not watched: its loss is computed with targets that are not in the batches"),
        (over(own_target, **LIVE_ON), "not watched: its loss is computed with targets that are not in the batches"),
        (over(in_halves), "not watched: its loss is computed with targets that are not in the batches"),
        (over(plainly, collate_fn=longest_first), "watched no longer: its collate function changes the order"),
        (
            partial(of_objects, collate=objects_longest_first),
            "watched no longer: its collate function changes the order",
        ),
        (over(plainly, collate_fn=but_the_first), "16 samples of its batch: a collate function may"),
        (over(plainly, dataset=Broken(), collate_fn=filled), "its collate function changes the order"),
        (over(plainly, sampler=SLICES, shuffle=None, batch_size=None), "watched no longer: its sampler asks for"),
        (over(plainly, dataset=KEYED, sampler=KEYED, shuffle=None), "watched no longer: its sampler asks for"),
        (with_a_generator, "not watched: its loss is computed with targets that are not in the batches"),
        (over(of_pairs, shuffle=False), "not watched: its loss is computed with targets that are not in the batches"),
        (in_long_lists, "not watched: it trains on batches that it has kept"),
        (of_two, "watched no longer: it trains on several loaders in turn"),
        (of_no_labels, "watched no longer: all targets of its loss are the same"),
        (partial(of_no_labels, batch_size=1), "watched no longer: all targets of its loss are the same"),
        (partial(of_no_labels, batches=2), "watched no longer: all targets of its loss are the same"),
        (of_the_first, "watched no longer: its loss is computed with targets that are not in the batches"),
    ],
    ids=[
        "own loss",
        "angles",
        "own target",
        "own target, persistent",
        "halves",
        "sorts",
        "sorts, objects",
        "drops",
        "fills",
        "slices",
        "keys",
        "GAN",
        "pairs",
        "lists",
        "two",
        "no labels",
        "no labels, alone",
        "no labels, early",
        "first",
    ],
)
def test_what_cannot_be_watched_is_said_once_and_trains_on(loop, why, watch):
    _, runs, told = watch(loop)
    assert [why in line for line in told.splitlines()] == [True]
    assert not any(run.history for run in runs)


SCRIPT = """
import numpy as np, torch
from torch import nn
from torch.nn.functional import nll_loss
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
random = np.random.default_rng(0)
labels = random.integers(0, 3, 300)
points = (random.normal(size=(300, 3)) + 4 * np.eye(3)[labels]).astype("float32")
wrong = random.random(300) < 0.1
labels[wrong] = (labels[wrong] + 1) % 3
np.save("wrong.npy", np.flatnonzero(wrong))
train, test = random_split(TensorDataset(torch.from_numpy(points), torch.from_numpy(labels)), [240, 60])
net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer, loss_of = torch.optim.Adam(net.parameters(), 0.02), nn.CrossEntropyLoss()
for epoch in range(6):
    net.train()
    for inputs, targets in DataLoader(train, batch_size=16, shuffle=True, num_workers=1):
        optimizer.zero_grad()
        loss_of(net(inputs), targets).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        sum(loss_of(net(inputs), targets).item() for inputs, targets in DataLoader(test, batch_size=60))
torch.save(torch.cat([each.detach().flatten() for each in net.parameters()]), "weights.pt")
"""


WITH_ACCELERATE = (
    SCRIPT.replace("\nnet = ", "\nfrom accelerate import Accelerator\naccelerator = Accelerator(cpu=True)\nnet = ")
    .replace("loss_of(net(inputs), targets).backward()", "accelerator.backward(loss_of(net(inputs), targets))")
    .replace("in DataLoader(train, batch_size=16, shuffle=True, num_workers=1)", "in loader")
    .replace(
        "for epoch",
        "net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(train, batch_size=16, shuffle=True))\n"
        "for epoch",
    )
)


@pytest.mark.slow
def test_it_leaves_nothing_out(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("prunedata: not watched: a loop of your own leaves samples out by pruner.wrap") == 1


def test_a_loop_without_a_loader_is_said_not_to_be_watched(tmp_path):
    (tmp_path / "train.py").write_text("""
import torch
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.rand(20, 2))

net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for batch in DataLoader(Stream(), batch_size=4):
    torch.nn.functional.mse_loss(net(batch), batch).backward()
    optimizer.step()
""")
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("prunedata: not watched: its loop takes no batches from PyTorch's DataLoader over") == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", [SCRIPT, WITH_ACCELERATE], ids=["plain", "accelerate"])
def test_a_script_trains_the_unwatched_weights_and_the_rows_are_the_users(script, tmp_path):
    done, same = run_both(tmp_path, script)
    assert same, done.stderr
    assert "watched" not in done.stderr
    told = rows_told(done.stderr)
    assert np.isin(told[:8], np.load(tmp_path / "wrong.npy")).sum() >= 7
    assert "looks like" in done.stderr
    assert "of 240 labels look wrong" in done.stderr
