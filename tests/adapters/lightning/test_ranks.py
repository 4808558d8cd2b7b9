"""Two processes train together by Lightning's ddp: as many batches each, and together exactly what is kept."""

import os
import warnings

import numpy as np
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DistributedSampler

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.lightning.helpers import BATCH, Net, data, flat, loader_of, pruner_of, trainer_of, validation

SAMPLES, KEPT = 45, [45, 33, 33, 45, 33, 33]
LENGTHS = [6, 5, 5, 6, 5, 5]  # of 23 and 17 samples


def new_pruner():
    return Pruner(SAMPLES, Schedule(6, 6, 1, 3, 2), prune=12, seed=5)


def run(pruner, loader, folder, saves, checkpoint=None, **options):
    masks, known, begin = {}, {}, pruner.begin_epoch

    def noted():
        epoch = begin()
        masks[epoch.number] = np.flatnonzero(epoch.keep).tolist()
        known[epoch.number] = pruner.counts.tolist()
        return epoch

    pruner.begin_epoch = noted
    net, saver = Net(), ModelCheckpoint(folder, filename="{step}", save_top_k=-1, **saves)
    trainer = trainer_of(pruner, saver, **{"strategy": "ddp", "devices": WORLD} | options)
    trainer.fit(net, loader, validation(), ckpt_path=checkpoint)
    return {
        "epochs": net.epochs,
        "masks": masks,
        "rates": net.rates,
        "total": net.total,
        "validated": sorted(set(net.validated)),
        "counts": pruner.counts.tolist(),
        "known": known,
        "observed": [record["observed"] for record in pruner.history],
        "weights": [each.tolist() for each in net.parameters()],
    }


def work(rank, folder):
    warnings.simplefilter("ignore")
    runs, alone, every = {}, {"strategy": "auto", "devices": 1}, {"every_n_train_steps": 1}
    if not rank:
        pruner = new_pruner()
        runs["one"] = run(pruner, loader_of(pruner, batch_size=2 * BATCH), folder / "one", every, **alone)
    os.environ["LOCAL_RANK"] = str(rank)
    pruner = new_pruner()
    loader = loader_of(pruner)  # before the processes have met
    with group(rank, folder):
        runs["whole"] = run(pruner, loader, folder / "batch", {"every_n_train_steps": 1})
        for name, saves, step in [
            ("within", {"every_n_train_steps": 1}, 8),
            ("last batch", {"every_n_train_steps": 1}, 6),
            ("validated", {"every_n_epochs": 1}, 16),
        ]:
            pruner = new_pruner()
            if name == "validated":
                run(pruner, loader_of(pruner), folder / "validated", saves)
                pruner = new_pruner()
            where = folder / ("validated" if name == "validated" else "batch")
            runs[name] = run(pruner, loader_of(pruner), where, saves, where / f"step={step}.ckpt")
        pruner = new_pruner()
        runs["from one"] = run(pruner, loader_of(pruner), folder / "two", {}, folder / "one" / "step=8.ckpt")
        pruner = pruner_of([10, 6, 8, 12])
        sampler = DistributedSampler(data())
        loader = loader_of(pruner, shuffle=None, sampler=sampler)
        runs["own sampler"] = run(pruner, loader, folder / "own", {}, use_distributed_sampler=False)
    if not rank:  # one process goes on where two were within an epoch
        del os.environ["LOCAL_RANK"]
        pruner, left = new_pruner(), folder / "batch" / "step=8.ckpt"
        runs["from two"] = run(pruner, loader_of(pruner, batch_size=2 * BATCH), folder / "left", {}, left, **alone)
        pruner = new_pruner()
        try:
            run(pruner, loader_of(pruner), folder / "left", {}, left, **alone)
        except PrunedataError as error:
            runs["other steps"] = str(error)
    return runs


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(work, tmp_path_factory.mktemp("ranks"))


def lengths(run):
    return [len(batches) for batches in run["epochs"].values()]


def together(ranks, name, epoch):
    return [each for rank in ranks for each in flat(rank[name]["epochs"].get(epoch, []))]


def test_each_has_as_many_batches_and_together_what_is_kept(ranks):
    for rank in ranks:
        whole = rank["whole"]
        assert lengths(whole) == LENGTHS
        assert whole["total"] == len(whole["rates"]) == sum(LENGTHS)
        assert whole["validated"] == list(range(6))
    for epoch, kept in ranks[0]["whole"]["masks"].items():
        assert sorted(set(together(ranks, "whole", epoch))) == kept
        assert len(kept) == KEPT[int(epoch)]
    masks = ranks[0]["whole"]["masks"]
    assert masks["1"] != masks["4"]


def test_all_know_and_have_learnt_the_same(ranks):
    for name in ("whole", "within", "last batch", "validated", "own sampler"):
        for part in ("masks", "counts", "weights", "rates"):
            assert ranks[0][name][part] == ranks[1][name][part]


def test_losses_are_held_against_the_mean_of_both_ranks(ranks):
    """As in one process with such batches; later epochs start from weights that a padded step has changed."""
    for rank in ranks:
        assert rank["whole"]["known"]["1"] == ranks[0]["one"]["known"]["1"]


@pytest.mark.parametrize(("name", "step"), [("within", 8), ("last batch", 6), ("validated", 16)])
def test_they_go_on_from_one_checkpoint(ranks, name, step):
    for rank in ranks:
        whole, later = rank["whole"], rank[name]
        assert flat(later["epochs"].values()) == flat(whole["epochs"].values())[step:]
        assert later["counts"] == whole["counts"]
        assert later["rates"] == whole["rates"][step:]


def test_a_sampler_of_the_users_deals_as_it_says(ranks):
    for rank in ranks:
        assert lengths(rank["own sampler"]) == [5, 3, 4, 6]
    for epoch, kept in ranks[0]["own sampler"]["masks"].items():
        assert sorted(together(ranks, "own sampler", epoch)) == kept


@pytest.mark.parametrize(("name", "whole"), [("from two", "whole"), ("from one", "one")])
def test_an_epoch_is_gone_on_with_by_another_number_of_processes(ranks, name, whole):
    """Epoch 1 is left after 2 of its 5 batches, and has 33 samples. What follows depends on the hits, so on batches."""

    def steps(run):
        batches = [rank[run]["epochs"]["1"] for rank in ranks if run in rank]
        return [sorted(flat(step)) for step in zip(*batches, strict=True)]

    there, later = steps(whole), steps(name)
    assert later[:2] == there[2:4]
    assert len(later) == 3
    assert sorted(set(flat(there[:2] + later))) == ranks[0][whole]["masks"]["1"]
    for rank in ranks:
        if name in rank:
            assert rank[name]["observed"] == KEPT
            assert rank[name]["masks"]["1"] == ranks[0][whole]["masks"]["1"]
            assert rank[name]["total"] == sum(LENGTHS)
            assert rank[name]["rates"] == ranks[0][whole]["rates"][8:]
            assert [len(batches) for batches in list(rank[name]["epochs"].values())[1:]] == LENGTHS[2:]


def test_an_epoch_goes_on_with_as_many_samples_in_a_step(ranks):
    told = ranks[0]["other steps"]
    assert "Expected 8 samples in a step of all processes" in told
    assert "Got 4, with 1 process: pass the loader batch_size=8, or resume from" in told
