"""Two real processes, which train together through accelerate."""

import os

import pytest
import torch

from prunedata.errors import PrunedataError
from tests.adapters.helpers.ranks import launched, meet, start
from tests.adapters.huggingface.trainers import BATCH, Rows, build, pruner_of, weights


def train(folder, name, *, resume=None, **options):
    pruner = pruner_of(epochs=4, prune=27)
    options |= {"learning_rate": 0.05, "save_strategy": "steps", "save_steps": 1, "gradient_accumulation_steps": 2}
    if "WORLD_SIZE" in os.environ:
        options["ddp_backend"] = "gloo"
    trainer, watcher = build(pruner, folder / name, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, watcher, pruner


def work(rank, folder):
    """What each process does: train, and go on from a checkpoint within an epoch."""
    launched(rank, folder)
    trainer, watcher, pruner = train(folder, "whole")
    resumed, after, again = train(folder, "again", resume=str(folder / "whole" / "checkpoint-8"))

    _, from_one, _ = train(folder, "two", resume=str(folder / "one" / "checkpoint-8"))

    found = {
        "seen": watcher.seen, "kept": watcher.kept, "steps": watcher.steps, "rates": watcher.rates,
        "totals": watcher.totals, "weights": weights(trainer).tolist(), "visits": pruner.visits.tolist(),
        "hits": pruner.hits.tolist(), "world": trainer.args.world_size, "weights again": weights(resumed).tolist(),
        "hits again": again.hits.tolist(), "seen again": after.seen,
        "seen after one": from_one.seen, "rates after one": from_one.rates,
        "labels": pruner.arrays["label"].tolist(),
    }  # fmt: skip
    torch.distributed.destroy_process_group()
    return found


def test_two_processes_train_the_union_of_what_is_kept(tmp_path):
    meet(tmp_path)
    alone = {"per_device_train_batch_size": 2 * BATCH}
    _, one, _ = train(tmp_path, "one", **alone)
    ranks = start(work, tmp_path)
    assert [rank["world"] for rank in ranks] == [2, 2]
    for epoch, kept in enumerate(ranks[0]["kept"]):
        shares = [[number for batch in rank["seen"][epoch] for number in batch] for rank in ranks]
        assert sorted(set(shares[0] + shares[1])) == kept
        assert len(shares[0]) == len(shares[1]) == -(-len(kept) // 2)
        assert len(ranks[0]["seen"][epoch]) == len(ranks[1]["seen"][epoch])
    assert [len(kept) for kept in ranks[0]["kept"]] == [96, 69, 96, 69]
    for name in ("kept", "steps", "rates", "totals", "weights", "visits", "hits"):
        assert ranks[0][name] == ranks[1][name]
    assert ranks[0]["steps"] == [3, 3, 3, 3]
    assert ranks[0]["totals"] == [4, 12]
    assert ranks[0]["rates"][-1] == 0
    assert ranks[0]["labels"] == ranks[1]["labels"] == (Rows().labels + 2).tolist()
    assert ranks[0]["visits"] == [sum(number in kept for kept in ranks[0]["kept"]) for number in range(96)]
    for rank in ranks:
        assert rank["weights again"] == rank["weights"]
        assert rank["hits again"] == rank["hits"]
        assert [batch for batches in rank["seen again"] for batch in batches] == [
            batch for batches in rank["seen"] for batch in batches
        ][-len([batch for batches in rank["seen again"] for batch in batches]) :]
    # Another number of processes goes on in the middle of epoch 2, after 4 of 6 batches.
    _, from_two, run = train(tmp_path, "left", resume=str(tmp_path / "whole" / "checkpoint-8"), **alone)
    both = [[sorted(first + second) for first, second in zip(*(rank[name][epoch] for rank in ranks), strict=True)]
            for name, epoch in (("seen", 2), ("seen after one", 0))]  # fmt: skip
    assert [sorted(batch) for batch in from_two.seen[0]] == both[0][4:]
    assert both[1] == [sorted(batch) for batch in one.seen[2]][4:]
    assert from_two.rates == ranks[0]["rates"][8:]
    assert ranks[0]["rates after one"] == ranks[1]["rates after one"] == one.rates[8:]
    assert [record["observed"] for record in run.history] == [96, 69, 96, 69]
    with pytest.raises(PrunedataError, match=r"Expected 16 samples .* so set per_device_train_batch_size=16."):
        train(tmp_path, "left", resume=str(tmp_path / "whole" / "checkpoint-8"))
