"""The runs of watched loops: epochs and passes, other data, labels and previews."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner
from prunedata.cli.watching.session import Session
from prunedata.reporting.kept import KeptPreviews
from tests.common.programs import WORKERS
from tests.watch.loops import (
    BATCH,
    DATA,
    LIVE_ON,
    OTHERS,
    SAMPLES,
    Places,
    TwoClasses,
    loader,
    of_dicts,
    over,
    plainly,
    points,
)


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


def test_where_the_data_set_has_other_labels_than_the_logits_have_places_for_there_are_no_guesses(watch):
    """As where -1 is no label."""
    data = TensorDataset(DATA.tensors[0], torch.where(DATA.tensors[2] % 5 == 0, -1, DATA.tensors[1]))

    def loop(training, epochs):
        for _ in range(epochs):
            for values, labels in loader(data):
                training.step(F.cross_entropy(training.net(values), labels, ignore_index=-1))

    _, (run,), told = watch(loop)
    assert told == ""
    assert (run.visits == 3).all()
    assert "guess" not in run.arrays


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


FOLDS = [[place for place in range(SAMPLES) if place % 3 != fold] for fold in range(3)]


@pytest.mark.parametrize("anew", [True, False])
def test_other_data_begin_another_run(anew, watch, tmp_path):
    """Also of a subset that is given other places: each run shows those that it has seen."""
    labeled = TensorDataset(DATA.tensors[0], DATA.tensors[1])

    def loop(training, epochs):
        part = Subset(labeled, [])
        for places in FOLDS:
            part = Subset(labeled, []) if anew else part
            part.indices = places
            for _ in range(epochs):
                for values, labels in loader(part):
                    training.step(F.cross_entropy(training.net(values), labels))

    _, runs, told = watch(loop, 2)
    assert told == ""
    assert [(run.samples, len(run.history)) for run in runs] == [(80, 2)] * 3
    stores = sorted(tmp_path.glob("*.zarr"), key=lambda path: path.stat().st_ctime_ns)
    for store, places in zip(stores, FOLDS, strict=True):
        kept = KeptPreviews(store)
        assert kept.rows == dict(enumerate(places))
        assert [kept.of(at).label for at in range(80)] == [str(DATA.tensors[1][place].item()) for place in places]


def test_so_many_other_data_are_as_many_runs(watch, monkeypatch):
    """As of a policy that learns from what it has just tried."""
    monkeypatch.setattr("prunedata.adapters.watched.loop_runs.RUNS", 2)

    def loop(training, epochs):
        for seed in range(epochs):
            for values, labels, _ in loader(points(30, seed)):
                training.step(F.cross_entropy(training.net(values), labels))

    _, runs, told = watch(loop, 4)
    assert told.count("watched no longer: it trains on other data again and again, of which 2 runs are recorded") == 1
    assert [record["observed"] for run in runs for record in run.history] == [30, 30]


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
