"""A built-in policy, made again from its description."""

import json

import pytest

from prunedata import policies
from prunedata.errors import PrunedataError
from prunedata.policies import BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RecentLoss, RunningLoss
from prunedata.policies.protocol import describe
from prunedata.policies.rules import BUILT_IN, from_description

POLICIES = [
    BoundedLoss(0.9), DroppingCount(0.5, "run"), EasyPruning("window", 0.25), LossRanked(0.75),
    Random(), RecentLoss(0.5), RunningLoss(0.5),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_it_is_the_same_with_all_of_its_parameters(policy):
    assert from_description(json.loads(json.dumps(describe(policy)))) == policy


def test_all_that_the_library_exports_are_there():
    exported = (getattr(policies, name) for name in policies.__all__)
    rules = {one for one in exported if isinstance(one, type) and hasattr(one, "scores")} - {policies.Policy}
    assert set(BUILT_IN.values()) == rules == {type(policy) for policy in POLICIES}


@pytest.mark.parametrize(
    "described",
    [
        None,
        "RunningLoss",
        {},
        {"name": "Mine"},
        {"name": ["RunningLoss"]},
        {"name": "RunningLoss", "decay": 2},
        {"name": "RunningLoss", "speed": 2},
        {"name": "Random", 3: 4},
    ],
)
def test_what_is_none_is_refused(described):
    with pytest.raises(PrunedataError, match=r"Expected .*Got"):
        from_description(described)
