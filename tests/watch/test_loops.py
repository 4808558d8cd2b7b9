"""Loops of the user's own over a DataLoader: the same weights, and each loss with its row."""

import queue
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count, islice, repeat

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import nll_loss
from torch.utils.data import Sampler, TensorDataset, default_collate

from prunedata.cli.watching.session import Session
from tests.watch.loops import (
    BATCH,
    DATA,
    LIVE_ON,
    OTHERS,
    SAMPLES,
    Broken,
    Places,
    Training,
    but_those,
    loader,
    of_dicts,
    of_objects,
    over,
    plainly,
)


def weighted(training, *batch):
    training.step(training.loss(*batch, weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1))


def in_parts(training, *batch):
    (training.loss(*batch) / 2).backward()
    if training.visits.sum() % (2 * BATCH) == 0:
        training.optimizer.step()
        training.optimizer.zero_grad()


def of_logarithms(training, values, labels, places):
    logarithms = F.log_softmax(training.net(values), 1)
    training.note(F.nll_loss(logarithms, labels, reduction="none"), places)
    training.step(nll_loss(logarithms, training.placed(labels)))


def by_closures(training, *batch):
    training.optimizer = torch.optim.LBFGS(training.net.parameters(), 0.1, max_iter=3)

    def closure():
        training.optimizer.zero_grad()
        loss = training.loss(*batch)
        loss.backward()
        return loss

    training.optimizer.step(closure)


def one_hot(training, values, labels, places):
    logits, wanted = training.net(values), F.one_hot(labels, 3).float()
    training.note(F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(1), places)
    training.step(F.binary_cross_entropy_with_logits(logits, wanted))


def of_itself(training, values, labels, places):
    found = training.net(values)
    training.note(F.mse_loss(found, values, reduction="none").mean(1), places)
    training.step(F.mse_loss(found, training.placed(values)))


def with_another_target(training, *batch):
    training.step(training.loss(*batch) + 0.1 * F.mse_loss(training.net(batch[0]), torch.zeros(len(batch[0]), 3)))


def with_a_teacher(training, *batch):
    """Whose likeliest classes are the labels."""
    wanted = F.softmax(3 * F.one_hot(batch[1], 3) + torch.rand(len(batch[1]), 3), 1)
    other = F.kl_div(F.log_softmax(training.net(batch[0]), 1), wanted, reduction="batchmean")
    training.step(training.loss(*batch) + other)


def with_the_others(training, values, labels, places):
    """As mixup does, with the labels of other samples of the batch."""
    loss = training.loss(values, labels, places)
    training.step(loss + F.cross_entropy(training.net(values), training.placed(labels.roll(1))))


def softly(training, values, labels, places, share=0.8):
    logits, wanted = training.net(values), F.one_hot(labels, 3).float()
    wanted = share * (0.9 * wanted + 0.1 / 3) + (1 - share) * (0.9 * wanted + 0.1 / 3).roll(1, 0)
    training.note(F.cross_entropy(logits, wanted, reduction="none"), places)
    training.step(F.cross_entropy(logits, training.placed(wanted)))


def mixed_before(training, epochs, **options):
    """Whose batches have the labels of the samples that were mixed in, too."""

    def mixed(rows):
        values, labels, places = default_collate(rows)
        return 0.3 * values + 0.7 * values.roll(1, 0), labels, labels.roll(1), places

    batches = loader(collate_fn=mixed, **options)
    for _ in range(epochs):
        for values, labels, others, places in batches:
            logits = training.net(values)
            training.note(F.cross_entropy(logits, labels, reduction="none"), places)
            first, second = (F.cross_entropy(logits, training.placed(each)) for each in (labels, others))
            training.step(0.3 * first + 0.7 * second)


def of_series(training, epochs):
    """Whose batches also have what comes before that which is predicted."""
    series = TensorDataset(torch.rand(SAMPLES, 6, 3).double(), torch.arange(SAMPLES))
    for _ in range(epochs):
        for values, places in loader(series):
            found, wanted = training.net(values[:, :4, :].float())[:, -2:, -1:], values.float()[:, -2:, -1:]
            training.note(F.mse_loss(found, wanted, reduction="none").mean((1, 2)), places)
            training.step(F.mse_loss(found, training.placed(wanted)))


def of_two_tasks(training, epochs):
    """With a column of labels for each of them."""
    tasks = TensorDataset(DATA.tensors[0], torch.stack([DATA.tensors[1], DATA.tensors[1].flip(0)], 1), DATA.tensors[2])
    for _ in range(epochs):
        for values, labels, places in loader(tasks, batch_size=4):  # in some, both columns have the same labels
            logits = training.net(values)
            losses = [F.cross_entropy(logits, labels[:, task], reduction="none") for task in range(2)]
            training.note(sum(losses), places)
            training.step(sum(F.cross_entropy(logits, training.placed(labels[:, task])) for task in range(2)))


def of_texts(training, epochs, *, joined=False):
    """Texts of several lengths, which come padded, or one after another."""
    labels, lengths = DATA.tensors[1], 1 + DATA.tensors[2] % 3
    texts = torch.stack([labels, (labels + 1) % 3, labels], 1)
    rows = TensorDataset(DATA.tensors[0], texts, lengths, DATA.tensors[2])

    def collate(rows):
        values, texts, lengths, places = default_collate(rows)
        return values, texts[torch.arange(3) < lengths[:, None]], lengths, places

    for _ in range(epochs):
        for values, texts, lengths, places in loader(rows, **({"collate_fn": collate} if joined else {})):
            steps = F.log_softmax(F.pad(training.net(values), (0, 1)), 1).expand(6, -1, -1)
            long = torch.full_like(lengths, 6)
            losses = F.ctc_loss(steps, texts, long, lengths, blank=3, reduction="none")
            training.note(losses / lengths, places)
            training.step(nn.CTCLoss(3)(steps, training.placed(texts), long, lengths))


def with_a_validation(training, *batch):
    plainly(training, *batch)
    if training.visits.sum() % SAMPLES == 0:  # the epoch ends; gradients are left on
        for values, labels, _ in [*loader(shuffle=False), *loader(OTHERS)]:
            F.cross_entropy(training.net(values), labels).item()


def with_a_validation_within(training, *batch):
    plainly(training, *batch)
    if training.visits.sum() % SAMPLES == 3 * BATCH:
        for values, labels, _ in loader(shuffle=False):
            F.cross_entropy(training.net(values), labels).item()


def ahead(training, epochs, size=BATCH, times=1):
    for _ in range(epochs):
        batches = iter(loader(batch_size=size))
        coming = next(batches)
        while coming is not None:
            batch, coming = coming, next(batches, None)
            for _ in range(times):
                plainly(training, *batch)


def ahead_between(training, epochs, second=F.cross_entropy, size=BATCH):
    """Fetches the next batch between the steps of two optimizers, of which the second may have another loss."""
    for _ in range(epochs):
        batches = iter(loader(batch_size=size))
        coming = next(batches)
        while coming is not None:
            values, labels, places = coming
            plainly(training, values, labels, places)
            coming = next(batches, None)
            logits = F.log_softmax(training.net(values), 1)
            training.note(F.nll_loss(logits.detach(), labels, reduction="none"), places)
            if second is not F.cross_entropy:  # a visit's loss is the sum of both
                training.visits[places.numpy()] -= 1
            training.step(second(logits, training.placed(labels)))


def by_a_thread(training, epochs):
    """Which has fetched a few batches or many, also of the next epoch; several have equal targets."""
    batches, coming = chain.from_iterable(repeat(loader(batch_size=2), epochs)), deque()
    with ThreadPoolExecutor(1) as thread:
        for step in count():
            while len(coming) < 1 + step % 7:
                coming.append(thread.submit(next, batches, None).result())
            if (batch := coming.popleft()) is None:
                break
            plainly(training, *batch)


def summed(training, epochs, together=2):
    """One step for several batches, also for the last of an epoch and the first of the next."""
    loss, place = 0, 0
    for _ in range(epochs):
        for batch in loader():
            loss, place = loss + training.loss(*batch), place + 1
            if place % together == 0:
                training.step(loss)
                loss = 0


def in_turn(training, epochs, together=4):
    """Fetches some batches, or all, before it trains on each of them."""
    for _ in range(epochs):
        batches = iter(loader())
        while some := list(islice(batches, together)):
            for batch in some:
                training.loss(*batch).backward()
            training.optimizer.step()
            training.optimizer.zero_grad()


def by_steps(training, epochs):
    batches, steps = iter(loader()), 0
    while steps < epochs * 8:
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader())
            continue
        plainly(training, *batch)
        steps += 1


class Endless(Sampler):
    """Never ends, for loops that count steps."""

    def __iter__(self):
        while True:
            yield from torch.randperm(SAMPLES).tolist()


def endless(training, epochs):
    batches = iter(loader(shuffle=None, sampler=Endless(), batch_size=15))
    for _ in range(epochs * 8):
        plainly(training, *next(batches))


def of_dicts_by_closures(training, epochs):
    """Data made anew are compared by samples that a worker reads, while a batch is trained on several times."""
    for _ in range(epochs):
        for batch in loader(Places(), num_workers=1):
            by_closures(training, batch["values"], batch["labels"], batch["places"])


def of_one_batch(training, epochs):
    batch = next(iter(loader(batch_size=SAMPLES)))
    for _ in range(epochs):
        plainly(training, *batch)


LOOPS = {
    "plain": over(plainly), "without the last": over(plainly, drop_last=True),
    "without some": over(plainly, dataset=Broken(), collate_fn=but_those), "alone": over(plainly, batch_size=1),
    "weights": over(weighted), "accumulation": over(in_parts), "logarithms": over(of_logarithms),
    "one hot": over(one_hot), "of itself": over(of_itself), "another target": over(with_another_target),
    "teacher": over(with_a_teacher), "teacher, many": over(with_a_teacher, batch_size=4), "soft": over(softly),
    "soft, of others": over(partial(softly, share=0.3)), "mixed before": mixed_before,
    "mixed before, few": partial(mixed_before, batch_size=2),
    "mixed": over(with_the_others), "mixed, many": over(with_the_others, batch_size=8), "series": of_series,
    "tasks": of_two_tasks, "texts": of_texts, "texts, joined": partial(of_texts, joined=True),
    "validation": over(with_a_validation), "persistent": over(plainly, **LIVE_ON),
    "ahead": ahead, "ahead, alone": partial(ahead, size=1), "ahead, twice": partial(ahead, times=2),
    "ahead between": ahead_between, "ahead between, others": partial(ahead_between, second=nll_loss),
    "ahead between, many": partial(ahead_between, size=6), "by a thread": by_a_thread,
    "summed": summed, "threes": partial(summed, together=3),
    "in turn": in_turn, "two in turn": partial(in_turn, together=2), "all in turn": partial(in_turn, together=None),
    "validation within": over(with_a_validation_within), "steps": by_steps, "endless": endless,
    "dicts": of_dicts, "dicts, closures": of_dicts_by_closures, "objects": of_objects, "closures": over(by_closures),
}  # fmt: skip


@pytest.mark.parametrize("where", ["host", "copied", "device"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_losses_are_those_that_the_loop_computes(loop, where, watch, monkeypatch):
    """On a device targets are copies, and are compared now and then: a stand-in, as there is none."""
    if where != "host":
        monkeypatch.setattr(Training, "placed", staticmethod(torch.clone))
    if where == "device":
        monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda _: False))
    training, (run,), told = watch(loop)
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)
    if training.largest > 1:  # whose losses are compared with those so far
        expected = training.excess / np.maximum(1, training.visits)
        np.testing.assert_allclose(run.mean_excess, expected, rtol=1e-5, atol=1e-6)
    assert [record["observed"] for record in run.history] == [training.visits.sum() / 3] * 3
    assert run.schedule["epochs"] == 3


def test_a_thread_comes_to_the_end_of_a_pass_while_the_run_begins(watch, monkeypatch):
    begins, own = threading.Event(), Session.begin

    def begin(*args, **options):
        begins.set()
        time.sleep(0.1)  # the thread goes on, if it can
        return own(*args, **options)

    monkeypatch.setattr(Session, "begin", begin)

    def fetch(batches, coming):
        for place, batch in enumerate(batches):
            coming.put(batch)
            if place == 1 and Session.current.cache_info().currsize:  # watched
                begins.wait(10)
        coming.put(None)

    def loop(training, epochs):
        for _ in range(epochs):
            coming = queue.Queue()
            thread = threading.Thread(target=fetch, args=(iter(loader()), coming))
            thread.start()
            while (batch := coming.get()) is not None:
                plainly(training, *batch)
            thread.join()

    training, (run,), told = watch(loop)
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)


class LabelSmoothingCrossEntropy(nn.Module):
    """As timm's."""

    smoothing = 0.1

    def forward(self, x, target):
        logarithms = F.log_softmax(x, dim=-1)
        right = -logarithms.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
        return (0.9 * right - 0.1 * logarithms.mean(dim=-1)).mean()


class SoftTargetCrossEntropy(nn.Module):
    """As timm's."""

    def forward(self, x, target):
        return torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1).mean()


@pytest.mark.parametrize("kind", [LabelSmoothingCrossEntropy, SoftTargetCrossEntropy])
def test_losses_that_timm_computes_are_those_of_the_function_that_it_does_not_call(kind, watch, monkeypatch):
    """A stand-in, as its module would come with torchvision."""
    monkeypatch.setitem(sys.modules, "timm.loss.cross_entropy", sys.modules[__name__])
    criterion, own = kind(), kind.forward.__code__

    def train(training, values, labels, places):
        soft = (0.9 * F.one_hot(labels, 3) + 0.1 / 3) * 0.7 + (0.9 * F.one_hot(labels, 3) + 0.1 / 3).roll(1, 0) * 0.3
        target, logits = labels if hasattr(criterion, "smoothing") else soft, training.net(values)
        smoothing = getattr(criterion, "smoothing", 0.0)
        training.note(F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing), places)
        training.step(criterion(logits, target))

    training, (run,), told = watch(over(train))
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)
    np.testing.assert_allclose(run.mean_excess, training.excess / training.visits, rtol=1e-5, atol=1e-6)
    assert kind.forward.__code__ is own


def test_each_step_on_one_batch_is_a_visit(watch):
    training, (run,), told = watch(of_one_batch, epochs=5)
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)
    np.testing.assert_allclose(run.mean_excess, training.excess / 5, rtol=1e-5, atol=1e-6)
