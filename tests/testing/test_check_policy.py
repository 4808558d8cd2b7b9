"""check_policy, and the kit's strategies: what is right passes, what they draw is what they say."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import NeverPrunesWarning, PrunedataError
from prunedata.findings.inspection import inspect
from prunedata.policies import BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RunningLoss
from prunedata.policies.rules import BUILT_IN
from prunedata.testing import BrokenPolicy, check_policy, strategies
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


# The kit's strategies: what they draw is what they say, and hypothesis is asked for by them alone.


@given(st.integers(1, 30), st.data())
def test_ids_and_losses_are_those_of_a_batch(samples, data):
    for ids, losses in data.draw(strategies.batches(samples)):
        assert 1 <= ids.size == losses.size <= 10
        assert (ids.dtype, losses.dtype) == (np.int64, np.float64)
        assert 0 <= ids.min() <= ids.max() < samples
        assert np.isfinite(losses).all()


@given(strategies.runs())
def test_runs_go_on(pruner):
    for epoch in pruner.epochs() if pruner.next_epoch < pruner.schedule.epochs else ():
        kept = np.flatnonzero(epoch.keep)
        pruner.observe(np.ones(kept.size), kept)
    assert [record["number"] for record in pruner.history] == list(range(pruner.schedule.epochs))


@given(strategies.stores())
def test_stores_hold_their_runs(stored):
    store, pruner = stored
    assert inspect(store)["history"] == pruner.history
    options = {"policy": pruner.policy, "seed": pruner.seed, "batch_size": pruner.batch_size, "prune": pruner.prune}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        again = Pruner(pruner.samples, pruner.schedule, store=store, resume=True, **options)
    assert again.next_epoch == pruner.next_epoch
    assert np.array_equal(again.counts, pruner.counts)


@pytest.mark.parametrize("place", ["before", "between", "within", "done"])
def test_runs_are_drawn_at_every_place(place):
    def is_there(pruner):
        done, epochs = len(pruner.history), pruner.schedule.epochs
        open_ = done < epochs and pruner.next_epoch == done and pruner.state_dict() and is_open(pruner)
        return place == ("within" if open_ else "done" if done == epochs else "between" if done else "before")

    find(strategies.runs(), is_there, settings=settings(max_examples=1000, database=None, phases=[Phase.generate]))


def is_open(pruner):
    try:
        return pruner.current is not None
    except PrunedataError:
        return False


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import prunedata, prunedata.testing; print('hypothesis' in sys.modules)", "False"),
        ("sys.modules['hypothesis'] = None; import prunedata.testing.strategies", "pip install hypothesis"),
    ],
    ids=["not imported", "not installed"],
)
def test_hypothesis_is_asked_for_by_the_strategies_alone(code, said):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.stdout + done.stderr).strip().splitlines()[-1].endswith(said)
