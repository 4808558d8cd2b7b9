"""Two real processes that leave out by weight: the mean is over what counts in both, as of one with their batches."""

import pytest
import torch
from accelerate.utils import DistributedType
from transformers import Trainer

from prunedata.adapters.huggingface import wrap
from prunedata.policies import Random
from tests.adapters.helpers.ranks import launched, meet, start
from tests.adapters.huggingface.by_weight import test_joined, test_sft
from tests.adapters.huggingface.trainers import Exact, Own, margin, weights

pytestmark = pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning")
SMALL = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
CASES = {
    "labels of the step": {"gradient_accumulation_steps": 2},
    "smoothed": {"label_smoothing_factor": 0.1},
    "own": {},
    "dispatched": {"accelerator_config": {"dispatch_batches": True}},
    "stream": {"max_steps": 30},
    "held out": {},
    "held out, own": {"gradient_accumulation_steps": 2},
    "held out by weight": {"gradient_accumulation_steps": 2},
    "held out, tokens": {"gradient_accumulation_steps": 2},
}
OF_TOKENS = ("labels of the step", "smoothed", "held out, tokens")
HELD_OUT = {"holdout": 0.2, "without": [0, 5, 6, 7]}
"""Two processes have as many batches without these as one with batches of twice the size."""


def made(name, folder, size):
    """A trainer with batches of so many samples in each process, and its run."""
    options = SMALL | CASES[name]
    held_out = HELD_OUT if name.startswith("held out") else {}
    held_out = {**held_out, "leave_out": "delivery"} if held_out and name != "held out by weight" else held_out
    if name in OF_TOKENS:
        run = test_sft.run_of(policy=Random(), **held_out)
        return wrap(test_sft.build(folder, per_device_train_batch_size=size * 4, **options), run), run
    run = test_joined.run_of(policy=Random(), **held_out)
    options |= {"dataset": test_joined.Stream()} if name == "stream" else {}
    kind = Own if name.endswith("own") else Trainer
    trainer = test_joined.build(folder, kind, model=Exact(), per_device_train_batch_size=size * 4, **options)
    more = {"sample_losses": margin} if name.endswith("own") else {}
    return wrap(trainer, run, id="uid" if name == "stream" else None, **more), run


def found(name, folder, size):
    trainer, run = made(name, folder, size)
    trainer.train()
    return {
        "weights": weights(trainer).tolist(),
        "visits": list(run.state_dict()["arrays"]["visits"]["data"]),  # of finished epochs: max_steps ends within one
        "steps": trainer.state.global_step,
        "by_weight": [record.get("by_weight", 0) for record in run.history],
        "labels": run.arrays["label"].tolist() if "label" in run.arrays else None,
        "figures": [record.get("validation") for record in run.history],
        "several": trainer.accelerator.distributed_type != DistributedType.NO,
    }


def uneven(folder, resume=None):
    """Batches of 9 samples, of which accelerate fills the last by samples that came before."""
    run = test_joined.run_of(policy=Random(), holdout=0.1)
    options = {"per_device_train_batch_size": 9, "save_strategy": "steps", "save_steps": 1}
    trainer = wrap(test_joined.build(folder, model=Exact(), **SMALL, **options), run)
    trainer.train(resume_from_checkpoint=resume)
    figures = [(record["validation"], record["observed"]) for record in run.history]
    return run.visits.tolist(), run.hits.tolist(), figures, weights(trainer).tolist()


def work(rank, folder):
    launched(rank, folder)
    told = {name: found(name, folder / name, 1) for name in CASES}
    whole = uneven(folder / "uneven")
    told["uneven"] = whole, uneven(folder / "again", str(folder / "uneven" / "checkpoint-8"))
    torch.distributed.destroy_process_group()
    return told


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found in each case: they are started once for all."""
    folder = tmp_path_factory.mktemp("ranks")
    meet(folder)
    return start(work, folder)


@pytest.mark.parametrize("name", CASES)
def test_they_train_as_one_process_does(name, ranks, tmp_path):
    one = found(name, tmp_path, 2)
    for rank in ranks:
        each = dict(rank[name])
        assert each.pop("several")
        torch.testing.assert_close(
            torch.tensor(each.pop("weights")), torch.tensor(one["weights"]), rtol=1e-4, atol=1e-5
        )
        figures = one["figures"]
        assert each.pop("figures") == (figures if None in figures else pytest.approx(figures, rel=1e-5))
        assert each == {key: one[key] for key in each}
    assert max(one["by_weight"]) > 0 or name.startswith("held out")
    assert name.startswith("held out") == (None not in one["figures"])
    classes = (test_joined.Rows().labels + 2).tolist()
    if name == "held out":  # by delivery: the samples that are left out for good never come
        classes = [0 if sample in HELD_OUT["without"] else label for sample, label in enumerate(classes)]
    assert one["labels"] == (None if name in OF_TOKENS or name.endswith("own") else classes)


def test_what_accelerate_repeats_counts_once(ranks):
    for rank in ranks:
        (visits, *rest), again = rank["uneven"]
        assert again == [visits, *rest]
        assert max(visits) == len(rest[1])
    assert ranks[0]["uneven"][0] == ranks[1]["uneven"][0]
