"""Collate functions that sort, drop or replace samples: losses are those of the samples they came from."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, DistributedSampler, default_collate

from prunedata.adapters import iterable
from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.facts import facts
from prunedata.errors import PrunedataError
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, losses_of, make_pruner, train
from tests.common.programs import WORKERS

Pair = namedtuple("Pair", "features index")


class Sequences(Items):
    """Sequences of several lengths, each with its own number."""

    def __getitem__(self, index):
        return torch.full((1 + index * 31 % 13,), float(index)), index


class Dicts(Items):
    def __getitem__(self, index):
        return {"length": index * 31 % 13, "index": index}


def longest_first(samples):
    samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
    sequences, *others = zip(*samples, strict=True)
    return pack_sequence(sequences), *map(torch.tensor, others)


def shortest_first(samples):
    return default_collate(sorted(samples, key=lambda sample: sample["length"]))


def even_first(samples):
    return default_collate(sorted(samples, key=lambda sample: int(sample[1]) % 2))


def reading(read):
    """Read the numbers of a batch's samples, and note what batches look like."""
    seen = set()

    def look(batch):
        seen.add((type(batch), len(batch)))
        return read(batch)

    return look, seen


@WORKERS
@pytest.mark.parametrize(
    ("dataset", "collate", "read", "structure"),
    [
        (Sequences(), longest_first, lambda batch: batch[1], (tuple, 2)),
        (Dicts(), shortest_first, lambda batch: batch["index"], (dict, 2)),
    ],
    ids=["packed", "dicts"],
)
def test_losses_are_those_of_samples_that_were_sorted(dataset, collate, read, structure, workers):
    """``train`` holds the counts against a pruner that is told the numbers that the batches have."""
    look, seen = reading(read)
    options = {"batch_size": BATCH, "shuffle": True, "num_workers": workers, "collate_fn": collate}
    pruner = make_pruner()
    train(wrap(DataLoader(dataset, **options), pruner, id_key="id"), pruner, look)
    assert seen == {structure}


class Classes(Items):
    def __getitem__(self, index):
        return torch.ones(1 + index * 31 % 13), index % 3 % 2


@WORKERS
@pytest.mark.parametrize(
    ("dataset", "collate"),
    [(Sequences(), longest_first), (Dicts(), shortest_first), (Classes(), longest_first)],
    ids=["packed", "dicts", "two classes"],
)
def test_without_an_id_key_it_is_seen_that_they_are_sorted(dataset, collate, workers):
    options = {"batch_size": BATCH, "shuffle": True, "num_workers": workers, "collate_fn": collate}
    pruner = make_pruner()
    loader = wrap(DataLoader(dataset, **options), pruner, with_ids=True)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="id_key"):
        for _ in loader:
            pass


def in_order(samples):
    """The labels one hot; and other numbers of the batch, which are sorted."""
    features, labels = zip(*samples, strict=True)
    hot = torch.nn.functional.one_hot(torch.tensor(labels), 2)
    return torch.nn.utils.rnn.pad_sequence(features), hot, torch.tensor([len(each) for each in features]).sort()[0]


@WORKERS
@pytest.mark.parametrize("collate", [in_order, lambda samples: (torch.arange(BATCH), samples)], ids=["hot", "places"])
def test_what_keeps_their_order_is_let_alone(collate, workers):
    options = {"batch_size": BATCH, "num_workers": workers, "collate_fn": collate}
    pruner = make_pruner()
    loader = wrap(DataLoader(Classes(), **options), pruner, with_ids=True)
    pruner.begin_epoch()
    assert np.concatenate([ids for ids, _ in loader]).size == SAMPLES


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda index: (torch.zeros(2), index), list),
        (lambda index: [torch.zeros(2), index], list),
        (lambda index: Pair(torch.zeros(2), index), Pair),
        (lambda index: {"index": index}, dict),
        (lambda index: index, torch.Tensor),
    ],
    ids=["tuple", "list", "namedtuple", "dict", "bare"],
)
def test_batches_keep_their_structure(make, kind):
    class Made(Items):
        def __getitem__(self, index):
            return make(index)

    pruner = make_pruner()
    loader = wrap(DataLoader(Made(), batch_size=BATCH, shuffle=True), pruner, with_ids=True, id_key="id")
    plain = next(iter(DataLoader(Made(), batch_size=BATCH)))
    pruner.begin_epoch()
    for ids, batch in loader:
        assert type(batch) is type(plain) is kind
        numbers = batch["index"] if kind is dict else batch if kind is torch.Tensor else batch[1]
        assert ids.tolist() == numbers.tolist()


def without_none(samples):
    return default_collate([sample for sample in samples if sample is not None])


class Broken(Items):
    def __getitem__(self, index):
        return None if index % 10 == 0 else super().__getitem__(index)


@WORKERS
def test_samples_that_are_dropped(workers):
    pruner = make_pruner()
    options = {"batch_size": BATCH, "num_workers": workers, "collate_fn": without_none}
    loader = wrap(DataLoader(Broken(), **options), pruner, with_ids=True, id_key="id")
    pruner.begin_epoch()
    for ids, (_, index) in loader:
        assert ids.tolist() == index.tolist()
        loader.observe(losses_of(index, 0), ids)
    pruner.skip(11)
    pruner.end_epoch()
    assert pruner.history[0]["observed"] == SAMPLES - 11


def test_samples_that_others_are_put_in_the_place_of_are_refused():
    def filled(samples):
        there = [sample for sample in samples if sample is not None]
        return default_collate(there + there[: len(samples) - len(there)])

    pruner = make_pruner()
    loader = wrap(DataLoader(Broken(), batch_size=BATCH, collate_fn=filled), pruner)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="id_key"):
        list(loader)


def test_a_dataset_that_gives_another_sample_says_which():
    class Replacing(Items):
        def __getitem__(self, index):
            index += index % 10 == 0
            return {"uid": index, "index": index}

    pruner = make_pruner()
    loader = wrap(DataLoader(Replacing(), batch_size=BATCH), pruner, with_ids=True, id_key="uid")
    pruner.begin_epoch()
    assert all(ids.tolist() == batch["index"].tolist() for ids, batch in loader)


@WORKERS
def test_of_a_stream(workers):
    pruner = make_pruner()
    items = [{"uid": index, "length": index * 31 % 13, "index": index} for index in range(SAMPLES)]
    stream = iterable.wrap(items, pruner, id="uid")
    options = {"batch_size": BATCH, "num_workers": workers, "collate_fn": shortest_first}
    loader = wrap(DataLoader(stream, **options), pruner, with_ids=True, id_key="id")
    pruner.begin_epoch()
    for ids, batch in loader:
        assert ids.tolist() == batch["index"].tolist()
        assert "id" not in batch


def forgets(samples):
    return {"index": torch.tensor([sample["index"] for sample in samples])}


class Foreign(Items):
    def __getitem__(self, index):
        return {"id": index + 1000, "index": index}


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Dicts(), {"collate_fn": forgets}, r"to pass the ids on: as 'id' .* Got a dict without them"),
        (Items(), {"collate_fn": lambda samples: torch.zeros(3)}, r"to pass the ids on.* Got a Tensor without them"),
        (Items(), {"collate_fn": lambda samples: (1, 2)}, r"Expected the ids of the batch.*Got 2: "),
        (Foreign(), {}, r"at most 8 of 0 to 102.* choose another id_key"),
    ],
    ids=["forgotten", "a tensor", "no ids", "another field"],
)
def test_a_batch_without_its_ids_is_told_before_training(dataset, options, message):
    pruner = make_pruner()
    loader = wrap(DataLoader(dataset, batch_size=BATCH, **options), pruner, id_key="id")
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=message):
        next(iter(loader))


@pytest.mark.parametrize("uneven", ["weights", "pad", "drop"])
def test_ranks_may_drop_what_does_not_go_round(uneven):
    sampler = DistributedSampler(Items(), num_replicas=2, rank=0)
    loader = DataLoader(Dicts(), batch_size=BATCH, sampler=sampler, collate_fn=shortest_first)
    if uneven == "drop":
        wrap(loader, make_pruner(), uneven=uneven, id_key="id")
        return
    with pytest.raises(PrunedataError, match='uneven="drop" with id_key'):
        wrap(loader, make_pruner(), uneven=uneven, id_key="id")


def test_without_batches_it_is_refused():
    with pytest.raises(PrunedataError, match="a loader that makes batches"):
        wrap(DataLoader(Items(), batch_size=None), make_pruner(), id_key="id")


def pad(samples):
    sequences, numbers = zip(*samples, strict=True)
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True), torch.tensor(numbers)


class Random(Items):
    def __getitem__(self, index):
        return torch.rand(3), index


def mixed(samples):
    values, numbers = default_collate(samples)
    return values * torch.rand(1) + values[torch.randperm(len(values))], numbers


def numbers_alone(samples):
    return len(samples)


@pytest.mark.parametrize(
    ("dataset", "options", "told"),
    [
        (Items(), {}, ("ok", "keeps the order")),
        (Random(), {}, ("ok", "keeps the order")),
        (Dicts(), {}, ("ok", "keeps the order")),
        (Sequences(), {"collate_fn": pad}, ("ok", "keeps the order")),
        (Random(), {"collate_fn": mixed}, ("ok", "keeps the order")),
        (Items(), {"collate_fn": list}, ("note", "unknown whether")),
        (Items(), {"collate_fn": numbers_alone}, ("note", "unknown whether")),
        (Sequences(), {}, ("note", "could not be tried")),
        (Dicts(), {"collate_fn": shortest_first}, ("note", "sorts or chooses samples")),
        (Sequences(), {"collate_fn": longest_first}, ("note", "sorts or chooses samples")),
        (Items(), {"collate_fn": even_first}, ("note", "sorts or chooses samples")),
    ],
    ids=["tuples", "random", "dicts", "padded", "mixed", "list", "number", "broken", "sorted", "packed", "equal"],
)
def test_doctor_tries_the_collate_function(dataset, options, told):
    state, sentence = facts(DataLoader(dataset, batch_size=BATCH, **options))["collate function"]
    assert state == told[0]
    assert sentence.startswith(told[1])
    assert ("id_key" in sentence) == (state == "note" and "tried" not in sentence)


def test_doctor_tries_none_without_batches():
    assert "collate function" not in facts(DataLoader(Items(), batch_size=None))


class Unnumbered(Items):
    """Sequences of several lengths, which have no number of their own."""

    def __getitem__(self, index):
        return torch.arange(1, 2 + index * 31 % 13) * (index + 1)


def padded_in_order(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def padded_by_length(samples):
    return padded_in_order(sorted(samples, key=len, reverse=True))


def in_pairs(samples):
    padded = padded_in_order(samples)
    return padded.flip(0), padded


def spoilt(samples):
    padded = padded_in_order(samples)
    return padded * (torch.rand(padded.shape) < 0.8)


@pytest.mark.parametrize(
    ("collate", "sorts"), [(padded_by_length, True), (padded_in_order, False), (in_pairs, False), (spoilt, False)]
)
def test_sequences_that_are_sorted_are_found_by_what_they_hold(collate, sorts):
    pruner = make_pruner(leave_out="nothing")
    loader = wrap(DataLoader(Unnumbered(), batch_size=BATCH, shuffle=True, collate_fn=collate), pruner)

    def trained():
        for _ in pruner.epochs():
            for batch in loader:
                pruner.observe(torch.ones(len(batch[1] if isinstance(batch, tuple) else batch)))

    if sorts:
        with pytest.raises(PrunedataError, match="keeps the order of its samples"):
            trained()
    else:
        trained()
        assert (pruner.visits == len(pruner.history)).all()
