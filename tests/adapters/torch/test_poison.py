"""What must not be learnt is not: its labels and inputs are changed, and no weight moves, in any bit."""

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.adapters.torch.poison import KINDS, MODES, train

OPTIONS = {
    "accumulated": {"accumulate": 3},
    "drop_last": {"drop_last": True},
    "batches of one": {"size": 1},
    "one large batch": {"size": 64},
    "resumed within an epoch": {"stop": 5},
    "resumed within a pruned epoch": {"stop": 17, "accumulate": 2},
    "bfloat16": {"half": True},
}


def check(mode, kind, options):
    clean, error = train(mode, kind, poisoned=False, **options)
    poisoned, _ = train(mode, kind, poisoned=True, **options)
    assert torch.equal(clean, poisoned)
    assert error <= (2e-2 if options.get("half") else 1e-12)
    return clean


def fits(mode, kind):
    """What is watched comes whole: nothing can be left out of it but by weight."""
    return mode != "watch" or "leave_out" in KINDS[kind]


def each(first, second, *, quick):
    """All pairs, of which those that are not quick are slow."""
    pairs = [(one, other) for one in first for other in second]
    return [pair if quick(*pair) else pytest.param(*pair, marks=pytest.mark.slow) for pair in pairs]


@pytest.mark.parametrize(
    ("mode", "kind"), each(MODES, KINDS, quick=lambda mode, kind: mode == "own loop" or kind == "all of it")
)
def test_what_must_not_be_learnt_moves_no_weight(mode, kind):
    if fits(mode, kind):
        check(mode, kind, {})


@pytest.mark.parametrize(
    ("mode", "options"),
    each(MODES, OPTIONS, quick=lambda mode, options: mode == "own loop" or options == "resumed within a pruned epoch"),
)
def test_nor_does_it_however_it_is_trained(mode, options):
    check(mode, "all of it", OPTIONS[options])


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(list(MODES)),
    st.sampled_from(list(KINDS)),
    st.fixed_dictionaries(
        {"size": st.integers(4, 40), "accumulate": st.integers(1, 4), "stop": st.none() | st.integers(1, 40)},
        optional={"half": st.just(True), "drop_last": st.just(True)},
    ),
)
def test_any_of_it_together(mode, kind, options):
    assume(fits(mode, kind))
    check(mode, kind, options)


def test_a_loop_that_learns_it_is_seen():
    """The test itself: with weights that are not applied, poison moves the weights."""
    from tests.adapters.torch import poison

    kept = poison.counts
    poison.counts = lambda epoch, ids: kept(epoch, ids) & (ids % 2 == 0)  # poisons what is to be learnt, too
    try:
        clean, _ = train("own loop", "held out", poisoned=False)
        poisoned, _ = train("own loop", "held out", poisoned=True)
    finally:
        poison.counts = kept
    assert not torch.equal(clean, poisoned)
