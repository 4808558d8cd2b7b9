"""Whatever a record or an advice says that passes for one: a page, or an error of the library."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prunedata
from prunedata.errors import PrunedataError
from prunedata.findings.advice_now import advise_now
from prunedata.store.state import RunState
from tests.common.marks import FEWER
from tests.reporting.reading import check, read
from tests.reporting.runs import KINDS, Saved

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")

FORGED = ("watches_only", "finished", "auto", "by_weight", "held_out_and_left_out_for_good", "random_without_losses")
NUMBERS = st.sampled_from([0, -1, 0.0, 1e-320, 2.0**64, -(2.0**64), 1e100, 1e160, 1e308, -1e308, 10**30]) | st.floats()
RECORD = st.sampled_from(
    ["seconds", "overhead", "mean_loss", "validation", "agreement", "kept", "observed", "held_out"]
)
CHANGES = st.lists(st.tuples(st.integers(0, 23), RECORD, NUMBERS), max_size=4)
ADVICE = st.dictionaries(
    st.sampled_from(
        ["verdict", "prune", "schedule", "evidence", "lost", "turned", "shorter", "saving_percent", "doubted"]
    ),
    NUMBERS | st.sampled_from(["prune", None, [], {}, ["why"], "don't prune"]),
)


@pytest.fixture(scope="module")
def states():
    return {name: KINDS[name](None).state_dict() for name in FORGED}


@FEWER
@given(name=st.sampled_from(FORGED), changes=CHANGES, advice=ADVICE, without=st.booleans())
def test_a_run_that_is_read_has_a_page(states, name, changes, advice, without):
    packed = copy.deepcopy(states[name])
    for epoch, field, value in changes:
        packed["state"]["history"][min(epoch, len(packed["state"]["history"]) - 1)][field] = value
    if packed["state"].get("advice") is not None:
        packed["state"]["advice"] |= advice
        for field in advice if without else ():
            del packed["state"]["advice"][field]
    try:
        state = RunState.from_checkpoint(packed)
    except PrunedataError:
        return  # a store or a checkpoint that says so is refused
    try:
        check(prunedata.report(Saved(packed), compare=Saved(packed)).html)
        advise_now(state)
    except PrunedataError:
        pass


def test_a_live_run_with_losses_whose_sum_is_infinite_has_a_page():
    run = KINDS["auto"](None)
    run.history[3]["mean_loss"] = None
    assert "Run" in read(prunedata.report(run).html).text
    assert run.advice.verdict == "prune"
