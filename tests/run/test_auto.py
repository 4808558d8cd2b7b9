"""policy="auto": a run with validation figures prunes from the memorization onset on, and keeps why."""

import json
import math
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule, advise
from prunedata.cli.main import main
from prunedata.errors import ForeignStore, NeverPrunesWarning, NotInEpoch, PrunedataError
from prunedata.findings.inspection import advise_now, inspect
from prunedata.findings.searched import state_of
from prunedata.plan.onset import find_onset
from prunedata.policies import RecentLoss
from tests.common.programs import FEWER
from tests.run.alike import assert_alike
from tests.run.test_rejoined import in_ranks

SAMPLES = 400
SCHEDULE = Schedule(24, 24, 20, 5, 4)


def losses(ids, epoch, wrong):
    """Those of the first `wrong` samples stay high; all others fall."""
    return np.where(ids < wrong, 3.0, 1.0 / (1 + epoch)) + 0.001 * np.cos(ids + epoch)


def figure(epoch, turn):
    """Rises, and falls from `turn` on; it never falls if `turn` is None."""
    rising = 80 * (1 - math.exp(-(epoch + 1) / 3))
    return rising if turn is None else rising - 3 * max(0, epoch - turn)


def train(run, of=losses, wrong=120, *, figures=None, late=False, labels=None, until=24, batches=None):
    """Train to the end, or up to an epoch and so many batches of it; `late` whether figures come after an epoch."""
    while run.next_epoch < until + (batches is not None) and not run._engine.is_finished:
        epoch = run.begin_epoch()
        epoch.apply_weights()  # nothing is trained here
        stops = batches is not None and epoch.number == until
        for ids in list(epoch.batches(50))[: batches if stops else None]:
            run.observe(of(ids, epoch.number, wrong), ids, labels=None if labels is None else labels[ids])
        if stops:
            return run
        if late:
            run.end_epoch()
        if figures is not None:
            run.validated(figures(epoch.number))
        if not late:
            run.end_epoch()
    return run


def test_samples_that_a_sampler_gives_seldom_are_compared_as_if_they_came_in_each_epoch():
    """Their averages begin with 0, so without that those of few visits look right, whatever their losses are."""
    pruner, random = Pruner(SAMPLES, epochs=18), np.random.default_rng(0)
    share = random.choice([0.2, 1], SAMPLES)
    for epoch in pruner.epochs():
        if epoch.pruned:
            break
        given_ = np.flatnonzero(random.random(SAMPLES) < share)
        pruner.observe(losses(given_, epoch.number, 120), given_)
        pruner.skip(SAMPLES - given_.size)
    wrong = (np.arange(SAMPLES) < 120) & (pruner.visits > 0)
    assert epoch.number == 12
    assert pruner.advice.doubted == np.count_nonzero(wrong)
    assert np.array_equal(epoch.keep, ~wrong)


@pytest.mark.parametrize("stop", [(4, 0), (4, 3), (12, 0), (12, 3)])
def test_with_such_a_sampler_a_run_that_goes_on_leaves_out_what_one_that_never_stopped_does(stop):
    def kept(stop=None):
        run, masks = Pruner(SAMPLES, epochs=15), []
        while run.next_epoch < 15:
            epoch, random = run.begin_epoch(), np.random.default_rng(run.next_epoch)
            masks.append(epoch.keep)
            given_ = np.flatnonzero((random.random(SAMPLES) < np.where(np.arange(SAMPLES) % 3, 0.3, 1)) & epoch.keep)
            for number, ids in enumerate(np.array_split(given_, 5)):
                if stop == (epoch.number, number):
                    state, run = run.state_dict(), Pruner(SAMPLES, epochs=15)
                    run.load_state_dict(state)
                    run.begin_epoch()
                run.observe(losses(ids, epoch.number, 120), ids)
            run.skip(epoch.kept - given_.size)
            run.end_epoch()
        return np.array(masks)

    whole = kept()
    assert np.array_equal(kept(stop), whole)
    assert not whole[-1].all()


def run_with(wrong=120, *, turn=6, epochs=24, run=None, late=False, **options):
    """A run with a figure that turns."""
    if run is None:
        run = Pruner(SAMPLES, SCHEDULE, policy="auto", **{"prune": 0.5, **options})
    return train(run, wrong=wrong, figures=lambda epoch: figure(epoch, turn), late=late, until=epochs)


TURNED = find_onset([{"number": at, "validation": figure(at, 6)} for at in range(24)]).onset


@FEWER
@given(st.integers(40, SAMPLES // 2), st.sampled_from([0.1, 0.5]), st.integers(4, 10))
def test_it_leaves_out_from_the_turn_on_what_the_losses_until_then_say(wrong, most, turn):
    run = run_with(wrong, prune=most, turn=turn)
    watched = run_with(wrong, turn=turn, prune=0.5, epochs=run.advice.onset + 1)
    expected = advise(watched.history, SCHEDULE, watched.arrays["mean_excess"], prune=run.prune)
    assert run.advice == expected
    start = run.advice.onset + 1
    assert start == find_onset(run.history).onset + 1
    assert [record["kept"] for record in run.history] == [SAMPLES] * start + [SAMPLES - expected.prune] * (24 - start)
    assert 0 < expected.prune <= run.prune
    assert np.array_equal(run.arrays["mean_excess"], watched.arrays["mean_excess"])  # it goes up to the onset
    left_out = set(np.flatnonzero(run.visits < 24))
    assert expected.prune <= len(left_out)  # of more that are doubted alike, one may take another's place
    assert left_out <= set(range(wrong)) or left_out > set(range(wrong))
    assert run.policy == RecentLoss()


def told_nothing(**options):
    return Pruner(SAMPLES, SCHEDULE, policy="auto", **options)


@pytest.mark.parametrize(
    "run", [lambda: run_with(turn=None), lambda: train(told_nothing())], ids=["no turn", "no figure"]
)
def test_where_nothing_turns_it_leaves_out_what_is_doubted_in_the_last_third(run):
    run = run()
    assert run.advice.verdict == "prune"
    assert run.advice.onset is None
    assert [record["kept"] for record in run.history] == [SAMPLES] * 16 + [SAMPLES - 120] * 8
    assert np.array_equal(run.visits < 24, np.arange(SAMPLES) < 120)


TAIL = np.random.default_rng(0).exponential(1, SAMPLES)


def test_on_losses_of_one_group_it_leaves_nothing_out():
    run = train(told_nothing(), lambda ids, epoch, wrong: TAIL[ids])
    assert run.advice.verdict == "watch"
    assert [record["kept"] for record in run.history] == [SAMPLES] * 24


def memorized(ids, epoch, wrong):
    """Those of the first `wrong` samples fall from epoch 6 on, some sooner than others."""
    return losses(ids, epoch, wrong) * np.where(ids < wrong, np.exp(-max(0, epoch - 6) * (ids % 5) / 4), 1)


def test_it_begins_sooner_once_its_losses_show_that_labels_are_memorized():
    run = train(told_nothing(), memorized)
    start = run.advice.schedule.start
    assert 6 < start < 16
    assert [record["kept"] for record in run.history] == [SAMPLES] * start + [SAMPLES - run.advice.prune] * (24 - start)
    assert set(np.flatnonzero(run.visits < 24)) <= set(range(120))
    assert [("apart" in record) for record in run.history] == [4 <= number + 1 <= start for number in range(24)]


HARD = np.concatenate([np.random.default_rng(0).normal(1.1, 0.5, 120), np.random.default_rng(1).exponential(0.45, 280)])


def learned(ids, epoch, wrong):
    """Losses of all sizes, those of the first `wrong` samples highest, which a network learns by heart."""
    return HARD[ids] * 0.95**epoch


def test_it_begins_sooner_if_a_wide_group_is_being_learned_however_it_leaves_out():
    run, by_weight = (train(told_nothing(leave_out=leave_out), learned) for leave_out in ("delivery", "weight"))
    start = run.advice.schedule.start
    assert 5 < start < 12
    assert 100 <= run.advice.prune <= 140
    assert [("worse" in record) for record in run.history] == [5 <= number + 1 <= start for number in range(24)]
    assert by_weight.advice == run.advice
    assert by_weight.history[-1]["by_weight"] == run.advice.prune
    assert np.array_equal(by_weight.visits, run.visits)


def swinging(ids, epoch, wrong):
    """As ``learned``, but of the other samples another third has high losses in every epoch."""
    return learned(ids, epoch, wrong) + 2.0 * ((ids >= wrong) & ((ids + epoch) % 3 == 0))


@pytest.mark.parametrize("holdout", [None, 0.1])
def test_it_waits_as_long_as_samples_turn_in_every_epoch(holdout):
    run = train(told_nothing(holdout=holdout), swinging)
    start = 16 if run.advice.schedule is None else run.advice.schedule.start
    assert start == 16
    among = np.flatnonzero(run.visits)  # of held-out samples none is counted
    every = np.array([swinging(np.arange(SAMPLES), epoch, 120) for epoch in range(24)])
    means = [every[epoch, among].mean() for epoch in (0, 1)]
    untaught = means[0] + (means[0] - means[1]) / 2
    weights = [0.75 ** np.arange(epoch)[::-1] for epoch in range(1, 24)]
    for epoch in range(4, 16):
        before = weights[epoch - 1] @ every[:epoch, among] / weights[epoch - 1].sum()
        better = before < untaught
        expected = np.mean(every[epoch, among][better] > untaught)
        assert 1 / 7 < expected == pytest.approx(run.history[epoch]["turned"])


@pytest.mark.parametrize("leave_out", ["delivery", "weight", "nothing"])
@pytest.mark.parametrize("general", [True, False])
def test_it_does_not_begin_sooner_while_losses_fall_within_epochs(general, leave_out):
    """Then the network learns what holds for other samples, too; what it memorizes falls from visit to visit."""
    run = told_nothing(leave_out=leave_out)
    for epoch in run.epochs():
        epoch.apply_weights()
        for place, ids in enumerate(epoch.batches(20)):
            passed = (20 * place + np.arange(len(ids))) / SAMPLES
            run.observe(HARD[ids] - 0.02 * (epoch.number + general * passed), ids)
    within = [record["within"] for record in run.history if "within" in record]
    fell = run.history[0]["mean_loss"] - run.history[len(within)]["mean_loss"]
    start = run.advice.schedule.start
    assert len(within) == start - 1
    if general:
        assert start == 16
        assert sum(within) == pytest.approx(fell, rel=0.2)
    else:
        assert start < 12
        assert abs(sum(within)) < fell / 2


def test_it_begins_sooner_if_losses_rise_within_epochs():
    """Then the network forgets samples between their visits, and so memorizes them."""
    forgotten, known = told_nothing(), told_nothing()
    for run, rise in ((forgotten, 0.05), (known, 0.0)):
        for epoch in run.epochs():
            for place, ids in enumerate(epoch.batches(20)):
                run.observe(HARD[ids] + rise * (20 * place + np.arange(len(ids))) / SAMPLES, ids)
    assert forgotten.advice.schedule.start < 8
    assert "forgets samples between visits" in forgotten.advice.evidence[1]
    assert 100 <= forgotten.advice.prune <= 140
    assert known.advice.schedule is None or known.advice.schedule.start == 16


@FEWER
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.sampled_from([12, 24, 48]))
def test_how_far_losses_fall_within_an_epoch_is_the_same_over_ranks_and_resumed(first, then, stop, batches, size):
    """As by a straight line through how far each lies above the recent average of its sample, batch by batch."""
    samples, epochs = 96, 6
    every = np.random.default_rng(0).exponential(size=(epochs, samples))

    def feed(run, group, last, most=None):
        for number in range(len(run.history), last + 1):
            epoch = run.begin_epoch()
            for ids in list(epoch.batches(size))[: most if number == last else None]:
                own = ids[group.rank :: group.processes]
                run.observe(every[number, own], own)
            if number < last or most is None:
                run.end_epoch()

    def begin(group):
        run = Pruner(samples, epochs=epochs, policy="auto")
        run.join(group)
        feed(run, group, stop, batches)
        return run.state_dict()

    def go_on(group):
        run = Pruner(samples, epochs=epochs, policy="auto")
        run.join(group)
        run.load_state_dict(begun if then != first else begun[group.rank])
        feed(run, group, epochs - 1)
        return [record.get("within") for record in run.history]

    begun = in_ranks(first, begin)
    order, expected, average = Pruner(samples, epochs=epochs, policy="auto"), [None], np.zeros(samples)
    for number in range(epochs):
        batches = list(order.begin_epoch().batches(size))
        ids = np.concatenate(batches)
        if number:
            rises = every[number] - average / (1 - 0.75**number)
            places = [(size * at + (size - 1) / 2) / samples - 0.5 for at in range(len(batches))]
            expected.append(
                -12 * sum(place * rises[some].sum() for place, some in zip(places, batches, strict=True)) / samples
            )
        average = 0.75 * average + 0.25 * every[number]
        order.observe(every[number, ids], ids)
        order.end_epoch()
    for found in in_ranks(then, go_on):
        assert found[0] is None
        assert found[1:] == pytest.approx(expected[1:], abs=1e-5)


@pytest.mark.parametrize(
    ("figures", "labels"), [("none", "with losses"), ("of the loop", "given"), ("held out", "with losses")]
)
@FEWER
@given(
    st.integers(0, 23), st.integers(0, 5), st.integers(0, 5), st.sampled_from(["delivery", "weight"]),
    st.sampled_from([losses, learned, swinging]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_resumed_anywhere_it_is_the_run_that_was_not_stopped(
    figures, labels, stop, batches, seed, leave_out, of, late, stored
):
    """From a checkpoint as JSON may have kept it, or from a store."""
    classes = np.arange(SAMPLES) % 3
    options = {"seed": seed, "leave_out": leave_out, "prune": 0.4, "holdout": 0.1 if figures == "held out" else None}
    options["labels"] = classes if labels == "given" else None
    how = {"of": of, "labels": classes if labels == "with losses" else None, "late": late}
    how["figures"] = (lambda epoch: figure(epoch, 6)) if figures == "of the loop" else None
    whole = train(told_nothing(**options), **how)
    with tempfile.TemporaryDirectory() as folder:
        place = {"store": f"{folder}/run.zarr", "resume": True} if stored else {}
        begun = train(told_nothing(**options, **place), **how, until=stop, batches=batches)
        state = json.loads(json.dumps(begun.state_dict(), default=list), object_hook=_bytes)
        begun.commit()
        del begun
        other = told_nothing(**options, **place)
        if not stored:
            other.load_state_dict(state)
        train(other, **how)
    assert (other.advice, other.schedule) == (whole.advice, whole.schedule)
    assert_alike(other, whole)


def _bytes(found):
    return found | {"data": bytes(found["data"])} if isinstance(found.get("data"), list) else found


@pytest.mark.parametrize("turn", [15, 18])
def test_what_began_late_is_advised_again_by_the_turn(turn):
    """A figure that turns in the epoch after which the run begins late, or later, shows that there are wrong labels."""
    run = run_with(turn=turn - 2)
    assert run.advice.onset >= 15
    assert [record["kept"] < SAMPLES for record in run.history] == [False] * 16 + [True] * 8
    assert run.schedule.start == run.advice.onset + 1


def test_a_figure_of_the_open_epoch_is_in_its_checkpoint():
    run = run_with(epochs=3)
    run.begin_epoch()
    run.validated(70.0)
    other = Pruner(SAMPLES, SCHEDULE, prune=0.5, policy="auto")
    other.load_state_dict(run.state_dict())
    with pytest.raises(PrunedataError, match=r"Expected one validation figure for epoch 3. Got a second one"):
        other.validated(71.0)
    train(other, until=4)
    assert other.history[3]["validation"] == 70.0


def test_a_figure_after_the_epoch_is_kept_in_the_store(tmp_path):
    run = run_with(epochs=TURNED, store=tmp_path / "run.zarr")
    train(run, until=TURNED + 1)
    assert run.advice.verdict == "watch"
    run.validated(figure(TURNED, 6))
    assert run.advice.verdict == "prune"
    with pytest.raises(PrunedataError, match=f"Expected one validation figure for epoch {TURNED}"):
        run.validated(1.0)
    del run
    other = Pruner(SAMPLES, SCHEDULE, prune=0.5, policy="auto", store=tmp_path / "run.zarr", resume=True)
    assert other.advice.onset == TURNED
    assert run_with(run=other).visits.tolist() == run_with().visits.tolist()


def test_figures_that_make_no_sense_are_refused_and_change_nothing():
    run = Pruner(SAMPLES, SCHEDULE, prune=0.5, policy="auto")
    with pytest.raises(NotInEpoch, match="Got one before the first began"):
        run.validated(0.5)
    run = run_with(epochs=4)
    run.begin_epoch()
    for wrong in (math.nan, "high", 0.7):
        with pytest.raises(PrunedataError, match="Expected"):
            run.validated(wrong)
    with pytest.raises(PrunedataError, match="Got one of which lower is better after others"):
        run.validated(70.0, lower_is_better=True)
    run.validated(70.0)


def test_a_loss_turns_when_it_rises():
    run, other = run_with(), Pruner(SAMPLES, SCHEDULE, prune=0.5, policy="auto")
    for epoch in other.epochs():
        for ids in epoch.batches(50):
            other.observe(losses(ids, epoch.number, 120), ids)
        other.validated(100 - figure(epoch.number, 6), lower_is_better=True)
    assert other.advice.onset == run.advice.onset
    assert np.array_equal(other.visits, run.visits)
    assert other.history[0]["lower_is_better"] is True


def test_any_policy_keeps_the_figures_and_its_losses_up_to_the_turn():
    run = Pruner(SAMPLES, Schedule.steady(24), prune=0.1)
    run_with(run=run)
    assert [record["validation"] for record in run.history] == [figure(epoch, 6) for epoch in range(24)]
    assert run.advice.verdict == "prune"
    assert run.advice.onset == TURNED
    early = Pruner(SAMPLES, Schedule.steady(24), prune=0.1)
    run_with(run=early, epochs=TURNED + 1)
    assert np.array_equal(run.arrays["mean_excess"], early.arrays["mean_excess"])


def test_a_state_from_before_the_turn_takes_it_back():
    run = run_with(epochs=5)
    early = run.state_dict()
    run_with(run=run, epochs=TURNED + 3)
    assert run.advice.verdict == "prune"
    run.load_state_dict(early)
    assert run.advice.verdict == "watch"
    assert run.kept_in(23) == SAMPLES
    run_with(run=run)
    assert np.array_equal(run.visits, run_with().visits)


def test_the_store_says_why_and_inspect_shows_it(tmp_path, capsys):
    run = run_with(epochs=TURNED + 2, store=tmp_path / "run.zarr")
    assert inspect(tmp_path / "run.zarr")["advice"] == json.loads(json.dumps(run.advice.to_dict()))
    assert main(["inspect", str(tmp_path / "run.zarr")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"leave out {run.advice.prune:,} of {SAMPLES:,} samples from epoch {TURNED + 1} on" in shown
    assert main(["advise", str(tmp_path / "run.zarr")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"seen in epoch {TURNED}" in shown
    with pytest.raises(ForeignStore, match="policy"):
        Pruner(SAMPLES, SCHEDULE, prune=0.5, store=tmp_path / "run.zarr", resume=True)


def test_watching_only_it_says_what_it_would_have_done():
    run = run_with(leave_out="nothing")
    assert run.advice.verdict == "prune"
    assert not any(record["pruned"] for record in run.history)
    would = [record["would_prune"] for record in run.history]
    assert would == [0] * (TURNED + 1) + [run.advice.prune] * (23 - TURNED)


def test_how_much_may_be_left_open_where_nothing_depends_on_it():
    assert Pruner(SAMPLES, SCHEDULE, policy="auto").prune == Pruner(SAMPLES, SCHEDULE, policy="auto", prune=0.45).prune
    assert Pruner(SAMPLES, SCHEDULE, leave_out="nothing").prune == 0
    with pytest.raises(PrunedataError, match=r"Expected prune, how much .* Got none: only runs with policy"):
        Pruner(SAMPLES, SCHEDULE)


@pytest.mark.parametrize("advice", [{}, {"verdict": "prune"}, ["prune"], "prune", 3])
def test_a_state_whose_advice_is_damaged_is_refused_and_changes_nothing(advice):
    run = run_with(epochs=TURNED + 2)
    state, before = run.state_dict(), run.visits
    state["state"]["advice"] = advice
    with pytest.raises(PrunedataError):
        run.load_state_dict(state)
    assert run.advice.verdict == "prune"
    assert np.array_equal(run.visits, before)


def test_with_samples_left_out_for_good_advice_knows_the_others_only():
    without = np.arange(60)
    run = run_with(without=without)
    of_others = run.arrays["mean_excess"][60:]
    assert run.advice.prune == advise(run.history, SCHEDULE, of_others, prune=run.prune).prune
    assert 0 < run.advice.prune < run_with().advice.prune  # of 120 wrong ones, half are left out for good
    assert run.visits[:60].max() == 0


def rare_classes(samples, *, labels=None, given=False):
    """A run that observes 300 samples, of two kinds of labels whose losses differ, of which 40 each are wrong."""
    ids, kinds = np.arange(300), np.arange(300) % 2
    options = {"labels": np.arange(samples) % 2} if given else {}
    run = Pruner(samples, epochs=24, leave_out="weight", **options)
    for epoch in run.epochs():
        epoch.apply_weights()
        run.observe(losses(ids // 2, epoch.number, 40) * (1 + kinds), ids, labels=labels)
        run.skip(samples - 300)
    return run


@pytest.mark.parametrize("given", [True, False])
def test_samples_that_no_epoch_delivers_have_no_part_in_it(given):
    """As with a SubsetRandomSampler over a part of the data set."""
    labels = None if given else np.arange(300) % 2
    alone, among_others = (rare_classes(samples, labels=labels, given=given) for samples in (300, 400))
    assert among_others.advice == alone.advice == advise_now(state_of(among_others))
    assert among_others.advice.verdict == "prune"
    assert "of the same label" in alone.advice.evidence[0]
    left_out = [run.history[-1]["by_weight"] for run in (alone, among_others)]
    assert left_out == [80, 80]
    np.testing.assert_array_equal(alone.visits, among_others.visits[:300])
    assert [record["apart"] for record in among_others.history[:8] if "apart" in record] == [
        record["apart"] for record in alone.history[:8] if "apart" in record
    ]


def test_whole_batches_that_keep_all_doubted_samples_are_told_once():
    run = Pruner(SAMPLES, SCHEDULE, policy="auto", batch_size=200)  # without the 120 doubted ones 280 are left
    with pytest.warns(
        NeverPrunesWarning, match="the 120 samples whose labels look wrong.* all 400, rounded up"
    ) as told:
        train(run)
    assert [record["kept"] for record in run.history] == [SAMPLES] * 24
    assert len(told) == 1


def test_the_advice_of_a_store_knows_the_labels_that_batches_brought(tmp_path):
    run = Pruner(SAMPLES, epochs=12, prune=1, policy=RecentLoss(), store=tmp_path)
    train(run, labels=np.arange(SAMPLES) % 3, until=12)
    assert run.advice == advise_now(state_of(tmp_path))
    assert "of the same label" in run.advice.evidence[0]
