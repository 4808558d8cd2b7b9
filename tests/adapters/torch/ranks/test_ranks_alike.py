"""1, 2, 3 and 4 real processes train one run: the same samples, counts, masks, order and weights in all of them."""

import numpy as np
import pytest
import torch
import webdataset as wds
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import wrap
from prunedata.adapters.webdataset import ShardIndex
from prunedata.adapters.webdataset import wrap as prune_shards
from prunedata.policies import Random, RunningLoss
from tests.adapters.helpers.ranks import (
    GLOBAL,
    POLICIES,
    Trained,
    everyones,
    group,
    losses_of,
    model_of,
    ready,
    sampler_of,
    start,
    told,
    weights_of,
)
from tests.adapters.helpers.shards import write_shards
from tests.adapters.helpers.torch import Items, flat, make_pruner

WORLDS = (2, 4, 3, 1)
"""In this order each goes on within the epoch that the one before has left."""
STOPS = {2: 3, 4: 5, 3: 13}
"""Batches after which the run is left. The first epoch has 9."""
STREAM_STOPS = {2: 3, 4: 4, 3: 9}
"""The same on a stream. Its first epoch has 8."""
STREAMS = ("iterable", "iterable, dealt", "WebDataset", "WebDataset, dealt")


def gone_on_with(rank, world, folder, kind, before):
    """Go on with what ``before`` ranks have left, and leave it in turn, or train to the end."""
    trained = Trained(rank, world, kind=kind, policy="RunningLoss")
    name = kind.__name__
    if before:
        saved = [torch.load(folder / f"{name}-{before}-{each}.pt", weights_only=True) for each in range(before)]
        trained.plain.load_state_dict(saved[0]["model"])
        trained.pruner.load_state_dict([each["pruner"] for each in saved])
        trained.loader.load_state_dict(saved[min(rank, before - 1)]["loader"])
    trained.go(STOPS.get(world))
    state = {"model": trained.plain.state_dict(), "pruner": trained.pruner.state_dict()}
    torch.save(state | {"loader": trained.loader.state_dict()}, folder / f"{name}-{world}-{rank}.pt")
    return trained.found()


def refused(rank, world):
    """What a state of one rank, or a position of other ranks, is told within an epoch."""

    def with_state(states):
        run = make_pruner()
        loader = wrap(DataLoader(Items(), batch_size=4, sampler=sampler_of(rank, world)), run)
        run.load_state_dict(states)
        run.begin_epoch()
        return loader

    trained = Trained(rank, world).go(2)
    states = everyones(trained.pruner.state_dict())
    position = {"epoch": 0, "delivered": 4, "loader": {"of": "three"}, "ranks": 3}
    random = make_pruner(policy=Random())
    loader = StatefulDataLoader(Items(), batch_size=4, sampler=sampler_of(rank, world))
    return {
        "rank 0's on all": told(lambda: with_state(states[0])),
        "one goes on": told(lambda: with_state(states) if rank else make_pruner_and_begin(rank, world)),
        "without losses": told(lambda: wrap(loader, random).load_state_dict(position)),
        "another batch size": told(lambda: make_pruner_and_begin(rank, world, batch_size=4 + rank)),
    }


def make_pruner_and_begin(rank, world, batch_size=4):
    run = make_pruner()
    wrap(DataLoader(Items(), batch_size=batch_size, sampler=sampler_of(rank, world)), run)
    run.begin_epoch()


class All(IterableDataset):
    """All raw samples on every rank."""

    def __iter__(self):
        yield from ({"uid": number} for number in range(90))


def stream_of(kind, pruner, folder):
    if kind == "iterable":
        return prune_stream([{"uid": number} for number in range(90)], pruner, id="uid", then=by_uid)
    if kind == "iterable, dealt":
        return prune_stream(All(), pruner, id="uid", then=by_uid, deal=True)
    index, deal = ShardIndex.load(folder / "index.json"), kind == "WebDataset, dealt"
    splitter = None if deal else wds.split_by_node
    raw = wds.WebDataset(index.urls, shardshuffle=False, nodesplitter=splitter, empty_check=False)
    return prune_shards(raw, pruner, index, deal=deal).decode().to_tuple("uid")


def streamed(kind, rank, world, folder, uneven=None, *, leave=False, before=None):
    """Train on a stream; the steps are logged with the ids that came in them.

    With ``leave`` go on with what ``before`` ranks have left, and leave it in turn, or train to the end.
    """
    pruner = make_pruner(samples=90, prune=0.4, policy=RunningLoss())
    plain = model_of()
    model = ready(plain, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    loader = wrap(DataLoader(stream_of(kind, pruner, folder), batch_size=GLOBAL // world), pruner, uneven=uneven)
    if before:
        saved = [torch.load(folder / f"{kind}-{before}-{each}.pt", weights_only=True) for each in range(before)]
        plain.load_state_dict(saved[0]["model"])
        pruner.load_state_dict([each["pruner"] for each in saved])
    log, counts, steps = [], [], 0
    for epoch in pruner.epochs():
        counts.append(pruner.counts.tolist())
        log.append({"kept": np.flatnonzero(epoch.keep).tolist(), "steps": []})
        for (numbers,) in loader:
            ids, seen = [int(number) for number in numbers], len(pruner_seen(loader))
            optimizer.zero_grad()
            loader.observe(losses_of(model, ids)).backward()
            optimizer.step()
            log[-1]["steps"].append(ids if len(pruner_seen(loader)) > seen else [])
            steps += 1
            if leave and steps == STREAM_STOPS.get(world):
                break
        if leave and steps == STREAM_STOPS.get(world):
            break
    counts.append(pruner.counts.tolist())
    if leave:
        state = {"model": plain.state_dict(), "pruner": pruner.state_dict()}
        torch.save(state, folder / f"{kind}-{world}-{rank}.pt")
    arrays = {name: array.tolist() for name, array in pruner.arrays.items()}
    return {"log": log, "counts": counts, "visits": pruner.visits.tolist(), "arrays": arrays,
            "observed": [record["observed"] for record in pruner.history], "weights": weights_of(model)}  # fmt: skip


def by_uid(item):
    return (item["uid"],)


def pruner_seen(loader):
    """The ids that this rank has recorded in the open epoch."""
    loader._pruner._engine.flush()
    return np.flatnonzero(loader._pruner._engine.opened.tally.visits)


def of_a_world(rank, world, folder, before):
    found = {name: Trained(rank, world, policy=name).go().found() for name in POLICIES}
    for kind in (DataLoader, StatefulDataLoader):
        found[f"gone on, {kind.__name__}"] = gone_on_with(rank, world, folder, kind, before)
    for kind in STREAMS:
        found[kind] = streamed(kind, rank, world, folder)
    found["stream gone on"] = streamed("iterable", rank, world, folder, leave=True, before=before)
    if world == 2:
        found["FSDP2"] = Trained(rank, world, sharded=True).go().found()
        found["iterable, dropped"] = streamed("iterable", rank, world, folder, "drop")
        found["refused"] = refused(rank, world)
    return found


def work(rank, folder):
    found, before = {}, None
    for world in WORLDS:
        if rank < world:
            with group(rank, folder, world=world, timeout=180):
                found[world] = of_a_world(rank, world, folder, before)
        before = world
    return found


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """What each rank of each world found: ``worlds[world][name][rank]``."""
    folder = tmp_path_factory.mktemp("worlds")
    ShardIndex.scan(write_shards(folder, [23, 17, 31, 19])).save(folder / "index.json")
    ranks = start(work, folder, max(WORLDS))
    return {
        world: {name: [ranks[rank][str(world)][name] for rank in range(world)] for name in ranks[0][str(world)]}
        for world in WORLDS
    }


def steps_of(found, number, name="batches"):
    """The ids of each step of an epoch, of all ranks together."""
    return [sorted(set(flat(step))) for step in zip(*(rank["log"][number][name] for rank in found), strict=True)]


ALIKE = ("counts", "visits", "observed", "arrays", "lengths")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_several_processes_are_one(worlds, world, policy):
    (one,), found = worlds[1][policy], worlds[world][policy]
    assert len(one["counts"]) == 5
    assert one["log"][1]["kept"] != one["log"][3]["kept"]
    for rank in found:
        assert {name: rank[name] for name in ALIKE} == {name: one[name] for name in ALIKE}
        assert [epoch["kept"] for epoch in rank["log"]] == [epoch["kept"] for epoch in one["log"]]
        assert rank["lengths"] == [epoch["length"] for epoch in rank["log"]]
        assert rank["lengths"] == [len(epoch["batches"]) for epoch in rank["log"]] == [9, 7, 9, 7, 9]
        assert rank["weights"] == pytest.approx(one["weights"], abs=1e-9)
        assert rank["mean_loss"] == pytest.approx(one["mean_loss"])
    for number in range(5):
        assert steps_of(found, number) == [sorted(batch) for batch in one["log"][number]["batches"]]


@pytest.mark.parametrize("kind", ["DataLoader", "StatefulDataLoader"])
def test_an_epoch_is_gone_on_with_by_any_number_of_processes(worlds, kind):
    """2 begin it, 4 go on, then 3, into the next epoch, and 1 ends the run."""
    (one,), (last,) = worlds[1]["RunningLoss"], worlds[1][f"gone on, {kind}"]
    assert last["counts"][-1] == one["counts"][-1]
    assert {name: last[name] for name in ALIKE[1:]} == {name: one[name] for name in ALIKE[1:]}
    assert last["weights"] == pytest.approx(one["weights"], abs=1e-9)
    assert last["mean_loss"] == pytest.approx(one["mean_loss"])
    steps = []
    for world in WORLDS:
        found = worlds[world][f"gone on, {kind}"]
        steps += [step for number in range(len(found[0]["log"])) for step in steps_of(found, number)]
    assert steps == [sorted(batch) for epoch in one["log"] for batch in epoch["batches"]]


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("kind", ["iterable", "iterable, dealt", "WebDataset, dealt"])
def test_streams_that_are_dealt_to_ranks_are_one_processs(worlds, world, kind):
    (one,), found = worlds[1][kind], worlds[world][kind]
    assert one["observed"] == [90, 54, 90, 54, 90]
    assert one["log"][1]["kept"] != one["log"][3]["kept"]
    for rank in found:
        assert {name: rank[name] for name in ALIKE[:4]} == {name: one[name] for name in ALIKE[:4]}
        assert rank["weights"] == pytest.approx(one["weights"], abs=1e-9)
    for number, epoch in enumerate(one["log"]):
        assert steps_of(found, number, "steps") == epoch["steps"]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_streams_that_split_themselves_are_one_process_that_takes_the_same_steps(worlds, world):
    """The same counts and weights: no sample counts twice, none is missing, each step has one mean."""
    found = worlds[world]["WebDataset"]
    pruner, model = make_pruner(samples=90, prune=0.4, policy=RunningLoss()), model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in pruner.epochs():
        for step in steps_of(found, epoch.number, "steps"):
            optimizer.zero_grad()
            losses = losses_of(model, step)
            pruner.observe(losses.detach().numpy(), step)
            losses.mean().backward()
            optimizer.step()
    for rank in found:
        assert rank["counts"][-1] == pruner.counts.tolist()
        assert rank["visits"] == pruner.visits.tolist()
        assert rank["arrays"] == {name: array.tolist() for name, array in pruner.arrays.items()}
        assert rank["observed"] == [len(epoch["kept"]) for epoch in rank["log"]] == [90, 54, 90, 54, 90]
        assert rank["weights"] == pytest.approx(weights_of(model), abs=1e-9)
    assert any(not step for rank in found for step in rank["log"][0]["steps"])  # shards differ, so some stand by


def test_an_epoch_of_a_stream_is_gone_on_with_by_any_number_of_processes(worlds):
    """2 begin it, 4 go on, then 3, into the next epochs, and 1 ends the run."""
    (one,), (last,) = worlds[1]["iterable"], worlds[1]["stream gone on"]
    assert last["counts"][-1] == one["counts"][-1]
    assert {name: last[name] for name in ALIKE[1:4]} == {name: one[name] for name in ALIKE[1:4]}
    assert last["weights"] == pytest.approx(one["weights"], abs=1e-9)
    steps = []
    for world in WORLDS:
        found = worlds[world]["stream gone on"]
        steps += [step for number in range(len(found[0]["log"])) for step in steps_of(found, number, "steps")]
    assert steps == [step for epoch in one["log"] for step in epoch["steps"]]


def test_a_stream_may_stop_when_one_rank_has_no_more(worlds):
    found = worlds[2]["iterable, dropped"]
    for number, epoch in enumerate(found[0]["log"]):
        steps = steps_of(found, number, "steps")
        assert all(len(rank["log"][number]["steps"]) == len(steps) for rank in found)
        assert set(flat(steps)) <= set(epoch["kept"])
        assert found[0]["observed"][number] == found[1]["observed"][number] == len(flat(steps)) > 40


def test_fsdp2_works_as_ddp_does(worlds):
    for sharded, plain in zip(worlds[2]["FSDP2"], worlds[2]["DroppingCount"], strict=True):
        assert sharded["weights"] == pytest.approx(plain["weights"], abs=1e-9)
        assert sharded["counts"] == plain["counts"]
        assert sharded["log"] == plain["log"]


def test_states_and_loaders_that_cannot_go_together_are_refused_on_every_rank(worlds):
    for found in worlds[2]["refused"]:
        assert "(rank 0 has that of rank 0 of 2, rank 1 has that of rank 0 of 2): give" in found["rank 0's on all"]
        assert "goes on within an epoch: rank 0 has False, rank 1 has True" in found["one goes on"]
        assert "ranks=3 to resume within epoch 0. Got ranks=2" in found["without losses"]
        assert "loaders: rank 0 has ['batch_size=4, " in found["another batch size"]
