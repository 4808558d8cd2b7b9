"""What a run is advised: bounds and monotony, and that the runs it was learnt from get the advice they should."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prunedata import CostModel, PrunedataError, RunningLoss, Schedule
from prunedata.findings.advice import (
    ADVISED_POLICY,
    FEWEST_VISITS,
    MANY,
    NOT_BY_HEART,
    PRUNE_MOST,
    USUAL_SAVING,
    Advice,
    advise,
)
from prunedata.findings.by_heart import above_guess, learns_fast
from prunedata.findings.wrong_labels import (
    CERTAIN_ENOUGH,
    HIGHEST,
    LIKELY_CURVES,
    MISTAKEN,
    PRUNE_FROM,
    WRONG,
    between,
    by_high,
    by_hits,
)
from prunedata.plan.cost import count_pruned
from prunedata.policies.protocol import describe

SAMPLES = 1000
SCHEDULE = Schedule(120, 40, 10, 5, 4)
SHARES = st.floats(0, 1)


def watched(likely, certain=None, epochs=20, samples=SAMPLES):
    """Visits, and high visits such that these shares of the samples are likely wrong, and certain."""
    certain = likely * 0.6 if certain is None else certain
    visits = np.full(samples, epochs, np.uint8)
    high = np.full(samples, epochs // 5, np.uint8)
    high[: round(likely * samples)] = -(-7 * epochs // 10)
    high[: round(certain * samples)] = epochs
    return high, visits


def advised(likely, certain=None, *, epochs=20, schedule=SCHEDULE, **more):
    high, visits = watched(likely, certain, epochs)
    return advise(high, visits, high, epochs, schedule, SAMPLES, **more)


@given(SHARES, SHARES, st.integers(2, 400))
def test_an_estimate_lies_in_its_range_and_grows_with_the_sign(share, other, samples):
    low, high = (by_high(*watched(one, samples=samples)) for one in sorted((share, other)))
    for one in (low, high):
        assert 0 <= one.low <= one.share <= one.high <= HIGHEST
    assert (low.low, low.share, low.high) <= (high.low, high.share, high.high)
    assert low.worth_pruning <= high.worth_pruning


@given(SHARES, st.randoms())
def test_the_order_of_the_samples_does_not_matter(share, random):
    high, visits = watched(share)
    order = list(range(SAMPLES))
    random.shuffle(order)
    assert advise(high, visits, high, 20, SCHEDULE, SAMPLES) == advise(
        high[order], visits, high[order], 20, SCHEDULE, SAMPLES
    )


@given(SHARES)
def test_more_samples_narrow_the_range(share):
    few, many = (by_high(*watched(share, samples=n)) for n in (100, 10_000))
    assert many.high - many.low <= few.high - few.low + 0.02


@pytest.mark.parametrize("curve", LIKELY_CURVES.values(), ids=LIKELY_CURVES)
@pytest.mark.parametrize("at", range(len(WRONG)))
def test_the_range_holds_what_was_true_in_the_runs_that_it_was_learnt_from(curve, at):
    found = by_high(*watched(curve[at], samples=10_000))
    assert found.low - 1e-9 <= WRONG[at] <= found.high + 1e-9


@pytest.mark.parametrize("at", range(len(WRONG)))
@pytest.mark.parametrize(("name", "samples"), [("lenet-cifar10", 10_000), ("lenet-digits", 1_437)])
def test_long_runs_are_judged_right_by_the_curves_of_the_others(name, samples, at):
    others = [curve for other, curve in LIKELY_CURVES.items() if other != name]
    share, low, high = between(LIKELY_CURVES[name][at], samples, others)
    assert abs(share - WRONG[at]) <= 0.1 or low <= WRONG[at] <= high


RUNS = {
    "CIFAR-10, clean": (0.071, 0.025, False),
    "CIFAR-10, clean, all 60 epochs watched": (0.036, 0.011, False),
    "CIFAR-10, 20% a weak model's errors": (0.079, 0.031, False),
    "CIFAR-10, 10%": (0.129, 0.067, False),
    "CIFAR-10, 20%": (0.180, 0.105, True),
    "CIFAR-10, 40%": (0.263, 0.162, True),
    "CIFAR-10, clean, 5 of 30 epochs": (0.093, 0.034, False),
    "CIFAR-10, 20% a weak model's errors, 5 of 30 epochs": (0.096, 0.032, False),
    "CIFAR-10, 20%, 5 of 30 epochs": (0.179, 0.081, True),
    "CIFAR-10, 40%, 5 of 30 epochs": (0.245, 0.110, True),
    "digits, clean": (0.001, 0.000, False),
    "digits, 20% a weak model's errors": (0.003, 0.001, False),
    "digits, 20%": (0.176, 0.140, True),
    "digits, 40%": (0.304, 0.205, True),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_that_were_measured_get_the_advice_that_fits(name):
    likely, certain, prune = RUNS[name]
    assert (advised(likely, certain).verdict == "prune") is prune


def hits_of(hard, epochs=20, samples=SAMPLES):
    """Hits such that this share of the samples was hit in seven of ten visits, and the others just less often."""
    hits = np.full(samples, -(-7 * epochs // 10) - 1, np.uint8)
    hits[: round(hard * samples)] += 1
    return hits


def above(*shares):
    """A history in which these shares of the visits had a loss above a blind guess."""
    return [{"pruned": False, "observed": 1000, "high": round(1000 * share)} for share in shares]


FAST, SLOW = above(0.4, 0.35, 0.34, 0.33, 0.31), above(0.4, 0.35, 0.34, 0.34, 0.335)


@given(SHARES, SHARES, st.integers(60, 300), st.sampled_from([FAST, SLOW, []]))
def test_pruning_takes_as_many_as_seem_wrong_or_as_are_hard_where_they_are_learnt_fast(share, hard, epochs, history):
    done = -(-epochs // 6)
    high, visits = watched(share, epochs=min(done, 250))
    hits = hits_of(hard, min(done, 250))
    found = advise(hits, visits, high, done, Schedule(epochs, epochs, 1, 1, 0), SAMPLES, history=history)
    assume(found.verdict == "prune")
    takes_hard = found.wrong_labels >= MANY or learns_fast(above_guess(history), found.wrong_labels)
    hard = round(hard * SAMPLES) / SAMPLES if takes_hard else 0
    most = min(PRUNE_MOST, max(found.wrong_labels, hard)) * SAMPLES
    assert most - 0.01 * SAMPLES - 1 < found.prune <= most + 1e-9
    assert found.wrong_labels >= PRUNE_FROM
    assert found.policy == ADVISED_POLICY
    assert found.schedule.pruned_epochs == tuple(range(done, epochs))
    planned = CostModel(SAMPLES, 10, 1.0).predict(found.schedule, found.prune)
    assert found.saving_percent == pytest.approx(planned.visits_saved_percent)


def test_advice_says_why_it_takes_so_many():
    high, visits = watched(0.2)
    found = {
        len(history): advise(hits_of(0.35), visits, high, 20, SCHEDULE, SAMPLES, history=history)
        for history in (FAST, [])
    }
    assert [found[at].prune for at in (5, 0)] == [350, count_pruned(SAMPLES, int(100 * found[0].wrong_labels) / 100)]
    assert "Leave out as many as are hard." in " ".join(found[5].evidence)
    assert "Leave out as many as seem wrong." in " ".join(found[0].evidence)


@pytest.mark.parametrize(
    ("likely", "history", "told"), [(0.2, SLOW, True), (0.2, [], True), (0.2, FAST, False), (0.3, SLOW, False)]
)
def test_advice_names_the_risk_where_nothing_is_learnt_by_heart(likely, history, told):
    found = advised(likely, 0.12, history=history)
    assert (found.verdict, found.wrong_labels >= MANY) == ("prune", likely == 0.3)
    assert (NOT_BY_HEART in found.evidence) == told


def test_where_hits_tell_nothing_pruning_takes_as_many_as_seem_wrong():
    found = advised(0.17, 0.12, tolerance=1.0, history=FAST)
    assert (found.verdict, found.wrong_labels_range[1]) == ("prune", 1)
    assert found.wrong_labels * SAMPLES - 0.01 * SAMPLES - 1 < found.prune <= found.wrong_labels * SAMPLES


@given(SHARES, SHARES, SHARES, st.booleans())
def test_at_most_as_many_are_wrong_as_are_hard_and_some_more(likely, hard, more, classes):
    high, visits = watched(likely)
    low, top = (
        advise(hits_of(one), visits, high if classes else None, 20, SCHEDULE, SAMPLES) for one in sorted((hard, more))
    )
    for found in (low, top):
        assert found.wrong_labels_range[0] == found.wrong_labels_range_at_random[0]
        assert found.wrong_labels_range_at_random[1] <= found.wrong_labels_range[1] <= 1
    assert low.wrong_labels_range[1] <= top.wrong_labels_range[1]
    if classes:
        known = max(top.wrong_labels_range_at_random[1], round(max(hard, more) * SAMPLES) / SAMPLES + MISTAKEN)
        assert top.wrong_labels_range[1] == pytest.approx(min(1, known))
        assert f"{top.wrong_labels_range[1]:.0%} of the labels may be wrong at most" in " ".join(top.evidence)


def test_hard_data_are_not_taken_for_wrong_ones():
    found = advised(0.3, CERTAIN_ENOUGH - 0.01)
    assert found.verdict == "fewer epochs"
    assert "rather hard than wrong" in " ".join(found.evidence)
    assert advised(0.3, CERTAIN_ENOUGH + 0.01).verdict == "prune"


@pytest.mark.parametrize(("prune", "epochs"), [(0, round(120 * (1 - USUAL_SAVING))), (250, 102)])
def test_fewer_epochs_save_what_the_run_means_to_save(prune, epochs):
    found = advised(0.01, prune=prune)
    assert (found.verdict, found.epochs, found.prune) == ("fewer epochs", epochs, 0)
    assert (found.policy, found.schedule) == (None, None)
    assert found.saving_percent == pytest.approx(100 * (1 - epochs / 120))
    planned = CostModel(SAMPLES, 10, 1.0).predict(SCHEDULE, prune).visits_saved_percent if prune else 14
    assert found.saving_percent == pytest.approx(planned, abs=0.5)
    assert f"Train {epochs} epochs instead of 120" in found.evidence[-1]


@pytest.mark.parametrize(
    ("done", "all_epochs", "more"), [(0, 120, 20), (19, 120, 1), (4, 30, 1), (1, 12, 4), (5, 60, 5), (30, 200, 4)]
)
def test_it_waits_for_a_sixth_of_the_run_and_five_visits(done, all_epochs, more):
    found = advised(0.3, epochs=done, schedule=Schedule(all_epochs, 40, 10, 5, 4))
    assert (found.verdict, found.watch_epochs, found.wrong_labels) == ("watch", more, None)
    assert (found.saving_percent, found.epochs) == (0, all_epochs)
    assert f"Watch for {more} more epoch" in found.evidence[-1]
    assert advised(0.3, epochs=done + more, schedule=Schedule(all_epochs, 40, 10, 5, 4)).verdict == "prune"


def test_it_waits_for_samples_that_were_not_visited_and_judges_by_those_that_were():
    high, visits = watched(0.3)
    visits[: SAMPLES // 2 + 1] = high[: SAMPLES // 2 + 1] = 0
    found = advise(high, visits, high, 20, SCHEDULE, SAMPLES)
    assert (found.verdict, found.watch_epochs) == ("watch", 1)
    visits[0] = high[0] = FEWEST_VISITS
    assert advise(high, visits, high, 20, SCHEDULE, SAMPLES).wrong_labels < 0.1


@pytest.mark.parametrize(("pruned", "verdict"), [(0.1, "prune"), (0.11, "watch")])
def test_it_does_not_judge_a_run_by_what_the_run_has_not_pruned(pruned, verdict):
    high, visits = watched(0.3)
    few = slice(0, round(pruned * SAMPLES))  # what was pruned is what looks wrong
    assert (high[few] > 0).all()
    visits[few] = high[few] = FEWEST_VISITS - 1
    found = advise(high, visits, high, 20, SCHEDULE, SAMPLES)
    assert found.verdict == verdict
    assert ("watch with observe_only=True" in " ".join(found.evidence)) == (verdict == "watch")


def test_a_run_too_short_to_watch_is_told_so():
    found = advise(*[np.full(9, 4, np.uint8)] * 3, 4, Schedule(5, 5, 3, 5, 4), 9)
    assert (found.verdict, found.wrong_labels) == ("fewer epochs", None)
    assert "too short" in found.evidence[0]


@given(SHARES)
def test_hits_alone_give_an_estimate_and_never_reason_to_prune(share):
    hits, visits = watched(share, share)
    found = advise(hits, visits, None, 20, SCHEDULE, SAMPLES)
    assert found.verdict == "fewer epochs"
    low, high = found.wrong_labels_range_at_random
    assert 0 <= low <= found.wrong_labels <= high <= HIGHEST
    assert found.wrong_labels == by_hits(hits, visits).share
    assert "classes=K" in " ".join(found.evidence)


def test_hits_of_another_tolerance_give_no_estimate():
    hits, visits = watched(0.3)
    found = advise(hits, visits, None, 20, SCHEDULE, SAMPLES, tolerance=1.0)
    assert (found.verdict, found.wrong_labels, found.wrong_labels_range) == ("fewer epochs", None, None)
    assert found.wrong_labels_range_at_random is None
    assert "tolerance 1" in found.evidence[0]


@pytest.mark.parametrize("found", [advised(0.3), advised(0.01), advised(0.3, epochs=3)], ids=lambda one: one.verdict)
def test_advice_as_json_says_all(found):
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)).keys() == plain.keys()
    if found.verdict == "prune":
        assert Advice.from_dict(json.loads(json.dumps(plain))) == found
        assert plain["policy"] == describe(ADVISED_POLICY)
        assert Schedule.from_dict(plain["schedule"]) == found.schedule
    else:
        assert (plain["policy"], plain["schedule"]) == (None, None)


def test_advice_of_an_older_store_lacks_what_was_added_since():
    plain = advised(0.3).to_dict()
    since = ("shorter", "wrong_labels_range_at_random")
    found = Advice.from_dict({name: plain[name] for name in plain if name not in since})
    assert (found.shorter, found.wrong_labels_range_at_random, found.prune) == (None, None, plain["prune"])


def test_advice_from_a_dict_keeps_the_parameters_of_its_policy():
    found = replace(advised(0.3), policy=RunningLoss(0.5))
    assert Advice.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize("policy", [{"name": "RunningLoss", "decay": 3}, {"name": "Mine"}, "RunningLoss"])
def test_advice_of_an_unknown_policy_is_refused(policy):
    with pytest.raises(PrunedataError, match="Expected"):
        Advice.from_dict(advised(0.3).to_dict() | {"policy": policy})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hits": np.zeros(4, np.uint8)}, "hits and visits of one shape"),
        ({"high": np.full(5, 21, np.uint8)}, "high of at most the visits. Got 21 of 20"),
        ({"samples": 6}, "counts of 6 samples. Got 5"),
    ],
)
def test_counts_that_make_no_sense_are_refused(change, message):
    arguments = {name: np.full(5, 20, np.uint8) for name in ("hits", "visits", "high")}
    arguments |= {"epochs_done": 20, "schedule": SCHEDULE, "samples": 5}
    with pytest.raises(PrunedataError, match=message):
        advise(**{**arguments, **change})
