"""check_policy: right policies pass, and each broken promise is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.policies import BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RunningLoss
from prunedata.policies.rules import BUILT_IN
from prunedata.testing import BrokenPolicy, check_policy
from tests.common.marks import FEWER
from tests.common.strategies import SEEDS
from tests.testing.wrong_policies import WRONG, RightPolicy

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
