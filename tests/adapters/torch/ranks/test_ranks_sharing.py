"""2, 3 and 4 real processes with several loaders: what counts is the sharing of the loader that is iterated."""

from itertools import islice, zip_longest

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import wrap
from prunedata.run.order import epoch_order
from tests.adapters.helpers.ranks import group, start, told
from tests.adapters.helpers.torch import SAMPLES, Items, losses_of, make_pruner

WORLDS = (2, 4, 3)
"""In this order each goes on within the epoch that the one before has left."""
SMALL, LARGE = 3, 5
"""Samples in a rank's batch."""
STOPS = {2: (SMALL, 4), 4: (LARGE, 2), 3: (SMALL, None)}
"""Samples in a batch, and after how many batches the first epoch is left: at no border of the next one's batches."""


class Ours:
    """A pruner on one rank, and the ids of each step that it took."""

    def __init__(self, rank, world):
        self.rank, self.world, self.pruner, self.steps = rank, world, make_pruner(), []

    def loader(self, batch, **options):
        sampler = DistributedSampler(Items(), num_replicas=self.world, rank=self.rank)
        given = DataLoader(Items(), batch_size=batch, sampler=sampler, **options)
        return wrap(given, self.pruner, with_ids=True)

    def stream(self, batch):
        raw = prune_stream([{"uid": number} for number in range(SAMPLES)], self.pruner, id="uid")
        return wrap(DataLoader(raw, batch_size=batch, collate_fn=list), self.pruner, with_ids=True)

    def go(self, loader, stop=None):
        for ids, _ in islice(loader, stop):
            self.steps[-1].append([one for one in ids.tolist() if one >= 0])
            losses = losses_of(ids % SAMPLES, self.pruner.next_epoch).requires_grad_()
            loader.observe(losses, ids)

    def found(self):
        pruner = self.pruner
        history = [{name: record[name] for name in ("observed", "mean_loss")} for record in pruner.history]
        return {"steps": self.steps, "counts": pruner.counts.tolist(), "visits": pruner.visits.tolist(),
                "history": history}  # fmt: skip


def growing(ours):
    """Both loaders are there from the beginning."""
    small, large = ours.loader(SMALL), ours.loader(LARGE)
    for epoch in ours.pruner.epochs():
        ours.steps.append([])
        ours.go(large if epoch.number > 1 else small)


def beside_a_stream(ours):
    stream, loader = ours.stream(SMALL), ours.loader(SMALL)
    for epoch in ours.pruner.epochs():
        ours.steps.append([])
        ours.go(stream if epoch.number % 2 else loader)


def wrapped_in_the_loop(ours):
    for epoch in ours.pruner.epochs():
        ours.steps.append([])
        ours.go(ours.loader(SMALL + epoch.number % 2))


def left_and_gone_on_with(ours):
    """Each epoch is left by all ranks, and gone on with by larger batches."""
    small, large = ours.loader(SMALL), ours.loader(LARGE)
    while len(ours.pruner.history) < ours.pruner.schedule.epochs:
        ours.pruner.begin_epoch()
        ours.steps.append([])
        ours.go(small, 5)
        ours.pruner.begin_epoch()
        ours.go(large)
        ours.pruner.end_epoch()


SCENARIOS = {one.__name__: one for one in (growing, beside_a_stream, wrapped_in_the_loop, left_and_gone_on_with)}


def gone_on_by_others(ours, folder, before):
    """Go on with what ``before`` ranks have left, and leave it in turn, or train to the end of the epoch."""
    batch, stop = STOPS[ours.world]
    loader = ours.loader(batch) if ours.world == 4 else None
    if before:
        saved = [torch.load(folder / f"{before}-{each}.pt", weights_only=True) for each in range(before)]
        ours.pruner.load_state_dict(saved)
    ours.pruner.begin_epoch()
    ours.steps.append([])
    ours.go(ours.loader(batch) if loader is None else loader, stop)  # the others wrap theirs within the epoch
    if stop is None:
        ours.pruner.end_epoch()
    else:
        torch.save(ours.pruner.state_dict(), folder / f"{ours.world}-{ours.rank}.pt")


def averages(ours, **options):
    """What the ranks return for losses of 1, on average, in each step of an epoch."""
    loader, found = ours.loader(LARGE, **options), []
    ours.pruner.begin_epoch()
    for ids, _ in loader:
        mean = loader.observe(torch.ones(len(ids)), ids)
        torch.distributed.all_reduce(mean)
        found.append(float(mean) / ours.world)
    ours.pruner.end_epoch()
    return found


def two_at_once(ours, first, second):
    ours.pruner.begin_epoch()
    ours.steps.append([])
    ours.go(first, 2)
    return told(lambda: ours.go(second))


def observed_before(ours):
    loader = ours.loader(SMALL)
    ours.pruner.begin_epoch()
    ours.pruner.observe(np.ones(3), np.arange(3))
    return told(lambda: next(iter(loader)))


def other_loaders(ours, rank_1):
    """Rank 1 iterates another loader than the others, or none; what is each told when the epoch ends?"""
    small, large = ours.loader(SMALL), ours.loader(LARGE)
    ours.pruner.begin_epoch()
    ours.steps.append([])
    if ours.rank != 1:
        ours.go(small)
    elif rank_1 == "large":
        ours.go(large)
    return told(ours.pruner.end_epoch)


def others_wrapped_in_the_loop(ours):
    ours.pruner.begin_epoch()
    return told(lambda: ours.loader(SMALL + ours.rank))


def of_a_world(rank, world, folder, before):
    found = {}
    for name, work in SCENARIOS.items():
        ours = Ours(rank, world)
        work(ours)
        found[name] = ours.found()
    ours = Ours(rank, world)
    gone_on_by_others(ours, folder, before)
    found["gone on"] = ours.found()
    found["averages"] = averages(Ours(rank, world)), averages(Ours(rank, world), drop_last=True)
    if world == 2:
        ours = Ours(rank, world)
        found["two at once"] = two_at_once(ours, ours.loader(SMALL), ours.loader(LARGE))
        ours = Ours(rank, world)
        found["a stream at once"] = two_at_once(ours, ours.stream(SMALL), ours.loader(SMALL))
        found["observed before"] = observed_before(Ours(rank, world))
        found["another"] = other_loaders(Ours(rank, world), "large")
        found["none"] = other_loaders(Ours(rank, world), "none")
        found["others wrapped"] = others_wrapped_in_the_loop(Ours(rank, world))
    return found


def work(rank, folder):
    found, before = {}, None
    for world in WORLDS:
        if rank < world:
            with group(rank, folder, world=world, timeout=90):
                found[world] = of_a_world(rank, world, folder, before)
        before = world
    return found


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """What each rank of each world found: ``worlds[world][name][rank]``."""
    ranks = start(work, tmp_path_factory.mktemp("sharing"), max(WORLDS))
    return {
        world: {name: [ranks[rank][str(world)][name] for rank in range(world)] for name in ranks[0][str(world)]}
        for world in WORLDS
    }


def global_batches(found, number):
    """What all ranks had in each step of an epoch; a sample that stands in for none comes twice."""
    steps = zip_longest(*(rank["steps"][number] for rank in found), fillvalue=[])
    return [sorted({one for part in step for one in part}) for step in steps]


def in_one_process(found):
    """The core's own counts of the same global batches."""
    pruner = make_pruner()
    for epoch in pruner.epochs():
        for batch in global_batches(found, epoch.number):
            pruner.observe(losses_of(batch, epoch.number).numpy(), batch)
    return pruner


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_several_loaders_count_as_one_process_with_their_global_batches(worlds, name, world):
    found = worlds[world][name]
    alone = in_one_process(found)
    assert alone.counts.any()
    for rank in found:
        assert rank["counts"] == alone.counts.tolist()
        assert rank["visits"] == alone.visits.tolist()
        for ours, record in zip(rank["history"], alone.history, strict=True):
            assert ours["observed"] == record["observed"] == record["kept"]
            assert ours["mean_loss"] == pytest.approx(record["mean_loss"])


@pytest.mark.parametrize("world", WORLDS)
def test_an_epoch_that_is_left_goes_on_with_what_remains_on_all_ranks(worlds, world):
    found = worlds[world]["left_and_gone_on_with"]
    order = np.concatenate(list(epoch_order(np.ones(SAMPLES, bool), seed=5, epoch=0))).tolist()
    cuts = [*range(0, 5 * SMALL * world, SMALL * world), *range(5 * SMALL * world, SAMPLES, LARGE * world)]
    assert global_batches(found, 0) == [
        sorted(order[first:last]) for first, last in zip(cuts, [*cuts[1:], SAMPLES], strict=True)
    ]


def test_batches_of_other_sizes_go_on_within_an_epoch_by_any_number_of_ranks(worlds):
    """Each batch is cut from what remained, at no border of the batches before: so are those that a loss is of."""
    batches = [batch for world in WORLDS for batch in global_batches(worlds[world]["gone on"], 0)]
    assert sorted(len(batch) for batch in batches)[-6:] == [9, 9, 9, 9, 20, 20]
    alone = make_pruner()
    alone.begin_epoch()
    for batch in batches:
        alone.observe(losses_of(batch, 0).numpy(), batch)
    alone.end_epoch()
    for rank in worlds[WORLDS[-1]]["gone on"]:
        assert rank["counts"] == alone.counts.tolist()
        assert rank["visits"] == [1] * SAMPLES
        assert rank["history"][0]["mean_loss"] == pytest.approx(alone.history[0]["mean_loss"])


@pytest.mark.parametrize("world", WORLDS)
def test_losses_of_1_average_to_1_over_real_ranks(worlds, world):
    for whole, cut in worlds[world]["averages"]:
        assert whole == pytest.approx([1] * -(-SAMPLES // (LARGE * world)))
        assert cut == [1] * (SAMPLES // (LARGE * world))


def test_loaders_that_share_batches_in_two_ways_within_one_epoch_are_refused_on_every_rank(worlds):
    for rank in range(2):
        found = {name: ranks[rank] for name, ranks in worlds[2].items()}
        assert "Got one with batches of 10 samples of all after one with batches of 6" in found["two at once"]
        assert "one with batches of 6 samples of all after one with steps of a stream" in found["a stream at once"]
        assert (
            "Got losses that were observed before: call observe() for what the loader delivers"
            in found["observed before"]
        )


@pytest.mark.parametrize(
    ("name", "of_rank_1"), [("another", "its part of batches of 10"), ("none", "batches of its own")]
)
def test_ranks_that_iterate_other_loaders_are_told_when_the_epoch_ends(worlds, name, of_rank_1):
    for found in worlds[2][name]:
        assert f"(rank 0 has its part of batches of 6, rank 1 has {of_rank_1})" in found


def test_ranks_that_wrap_other_loaders_within_an_epoch_are_told_at_once(worlds):
    for found in worlds[2]["others wrapped"]:
        assert "loaders: rank 0 has ['batch_size=3, " in found
