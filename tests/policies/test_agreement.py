"""How far successive pruned epochs leave out the same samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.policies import Random
from prunedata.policies.agreement import SKETCHED, agreement, drawn, sketch

MASKS = st.integers(1, 200).flatmap(
    lambda n: st.tuples(*[st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)] * 2)
)


@given(MASKS)
def test_up_to_the_size_of_a_sketch_it_is_exact(masks):
    before, now = masks
    out = (~now).sum()
    assert agreement(sketch(before), sketch(now)) == (None if not out else (~before & ~now).sum() / out)


@given(st.integers(1, 3 * SKETCHED))
def test_the_same_samples_are_drawn_each_time_and_none_is_none_of_them(samples):
    ids = drawn(samples)
    assert ids.size == min(samples, SKETCHED)
    assert np.unique(ids).size == ids.size
    assert ids.min() >= 0
    assert ids.max() < samples


def test_of_a_million_samples_it_is_near():
    random = np.random.default_rng(0)
    before, now = np.ones((2, 1_000_000), dtype=np.bool_)
    first = random.permutation(1_000_000)[:200_000]
    before[first] = now[first[:150_000]] = False
    now[random.permutation(np.flatnonzero(before))[:50_000]] = False
    assert agreement(sketch(before), sketch(now)) == pytest.approx(0.75, abs=0.05)
    assert len(sketch(now)) == 684


@pytest.mark.parametrize("text", ["", "no base64!", None, 7, sketch(np.ones(9, np.bool_))])
def test_a_sketch_of_something_else_tells_nothing(text):
    assert agreement(text, sketch(np.zeros(100, np.bool_))) is None


def run(place, stop=None, resume=False, policy=None):
    pruner = Pruner(
        60, Schedule(12, 6, 2, 2, 1), prune=0.3, store=place, resume=resume, policy=policy or Random(), seed=5
    )
    masks = []
    for epoch in pruner.epochs():
        masks.append(epoch.keep)
        for ids in epoch.batches(16):
            pruner.observe(np.cos(ids + epoch.number), ids)
        if epoch.number + 1 == stop:
            break
    pruner.commit()
    return pruner, masks


def test_a_run_records_it_and_so_does_one_that_was_stopped_and_resumed(tmp_path):
    """The mask of an earlier epoch is nowhere kept, so a resumed run could know nothing of it."""
    whole, masks = run(tmp_path / "whole.zarr")
    expected, before = {}, None
    for record, keep in zip(whole.history, masks, strict=True):
        if record["pruned"]:
            if before is not None:
                expected[record["number"]] = (~before & ~keep).sum() / (~keep).sum()
            before = keep
    found = {record["number"]: record["agreement"] for record in whole.history if "agreement" in record}
    assert found == expected
    assert len(found) == 3
    for stop in (3, 5, 9):
        run(tmp_path / f"{stop}.zarr", stop=stop)
        again, _ = run(tmp_path / f"{stop}.zarr", resume=True)
        assert {r["number"]: r["agreement"] for r in again.history if "agreement" in r} == expected
        assert again.state_dict()["state"]["sketch"] == whole.state_dict()["state"]["sketch"] == sketch(before)
