"""Ranks agree on what they keep, count and guess, or all are told which does not."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import wrap
from prunedata.policies import DroppingCount, RunningLoss
from tests.adapters.helpers.ranks import WORLD, group, start, told
from tests.adapters.helpers.torch import BATCH, EVERY_OTHER, SAMPLES, Items, losses_of, make_pruner

# Two real processes that don't agree: each is told what differs, or what went wrong on the other, and none waits.


DIFFER = {
    "seed": {"seed": 6},
    "tolerance": {"policy": DroppingCount(tolerance=0.5)},
    "decay": {"policy": RunningLoss(decay=0.5)},
    "classes": {"classes": 10},
    "prune": {"prune": 0.2},
    "checksum of keys": {"keys": range(1, SAMPLES + 1)},
    "epochs": {"schedule": Schedule(4, window=4, start=1, block=2, pruned_per_block=1)},
}
"""What rank 1 has and rank 0 has not."""


def loader_of(pruner, rank):
    sampler = DistributedSampler(Items(), num_replicas=WORLD, rank=rank)
    return wrap(DataLoader(Items(), batch_size=BATCH, sampler=sampler), pruner)


def begins(pruner, rank):
    loader_of(pruner, rank)
    return f"began {pruner.begin_epoch().number}"


def one_resumes(rank):
    pruner = make_pruner()
    if rank:
        alone = make_pruner()
        alone.begin_epoch()
        alone.observe(np.arange(float(SAMPLES)), np.arange(SAMPLES))
        alone.end_epoch()
        pruner.load_state_dict(alone.state_dict())
    return begins(pruner, rank)


def one_skips(rank):
    """Rank 1 leaves a batch out, as it may have NaN losses, and says so."""
    pruner = make_pruner()
    loader = loader_of(pruner, rank)
    for _ in pruner.epochs():
        for number, (_, index) in enumerate(loader):
            if rank and number == 2 and pruner.next_epoch == 0:
                loader._pending.clear()
                pruner.skip(len(index))
            else:
                loader.observe(losses_of(index, pruner.next_epoch))
        if pruner.next_epoch == 1:
            break
    return [record["observed"] for record in pruner.history]


def one_fails(rank):
    """A batch of rank 1 has NaN, which is found when the epoch ends."""
    pruner = make_pruner()
    loader = loader_of(pruner, rank)
    pruner.begin_epoch()
    for number, (_, index) in enumerate(loader):
        losses = losses_of(index, 0)
        loader.observe(losses.log() * float("nan") if rank and number == 2 else losses)
    return told(pruner.end_epoch)


def left_within_an_epoch(rank):
    pruner = make_pruner()
    loader = loader_of(pruner, rank)
    pruner.begin_epoch()
    _, index = next(iter(loader))
    loader.observe(losses_of(index, 0))
    alone = make_pruner()
    alone.load_state_dict(pruner.state_dict())
    return told(alone.begin_epoch)


class All(IterableDataset):
    """Gives every rank all samples, or some of them."""

    def __init__(self, ids=range(SAMPLES)):
        self.ids = ids

    def __iter__(self):
        yield from self.ids


def share(rank):
    return All(range(rank, SAMPLES, WORLD))


def read_as_a_stream(raw, **options):
    """Train one epoch on a stream."""
    pruner = make_pruner()
    loader = wrap(DataLoader(prune_stream(raw, pruner, id=int, **options), batch_size=BATCH), pruner)
    pruner.begin_epoch()
    for index in loader:
        loader.observe(losses_of(index, 0))
    pruner.end_epoch()
    return "ended"


def left_with_no_step_to_come(raw, *, drop_last=False, uneven="weights"):
    """Leave a stream after so many steps that the rest is dropped, as it makes no step; then run it again."""
    pruner = make_pruner()
    stream = prune_stream(raw, pruner, id=int)
    loader = wrap(DataLoader(stream, batch_size=9, drop_last=drop_last), pruner, uneven=uneven)
    steps = []
    for stop in (5, None):
        pruner.begin_epoch()
        steps.append(0)
        for index in islice(loader, stop):
            loader.observe(losses_of(index, 0))
            steps[-1] += 1
    pruner.end_epoch()
    return [*steps, pruner.history[0]["observed"]]


def other_ends_of_streams(rank):
    pruner = make_pruner()
    stream = prune_stream(share(rank), pruner, id=int)
    wrap(DataLoader(stream, batch_size=BATCH), pruner, uneven="drop" if rank else "weights")
    return f"began {pruner.begin_epoch().number}"


def work(rank, folder):
    with group(rank, folder):
        found = {
            name: told(lambda change=change: begins(make_pruner(**(change if rank else {})), rank))
            for name, change in DIFFER.items()
        }
        found["alike"] = begins(make_pruner(), rank)
        found["one resumes"] = told(lambda: one_resumes(rank))
        found["one skips"] = one_skips(rank)
        found["one fails"] = one_fails(rank)
        found["a stream"] = told(lambda: read_as_a_stream(share(rank)))
        found["a stream, dealt"] = told(lambda: read_as_a_stream(All(), deal=True))
        found["all of a stream"] = told(lambda: read_as_a_stream(All()))
        found["shares of a stream, dealt"] = told(lambda: read_as_a_stream(share(rank), deal=True))
        found["dropped by drop_last"] = told(lambda: left_with_no_step_to_come(share(rank), drop_last=True))
        unequal = All(range(45, SAMPLES) if rank else range(45))
        found["dropped as uneven"] = told(lambda: left_with_no_step_to_come(unequal, uneven="drop"))
        found["other ends"] = told(lambda: other_ends_of_streams(rank))
        found["left within"] = left_within_an_epoch(rank)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", DIFFER)
def test_every_rank_names_what_differs_before_the_first_epoch(ranks, name):
    shown = {"tolerance": "policy", "decay": "policy", "epochs": "schedule"}.get(name, name)
    for found in ranks:
        assert found[name].startswith("PrunedataError: Expected ranks of one run. Got ranks that differ (")
        assert f"{shown}: rank 0 has " in found[name]
        assert ranks[0]["alike"] == ranks[1]["alike"] == "began 0"


def test_a_rank_that_resumes_alone_is_named(ranks):
    for found in ranks:
        assert "next epoch: rank 0 has 0, rank 1 has 1" in found["one resumes"]
        assert "checksum of visits" in found["one resumes"]


def test_what_one_rank_skips_counts_for_all(ranks):
    assert ranks[0]["one skips"] == ranks[1]["one skips"]
    assert ranks[0]["one skips"][0] == SAMPLES - BATCH
    assert len(ranks[0]["one skips"]) < EVERY_OTHER.epochs


def test_an_error_on_one_rank_ends_the_epoch_on_all_and_names_it(ranks):
    assert ranks[1]["one fails"].startswith("LossError: Expected finite losses")
    assert "Got an error on rank 1" in ranks[0]["one fails"]


def test_ranks_that_read_the_same_of_a_stream_are_told_before_the_epoch_ends(ranks):
    for found in ranks:
        assert found["a stream"] == found["a stream, dealt"] == "ended"
        assert found["all of a stream"].startswith("LossError: Expected each rank to read a share of the stream")
        assert f"Got {SAMPLES} samples" in found["all of a stream"]
        assert found["shares of a stream, dealt"].startswith(f"SkippedSamples: Expected all {SAMPLES} kept samples")
        assert "loaders: rank 0 has ['a stream, uneven=weights'], rank 1 has" in found["other ends"]


@pytest.mark.parametrize("why", ["by drop_last", "as uneven"])
def test_an_epoch_of_a_stream_ends_though_all_that_remains_is_dropped(ranks, why):
    for found in ranks:
        assert found[f"dropped {why}"] == [5, 0, 5 * 9 * WORLD]


def test_an_epoch_is_gone_on_with_by_as_many_ranks_as_left_it(ranks):
    for found in ranks:
        assert "to go on with 2 processes, as it was left" in found["left within"]


def test_a_state_of_a_run_without_ranks_is_one_processs():
    run = Pruner(8, Schedule(2, 2, 1, 1, 1), prune=2)
    run.begin_epoch()
    state = run.state_dict()
    assert state["state"]["processes"] == 1
    run.load_state_dict(state)
    assert run.begin_epoch().number == 0


# Two and three real processes keep what one process keeps of what the network takes samples for.


CLASSES = 5
LABELS = np.arange(SAMPLES) % CLASSES


def logits_of(ids, epoch):
    rows = [np.random.default_rng((epoch, int(one))).normal(size=CLASSES) for one in ids]
    return torch.from_numpy(np.stack(rows))


def trained(rank, world, *, alone):
    """Three epochs; with `alone` labels come with losses, and logits from the first rank, none in the first epoch."""
    pruner = make_pruner(**({} if alone else {"labels": LABELS}))
    sampler = DistributedSampler(Items(), num_replicas=world, rank=rank)
    loader = wrap(DataLoader(Items(), batch_size=4, sampler=sampler), pruner, with_ids=True)
    for epoch in pruner.epochs():
        for ids, _ in loader:
            own = ids[ids >= 0] % SAMPLES
            silent = alone and (rank or not epoch.number)
            logits = None if silent or len(own) != len(ids) else logits_of(own, epoch.number)
            labels = torch.from_numpy(LABELS[ids % SAMPLES]) if alone else None
            loader.observe(losses_of(ids % SAMPLES, epoch.number), ids, logits=logits, labels=labels)
    guess = pruner.arrays["guess"]
    return {"guess": guess.tolist(), "counts": pruner.counts.tolist()}


def go(rank, folder, world, alone):
    with group(rank, folder, world=world):
        return trained(rank, world, alone=alone)


def test_ranks_keep_what_one_process_keeps(tmp_path):
    expected = trained(0, 1, alone=False)
    first, other = start(partial(go, world=2, alone=False), tmp_path, 2)
    assert first == other
    same = np.array(first["guess"]) == expected["guess"]
    assert same.mean() > 0.9  # but for what padded the last batches, in whose place no logits were given
    assert (np.array(first["guess"]) != LABELS).all()


def test_all_ranks_have_what_one_of_them_knows(tmp_path):
    first, *others = start(partial(go, world=3, alone=True), tmp_path, 3)
    assert others == [first] * 2
    assert max(first["guess"]) > 0
    assert (np.array(first["guess"]) != LABELS).all()
