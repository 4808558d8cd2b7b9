"""The validation figure of each epoch is lost nowhere: stopped anywhere, a loop ends as one that never stopped."""

import contextlib
import pickle
import warnings
from itertools import count

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import NeverPrunesWarning, NotInEpoch, PrunedataError
from prunedata.run.group import Group
from tests.run.alike import known, records

SAMPLES, EPOCHS, BATCH = 96, 16, 32
FEATURES = np.random.default_rng(0).normal(size=(SAMPLES + 400, 40))
RIGHT = (FEATURES[:, 0] > 0).astype(float)
LABELS = np.where(np.arange(SAMPLES) % 3 == 0, 1 - RIGHT[:SAMPLES], RIGHT[:SAMPLES])


class Stopped(Exception):
    """Something that ends the loop: a crash, or the end of what a scheduler allows."""


class Model:
    """Logistic regression by plain steps: it learns wrong labels by heart, and so its figure falls at last."""

    def __init__(self, weights=None):
        self.weights = np.zeros(FEATURES.shape[1]) if weights is None else weights.copy()

    def step(self, ids):
        chances = 1 / (1 + np.exp(-FEATURES[ids] @ self.weights))
        self.weights += 1.2 * FEATURES[ids].T @ (LABELS[ids] - chances) / len(ids)
        chances = np.clip(np.where(LABELS[ids] == 1, chances, 1 - chances), 1e-9, 1)
        return -np.log(chances).astype(np.float32)

    def figure(self):
        chances = 1 / (1 + np.exp(-FEATURES[SAMPLES:] @ self.weights))
        return float(np.mean(np.where(RIGHT[SAMPLES:] == 1, chances, 1 - chances) ** 0.25))


def start(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        return Pruner(SAMPLES, Schedule.steady(EPOCHS), **{"policy": "auto", "prune": 0.4} | options)


def batches(run, model, epoch, at):
    for ids in epoch.batches(BATCH):
        run.observe(model.step(ids), ids)
        at()


def own_loop(run, model, at, every):
    """As the pages show it."""
    for epoch in run.epochs() if run.next_epoch < EPOCHS else ():
        batches(run, model, epoch, at)
        at()
        if epoch.number % every == every - 1:
            run.validated(model.figure(), lower_is_better=False)
        at()


def begin_and_end(run, model, at, every):
    """Validated before the epoch ends."""
    while run.next_epoch < EPOCHS:
        epoch = run.begin_epoch()
        batches(run, model, epoch, at)
        at()
        if epoch.number % every == every - 1 and not run.is_validated:
            run.validated(model.figure(), lower_is_better=False)
        at()
        run.end_epoch()


def validated_after_the_end(run, model, at, every):
    while run.next_epoch < EPOCHS or run.awaits_figure:
        if run.awaits_figure and _last_trained(run) % every == every - 1:
            run.validated(model.figure(), lower_is_better=False)
            at()
        if run.next_epoch == EPOCHS:
            return
        batches(run, model, run.begin_epoch(), at)
        run.end_epoch()
        at()


def _last_trained(run):
    """The epoch that is open, or else the one that ended last."""
    try:
        return run.current.number
    except NotInEpoch:
        return run.next_epoch - 1


LOOPS = [own_loop, begin_and_end, validated_after_the_end]
KEPT = ["in memory", "in a state", "in a store"]


def outcome(run, model):
    arrays = {name: array.tobytes() for name, array in known(run).items()}
    return records(run), arrays, model.weights.tobytes(), run.advice


def train(loop, every, stop=None, run=None, model=None):
    """Train to the end, or to the point that is numbered ``stop``: then Stopped is raised there."""
    run, model, points = start() if run is None else run, Model() if model is None else model, count(1)

    def at():
        if next(points) == stop:
            raise Stopped

    loop(run, model, at, every)
    return run, model


@pytest.fixture(scope="module")
def whole():
    found = {}

    def of(loop, every):
        if (loop, every) not in found:
            found[loop, every] = outcome(*train(loop, every))
        return found[loop, every]

    return of


def test_the_run_turns(whole):
    """Else these tests would say little."""
    for loop in LOOPS:
        assert 4 < whole(loop, 1)[3].onset < EPOCHS - 2
        assert 4 < whole(loop, 2)[3].onset < EPOCHS - 2
        assert whole(loop, 1) == whole(own_loop, 1)


def by_a_state(run, model):
    other = start()
    other.load_state_dict(pickle.loads(pickle.dumps(run.state_dict())))
    return other, Model(model.weights)


@pytest.mark.parametrize(
    ("loop", "kept", "every"),
    [(loop, kept, 1 + (at + number) % 2) for at, loop in enumerate(LOOPS) for number, kept in enumerate(KEPT)],
)
def test_stopped_at_any_point_it_ends_as_one_that_never_stopped(loop, kept, every, whole, tmp_path):
    """Also nothing is told of a lost figure: warnings are errors here. Figures of every second epoch are no loss."""
    stored = (tmp_path / f"{number}.zarr" for number in count())
    for stop in count(1, 7 if kept == "in a store" else 1):  # seven: at every point of an epoch in turn
        place = next(stored) if kept == "in a store" else None
        run, model = start(store=place), Model()
        try:
            train(loop, every, stop, run, model)
        except Stopped:
            pass
        else:
            assert stop > EPOCHS * 4
            return
        if kept == "in a state":
            run, model = by_a_state(run, model)
        if kept == "in a store":
            run.commit()
            run = start(store=place, resume=True)
        assert outcome(*train(loop, every, None, run, model)) == whole(loop, every), f"stopped at point {stop}"


# -- what is told


def ended_without_its_figure(figures, **options):
    """A run whose epochs have these figures; None for one that has none."""
    run = start(**options)
    for figure in figures:
        for ids in run.begin_epoch().batches(BATCH):
            run.observe(np.ones(len(ids)), ids)
        if figure is not None:
            run.validated(figure, lower_is_better=False)
        run.end_epoch()
    return run


@pytest.mark.parametrize(
    ("figures", "is_lost"),
    [
        ([0.5, None], True),
        ([0.5, 0.6, 0.7, None], True),
        ([None, 0.5, None, None], True),
        ([None, 0.5, None], False),  # every second epoch
        ([None, 0.5, None, 0.6, None], False),
        ([0.5, None, None, 0.6, None, None, None], True),
        ([None], False),
        ([], False),
    ],
    ids=str,
)
def test_a_resumed_run_that_begins_without_a_figure_that_was_due_is_told(figures, is_lost):
    run = start()
    run.load_state_dict(ended_without_its_figure(figures).state_dict())
    assert run.awaits_figure == (is_lost or figures == [None])  # of the first epoch nobody can know yet
    with pytest.warns(NeverPrunesWarning, match="awaits_figure") if is_lost else contextlib.nullcontext():
        run.begin_epoch()
    run = start()
    run.load_state_dict(ended_without_its_figure(figures).state_dict())
    if run.awaits_figure:
        run.validated(0.7, lower_is_better=False)
        assert not run.awaits_figure
        assert run.history[-1]["validation"] == 0.7
    run.begin_epoch()


def test_who_has_not_been_stopped_is_told_nothing():
    run = ended_without_its_figure([0.5, 0.6, None, None])
    run.begin_epoch()
    # Nor is somebody who goes on within an epoch, and gives that one none.
    other = start()
    other.load_state_dict(run.state_dict())
    for ids in other.begin_epoch().batches(BATCH):
        other.observe(np.ones(len(ids)), ids)
    other.end_epoch()
    other.begin_epoch()


def test_held_out_samples_make_the_figure_so_that_none_is_awaited():
    run = start(holdout=0.2)
    epoch = run.begin_epoch()
    for ids in epoch.batches(BATCH):
        epoch.factors(ids)
        run.observe(np.ones(len(ids)), ids)
    assert not run.awaits_figure
    run.end_epoch()
    assert not run.awaits_figure
    assert run.is_validated


@pytest.mark.parametrize("told", [None, False])
def test_a_loss_that_is_given_as_a_score_never_starts_and_is_told_once(told):
    run, losses = start(), [2.2 * 0.8**epoch + 0.02 * (-1) ** epoch for epoch in range(EPOCHS)]
    with pytest.warns(NeverPrunesWarning) if told is None else contextlib.nullcontext() as caught:
        for epoch in run.epochs():
            for ids in epoch.batches(BATCH):
                run.observe(np.ones(len(ids)), ids)
            run.validated(losses[epoch.number], lower_is_better=told)
    assert any(record["pruned"] for record in run.history) == (told is False)
    if told is None:
        assert len(caught) == 1
        assert "lower_is_better=True" in str(caught[0].message)


# -- of several processes


class Rank(Group):
    """One of two processes; the other has what ``other`` says."""

    rank, processes = 0, 2

    def __init__(self):
        self.compared = []

    def agree(self, what, *numbers):
        own = np.ravel(numbers).tolist()
        self.compared.append(own)
        if self.other is not None and own != self.other:
            raise PrunedataError(f"Expected the same {what}.")

    other = None


def test_processes_compare_their_figures_before_they_begin_an_epoch_by_them():
    run, group = start(), Rank()
    run.join(group)
    run.load_state_dict(ended_without_its_figure([0.5]).state_dict())
    group.other = [1, 0.5]
    run.begin_epoch()
    assert group.compared == [[1, 0.5]]
    run.load_state_dict(ended_without_its_figure([0.5, None]).state_dict())
    group.other = [1, 0.5]  # the other rank gave none
    run.validated(0.6, lower_is_better=False, agreed=True)
    with pytest.raises(PrunedataError, match="the same validation figures"):
        run.begin_epoch()
    assert run.next_epoch == 2
