"""Several forward passes in one training step: what is recorded is what compute_loss returned."""

from itertools import islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from prunedata.errors import LossError
from tests.adapters.huggingface.trainers import PrunedTrainer, build, pruner_of


class Twice(PrunedTrainer):
    """As R-drop does: two passes with other dropout. Remembers the losses of what it returned."""

    returned, expected = None, ()

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        passes = [model(**inputs), model(**inputs)]
        with torch.no_grad():
            model(**inputs)  # for a metric
        logits = [each["logits"] for each in passes]
        apart = F.mse_loss(*logits)
        loss = (passes[0]["loss"] + passes[1]["loss"]) / 2 + apart
        outputs = passes[self.returned] if self.returned is not None else {"logits": (logits[0] + logits[1]) / 2}
        self.expected += (F.cross_entropy(outputs["logits"], inputs["labels"], reduction="none").tolist(),)
        return (loss, outputs) if return_outputs else loss

    def sample_losses(self, outputs, inputs):
        assert sorted(inputs) == ["labels", "number", "points"]
        return F.cross_entropy(outputs["logits"], inputs["labels"], reduction="none")


class First(Twice):
    returned = 0


class Last(Twice):
    returned = 1


class Mean(Twice):
    """Returns what neither of its passes gave."""


@pytest.mark.parametrize("kind", [First, Last, Mean])
def test_the_losses_are_those_of_what_was_returned(kind, tmp_path):
    pruner = pruner_of()
    trainer, watcher = build(pruner, tmp_path, trainer=kind)
    trainer.train()
    assert watcher.steps == [12, 9, 12, 9, 12, 9]
    expected, steps = iter(trainer.expected), watcher.steps
    means = [np.concatenate(list(islice(expected, number))).mean() for number in steps]
    assert [record["mean_loss"] for record in pruner.history] == pytest.approx(means, rel=1e-6)
    assert "compute_loss" not in vars(trainer)


class Alone(First):
    """Never returns its outputs."""

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        return super().compute_loss(model, inputs)


def test_passes_of_which_nobody_knows_which_is_trained_on_are_refused(tmp_path):
    trainer, _ = build(pruner_of(), tmp_path, trainer=Alone)
    with pytest.raises(LossError, match=r"Expected compute_loss to return \(loss, outputs\).* after 2 forward passes"):
        trainer.train()


class Once(PrunedTrainer):
    """One pass, in a compute_loss that takes no more than it needs."""

    def compute_loss(self, model, inputs, num_items_in_batch=None):
        return model(**inputs)["loss"]

    def sample_losses(self, outputs, inputs):
        return super().sample_losses(outputs, inputs)


class Evaluated(Once):
    """One pass, that returns for the evaluation only what that needs."""

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        outputs = model(**inputs)
        return (outputs["loss"], {"logits": None}) if return_outputs else outputs["loss"]


@pytest.mark.parametrize("kind", [Once, Evaluated])
def test_one_pass_is_taken_whatever_is_returned(kind, tmp_path):
    pruners = [pruner_of(), pruner_of()]
    for pruner, each in zip(pruners, (kind, PrunedTrainer), strict=True):
        build(pruner, tmp_path, trainer=each)[0].train()
    assert pruners[0].counts.tolist() == pruners[1].counts.tolist()
    assert [record["mean_loss"] for record in pruners[0].history] == [
        record["mean_loss"] for record in pruners[1].history
    ]
