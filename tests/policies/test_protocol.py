"""What a run asks of a policy: what it lacks is said when the Pruner is made, and its fields can be stored."""

import json
from dataclasses import dataclass, make_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.policies import DroppingCount, Known
from prunedata.policies.protocol import describe

SCHEDULE = Schedule(4, window=4, start=1, block=1, pruned_per_block=1)


@dataclass(frozen=True)
class ByHits:
    """The least that a policy is."""

    setting: Any = None
    tolerance = 0.0
    needs_losses = True

    def scores(self, known: Known):
        return known.hits


class Plain:
    tolerance, needs_losses = 0.0, True

    def scores(self, known):
        return known.hits


def run(policy, **options):
    return Pruner(10, SCHEDULE, prune=3, policy=policy, **options)


def without(name):
    """ByHits, without one of its attributes."""
    members = {key: value for key, value in vars(ByHits).items() if key in ("tolerance", "needs_losses", "scores")}
    del members[name]
    return make_dataclass("Partial", [], namespace=members, frozen=True)()


def with_(**members):
    """ByHits, with other attributes."""
    return type("Changed", (ByHits,), members)()


@pytest.mark.parametrize(
    "policy",
    [
        without("scores"),
        with_(scores=None),
        without("tolerance"),
        with_(tolerance=-1),
        with_(tolerance=float("nan")),
        with_(tolerance="0"),
        without("needs_losses"),
        with_(needs_losses=1),
        with_(arrays=lambda self, samples: {}),
        with_(update=lambda self, *given: None),
        with_(arrays={}, update=lambda self, *given: None),
        ByHits,
        DroppingCount,
        Plain(),
        dataclass(type("Thawed", (Plain,), {}))(),
        object(),
        make_dataclass("Named", [("name", str, "a")], bases=(ByHits,), frozen=True)(),
    ],
)
def test_what_a_policy_lacks_is_said_when_the_pruner_is_made(policy):
    with pytest.raises(PrunedataError):
        run(policy)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3), float("nan"), float("inf"), np.float32("nan"), np.longdouble(1), 1j, b"bytes", {1: 2}, {1, 2},
        [np.zeros(2)], (1, [float("inf")]), {"a": {2: 3}}, object(), print, np.datetime64("2026-01-01"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_field_that_no_store_keeps_is_refused_with_its_name(value):
    with pytest.raises(PrunedataError, match=r"Expected ByHits\.setting to be None, a bool, .* Got "):
        run(ByHits(value))


NUMPY = st.one_of(
    st.builds(np.float32, st.floats(-1e6, 1e6, width=32)),
    st.builds(np.float64, st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(np.int64, st.integers(-(2**63), 2**63 - 1)),
    st.builds(np.uint8, st.integers(0, 255)),
    st.booleans().map(np.bool_),
    st.text().map(np.str_),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    PLAIN | NUMPY,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(VALUES)
def test_fields_are_described_as_json_gives_them_back(value):
    described = describe(ByHits(value))
    back = json.loads(json.dumps(described))
    assert back == described
    assert types_of(back) == types_of(described)


def types_of(value):
    if isinstance(value, dict):
        return {key: types_of(each) for key, each in value.items()}
    return [types_of(each) for each in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("members", [{"needs_losses": np.True_}, {"tolerance": np.float32(0.5)}, {"tolerance": 1}])
def test_numbers_and_bools_of_numpy_work(members):
    policy, store = with_(**members), MemoryStore()
    pruner = run(policy, store=store)
    for epoch in pruner.epochs():
        kept = np.flatnonzero(epoch.keep)
        pruner.observe(np.sin(kept), kept)
    assert run_again(policy, store).next_epoch == 4


def test_a_field_of_numpy_numbers_is_resumed_from_its_store():
    policy, store = ByHits((np.float32(0.1), np.int64(2))), MemoryStore()
    run(policy, store=store).commit()
    assert run_again(policy, store).next_epoch == 0
    assert run_again(ByHits([float(np.float32(0.1)), 2]), store).next_epoch == 0
    with pytest.raises(PrunedataError, match="policy"):
        run_again(ByHits((0.1, 2)), store)


def run_again(policy, store):
    return run(policy, store=store, resume=True)
