"""Validation figures over real processes: all ranks turn at once, whoever gave a figure; resumed runs too."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.plan.onset import find_onset
from tests.adapters.helpers.ranks import everyones, group, start, told
from tests.adapters.helpers.torch import Items

SAMPLES, WRONG, EPOCHS, BATCH = 120, 36, 12, 5
WORLDS = (1, 3)


def figure(epoch, apart=0.0):
    return 50 + epoch - 4 * max(0, epoch - 4) + apart


def make(rank, world, **options):
    given = {"prune": 0.25, "policy": "auto", "seed": 3} | options
    pruner = Pruner(SAMPLES, Schedule.steady(EPOCHS), **given)
    sampler = DistributedSampler(Items(SAMPLES), world, rank)
    return pruner, wrap(DataLoader(Items(SAMPLES), BATCH * 3 // world, sampler=sampler), pruner)


def train(pruner, loader, figures, *, stop=None, late=False):
    """Train to the end, or leave an epoch in its middle: ``stop`` is that epoch."""
    while not pruner._engine.is_finished:
        epoch = pruner.begin_epoch()
        told = figures(epoch.number)
        for number, (_, ids) in enumerate(loader):
            if epoch.number == stop and number == 1:
                return pruner.state_dict()
            loader.observe(torch.where(ids < WRONG, 3.0, 1.0 / (1 + epoch.number)) + 0.001 * ids)
        if told is not None and not late:
            pruner.validated(told)
        pruner.end_epoch()
        if told is not None and late:
            pruner.validated(told, agreed=True)
    return None


def known(pruner):
    """What a rank knows at the end: all of it must be the same on each."""
    return {
        "kept": [record["kept"] for record in pruner.history],
        "figures": [record.get("validation") for record in pruner.history],
        "onset": pruner.advice.onset,
        "visits": pruner.visits.tolist(),
        "scores": pruner.arrays["mean_excess"].tolist(),
    }


def trained(rank, world, figures, **options):
    pruner, loader = make(rank, world)
    train(pruner, loader, figures, **options)
    return known(pruner)


def stopped(rank, world, at, figures=figure):
    pruner, loader = make(rank, world)
    state = train(pruner, loader, figures, stop=at)
    again, loader = make(rank, world)
    again.load_state_dict(everyones(state) if world > 1 else state)
    train(again, loader, figures)
    return known(again)


def held_out(rank, world):
    pruner, loader = make(rank, world, holdout=0.25)
    for epoch in pruner.epochs():
        epoch.apply_weights()  # nothing is trained here
        for _, ids in loader:
            loss = 1 - 0.8 * min(1, epoch.number / 4) * (ids >= WRONG + 4 * max(0, epoch.number - 5))
            loader.observe(loss + 0.001 * ids)
    return known(pruner)


def observe_all(pruner, loader):
    pruner.begin_epoch()
    for _, ids in loader:
        loader.observe(1.0 + 0.001 * ids)


def refused(rank, world):
    pruner, loader = make(rank, world)
    observe_all(pruner, loader)
    pruner.validated(0.4 if rank else 51.0, lower_is_better=bool(rank))
    return told(pruner.end_epoch)


def told_nothing(rank, world, at=None):
    return stopped(rank, world, at, lambda epoch: None) if at else trained(rank, world, lambda epoch: None)


SCENARIOS = {
    "alike": partial(trained, figures=figure),
    "late": partial(trained, figures=figure, late=True),
    "stopped before the onset": partial(stopped, at=3),
    "stopped after it": partial(stopped, at=9),
    "holdout": held_out,
}
UNTOLD = {"": told_nothing, "stopped before": partial(told_nothing, at=6), "stopped after": partial(told_nothing, at=9)}
"""Without a figure: it begins late."""
APART = {
    "own ones": lambda rank: partial(trained, figures=partial(figure, apart=rank - 1)),
    "the first alone": lambda rank: partial(trained, figures=figure if rank == 0 else lambda epoch: None),
    "of two kinds": lambda rank: refused,
}


def disagree(rank, world, figures, *, late, agreed=True):
    """End an epoch with the figures that the ranks give, and begin the next; what is told."""
    pruner, loader = make(rank, world)

    def end_and_begin():
        observe_all(pruner, loader)
        if late:
            pruner.end_epoch()
        if figures[rank] is not None:
            pruner.validated(figures[rank], agreed=agreed)
        if not late:
            pruner.end_epoch()
        observe_all(pruner, loader)

    said = told(end_and_begin)
    torch.distributed.barrier()  # the group is whole
    return said


DISAGREE = {
    "one rank alone": [50.0, None, None],
    "all but one": [None, 50.0, 50.0],
    "another value": [50.0, 50.0, 50.0 + 1e-12],
    "alike": [50.0, 50.0, 50.0],
}


def work(rank, folder, world):
    with group(rank, folder, world=world):
        found = {name: scenario(rank, world) for name, scenario in SCENARIOS.items()}
        found |= {f"untold {name}": scenario(rank, world) for name, scenario in UNTOLD.items()}
        found |= {name: of(rank)(rank, world) for name, of in APART.items()}
        for name, figures in DISAGREE.items():
            found[f"agreed, {name}"] = [disagree(rank, world, figures, late=late) for late in (False, True)]
        found["not agreed"] = disagree(rank, world, DISAGREE["alike"], late=True, agreed=False)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(partial(work, world=3), tmp_path_factory.mktemp("ranks"), world=3)


@pytest.mark.parametrize("name", [*SCENARIOS, "own ones", "the first alone"])
def test_all_ranks_turn_at_once(ranks, name):
    first, *others = (rank[name] for rank in ranks)
    assert all(other == first for other in others)
    assert first["onset"] is not None
    assert first["kept"][first["onset"] + 1] < SAMPLES == first["kept"][0]


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "holdout"])
def test_they_are_the_run_of_one_process(ranks, name):
    alone, found = trained(0, 1, figure), ranks[0][name]
    np.testing.assert_allclose(found.pop("scores"), alone.pop("scores"), rtol=1e-5, atol=1e-6)
    assert found == alone
    assert alone["onset"] == find_onset([{"number": at, "validation": figure(at)} for at in range(EPOCHS)]).onset
    assert min(found["visits"][WRONG:]) == EPOCHS, "only wrong ones are left out"


@pytest.mark.parametrize("name", UNTOLD)
def test_without_a_figure_all_ranks_begin_late_at_once_and_are_the_run_of_one_process(ranks, name):
    first, *others = (rank[f"untold {name}"] for rank in ranks)
    alone = told_nothing(0, 1)
    assert all(other == first for other in others)
    assert first["visits"] == alone["visits"]
    assert first["kept"] == alone["kept"] == [SAMPLES] * 8 + [SAMPLES - 30] * 4


def test_the_figure_is_the_mean_over_the_ranks_that_gave_one(ranks):
    expected = [figure(epoch) for epoch in range(EPOCHS)]
    for name in ("own ones", "the first alone"):
        assert ranks[2][name]["figures"] == pytest.approx(expected)


def test_figures_of_two_kinds_are_refused_on_every_rank(ranks):
    assert all("Expected validation figures of one kind" in rank["of two kinds"] for rank in ranks)


def test_ranks_that_agreed_on_a_figure_and_give_others_are_all_told_which(ranks):
    for found in ranks:
        assert found["agreed, alike"] == [None, None]
        for name in ("one rank alone", "all but one", "another value"):
            for said in found[f"agreed, {name}"]:
                assert all(f"rank {rank} has" in said for rank in range(3)), name


def test_a_late_figure_needs_that_all_ranks_have_the_same(ranks):
    assert all("pass agreed=True" in found["not agreed"] for found in ranks)
