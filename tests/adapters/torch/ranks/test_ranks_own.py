"""Real processes with samplers of the user's own: what none of them was given may be missing, and nothing else."""

from functools import partial

import numpy as np
import pytest
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch import wrap
from prunedata.policies import Random
from tests.adapters.helpers.ranks import WORLD, everyones, group, launched, start, told
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, losses_of, make_pruner

SHARES = (range(60), range(60, 100))
"""What the sampler of each rank gives. The last three samples are in none."""


def make(rank, policy=None, shares=SHARES, **options):
    pruner = make_pruner(**({} if policy is None else {"policy": policy}))
    return pruner, wrap(DataLoader(Items(), BATCH, sampler=list(shares[rank]), **options), pruner, with_ids=True)


def run(rank, *, forget=(0, 0), skipped=(0, 0), leave=(None, None), **options):
    """Train to the end; in the first epoch forget the first batches, skip some samples, or leave the loader."""
    pruner, loader = make(rank, **options)
    for epoch in pruner.epochs():
        for number, (ids, _) in enumerate(loader):
            if epoch.number or (number >= forget[rank] and pruner.policy.needs_losses):
                loader.observe(losses_of(ids, epoch.number), ids)
            if not epoch.number and number + 1 == leave[rank]:
                break
        pruner.skip(0 if epoch.number else skipped[rank])
    return [record["observed"] for record in pruner.history]


def left_and_run_again(rank):
    """Both ranks leave their loops after 5 batches, which are all that one of them has."""
    pruner, loader = make(rank)
    for epoch in pruner.epochs():
        for number, (ids, _) in enumerate(loader):
            loader.observe(losses_of(ids, epoch.number), ids)
            if number + 1 == 5:
                break
        break
    for epoch in pruner.epochs():
        for ids, _ in loader:
            loader.observe(losses_of(ids, epoch.number), ids)
    return pruner.history[0]["observed"]


def accelerated(rank, forget=0, skipped=0):
    """Accelerate deals the batches of a sampler that gives a part; each process sees half of what it gives."""
    pruner, loader = make(0)
    prepared = Accelerator(cpu=True).prepare(loader)
    for epoch in pruner.epochs():
        for number, (ids, _) in enumerate(prepared):
            if epoch.number or rank or number >= forget:
                loader.observe(losses_of(ids, epoch.number), ids)
        pruner.skip(0 if epoch.number or rank else skipped)
    return [record["observed"] for record in pruner.history]


def saved_at_its_end(rank, joined, forget=(0, 0)):
    """Save after the last batch of the first epoch, and go on."""
    pruner, loader = make(rank)
    pruner.begin_epoch()
    for number, (ids, _) in enumerate(loader):
        if number >= forget[rank]:
            loader.observe(losses_of(ids, 0), ids)
    state = pruner.state_dict()
    states = everyones(state)
    pruner, loader = make(rank)
    pruner.load_state_dict(states if joined else state)
    came = 0
    for epoch in pruner.epochs():
        for ids, _ in loader:
            came += len(ids) if not epoch.number else 0
            loader.observe(losses_of(ids, epoch.number), ids)
    return {"came": came, "observed": pruner.history[0]["observed"], "visits": pruner.visits.tolist()}


class Drawn:
    """Some samples come more than once, others not at all; each rank draws other ones, in each epoch."""

    def __init__(self, rank):
        self.random = np.random.default_rng(rank)

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        return iter(self.random.integers(0, SAMPLES, SAMPLES).tolist())


def drawn(rank, times=1, stop=None, joined=True):
    """Train on samples that repeat, each batch observed some times. Left after some batches, it is gone on with."""
    options = {"sampler": Drawn(rank)}

    def begin():
        pruner = make_pruner()
        return pruner, wrap(DataLoader(Items(), BATCH, **options), pruner, with_ids=True)

    pruner, loader = begin()
    came, visits, batches = np.zeros(SAMPLES, int), [], 0
    while not visits or len(pruner.history) < 5:
        for epoch in pruner.epochs():
            for ids, _ in loader:
                for _ in range(times):
                    loader.observe(losses_of(ids, epoch.number), ids)
                    np.add.at(came, ids, 1)
                batches += 1
                if batches == stop:
                    break
            if batches == stop:
                break
        visits.append(pruner.visits.tolist())
        if batches == stop:
            batches += 1
            state = pruner.state_dict()
            states = everyones(state)
            pruner, loader = begin()
            pruner.load_state_dict(states if joined else state)
    observed = [record["observed"] for record in pruner.history]
    came = np.sum(everyones(came.tolist()), 0).tolist()
    return {"came": came, "visits": visits[-1], "observed": observed, "hits": pruner.hits.tolist()}


def shared_and_observed_twice(rank):
    pruner = make_pruner()
    sampler = DistributedSampler(Items(), num_replicas=WORLD, rank=rank)
    loader = wrap(DataLoader(Items(), BATCH, sampler=sampler), pruner, with_ids=True)
    for epoch in pruner.epochs():
        for ids, _ in loader:
            for _ in range(2):
                loader.observe(losses_of(ids, epoch.number), ids)


SCENARIOS = {
    "whole": run,
    "whole, dropped": partial(run, drop_last=True),
    "whole, Random": partial(run, policy=Random()),
    "forgets": partial(run, forget=(3, 3)),
    "one forgets": partial(run, forget=(0, 2)),
    "forgets, skipped": partial(run, forget=(3, 3), skipped=(48, 0)),
    "forgets, skipped too few": partial(run, forget=(3, 3), skipped=(40, 7)),
    "one leaves": partial(run, leave=(None, 2)),
    "one leaves, Random": partial(run, leave=(None, 2), policy=Random()),
    "left and run again": left_and_run_again,
    "both are given all": partial(run, shares=(range(SAMPLES), range(SAMPLES)), forget=(2, 0)),
    "a rank has nothing": partial(run, shares=(range(SAMPLES), ())),
    "accelerate": accelerated,
    "accelerate, forgets": partial(accelerated, forget=2),
    "accelerate, skipped": partial(accelerated, forget=2, skipped=12),
    "drawn": drawn,
    "observed three times": partial(drawn, times=3),
    "drawn, gone on with, own": partial(drawn, stop=5, joined=False),
    "drawn, gone on with, joined": partial(drawn, stop=5),
    "shared": shared_and_observed_twice,
    "saved at its end, own": partial(saved_at_its_end, joined=False),
    "saved at its end, joined": partial(saved_at_its_end, joined=True),
    "saved at its end, forgotten": partial(saved_at_its_end, joined=True, forget=(0, 2)),
}


def work(rank, folder):
    launched(rank)
    with group(rank, folder):
        return {name: told(lambda work=work: work(rank)) for name, work in SCENARIOS.items()}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return start(work, tmp_path_factory.mktemp("ranks"))


def of_both(ranks, name):
    """What both ranks found, which has to be the same."""
    assert ranks[0][name] == ranks[1][name]
    return ranks[0][name]


def test_what_no_rank_was_given_may_be_missing(ranks):
    first, second, *_ = of_both(ranks, "whole")
    assert first == 100
    assert 60 < second <= 73
    assert of_both(ranks, "whole, dropped")[0] == 56 + 40
    assert len(of_both(ranks, "whole, Random")) == 5
    assert of_both(ranks, "a rank has nothing")[0] == SAMPLES


@pytest.mark.parametrize(("name", "missed"), [("forgets", 48), ("one forgets", 16), ("forgets, skipped too few", 1)])
def test_what_a_rank_was_given_and_forgot_is_told_on_all(ranks, name, missed):
    message = of_both(ranks, name)
    assert message.startswith("SkippedSamples: Expected all ")
    of_them = f"{missed} of them were delivered, but their losses were not observed."
    assert f"Got {missed} that were not. {of_them}" in message


def test_what_a_rank_skips_may_be_missing(ranks):
    assert of_both(ranks, "forgets, skipped")[0] == 100 - 48


@pytest.mark.parametrize("name", ["one leaves", "one leaves, Random"])
def test_a_rank_that_leaves_early_is_told_on_all(ranks, name):
    assert "Got 27 that were not. The loader did not deliver 27 of them" in of_both(ranks, name)  # 3 may be given yet


def test_ranks_that_run_the_loop_again_go_on_together_though_one_has_no_more(ranks):
    """One that took the epoch for over would wait for the other, and the other for it."""
    assert of_both(ranks, "left and run again") == 100


def test_what_one_rank_forgot_another_may_have_seen(ranks):
    assert of_both(ranks, "both are given all")[0] == SAMPLES


def test_accelerate_deals_the_batches_of_a_users_sampler(ranks):
    assert of_both(ranks, "accelerate")[0] == 60
    assert "Got 12 that were not" in of_both(ranks, "accelerate, forgets")  # 4 of 16 pad the last batch of the other
    assert of_both(ranks, "accelerate, skipped")[0] == 48


def test_an_epoch_that_is_saved_at_its_end_ends_without_another_batch(ranks):
    for name in ("saved at its end, own", "saved at its end, joined"):
        found = of_both(ranks, name)
        assert (found["came"], found["observed"]) == (0, 100)
        assert np.all(np.array(found["visits"][:100]) <= 5)


def test_an_epoch_that_is_saved_with_forgotten_samples_is_not_over(ranks):
    assert "Got 16 that were not" in of_both(ranks, "saved at its end, forgotten")


REPEAT = ("drawn", "observed three times", "drawn, gone on with, own", "drawn, gone on with, joined")


@pytest.mark.parametrize("name", REPEAT)
def test_every_visit_counts_where_samples_repeat(ranks, name):
    found = of_both(ranks, name)
    assert found["visits"] == found["came"]
    assert sum(found["observed"]) == sum(found["came"])
    assert max(found["visits"]) > 10
    assert all(0 <= hits <= visits for hits, visits in zip(found["hits"], found["visits"], strict=True))
    assert sum(found["hits"]) > sum(found["visits"]) / 4


def test_batches_that_ranks_share_are_observed_once(ranks):
    for found in ranks:
        assert found["shared"].startswith(
            "LossError: Expected each sample of epoch 0 to be observed once, as the ranks"
        )
        assert "of several evaluations of a batch, as LBFGS makes them, observe one" in found["shared"]
