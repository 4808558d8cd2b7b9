"""Loops of the user's own over a DataLoader: same weights, each loss with its row, or one line that says why not."""

import sys
from functools import partial
from itertools import cycle, islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import nll_loss
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, default_collate
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner
from prunedata.cli.watching.hooks import notice_steps, watch_loops
from prunedata.cli.watching.session import Session
from prunedata.reporting.kept import KeptPreviews
from prunedata.store.run_store import read_run
from tests.common.programs import WORKERS
from tests.watch.watched import rows_told, run_both, watched

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


def placed(targets):
    """The targets on the device that the loop trains on."""
    return targets


class Training:
    """A small network and its optimizer, made alike each time; notes the losses of the batches it trains on."""

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
        return F.cross_entropy(logits, placed(labels), weight=weight, **options)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @property
    def weights(self):
        return torch.cat([each.detach().flatten() for each in self.net.parameters()])


@pytest.fixture
def watch(tmp_path, monkeypatch, capsys):
    """Run a loop unwatched, and watched: its weights are the same; return its training, its runs, and what was said."""

    def run(loop, epochs=3):
        loop(plain := Training(), epochs)
        monkeypatch.setenv("PRUNEDATA_WATCH", str(tmp_path))
        Session.current.cache_clear()
        with monkeypatch.context() as patched:
            for kind, methods in ((DataLoader, ["__iter__"]), (StatefulDataLoader, ["__iter__", "state_dict"])):
                for method in methods:
                    patched.setattr(kind, method, getattr(kind, method))
                watch_loops(kind)
            steps = notice_steps(sys.modules["torch.optim.optimizer"])
            loop(watched := Training(), epochs)
            steps.remove()
            session = Session.current()
            session.loops.close()
            session.trains = False  # or it tells of its runs when the process ends
            session.runs.clear()
        Session.current.cache_clear()
        assert torch.equal(plain.weights, watched.weights)
        stores = sorted(tmp_path.glob("*.zarr"), key=lambda path: path.stat().st_ctime_ns)
        return watched, [read_run(store).state for store in stores], capsys.readouterr().err

    return run


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
    training.step(nll_loss(logarithms, placed(labels)))


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
    training.step(F.mse_loss(found, placed(values)))


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
    training.step(loss + F.cross_entropy(training.net(values), placed(labels.roll(1))))


def softly(training, values, labels, places, share=0.8):
    logits, wanted = training.net(values), F.one_hot(labels, 3).float()
    wanted = share * (0.9 * wanted + 0.1 / 3) + (1 - share) * (0.9 * wanted + 0.1 / 3).roll(1, 0)
    training.note(F.cross_entropy(logits, wanted, reduction="none"), places)
    training.step(F.cross_entropy(logits, placed(wanted)))


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
            training.step(0.3 * F.cross_entropy(logits, placed(labels)) + 0.7 * F.cross_entropy(logits, placed(others)))


def of_series(training, epochs):
    """Whose batches also have what comes before that which is predicted."""
    series = TensorDataset(torch.rand(SAMPLES, 6, 3).double(), torch.arange(SAMPLES))
    for _ in range(epochs):
        for values, places in loader(series):
            found, wanted = training.net(values[:, :4, :].float())[:, -2:, -1:], values.float()[:, -2:, -1:]
            training.note(F.mse_loss(found, wanted, reduction="none").mean((1, 2)), places)
            training.step(F.mse_loss(found, placed(wanted)))


def of_two_tasks(training, epochs):
    """With a column of labels for each of them."""
    tasks = TensorDataset(DATA.tensors[0], torch.stack([DATA.tensors[1], DATA.tensors[1].flip(0)], 1), DATA.tensors[2])
    for _ in range(epochs):
        for values, labels, places in loader(tasks):
            logits = training.net(values)
            losses = [F.cross_entropy(logits, labels[:, task], reduction="none") for task in range(2)]
            training.note(sum(losses), places)
            training.step(sum(F.cross_entropy(logits, placed(labels[:, task])) for task in range(2)))


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


def ahead_between(training, epochs, second=F.cross_entropy):
    """Fetches the next batch between the steps of two optimizers, of which the second may have another loss."""
    for _ in range(epochs):
        batches = iter(loader())
        coming = next(batches)
        while coming is not None:
            values, labels, places = coming
            plainly(training, values, labels, places)
            coming = next(batches, None)
            logits = F.log_softmax(training.net(values), 1)
            training.note(F.nll_loss(logits.detach(), labels, reduction="none"), places)
            if second is not F.cross_entropy:  # a visit's loss is the sum of both
                training.visits[places.numpy()] -= 1
            training.step(second(logits, placed(labels)))


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


def of_dicts_by_closures(training, epochs):
    """Data made anew are compared by samples that a worker reads, while a batch is trained on several times."""
    for _ in range(epochs):
        for batch in loader(Places(), num_workers=1):
            by_closures(training, batch["values"], batch["labels"], batch["places"])


def of_one_batch(training, epochs):
    batch = next(iter(loader(batch_size=SAMPLES)))
    for _ in range(epochs):
        plainly(training, *batch)


class Points:
    """A batch that is an object, as graphs are."""

    def __init__(self, rows):
        self.values, self.labels, self.places = default_collate(rows)


def of_objects(training, epochs, collate=Points):
    for _ in range(epochs):
        for batch in loader(collate_fn=collate):
            plainly(training, batch.values, batch.labels, batch.places)


LOOPS = {
    "plain": over(plainly), "without the last": over(plainly, drop_last=True), "alone": over(plainly, batch_size=1),
    "weights": over(weighted), "accumulation": over(in_parts), "logarithms": over(of_logarithms),
    "one hot": over(one_hot), "of itself": over(of_itself), "another target": over(with_another_target),
    "teacher": over(with_a_teacher), "teacher, many": over(with_a_teacher, batch_size=4), "soft": over(softly),
    "soft, of others": over(partial(softly, share=0.3)), "mixed before": mixed_before,
    "mixed before, few": partial(mixed_before, batch_size=2),
    "mixed": over(with_the_others), "mixed, many": over(with_the_others, batch_size=8), "series": of_series,
    "tasks": of_two_tasks,
    "validation": over(with_a_validation), "persistent": over(plainly, **LIVE_ON),
    "ahead": ahead, "ahead, alone": partial(ahead, size=1), "ahead, twice": partial(ahead, times=2),
    "ahead between": ahead_between, "ahead between, others": partial(ahead_between, second=nll_loss),
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
        monkeypatch.setattr(sys.modules[__name__], "placed", torch.clone)
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


@WORKERS
def test_an_epoch_that_is_left_early_ends_with_the_next(workers, watch):
    def loop(training, epochs):
        for _ in range(epochs):
            for place, batch in enumerate(loader(num_workers=workers)):
                if place == 4:
                    break
                plainly(training, *batch)

    training, (run,), _ = watch(loop)
    assert [record["observed"] for record in run.history] == [4 * BATCH] * 3
    np.testing.assert_array_equal(run.visits, training.visits)


@WORKERS
@pytest.mark.parametrize("asked", [False, True], ids=["", "asked before"])
def test_a_stateful_loader_goes_on_within_an_epoch(asked, workers, watch):
    """To ask it for its state makes the iterator of its first pass, as accelerate does."""

    def loop(training, epochs):
        batches = StatefulDataLoader(DATA, BATCH, shuffle=True, num_workers=workers)
        if asked:
            batches.state_dict()
        for epoch in range(epochs):
            for place, batch in enumerate(batches):
                plainly(training, *batch)
                if (epoch, place) == (1, 4):
                    state = batches.state_dict()
                    break
            if epoch == 1:
                batches = StatefulDataLoader(DATA, BATCH, shuffle=True, num_workers=workers)
                batches.load_state_dict(state)
                for batch in batches:
                    plainly(training, *batch)

    training, (run,), told = watch(loop)
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)
    np.testing.assert_allclose(run.mean_excess, training.excess / 3, rtol=1e-5, atol=1e-6)
    assert [record["observed"] for record in run.history] == [SAMPLES, 5 * BATCH, SAMPLES - 5 * BATCH, SAMPLES]


def test_a_trainer_gets_the_batches_of_a_loader_that_a_loop_has_iterated(watch):
    """Its workers live on, and yield ids."""

    def loop(training, epochs):
        batches = loader(**LIVE_ON)
        for batch in batches:
            plainly(training, *batch)
        Session.current().trainings += 1
        for batch in batches:
            plainly(training, *batch)
        Session.current().trainings -= 1

    _, (run,), told = watch(loop)
    assert told == ""
    assert (run.visits == 1).all()


def test_a_loop_that_takes_one_batch_of_each_pass_has_epochs_of_as_many_as_a_pass_has(watch):
    def loop(training, epochs):
        for _ in range(epochs * 8):
            plainly(training, *next(iter(loader())))

    training, (run,), told = watch(loop)
    assert told == ""
    assert [record["observed"] for record in run.history] == [8 * BATCH] * 3
    np.testing.assert_array_equal(run.visits, training.visits)


def test_a_loop_of_very_many_epochs_is_watched_for_so_many(watch, monkeypatch):
    monkeypatch.setattr("prunedata.adapters.watched.loop_runs.LONG", 2)
    _, (run,), told = watch(over(plainly))
    assert told == "prunedata: watched no longer: its first 2 epochs are recorded, which is enough\n"
    assert [record["observed"] for record in run.history] == [SAMPLES] * 2


@pytest.mark.parametrize("within", [False, True])
def test_a_test_by_an_attack_is_no_training(within, watch):
    """Its gradients are those of the inputs. It may stand within an epoch, or after one."""

    def loop(training, epochs):
        for _ in range(epochs):
            for batch in loader():
                plainly(training, *batch)
                if within and training.visits.sum() % SAMPLES == 3 * BATCH:
                    attack(training)
            if not within:
                attack(training)

    def attack(training):
        for values, labels, _ in loader(OTHERS, batch_size=1):
            F.cross_entropy(training.net(values.requires_grad_()), labels).backward()

    training, (run,), told = watch(loop)
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)
    assert [record["observed"] for record in run.history] == [SAMPLES] * 3


def test_other_data_are_trained_on_from_the_first_batch_of_several_for_a_step(watch):
    def loop(training, epochs):
        for data in (OTHERS, DATA):
            for _ in range(epochs):
                for place, (values, labels, _) in enumerate(batches := loader(data), 1):
                    (F.cross_entropy(training.net(values), labels) / 4).backward()
                    if place % 4 == 0 or place == len(batches):
                        training.optimizer.step()
                        training.optimizer.zero_grad()

    _, runs, told = watch(loop)
    assert told == ""
    assert [record["observed"] for run in runs for record in run.history] == [70] * 3 + [SAMPLES] * 3


def test_what_a_sample_looks_like_is_kept(watch):
    _, (run,), _ = watch(over(plainly))
    assert (run.arrays["guess"] >= 0).all()


def test_the_labels_of_any_data_set_are_known(watch):
    _, (run,), told = watch(of_dicts)
    assert np.array_equal(run.arrays["label"] - 2, DATA.tensors[1])
    assert told == ""


def of_some(training, epochs, left_out, begins=0, size=3):
    """Over small batches of two classes, many of which have equal labels; trains on some only."""
    batches = loader(TensorDataset(DATA.tensors[0], DATA.tensors[2] % 7 // 6, DATA.tensors[2]), batch_size=size)
    for epoch in range(epochs):
        for place, (values, labels, places) in enumerate(batches):
            known = (places + epoch) % 20 < 19
            if place >= begins and (left_out == "samples" or known.all()):
                logits, wanted = training.net(values[known])[:, 0], labels[known].float()
                if known.all():
                    losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
                    training.note(losses, places)
                training.step(F.binary_cross_entropy_with_logits(logits, wanted))


@pytest.mark.parametrize("left_out", ["batches", "samples"])
def test_a_batch_that_is_passed_over_gets_no_losses_of_the_next_with_equal_targets(left_out, watch):
    training, (run,), told = watch(partial(of_some, left_out=left_out))
    lost = (3 * SAMPLES - training.visits.sum()) // 3
    why = "their loss has targets of none of the newest batches"
    line = f"prunedata: {lost} batches that were trained are not recorded: {why}\n"
    assert told == ("" if left_out == "batches" else line)
    np.testing.assert_array_equal(run.visits, training.visits)
    np.testing.assert_allclose(run.mean_excess, training.excess / np.maximum(1, training.visits), rtol=1e-5, atol=1e-6)


def test_where_the_first_batches_are_passed_over_and_equal_it_stops(watch):
    _, _, told = watch(partial(of_some, left_out="batches", begins=9, size=2))
    assert told.count("watched no longer: its first batches have equal targets, and which of them") == 1


class TwoClasses(Dataset):
    """Points of two classes, one of them rare."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        return DATA[place][0], torch.tensor([float(place % 10 == 0)]), place


@pytest.mark.parametrize("probabilities", [False, True])
def test_the_labels_of_one_output_are_known_if_it_has_two_classes(probabilities, watch):
    def loop(training, epochs):
        head = nn.Linear(3, 1)
        for _ in range(epochs):
            for values, labels, _ in loader(TwoClasses()):
                if probabilities:
                    loss = F.binary_cross_entropy(head(values).sigmoid(), labels)
                else:
                    loss = F.binary_cross_entropy_with_logits(head(values), labels)
                training.step(loss)

    _, (run,), _ = watch(loop)
    rare = np.arange(SAMPLES) % 10 == 0
    assert np.array_equal(run.arrays["label"] - 2, rare)
    guess, strength = run.arrays["guess"] % (1 << 12), run.arrays["guess"] >> 12
    assert np.array_equal(guess[strength > 0], ~rare[strength > 0])
    assert (strength > 0).any()


def test_where_labels_change_from_epoch_to_epoch_none_are_kept(watch):
    def loop(training, epochs):
        batches = loader(data := Places())
        for data.turn in range(epochs):
            for batch in batches:
                plainly(training, batch["values"], batch["labels"], batch["places"])

    _, (run,), told = watch(loop)
    assert told.count("labels change") == 1
    assert "label" not in run.arrays
    assert (run.visits == 3).all()


class Padded:
    """A collate function that has a tokenizer, as those of transformers do."""

    class tokenizer:
        @staticmethod
        def decode(tokens, **_):
            return " ".join(f"word{token}" for token in tokens)

    def __call__(self, rows):
        values = torch.tensor([row["input_ids"] for row in rows]).float() / 100
        return values, torch.stack([row["labels"] for row in rows]), torch.tensor([row["place"] for row in rows])


def test_tokens_are_shown_as_their_text(watch, tmp_path):
    rows = [{"input_ids": [at % 7, 100 + at, at % 5], "labels": DATA.tensors[1][at], "place": at} for at in range(60)]
    watch(over(plainly, dataset=rows, collate_fn=Padded()))
    (store,) = tmp_path.glob("*.zarr")
    seen = KeptPreviews(store).of(13)
    assert (seen.label, dict(seen.row)["text"]) == (str(rows[13]["labels"].item()), "word6 word113 word3")


def test_other_data_begin_another_run(watch):
    def loop(training, epochs):
        for fold in range(3):
            for _ in range(epochs):
                for batch in loader(Subset(DATA, [place for place in range(SAMPLES) if place % 3 != fold])):
                    plainly(training, *batch)

    _, runs, told = watch(loop, 2)
    assert told == ""
    assert [(run.samples, len(run.history)) for run in runs] == [(80, 2)] * 3


def test_a_loop_that_prunes_is_let_alone(watch):
    def loop(training, epochs):
        pruner = Pruner(DATA, epochs=epochs)
        batches = pruner.wrap(loader())
        for _ in pruner.epochs():
            for values, labels, _ in batches:
                training.step(pruner.observe(F.cross_entropy(training.net(values), labels, reduction="none")))

    assert watch(loop)[1:] == ([], "")


class Filtered(DataLoader):
    """Passes what the workers return to a function of its own, as loaders of PyTorch Geometric do."""

    def _get_iterator(self):
        return ((values, labels, places) for values, labels, places in super()._get_iterator())


def test_a_loader_whose_iterator_is_its_own_gives_what_it_always_does(watch):
    def loop(training, epochs):
        for _ in range(epochs):
            for batch in Filtered(DATA, BATCH, shuffle=True):
                plainly(training, *batch)

    assert watch(loop)[1:] == ([], "")


def test_a_function_that_once_had_no_loss_for_each_sample_is_named_and_left_out(watch):
    """As where boxes are matched: a batch may have as many boxes as images by chance."""

    def loop(training, epochs):
        first = True
        for _ in range(epochs):
            for values, labels, places in loader():
                rows, first = 2 if first else len(labels), False
                matched = values.sum(1).reshape(rows, -1) * training.net[0].bias[0]
                other = F.l1_loss(matched, places.reshape(rows, -1))
                training.step(training.loss(values, labels, places) + other / 1e3)

    training, (run,), told = watch(loop)
    assert told.count("the losses do not include l1_loss:") == 1
    np.testing.assert_allclose(run.mean_excess, training.excess / training.visits, rtol=1e-5, atol=1e-6)


def test_workers_that_live_on_are_the_same_where_a_first_pass_computes_no_gradients(watch):
    def loop(training, epochs):
        batches = loader(**LIVE_ON)
        with torch.no_grad():
            for values, _, _ in batches:
                training.net(values)
        for _ in range(epochs):
            for batch in batches:
                plainly(training, *batch)

    training, (run,), told = watch(loop)
    assert told == ""
    np.testing.assert_array_equal(run.visits, training.visits)


def test_where_nothing_is_trained_nothing_is_said(watch):
    def loop(training, epochs):
        for values, labels, _ in loader():
            F.cross_entropy(training.net(values), labels).item()

    assert watch(loop)[1:] == ([], "")


def own_loss(training, values, labels, places):
    training.step(-F.log_softmax(training.net(values), 1)[range(len(labels)), labels].mean())


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
        (over(own_target), "not watched: its loss is computed with targets that are not in the batches"),
        (over(own_target, **LIVE_ON), "not watched: its loss is computed with targets that are not in the batches"),
        (over(in_halves), "not watched: its loss is computed with targets that are not in the batches"),
        (over(plainly, collate_fn=longest_first), "watched no longer: its collate function changes the order"),
        (
            partial(of_objects, collate=objects_longest_first),
            "watched no longer: its collate function changes the order",
        ),
        (over(plainly, collate_fn=but_the_first), "a loss for each sample"),
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
        "own target",
        "own target, persistent",
        "halves",
        "sorts",
        "sorts, objects",
        "drops",
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
