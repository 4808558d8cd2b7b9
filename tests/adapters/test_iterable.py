"""Streams over plain Python, torch IterableDatasets and StatefulDataLoaders."""

import itertools
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.iterable import Stream, wrap
from prunedata.errors import LossError, NotInEpoch, PrunedataError, SkippedSamples
from tests.adapters.helpers.torch import flat, losses_of

SAMPLES = 103
STOPS = (((0, 0), pytest.mark.slow), ((0, 3), ()), ((1, 9), ()))
"""Epochs and batches after which a run is left."""
CHANGING = Schedule(5, window=5, start=1, block=2, pruned_per_block=1)


class Raw(IterableDataset):
    """Raw samples, each worker its own, in an order in which no id is its position."""

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for place in range(first, SAMPLES, step):
            uid = place * 31 % SAMPLES
            yield {"uid": uid, "text": str(uid)}


class Again:
    """Plain Python: an object whose ``__iter__`` is a generator."""

    def __iter__(self):
        yield from ({"uid": uid, "text": str(uid)} for uid in range(SAMPLES))


def decode(raw):
    assert "text" in raw
    return torch.tensor(int(raw["text"]))


def refuse_to_decode(raw, *, unless):
    assert raw["uid"] in unless, "a pruned sample was decoded"
    return decode(raw)


def start(**options):
    return Pruner(SAMPLES, CHANGING, **{"prune": 0.3, "seed": 5, **options})


def train(loader, pruner):
    """Train to the end, check that every id stands beside its sample, and return the ids of each epoch's batches."""
    epochs = []
    for epoch in pruner.epochs():
        batches = []
        for ids, found in loader:
            assert torch.equal(ids, found)
            batches.append(ids.tolist())
            pruner.observe(losses_of(ids, epoch.number), ids)
        assert sorted(flat(batches)) == np.flatnonzero(epoch.keep).tolist()
        epochs.append(batches)
    return epochs


@pytest.mark.parametrize(("raw", "deal"), [(Raw(), True), (list(Again()), False)], ids=["dealt", "list"])
@pytest.mark.parametrize("workers", [0, 2])
def test_kept_samples_are_dealt_to_ranks_in_turn(raw, deal, workers):
    """Batch after batch, what the ranks get is what one process gets, but for the tails of the workers."""
    pruner = start(prune=40)
    stream = wrap(raw, pruner, id="uid", then=decode, deal=deal)

    def batches(rank, ranks):
        stream.place = rank, ranks
        return [ids.tolist() for ids, _ in DataLoader(stream, batch_size=6 // ranks, num_workers=workers)]

    for epoch in range(2):
        keep = pruner.begin_epoch().keep
        full = int(keep.sum()) // 6 - 1
        one, shares = batches(0, 1), [batches(rank, 3) for rank in range(3)]
        assert sorted(flat(flat(shares))) == sorted(flat(one)) == np.flatnonzero(keep).tolist()
        together = [sorted(flat(step)) for step in zip(*shares, strict=False)]
        assert together[:full] == [sorted(batch) for batch in one][:full]
        pruner.observe(losses_of(np.flatnonzero(keep), epoch), np.flatnonzero(keep))
        pruner.end_epoch()


@pytest.mark.parametrize(
    ("raw", "options"),
    [
        (Raw(), {}),
        (Raw(), {"num_workers": 2}),
        (Raw(), {"num_workers": 2, "persistent_workers": True}),
        (Raw(), {"num_workers": 2, "in_order": False}),
        (Raw(), {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "spawn"}),
        (list(Again()), {}),
        (list(Again()), {"num_workers": 2}),
    ],
    ids=["0", "2", "persistent", "out of order", "spawn", "list-0", "list-2"],
)
def test_a_data_loader_gives_the_kept_samples_once_each(raw, options):
    pruner = start()
    loader = DataLoader(wrap(raw, pruner, id="uid", then=decode), batch_size=8, **options)
    train(loader, pruner)
    assert [record["observed"] for record in pruner.history] == [103, 73, 103, 73, 103]


def test_pruned_samples_are_never_decoded():
    for epoch in (pruner := start()).epochs():
        kept = set(np.flatnonzero(epoch.keep).tolist())
        stream = wrap(Raw(), pruner, id=lambda item: item["uid"], then=partial(refuse_to_decode, unless=kept))
        ids = [number for number, _ in stream]
        assert set(ids) == kept
        pruner.observe(losses_of(ids, epoch.number), ids)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize(
    "stop",
    [pytest.param(stop, id=str(stop), marks=marks) for stop, marks in STOPS],
)
def test_a_stateful_data_loader_goes_on_in_the_middle_of_an_epoch(workers, persistent, stop):
    options = {"batch_size": 8, "num_workers": workers, "persistent_workers": persistent}
    whole = start()
    expected = train(StatefulDataLoader(wrap(Raw(), whole, id="uid", then=decode), **options), whole)

    first = start()
    loader = StatefulDataLoader(wrap(Raw(), first, id="uid", then=decode), **options)
    seen = stop_at(loader, first, *stop)
    states = first.state_dict(), loader.state_dict()
    del loader

    second = start()
    second.load_state_dict(states[0])
    loader = StatefulDataLoader(wrap(Raw(), second, id="uid", then=decode), **options)
    loader.load_state_dict(states[1])
    rest = []
    for epoch in second.epochs():
        rest.append([])
        for ids, found in loader:
            assert torch.equal(ids, found)
            rest[-1].append(ids.tolist())
            second.observe(losses_of(ids, epoch.number), ids)
    assert [*expected[: stop[0]], [*seen, *rest[0]], *rest[1:]] == expected
    assert np.array_equal(second.counts, whole.counts)


def stop_at(loader, pruner, epochs, batches):
    """Train for some epochs and batches; return the batches of the last epoch."""
    for epoch in pruner.epochs():
        seen = []
        if (epoch.number, 0) == (epochs, batches):
            return seen
        for ids, _ in loader:
            pruner.observe(losses_of(ids, epoch.number), ids)
            seen.append(ids.tolist())
            if (epoch.number, len(seen)) == (epochs, batches):
                return seen
    raise AssertionError("it never stopped")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loop_or_loader_goes_on_with_what_remains(workers):
    first = start()
    seen = stop_at(
        DataLoader(wrap(Raw(), first, id="uid", then=decode), batch_size=8, num_workers=workers), first, 1, 4
    )
    second = start()
    second.load_state_dict(first.state_dict())
    epoch = next(second.epochs())
    rest = list(DataLoader(wrap(Raw(), second, id="uid", then=decode), batch_size=8, num_workers=workers))
    found = flat(seen) + [number for ids, _ in rest for number in ids.tolist()]
    assert sorted(found) == np.flatnonzero(epoch.keep).tolist()


def test_a_state_asked_for_before_any_epoch_does_not_start_one():
    pruner = start()
    loader = StatefulDataLoader(wrap(Raw(), pruner, id="uid", then=decode), batch_size=8)
    loader.state_dict()
    assert pruner.next_epoch == 0
    train(loader, pruner)
    assert [record["number"] for record in pruner.history] == list(range(5))


def test_a_loader_restored_without_its_pruner_is_refused():
    first = start()
    loader = StatefulDataLoader(wrap(Raw(), first, id="uid", then=decode), batch_size=8)
    stop_at(loader, first, 1, 2)
    second = start()
    later = StatefulDataLoader(wrap(Raw(), second, id="uid", then=decode), batch_size=8)
    later.load_state_dict(loader.state_dict())
    second.begin_epoch()
    with pytest.raises(PrunedataError, match=r"call pruner\.load_state_dict"):
        next(iter(later))


class Positions(IterableDataset):
    """The trap: the id is a position, and every worker counts from zero."""

    def __iter__(self):
        worker = get_worker_info()
        own = range(SAMPLES) if worker is None else range(worker.id, SAMPLES, worker.num_workers)
        yield from enumerate(own)


def first_of(pair):
    return pair[0]


def test_a_position_as_id_is_noticed_at_the_end_of_the_first_epoch():
    pruner = start()
    loader = DataLoader(wrap(Positions(), pruner, id=first_of), batch_size=8, num_workers=2)
    epochs = pruner.epochs()
    next(epochs)
    for ids, _ in loader:
        pruner.observe(losses_of(ids, 0), ids)
    with pytest.raises(SkippedSamples, match="51 that were not"):
        next(epochs)


def test_an_endless_source_is_told_with_the_first_sample_too_many():
    pruner = start()
    stream = wrap(Forever(), pruner, id=int)
    pruner.begin_epoch()
    with pytest.raises(LossError, match=r"at most 103 raw samples in a pass, .*never end"):
        list(stream)


class Forever:
    def __iter__(self):
        return (number % SAMPLES for number in itertools.count())


@pytest.mark.parametrize(
    ("item", "has"),
    [({"id": 3, "text": "3"}, "one with 'id', 'text'"), ([3, "3"], "a list"), (3, "a int")],
    ids=["dict", "list", "int"],
)
def test_a_missing_column_is_named(item, has):
    pruner = start()
    stream = wrap([item], pruner, id="uid")
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=f"'uid'.* Got {has}: "):
        list(stream)


@pytest.mark.parametrize(
    ("raw", "id", "told"),
    [
        *(
            (raw, "uid", r"iterated in every epoch\. Got the iterator")
            for raw in (iter([1]), (n for n in [1]), map(int, "1"), zip([1], strict=True))
        ),
        (3, "uid", r"Expected an iterable\. Got int"),
        ([(0, "a")], 0, r"Got 0: for tuples, pass id=lambda sample: sample\[0\]"),
    ],
)
def test_what_is_no_iterable_and_no_id_is_refused(raw, id, told):
    with pytest.raises(PrunedataError, match=told):
        wrap(raw, start(), id=id)


@pytest.mark.parametrize("uid", [-1, SAMPLES, 1.0, "1", None, torch.tensor(0.5), np.arange(2)], ids=repr)
def test_bad_ids_are_refused(uid):
    pruner = start()
    stream = wrap([{"uid": uid}], pruner, id="uid")
    pruner.begin_epoch()
    with pytest.raises(LossError, match=r"Expected (an int as the id|ids from 0 to 102)"):
        list(stream)


@pytest.mark.parametrize("uid", [7, np.int32(7), np.uint8(7), torch.tensor(7), torch.tensor([7])[0]], ids=repr)
def test_ids_of_any_integer_type_are_plain_ints(uid):
    pruner = start()
    stream = wrap([{"uid": uid}], pruner, id="uid")
    pruner.begin_epoch()
    ((number, _),) = stream
    assert type(number) is int
    assert number == 7


def test_shares_of_workers_that_fill_no_batch_are_refused():
    pruner = start()
    stream = pruner.wrap(Raw(), id="uid", then=decode)
    loader = pruner.wrap(DataLoader(stream, batch_size=60, num_workers=2, drop_last=True))
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="Got none of the 103 samples of epoch 0, as each of 2 workers cuts"):
        list(loader)


@pytest.mark.parametrize("given", [None, [1, 2], Raw()], ids=["nothing", "a list", "a stream"])
def test_a_call_without_the_id_names_it_and_begins_no_run(given, tmp_path):
    pruner = Pruner(SAMPLES, CHANGING, prune=0.3) if given is None else Pruner(epochs=3, store=tmp_path / "run.zarr")
    with pytest.raises(PrunedataError, match=r"adapters.iterable.wrap, missing a required .*argument: 'id'"):
        pruner.wrap(given)
    assert not (tmp_path / "run.zarr").exists()


def test_outside_of_an_epoch_nothing_is_given():
    pruner = start()
    with pytest.raises(NotInEpoch):
        next(iter(wrap(Raw(), pruner, id="uid")))
    assert isinstance(wrap(Raw(), pruner, id="uid"), (Stream, IterableDataset))


def test_it_needs_no_torch():
    code = """
import sys, warnings
warnings.simplefilter("ignore")
from prunedata import Pruner, Schedule
from prunedata.adapters.iterable import Stream, wrap
pruner = Pruner(6, Schedule(2, 2, 1, 1, 1), prune=2)
stream = wrap(range(6), pruner, id=int)
assert type(stream) is Stream and "torch" not in sys.modules
for epoch in pruner.epochs():
    for number, sample in stream:
        pruner.observe([1.0], [number])
print(*[record["observed"] for record in pruner.history])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "6 4\n"


NAMES = [f"row {uid}" for uid in range(SAMPLES)]


def name_of(raw):
    return f"row {raw['uid']}"


@pytest.mark.parametrize("workers", [0, 2])
def test_the_names_of_samples_are_their_ids_in_a_run_with_keys(workers):
    """Also in a stream that is pickled, as a spawned worker gets it."""
    orders = [NAMES, NAMES[::-1]]
    seen = []
    for names in orders:
        pruner = start(keys=names)
        stream = pickle.loads(pickle.dumps(wrap(Raw(), pruner, id=name_of, then=decode)))
        loader = DataLoader(stream, batch_size=8, num_workers=workers)
        pruner.begin_epoch()
        for ids, uids in loader:
            assert [names[at] for at in ids.tolist()] == [f"row {uid}" for uid in uids.tolist()]
            pruner.observe(losses_of(uids, 0), ids)
        pruner.end_epoch()
        seen.append(pruner.visits)
    assert [visits.tolist() for visits in seen] == [[1] * SAMPLES] * 2


def test_whole_numbers_of_any_size_are_keys_too():
    """Also where each could be a position: of rows that were shuffled."""
    for numbers in (range(2**63 - SAMPLES, 2**63), np.random.default_rng(0).permutation(SAMPLES).tolist()):
        pruner = start(keys=numbers)
        stream = wrap([{"uid": number} for number in reversed(numbers)], pruner, id="uid")
        pruner.begin_epoch()
        assert [numbers[at] for at, _ in stream] == [raw["uid"] for _, raw in stream] == [*reversed(numbers)]


def test_names_without_keys_or_of_other_rows_are_told_what_to_do():
    pruner = start()
    pruner.begin_epoch()
    with pytest.raises(
        LossError, match=r"Got 'row 0': to use names, pass one key per sample, as in Pruner\(keys=names"
    ):
        next(iter(wrap(Raw(), pruner, id=name_of)))
    pruner = start(keys=[*NAMES[1:], "other"])
    pruner.begin_epoch()
    with pytest.raises(LossError, match=r"Expected one of the run's 103 keys as the id of a sample\. Got 'row 0'"):
        next(iter(wrap(Raw(), pruner, id=name_of)))


class Mixture:
    """Two sources in turn, of which the smaller is given again and again, or the larger not to its end."""

    def __init__(self, large, small, *, exhausts):
        self.large, self.small, self.exhausts = large, small, exhausts

    def __iter__(self):
        for at in range(self.large if self.exhausts else self.small + 2):
            yield at
            yield self.large + at % self.small


@pytest.mark.parametrize(
    ("exhausts", "error", "told"),
    [
        (True, LossError, "a mixture that oversamples"),
        (False, SkippedSamples, "2 visits were of samples that had been observed before.*or does a mixture of sources"),
    ],
)
def test_a_mixture_that_gives_samples_again_is_refused_with_the_cause(exhausts, error, told):
    pruner = Pruner(15, epochs=3)
    stream = wrap(Mixture(10, 5, exhausts=exhausts), pruner, id=int)
    pruner.begin_epoch()

    def train():
        for number, _ in stream:
            pruner.observe(np.ones(1), np.array([number]))
        pruner.end_epoch()

    with pytest.raises(error, match=told):
        train()


def test_a_sample_that_comes_in_the_place_of_another_is_the_only_cause_named():
    pruner = Pruner(3, epochs=2)
    stream = wrap([0, 1, 0], pruner, id=int)
    pruner.begin_epoch()
    for number, _ in stream:
        pruner.observe(np.ones(1), np.array([number]))
    with pytest.raises(SkippedSamples, match=r"Got 1 that were not\. 1 visits were of samples that had been observed"):
        pruner.end_epoch()


def test_a_mixture_whose_repetitions_are_samples_of_their_own_works():
    class Counted(Mixture):
        def __iter__(self):
            return iter(enumerate(super().__iter__()))

    pruner = Pruner(20, epochs=3)
    stream = wrap(Counted(10, 5, exhausts=True), pruner, id=first_of)
    pruner.begin_epoch()
    for number, _ in stream:
        pruner.observe(np.ones(1), np.array([number]))
    pruner.end_epoch()
    assert pruner.visits.tolist() == [1] * 20
