"""check_policy: right policies pass, and each broken promise is named."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.policies import BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RunningLoss
from prunedata.policies.rules import BUILT_IN
from prunedata.testing import BrokenPolicy, check_policy
from tests.common.programs import FEWER
from tests.common.strategies import SEEDS


@dataclass(frozen=True)
class RightPolicy:
    """Prunes where the loss rose most since the visit before."""

    tolerance: float = 0.0
    shift: tuple = (1.0, None, "a")
    needs_losses = True

    def arrays(self, samples):
        return {"before": np.zeros(samples), "rise": np.zeros(samples, np.float32)}

    def update(self, arrays, ids, losses, means):
        arrays["rise"][ids] = losses - arrays["before"][ids]
        arrays["before"][ids] = losses

    def scores(self, known):
        return known.arrays["rise"]

    def weights(self, keep, known):
        return keep * (keep.size / np.count_nonzero(keep))


@dataclass(frozen=True)
class ArrayField(RightPolicy):
    prior: np.ndarray = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True)
class NanField(RightPolicy):
    bound: float = float("nan")


@dataclass(frozen=True)
class CountsInAField(RightPolicy):
    calls: int = 0

    def update(self, arrays, ids, losses, means):
        super().update(arrays, ids, losses, means)
        object.__setattr__(self, "calls", self.calls + 1)


class NoScores:
    tolerance, needs_losses = 0.0, True


class ShortArrays(RightPolicy):
    def arrays(self, samples):
        return {name: array[:-1] for name, array in super().arrays(samples).items()}


class SharedArrays(RightPolicy):
    kept: ClassVar = {}

    def arrays(self, samples):
        return dict(self.kept.setdefault(samples, super().arrays(samples)))


class ReadOnlyArrays(RightPolicy):
    def arrays(self, samples):
        return {name: np.broadcast_to(np.float32(0), samples) for name in super().arrays(samples)}


class Rebinds(RightPolicy):
    def update(self, arrays, ids, losses, means):
        arrays["rise"] = arrays["rise"] + 1


class ChangesLosses(RightPolicy):
    def update(self, arrays, ids, losses, means):
        losses -= means
        super().update(arrays, ids, losses, means)


class ShortScores(RightPolicy):
    def scores(self, known):
        return known.arrays["rise"][1:]


class NanForTheUnseen(RightPolicy):
    def scores(self, known):
        return np.where(known.visits > 0, known.hits, np.nan)


class DrawsScores(RightPolicy):
    def scores(self, known):
        return np.random.default_rng().random(known.hits.size)


class ChangesArrays(RightPolicy):
    def scores(self, known):
        known.arrays["rise"][:] += known.visits
        return known.arrays["rise"]


class NanLater(RightPolicy):
    """Its scores are right before the first epoch."""

    def scores(self, known):
        return np.where(known.visits == 0, 0, np.nan)


class WrapsAroundBeforeFloats(RightPolicy):
    def scores(self, known):
        return (known.hits - known.visits) * 0.5


class OneWeight(RightPolicy):
    def weights(self, keep, known):
        return 1.5


class InfiniteWeights(RightPolicy):
    def weights(self, keep, known):
        return np.where(keep, np.inf, 0)


class ChangesTheMask(RightPolicy):
    def weights(self, keep, known):
        keep[:] = True
        return keep.astype(np.float32)


class MeanOfTheCall(RightPolicy):
    """It takes the losses of a call for a batch."""

    def update(self, arrays, ids, losses, means):
        super().update(arrays, ids, losses - losses.mean(), means)


class RemembersBesides(RightPolicy):
    """What it remembers is not in its arrays, and so not in a checkpoint."""

    def update(self, arrays, ids, losses, means):
        last = self.__dict__.setdefault("last", {})
        last.update(zip(ids.tolist(), losses.tolist(), strict=True))

    def scores(self, known):
        last = self.__dict__.get("last", {})
        return np.array([last.get(x, 0.0) for x in range(known.hits.size)])


WRONG = {
    "fields": [ArrayField, NanField, CountsInAField, NoScores],
    "arrays": [ShortArrays, SharedArrays, ReadOnlyArrays],
    "update": [Rebinds, ChangesLosses],
    "scores": [
        ShortScores,
        NanForTheUnseen,
        DrawsScores,
        ChangesArrays,
        NanLater,
        WrapsAroundBeforeFloats,
    ],
    "weights": [OneWeight, InfiniteWeights, ChangesTheMask],
    "buffers": [MeanOfTheCall],
    "resume": [RemembersBesides],
}


# check_policy: what is right passes, and each wrong policy breaks the promise that it should.


TOLERANCES = st.floats(0, 10)
ANY = st.one_of(
    st.builds(DroppingCount, TOLERANCES, st.sampled_from(["window", "run"])),
    st.just(Random()),
    st.builds(RunningLoss, st.floats(0, 1, exclude_max=True)),
    st.builds(BoundedLoss, st.floats(0, 1, exclude_max=True)),
    st.builds(LossRanked, st.floats(0, 1, exclude_min=True, exclude_max=True)),
    st.builds(EasyPruning, st.sampled_from(["loss", "window", "run"]), TOLERANCES),
)


@FEWER
@given(ANY, SEEDS)
def test_every_policy_of_ours_keeps_its_promises(policy, seed):
    check_policy(policy, samples=20, seed=seed)


@pytest.mark.parametrize("policy", [kind() for kind in BUILT_IN.values()], ids=list(BUILT_IN))
def test_each_one_keeps_them_at_its_defaults(policy):
    check_policy(policy)


def test_a_policy_with_all_that_a_policy_can_have_passes():
    check_policy(RightPolicy())
    check_policy(RightPolicy(tolerance=np.float32(0.5), shift=[np.int64(1), {"a": (True,)}]))


@pytest.mark.parametrize(
    ("promise", "policy"),
    [
        pytest.param(promise, policy, id=f"{promise}-{policy.__name__}")
        for promise in WRONG
        for policy in WRONG[promise]
    ],
)
def test_a_wrong_policy_breaks_its_promise(promise, policy):
    with pytest.raises(BrokenPolicy, match=rf"Promise '{promise}' is broken\. Expected (?s:.*) Got ") as caught:
        check_policy(policy())
    assert caught.value.promise == promise


@pytest.mark.parametrize(
    "scores",
    [
        lambda known: np.iinfo(known.hits.dtype).max - known.hits,
        lambda known: ~known.hits,
        lambda known: -known.hits.astype(np.float32) / np.maximum(known.visits, 1) * np.float32(0.1),
        lambda known: np.subtract(9, known.hits, dtype=np.uint8),
        lambda known: np.where(known.visits > 0, known.hits, -np.inf),
        lambda known: known.arrays["rise"].astype(np.float32).view(np.uint32) * np.uint32(2654435761),
    ],
    ids=["from the top", "inverted", "rounded", "unsigned only", "infinite", "hashed"],
)
def test_scores_that_only_look_as_if_they_wrapped_around_pass(scores):
    class Policy(RightPolicy):
        pass

    Policy.scores = lambda self, known: scores(known)
    check_policy(Policy())


def test_the_policy_that_is_checked_is_left_as_it_is():
    policy = RightPolicy()
    check_policy(policy)
    assert vars(policy) == vars(RightPolicy())
    with pytest.raises(BrokenPolicy):
        check_policy(remembering := WRONG["resume"][0]())
    assert "last" not in vars(remembering)


def test_what_breaks_is_said_with_the_epoch():
    with pytest.raises(BrokenPolicy, match=r"same array before in epoch 0 in a run whose counts were read after each"):
        check_policy(WRONG["buffers"][0]())
