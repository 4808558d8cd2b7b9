"""A run that follows its rows: each has what it had, wherever it lies; new rows begin, and lost ones are kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule, report
from prunedata.cli.summary import summary
from prunedata.errors import ForeignStore, OtherData, PrunedataError
from prunedata.findings.inspection import inspect, times_pruned
from prunedata.findings.searched import held_out, state_of, told_unsearched
from prunedata.policies import DroppingCount, EasyPruning, LossRanked, RecentLoss, RunningLoss
from prunedata.run.epoch import Role
from tests.run.alike import known

ROWS = 24
SCHEDULE = Schedule(8, window=3, start=1, block=2, pruned_per_block=1)
POLICIES = [DroppingCount(), RunningLoss(), LossRanked(), EasyPruning(), RecentLoss()]
SUBSETS = st.permutations(range(ROWS)).flatmap(lambda order: st.integers(6, ROWS).map(lambda most: order[:most]))


def start(rows, **options):
    given = {"prune": "20%", "policy": RunningLoss(), "keys": [f"row {row}" for row in rows], **options}
    return Pruner(len(rows), given.pop("schedule", SCHEDULE), **given)


def epoch_of(run, rows, *, order=None):
    """Train one epoch on rows, whose losses are their own, in batches of the same rows wherever they lie."""
    epoch = run.begin_epoch()
    epoch.apply_weights()
    where = {row: at for at, row in enumerate(rows)}
    ids = np.array([where[row] for row in (order or sorted(rows)) if epoch.keep[where[row]]])
    for some in np.array_split(ids, 3):
        run.observe(np.array([np.cos(rows[at] * 1.7 + epoch.number) + rows[at] / 9 for at in some]), some)
    run.end_epoch()
    return {rows[at] for at in np.flatnonzero(~epoch.keep)}


def followed(run, rows, **options):
    other = start(rows, follow=True, **options)
    other.load_state_dict(run.state_dict())
    return other


@given(st.sampled_from(POLICIES), SUBSETS, st.integers(0, 4), st.integers(1, 7))
def test_of_other_rows_each_is_as_in_the_run_that_had_them_from_the_start(policy, rows, fresh, done):
    """If those that stay are in the same batches, as a loss counts by the mean of its batch.

    Of all policies as long as nothing is left out: what ties is chosen among by its place.
    """
    stay, now = sorted(rows), [*range(100, 100 + fresh), *rows]
    gone = sorted(set(range(ROWS)) - set(rows))

    def train(run, rows, epochs, rest):
        for _ in range(epochs):
            epoch, place = run.begin_epoch(), {row: at for at, row in enumerate(rows)}
            for some in (*np.array_split(stay, 3), *([rest] if len(rest) else [])):
                losses = np.array([np.cos(row * 1.7 + epoch.number) + row / 9 for row in some])
                run.observe(losses, np.array([place[row] for row in some]))
            run.end_epoch()
        return run

    options = {"policy": policy, "leave_out": "nothing"}
    first = train(start(range(ROWS), **options), range(ROWS), done, gone)
    moved = train(followed(first, now, **options), now, 8 - done, now[:fresh])
    whole = train(start(now, **options), now, 8, now[:fresh])
    for name, array in known(moved).items():
        assert np.array_equal(array[fresh:], known(whole)[name][fresh:]), name
    assert moved.visits.tolist() == [8 - done] * fresh + [8] * len(rows)


@given(st.sampled_from([RunningLoss(), RecentLoss()]), st.permutations(range(ROWS)), st.integers(1, 7))
def test_and_it_leaves_out_the_same_rows(policy, order, done):
    """Of policies with scores that do not tie."""
    first, other = (start(rows, policy=policy) for rows in (range(ROWS), order))
    for _ in range(done):
        assert epoch_of(first, range(ROWS)) == epoch_of(other, order)
    moved = followed(first, order, policy=policy)
    for _ in range(done, 8):
        assert epoch_of(moved, order) == epoch_of(other, order)
    for name, array in known(other).items():
        assert np.array_equal(array, known(moved)[name]), name


@given(SUBSETS, st.integers(0, 3), st.integers(1, 4))
def test_of_some_rows_each_has_what_it_had_and_new_ones_begin(rows, fresh, done):
    run = start(range(ROWS))
    for _ in range(done):
        epoch_of(run, range(ROWS))
    now = [*rows, *range(100, 100 + fresh)]
    moved = followed(run, now)
    begun = known(start(now))
    for name, array in known(moved).items():
        assert np.array_equal(array[: len(rows)], known(run)[name][rows]), name
        assert np.array_equal(array[len(rows) :], begun[name][len(rows) :]), name
    state = state_of(moved)
    assert state.lost.get("keys", np.empty(0)).size == ROWS - len(rows)
    told = {} if len(now) == ROWS else {"samples": ROWS}
    if now != list(range(ROWS)):
        told |= {"lost": ROWS - len(rows), "fresh": fresh}
        assert moved.history[-1] == run.history[-1] | told
    assert times_pruned(state)[len(rows) :].tolist() == [0] * fresh
    assert np.array_equal(times_pruned(state)[: len(rows)], times_pruned(state_of(run))[rows])


@given(SUBSETS, st.permutations(range(ROWS)), st.integers(1, 3), st.integers(0, 2))
def test_rows_that_come_back_have_what_they_had(rows, order, done, meanwhile):
    run = start(range(ROWS), policy=RunningLoss())
    for _ in range(done):
        epoch_of(run, range(ROWS))
    before = known(run)
    fewer = followed(run, rows)
    for _ in range(meanwhile):
        epoch_of(fewer, rows)
    back = followed(fewer, order)
    gone = np.setdiff1d(range(ROWS), rows)
    at = [order.index(row) for row in gone]
    reset = any(SCHEDULE.resets(epoch) for epoch in range(done, done + meanwhile))
    for name, array in known(back).items():
        assert np.array_equal(
            array[at], 0 * before[name][gone] if name == "counts" and reset else before[name][gone]
        ), name
    pruned = times_pruned(state_of(back))
    assert np.array_equal(pruned[at], times_pruned(state_of(run))[gone])
    assert (pruned <= 8).all()
    assert not state_of(back).lost


@given(SUBSETS, st.integers(0, 3), st.permutations(range(ROWS)))
def test_labels_are_those_that_are_given_and_what_rows_look_like_goes_with_them(rows, fresh, order):
    def labels(of):
        return np.array([row % 4 for row in of])

    run = start(range(ROWS), labels=labels(range(ROWS)))
    run.begin_epoch()
    logits = np.random.default_rng(1).random((ROWS, 4))
    run.observe(np.arange(ROWS, dtype=float), np.arange(ROWS), logits=logits)
    run.end_epoch()
    now = [*rows, *range(100, 100 + fresh)]
    moved = followed(run, now, labels=labels(now))
    state = state_of(moved)
    assert state.labels.tolist() == labels(now).tolist()
    expected = state_of(run).guess
    assert state.guess.tolist() == [*expected[rows].tolist(), *[-1] * fresh]
    back = followed(moved, order, labels=labels(order))
    assert state_of(back).guess.tolist() == expected[list(order)].tolist()
    with pytest.raises(ForeignStore, match="labels"):
        followed(run, now)


def test_a_row_whose_label_was_corrected_is_not_followed():
    """As it is not where no row has moved: its losses are high by the label that it had."""
    names = np.array(["cat", "dog"])
    run = start(range(ROWS), labels=names[np.arange(ROWS) % 2])
    epoch_of(run, range(ROWS))
    corrected = names[np.append(np.arange(ROWS) % 2, 0)]
    corrected[3] = "bird"  # the numbers of the others change, too
    now = [*range(ROWS), 100]
    with pytest.raises(ForeignStore, match=r"\(ids 3\)"):
        followed(run, now, labels=corrected)
    now[3] = 103
    assert followed(run, now, labels=corrected).visits.tolist() == [1, 1, 1, 0, *[1] * (ROWS - 4), 0]


def test_verdicts_and_roles_follow():
    run = start(range(ROWS), without=[2, 3], holdout=0.2, leave_out="weight")
    epoch = run.begin_epoch()
    for some in np.array_split(np.flatnonzero(epoch.keep), 3):
        epoch.factors(some)
        run.observe(np.cos(some), some)
    run.end_epoch()
    order = [*range(30, 33), *reversed(range(ROWS))]
    moved = followed(run, order, holdout=0.2, leave_out="weight")
    roles, before = moved._engine.pruning.roles, run._engine.pruning.roles
    assert np.array_equal(roles[3:], before[::-1])
    assert np.flatnonzero(moved.without).tolist() == [order.index(3), order.index(2)]
    assert np.array_equal(held_out(state_of(moved)), roles == Role.HELD_OUT)
    again = start(order, holdout=0.2, leave_out="weight")
    again.load_state_dict(moved.state_dict())
    assert np.array_equal(again._engine.pruning.roles, roles)
    assert "held_out" in moved.state_dict()["arrays"]
    assert "held_out" not in run.state_dict()["arrays"]  # the seed says it
    drawn = start(order, holdout=0.2, leave_out="weight").state_dict()
    again.load_state_dict(drawn)  # one that has not moved is as the seed says
    seeds = held_out(state_of(start(order, holdout=0.2, leave_out="weight"))) & ~again.without
    assert np.array_equal(held_out(state_of(again)), seeds)
    assert "held_out" not in again.state_dict()["arrays"]


def test_advice_follows_as_a_share():
    run = Pruner(epochs=6, keys=range(100), seed=1)
    labels = np.arange(100) % 5 == 0
    while not run.advice.prune:
        epoch = run.begin_epoch()
        for some in epoch.batches(20):
            run.observe(np.where(labels[some], 4.0, 0.1) + np.cos(some) / 50, some)
        run.end_epoch()
    assert run.advice.prune == 20
    half = Pruner(epochs=6, keys=range(50), seed=1, follow=True)
    half.load_state_dict(run.state_dict())
    assert (half.advice.prune, half.advice.doubted) == (10, 10)
    assert half.kept_in(half.next_epoch) == 40


def test_in_a_store_and_what_commands_say_of_it(tmp_path):
    run = start(range(ROWS), store=tmp_path)
    for _ in range(3):
        epoch_of(run, range(ROWS))
    before, commits = known(run), run._engine.store.generation
    del run
    rows = [*range(5, ROWS), 50]
    with pytest.raises(OtherData, match=r"1 are new, and 5 of the 24 are gone \(sample 0 was sample 5"):
        start(rows, store=tmp_path, resume=True)
    run = start(rows, store=tmp_path, resume=True, follow=True)
    assert run._engine.store.generation == commits + 1  # one, so that a kill leaves the old run or the new
    del run  # it is in the store at once
    run = start(rows, store=tmp_path, resume=True)
    assert np.array_equal(run.arrays["mean_excess"][:-1], before["mean_excess"][5:])
    for _ in range(5):
        epoch_of(run, rows)
    found = inspect(tmp_path)
    assert found["lost"] == 5
    assert any(line.startswith("no longer in the data  5, kept") for line in summary(found, ".#"))
    assert told_unsearched(state_of(run)) == "5 no longer in the data, not searched"
    assert "; 5 rows are no longer in the data." in report(run).html
    assert (found["samples"], found["history"][2]["lost"], found["history"][2]["fresh"]) == (20, 5, 1)
    assert found["saved"]["pruned_epochs"] == sum(record["pruned"] for record in found["history"])
    # Once more with the same rows: nothing is to follow.
    assert start(rows, store=tmp_path, resume=True, follow=True).history[2]["lost"] == 5


def test_with_nothing_there_it_begins(tmp_path):
    assert start(range(ROWS), store=tmp_path, resume=True, follow=True).next_epoch == 0


def test_only_between_epochs(tmp_path):
    run = start(range(ROWS), store=tmp_path)
    epoch_of(run, range(ROWS))
    run.begin_epoch()
    run.commit()
    del run
    with pytest.raises(PrunedataError, match=r"between two epochs, as rows move then\. Got one within epoch 1"):
        start(range(ROWS - 1), store=tmp_path, resume=True, follow=True)
    assert start(range(ROWS), store=tmp_path, resume=True, follow=True).is_open


def test_without_keys_there_is_nothing_to_follow():
    run = Pruner(ROWS, SCHEDULE, prune=4, follow=True)
    with pytest.raises(PrunedataError, match="Expected keys beside follow=True"):
        run.begin_epoch()


def test_what_else_differs_is_refused_as_ever(tmp_path):
    epoch_of(start(range(ROWS), store=tmp_path), range(ROWS))
    for changed in (
        {"seed": 4},
        {"policy": DroppingCount()},
        {"schedule": Schedule(5, window=5, start=1, block=1, pruned_per_block=1)},
    ):
        with pytest.raises(ForeignStore):
            start(range(20), store=tmp_path, resume=True, follow=True, **changed)
    with pytest.raises(ForeignStore, match="prune: the stored run has 4, you gave 5"):
        start(range(1, ROWS + 1), store=tmp_path, resume=True, follow=True, prune=5)
    longer = Schedule(9, window=3, start=1, block=2, pruned_per_block=1)
    assert start(range(20), store=tmp_path, resume=True, follow=True, schedule=longer).schedule.epochs == 9


SETS = st.lists(st.lists(st.integers(0, 40), min_size=8, max_size=30, unique=True), min_size=2, max_size=5)


@given(
    SETS,
    st.sampled_from(["delivery", "weight", "nothing"]),
    st.sampled_from([None, 0.2]),
    st.booleans(),
    st.data(),
)
def test_any_number_of_times_beside_a_plain_dict(sets, leave_out, holdout, auto, data):
    """Of each row the visits, whether it is held out, and whether it is left out for good; whatever comes and goes."""
    options = {"leave_out": leave_out, "holdout": holdout, "follow": True}
    options |= {"policy": "auto", "prune": None} if auto else {}
    visits, held, out, state = dict.fromkeys(range(41), 0), {}, set(), None
    for rows in sets:
        bad = data.draw(st.sets(st.sampled_from(rows), max_size=1))
        run, refused = start(rows, without=sorted(map(rows.index, bad)) or None, **options), None
        before = run._engine.pruning.roles
        try:
            if state is not None:
                run.load_state_dict(state)
        except PrunedataError as error:
            refused = str(error)
        if refused is not None:  # of so few rows, nearly all may be held out; and then nothing has changed
            assert "Expected more samples than the" in refused
            assert run._engine.pruning.roles is before
            assert run.next_epoch == 0
            return
        out |= bad
        roles = run._engine.pruning.roles
        for at, row in enumerate(rows):
            held.setdefault(row, roles[at] == Role.HELD_OUT or (row in out and held.get(row, False)))
            expected = Role.LEFT_OUT if row in out else Role.HELD_OUT if held[row] else Role.TRAINED
            assert roles[at] == expected, row
        assert run.visits.tolist() == [visits[row] for row in rows]
        epoch = run.begin_epoch()
        epoch.apply_weights()
        for ids in np.array_split(np.flatnonzero(epoch.keep), 3):
            run.observe(np.array([np.cos(rows[at] + epoch.number) + 1 for at in ids]), ids)
        for at in np.flatnonzero(epoch.trained):
            visits[rows[at]] += 1
        run.end_epoch()
        assert run.visits.tolist() == [visits[row] for row in rows]
        state = run.state_dict()
        found = state_of(run)
        assert found.lost.get("keys", np.empty(0)).size == len(set().union(*sets[: run.next_epoch]) - set(rows))
        assert (times_pruned(found) <= run.next_epoch).all()
        assert 0 <= run.saved["visits_saved"] <= sum(map(len, sets))
