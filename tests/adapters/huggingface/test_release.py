"""Which releases of transformers are served: those whose Trainer has what is needed, whatever their number."""

import warnings
from pathlib import Path

import pytest
import torch
from transformers import Trainer

from prunedata.adapters.huggingface import UntestedReleaseWarning
from prunedata.adapters.huggingface.release import NEWEST, OLDEST, check_release
from prunedata.errors import PrunedataError
from tests.adapters.huggingface.trainers import PrunedTrainer, build, pruner_of

ROOT = Path(__file__).resolve().parents[3]


def test_the_oldest_and_the_newest_release_are_those_that_the_tests_run_with():
    for name, release in (("constraints-oldest.txt", OLDEST), ("constraints.txt", NEWEST)):
        assert f"\ntransformers=={release}." in (ROOT / name).read_text()


@pytest.mark.parametrize("release", ["5.3.0", "5.11.2", "5.24.1", f"{NEWEST}.9"])
def test_releases_up_to_the_newest_that_was_tested_are_served_in_silence(release):
    with warnings.catch_warnings(action="error"):
        check_release(release=release)


@pytest.mark.parametrize("release", ["5.25.0", "5.40.0.dev0", "6.0.0"])
def test_newer_releases_are_served_with_a_warning(release):
    with pytest.warns(UntestedReleaseWarning, match=f"Expected transformers up to {NEWEST}, .* Got {release}"):
        check_release(release=release)
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", UntestedReleaseWarning)
        check_release(release=release)


class Older(Trainer):
    """As of a release that runs its epochs elsewhere."""

    _run_epoch = None


class Changed(Trainer):
    """As of one that counts the steps of an epoch elsewhere."""

    def _run_epoch(self, *, epoch, steps_in_epoch):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("trainer", "told"),
    [
        (
            Older,
            r"has _run_epoch\(epoch, steps_in_epoch, num_update_steps_per_epoch\). Got 5.3.0, .* none: pip install",
        ),
        (Changed, r"has _run_epoch.* Got 5.3.0, whose Trainer has none with num_update_steps_per_epoch: pip install"),
    ],
)
def test_a_trainer_without_what_is_needed_is_refused(trainer, told):
    with pytest.raises(PrunedataError, match=told):
        check_release(trainer, "5.3.0")


class OtherValues(Trainer):
    """As of a release that gives its values in another order."""

    def set_initial_training_values(self, args, dataloader):
        return super().set_initial_training_values(args, dataloader)[::-1]


class OtherSteps(Trainer):
    """As of a release that goes by steps of its own."""

    def _init_training_state(self, *args, **options):
        super()._init_training_state(*args, **options)
        self.state.max_steps = 72


@pytest.mark.parametrize(
    ("base", "told"),
    [
        (
            OtherValues,
            r"Expected a Trainer whose set_initial_training_values gives seven values.* Got \(.*works otherwise",
        ),
        (
            OtherSteps,
            r"Expected a Trainer that trains 63 steps in 6 epochs, as it was told. Got 72 in 6.*works otherwise",
        ),
    ],
)
def test_a_trainer_that_works_otherwise_is_noticed_before_its_first_step(base, told, tmp_path):
    kind = type("Mixed", (PrunedTrainer, base), {})
    trainer, _ = build(pruner_of(), tmp_path, trainer=kind)
    before = [each.clone() for each in trainer.model.parameters()]
    with pytest.raises(PrunedataError, match=told):
        trainer.train()
    assert all(map(torch.equal, before, trainer.model.parameters()))
