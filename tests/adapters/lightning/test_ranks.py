"""Two processes train together by Lightning's ddp: as many batches each, and together exactly what is kept."""

import json
import os
import warnings

import numpy as np
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DistributedSampler

from prunedata import PrunedataError, Pruner, Schedule
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.lightning.helpers import Net, data, flat, loader_of, pruner_of, trainer_of, validation

pytestmark = pytest.mark.slow

SAMPLES, KEPT = 45, [45, 33, 33, 45, 33, 33]
LENGTHS = [6, 5, 5, 6, 5, 5]  # of 23 and 17 samples


def run(pruner, loader, folder, saves, checkpoint=None, **options):
    masks, begin = {}, pruner.begin_epoch

    def noted():
        epoch = begin()
        masks[epoch.number] = np.flatnonzero(epoch.keep).tolist()
        return epoch

    pruner.begin_epoch = noted
    net, saver = Net(), ModelCheckpoint(folder, filename="{step}", save_top_k=-1, **saves)
    trainer = trainer_of(pruner, saver, strategy="ddp", devices=WORLD, **options)
    trainer.fit(net, loader, validation(), ckpt_path=checkpoint)
    return {
        "epochs": net.epochs,
        "masks": masks,
        "rates": net.rates,
        "total": net.total,
        "validated": sorted(set(net.validated)),
        "counts": pruner.counts.tolist(),
        "weights": [each.tolist() for each in net.parameters()],
    }


def work(rank, folder):
    os.environ["LOCAL_RANK"] = str(rank)
    warnings.simplefilter("ignore")
    pruner = Pruner(SAMPLES, Schedule(6, 6, 1, 3, 2), prune=12, seed=5)
    loader = loader_of(pruner)  # before the processes have met
    runs = {}
    with group(rank, folder):
        runs["whole"] = run(pruner, loader, folder / "batch", {"every_n_train_steps": 1})
        for name, saves, step in [
            ("within", {"every_n_train_steps": 1}, 8),
            ("last batch", {"every_n_train_steps": 1}, 6),
            ("validated", {"every_n_epochs": 1}, 16),
        ]:
            pruner = Pruner(SAMPLES, Schedule(6, 6, 1, 3, 2), prune=12, seed=5)
            if name == "validated":
                run(pruner, loader_of(pruner), folder / "validated", saves)
                pruner = Pruner(SAMPLES, Schedule(6, 6, 1, 3, 2), prune=12, seed=5)
            where = folder / ("validated" if name == "validated" else "batch")
            runs[name] = run(pruner, loader_of(pruner), where, saves, where / f"step={step}.ckpt")
        pruner = pruner_of([10, 6, 8, 12])
        sampler = DistributedSampler(data())
        loader = loader_of(pruner, shuffle=None, sampler=sampler)
        runs["own sampler"] = run(pruner, loader, folder / "own", {}, use_distributed_sampler=False)
    pruner = Pruner(SAMPLES, Schedule(6, 6, 1, 3, 2), prune=12, seed=5)
    try:  # one process goes on where two were within an epoch
        trainer = trainer_of(pruner)
        trainer.fit(Net(), loader_of(pruner), validation(), ckpt_path=folder / "batch" / "step=8.ckpt")
    except PrunedataError as error:
        runs["alone"] = str(error)
    (folder / f"{rank}.json").write_text(json.dumps(runs))


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


def test_within_an_epoch_one_cannot_go_on_alone(ranks):
    assert all("Expected 2 processes, as the checkpoint was saved within an epoch" in rank["alone"] for rank in ranks)
