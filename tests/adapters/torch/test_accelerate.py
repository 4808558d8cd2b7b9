"""Accelerate rebuilds a loader around its samplers, deals batches to processes, and fetches one batch ahead."""

import gc

import numpy as np
import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError
from tests.adapters.helpers.alone import check_batches_of_one
from tests.adapters.helpers.ranks import WORLD, group, launched, start, told
from tests.adapters.helpers.torch import BATCH, SAMPLES, loader_of, losses_of, make_pruner, pruned


@pytest.mark.parametrize("settings", [{}, {"num_workers": 2}, {"drop_last": True}], ids=str)
def test_a_prepared_loader_delivers_ids_with_their_batches(settings):
    pruner, loader = pruned(with_ids=True, **settings)
    prepared = Accelerator(cpu=True).prepare(loader)
    for epoch in pruner.epochs():
        seen = []
        assert len(prepared) == len(loader)
        for ids, (_, index) in prepared:
            assert np.array_equal(ids, index.numpy())
            seen += ids.tolist()
            loader.observe(losses_of(index, epoch.number), ids)
        cut = epoch.kept % BATCH if "drop_last" in settings else 0
        assert len(set(seen)) == len(seen) == epoch.kept - cut
        assert epoch.keep[seen].all()
    assert [record["pruned"] for record in pruner.history] == [False, True, False, True, False]


@pytest.mark.parametrize("leave_out", ["delivery", "weight"])
@pytest.mark.parametrize("stop", [3, 9])  # within an epoch on all, and within one that leaves out
def test_a_run_goes_on_within_an_epoch(stop, leave_out):
    whole = train(stop=None, leave_out=leave_out)
    first = train(stop=stop, leave_out=leave_out)
    rest = train(state=first["state"], leave_out=leave_out)
    assert first["came"] + rest["came"] == whole["came"]
    assert rest["counts"] == whole["counts"]
    assert rest["observed"] == whole["observed"] == [103, 73, 103, 73]


def train(stop=None, state=None, leave_out="delivery"):
    """Train through a prepared loader, hold each mean to one by hand, and leave after so many batches."""
    data = TensorDataset(torch.arange(SAMPLES).float())
    pruner = Pruner(SAMPLES, Schedule(4, 4, 1, 2, 1), prune=0.3, leave_out=leave_out)
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True), pruner, with_ids=True)
    prepared = Accelerator(cpu=True).prepare(loader)
    if state is not None:
        pruner.load_state_dict(state)
    came = []
    for epoch in pruner.epochs():
        for ids, (values,) in prepared:
            counted = np.ones(len(ids), bool) if not epoch.zero_weights else epoch.trained[ids]
            losses = torch.sin(values).requires_grad_()
            mean = loader.observe(losses, ids)
            assert mean.item() == pytest.approx(losses[torch.from_numpy(counted)].sum().item() / max(1, counted.sum()))
            mean.backward()
            came.append(ids.tolist())
            if len(came) == stop:
                return {"came": came, "state": pruner.state_dict()}
    observed = [record["observed"] for record in pruner.history]
    return {"came": came, "counts": pruner.counts.tolist(), "observed": observed}


def test_what_accelerate_prepared_before_is_refused_with_the_way_to_go():
    with pytest.raises(PrunedataError, match="wrap the loader first, with with_ids=True"):
        wrap(Accelerator(cpu=True).prepare(loader_of()), make_pruner())


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_that_are_dispatched_are_refused(workers):
    pruner, loader = pruned(with_ids=True, num_workers=workers)
    configuration = DataLoaderConfiguration(dispatch_batches=True)
    prepared = Accelerator(cpu=True, dataloader_config=configuration).prepare(loader)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="dispatch_batches=False"):
        next(iter(prepared))


SCENARIOS = {
    "even": {},
    "uneven": {"even_batches": False},
    "split": {"split_batches": True},
    "split, uneven": {"split_batches": True, "even_batches": False},
    "dropped": {"drop_last": True},
    "split, dropped": {"split_batches": True, "drop_last": True},
    "pruned first": {},
}
ORDERS = (("model", "loader", "optimizer"), ("loader", "optimizer", "model"))


def build(drop_last=False, sampler=None):
    data = TensorDataset(torch.arange(SAMPLES).float() / SAMPLES, torch.arange(SAMPLES))
    pruner = Pruner(SAMPLES, Schedule(6, 6, 1, 3, 2), prune=0.3, seed=5)
    plain = DataLoader(data, batch_size=8, shuffle=sampler is None, sampler=sampler, drop_last=drop_last)
    return pruner, wrap(plain, pruner, with_ids=True)


def fit(pruner, loader, order, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    parts = {"model": model, "loader": loader, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
    parts = dict(zip(order, accelerator.prepare(*[parts[name] for name in order]), strict=True))
    epochs = []
    for epoch in pruner.epochs():
        epochs.append({"kept": np.flatnonzero(epoch.keep).tolist(), "batches": [], "length": len(parts["loader"])})
        for ids, (values, labels) in parts["loader"]:
            assert np.array_equal(ids, labels.numpy())
            # Without even_batches one process may have a batch more, for which DDP would wait.
            forward = parts["model"] if options.get("even_batches", True) else model
            losses = (forward(values[:, None])[:, 0] - 0.5) ** 2
            parts["optimizer"].zero_grad()
            accelerator.backward(loader.observe(losses, ids))
            parts["optimizer"].step()
            epochs[-1]["batches"].append(ids.tolist())
    return {"epochs": epochs, "counts": pruner.counts.tolist(), "weight": float(model.weight)}


def work(rank, folder):
    launched(rank)
    early = build()  # before the processes have met
    found = {}
    with group(rank, folder):
        for number, (name, given) in enumerate(SCENARIOS.items()):
            options = dict(given)
            pruner, loader = early if name == "pruned first" else build(options.pop("drop_last", False))
            found[name] = fit(pruner, loader, ORDERS[number % 2], **options)
        found["refused"] = told(lambda: fit(*build(sampler=DistributedSampler(range(SAMPLES))), ORDERS[0]))
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes_train_on_what_is_kept(ranks, name):
    options = SCENARIOS[name]
    assert ranks[0][name]["counts"] == ranks[1][name]["counts"]
    if options.get("even_batches", True):
        assert ranks[0][name]["weight"] == ranks[1][name]["weight"]
    masks = []
    for ours, theirs in zip(ranks[0][name]["epochs"], ranks[1][name]["epochs"], strict=True):
        assert ours["kept"] == theirs["kept"]
        seen = [each for epoch in (ours, theirs) for batch in epoch["batches"] for each in batch]
        if name != "split, uneven":  # accelerate's length has a batch too many for who gets no part of the last one
            assert [len(epoch["batches"]) for epoch in (ours, theirs)] == [ours["length"], theirs["length"]]
        if "drop_last" in options:
            together = 8 if "split_batches" in options else 8 * WORLD
            assert len(seen) == len(set(seen)) == len(ours["kept"]) // together * together
            assert set(seen) <= set(ours["kept"])
        else:
            assert sorted(set(seen)) == ours["kept"]
        if not options.get("even_batches", True):
            assert len(seen) == len(ours["kept"])
        masks.append(ours["kept"])
    assert [len(kept) for kept in masks] == [103, 73, 73, 103, 73, 73]
    assert masks[1] != masks[4]


@pytest.mark.slow
def test_a_distributed_sampler_would_deal_twice(ranks):
    assert all("without a DistributedSampler, as accelerate deals" in rank["refused"] for rank in ranks)


def test_batches_of_one_with_accumulation_find_suspects_as_batches_of_16_do():
    def train(pruner, data, model, batch, accumulate):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        drawn = torch.Generator().manual_seed(0)
        loader = wrap(DataLoader(data, batch_size=batch, shuffle=True, generator=drawn), pruner, with_ids=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
        for _ in pruner.epochs():
            for ids, (inputs, labels) in prepared:
                with accelerator.accumulate(model):
                    losses = torch.nn.functional.cross_entropy(model(inputs), labels, reduction="none")
                    accelerator.backward(loader.observe(losses, ids))
                    optimizer.step()
                    optimizer.zero_grad()

    check_batches_of_one(train)


def test_a_script_may_give_the_prepared_loader_the_name_of_the_wrapped_one():
    pruner, loader = pruned(with_ids=True)
    loader = Accelerator(cpu=True).prepare(loader)
    gc.collect()  # of the wrapped loader, if nothing keeps it
    for epoch in pruner.epochs():
        for ids, (_, index) in loader:
            losses = losses_of(index, epoch.number)
            assert torch.equal(pruner.observe(losses, ids), losses.mean())


def test_a_loader_without_ids_that_accelerate_prepared_is_refused():
    pruner, loader = pruned()
    prepared = Accelerator(cpu=True).prepare(loader)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match="Expected with_ids=True for a loader that accelerate prepares"):
        next(iter(prepared))


@pytest.mark.parametrize("workers", [0, 1])  # forked workers, as on Linux
@pytest.mark.parametrize(("with_ids", "told"), [(True, "dispatch_batches=False"), (False, "Expected with_ids=True")])
def test_a_stream_that_accelerate_prepares_needs_ids_and_no_dispatched_batches(workers, with_ids, told):
    pruner = make_pruner()
    stream = pruner.wrap([{"id": number} for number in range(SAMPLES)], id="id")
    loader = DataLoader(
        stream, batch_size=BATCH, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    # Streams are dispatched by default.
    configuration = DataLoaderConfiguration(dispatch_batches=None if with_ids else False)
    prepared = Accelerator(cpu=True, dataloader_config=configuration).prepare(wrap(loader, pruner, with_ids=with_ids))
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=told):
        next(iter(prepared))


def test_the_pruner_says_as_well_how_to_wrap_what_accelerate_prepared():
    with pytest.raises(PrunedataError, match="wrap the loader first, with with_ids=True"):
        Pruner(epochs=3).wrap(Accelerator(cpu=True).prepare(loader_of()))
