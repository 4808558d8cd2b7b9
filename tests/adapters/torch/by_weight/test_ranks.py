"""Ranks that leave out by weight train on the global mean: the weights and counts of one process."""

from functools import partial

import numpy as np
import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import watch, wrap
from tests.adapters.helpers.loops import found, ours, plain, run_of
from tests.adapters.helpers.ranks import (
    GLOBAL,
    group,
    launched,
    losses_of,
    model_of,
    ready,
    sampler_of,
    start,
    told,
)
from tests.adapters.helpers.torch import SAMPLES, Items

UNEVEN = (None, "weights", "drop", "pad")
STOPS = {2: 13, 3: 12}


def loader_of(rank, world, run, uneven=None, kind=DataLoader, batch=GLOBAL, **options):
    return wrap(kind(Items(), batch // world, sampler=sampler_of(rank, world), **options), run, uneven=uneven)


def trained(rank, world, policy, accumulate=1, **options):
    run, model = run_of(policy), ready(model_of(), world)
    return ours(run, loader_of(rank, world, run, **options), model, accumulate)


def left_and_gone_on_with(rank, world, folder, before):
    """Two ranks leave a pruned epoch within it, three go on and leave it, and two train to the end."""
    run, plain_model = run_of("running"), model_of()
    loader = loader_of(rank, world, run, kind=StatefulDataLoader)
    if before:
        saved = [torch.load(folder / f"{before}-{each}.pt", weights_only=True) for each in range(before)]
        plain_model.load_state_dict(saved[0]["model"])
        run.load_state_dict([each["run"] for each in saved])
        loader.load_state_dict(saved[min(rank, before - 1)]["loader"])
    model = DistributedDataParallel(plain_model)
    got = ours(run, loader, model, steps=None if before == 3 else STOPS[world] if not before else 2)
    if got is None:
        state = {"model": plain_model.state_dict(), "run": run.state_dict(), "loader": loader.state_dict()}
        torch.save(state, folder / f"{world}-{rank}.pt")
    return got


def streamed(rank, world, uneven):
    run = run_of("running")
    raw = [{"n": number} for number in range(SAMPLES)]
    stream = prune_stream(raw, run, id="n", then=lambda one: (0, one["n"]))
    loader = wrap(DataLoader(stream, GLOBAL // world), run, uneven=uneven)
    model = ready(model_of(), world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in run.epochs():
        for _, ids in loader:
            loader.observe(losses_of(model, ids)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return found(model, run)


def accelerated(rank):
    launched(rank)
    run = run_of()
    loader = wrap(DataLoader(Items(), 4, shuffle=True), run, with_ids=True)
    prepared = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False)).prepare(loader)
    run.begin_epoch()
    return next(iter(prepared))


def watched(rank):
    return watch([torch.arange(3)], run_of(), ids=lambda batch: batch)


def work(rank, folder, world, cases):
    with group(rank, folder, world=world):
        return [told(partial(case, rank)) for case in cases]


def all_of(folder, world, *cases):
    return start(partial(work, world=world, cases=cases), folder, world)


def close(found, expected, case=None):
    np.testing.assert_allclose(found["weights"], expected["weights"], rtol=1e-9, err_msg=str(case))
    assert found["counts"] == expected["counts"]
    assert found["visits"] == expected["visits"]
    assert found["by_weight"] == expected["by_weight"]
    for name, array in expected["arrays"].items():
        np.testing.assert_allclose(found["arrays"][name], array, rtol=1e-5, equal_nan=True)
    for one, other in zip(found["history"], expected["history"], strict=True):
        assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_they_train_as_one_process_does(tmp_path, world):
    options = [{}, {"uneven": "drop"}, {"drop_last": True}, {"accumulate": 3}, {"num_workers": 1}]
    cases = [{"policy": policy, **option} for policy in ("counts", "weighs") for option in options]
    of_ranks = all_of(tmp_path, world, *(partial(trained, world=world, **case) for case in cases))
    for number, case in enumerate(cases):
        drop_last, accumulate = case.get("drop_last", False), case.get("accumulate", 1)

        def batches(epoch, case=case, drop_last=drop_last):
            if case.get("uneven") == "drop":
                order = np.concatenate(list(epoch.order()))[: SAMPLES // world * world]
                return [order[first : first + GLOBAL] for first in range(0, len(order), GLOBAL)]
            if drop_last:  # PyTorch's own: a share loses its last batch
                order = np.concatenate(list(epoch.order()))[: SAMPLES // world * world]
                full = len(order) // GLOBAL
                return [order[first : first + GLOBAL] for first in range(0, full * GLOBAL, GLOBAL)]
            return list(epoch.batches(GLOBAL))

        expected = plain(run_of(case["policy"]), batches, accumulate)
        for each in of_ranks:
            close(each[number], expected, case)


def test_where_ranks_pad_what_pads_is_in_the_mean_once_more_and_counts_once(tmp_path):
    world = 2
    found, other = (
        of[0] for of in all_of(tmp_path, world, partial(trained, world=world, policy="counts", uneven="pad"))
    )
    assert found == other
    padded = -SAMPLES % world

    def batches(epoch):
        order = np.concatenate(list(epoch.order()))
        order = np.append(order, order[:padded])
        return [order[first : first + GLOBAL] for first in range(0, SAMPLES, GLOBAL)]

    assert padded
    expected = plain(run_of("counts"), batches, once=True)
    np.testing.assert_allclose(found["weights"], expected["weights"], rtol=1e-9)
    assert [found[name] for name in ("counts", "visits")] == [expected[name] for name in ("counts", "visits")]


def test_another_number_of_ranks_goes_on_within_an_epoch(tmp_path):
    for world, before in ((2, 0), (3, 2), (2, 3)):
        of_ranks = all_of(tmp_path, world, partial(left_and_gone_on_with, world=world, folder=tmp_path, before=before))
    expected = plain(run_of("running"), lambda epoch: epoch.batches(GLOBAL))
    for (each,) in of_ranks:
        close(each, expected)


@pytest.mark.parametrize("uneven", ["weights", "drop"])
def test_a_stream_on_ranks(tmp_path, uneven):
    world = 2
    (one,), (other,) = all_of(tmp_path, world, partial(streamed, world=world, uneven=uneven))
    assert one == other
    if uneven == "weights":
        close(one, plain(run_of("running"), lambda epoch: epoch.batches(GLOBAL, shuffle=False)))


def test_where_no_rank_knows_what_counts_of_the_others_it_is_refused(tmp_path):
    for of_trainer, of_any in all_of(tmp_path, 2, accelerated, watched):
        assert "Got even_batches=False" in of_trainer
        assert "Expected one process with watch(). Got several" in of_any
