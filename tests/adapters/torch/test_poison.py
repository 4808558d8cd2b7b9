"""What must not be learnt moves no weight: in loops over a loader, alone and on ranks."""

from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.iterable import wrap as prune_stream
from prunedata.adapters.torch import wrap
from tests.adapters.helpers.ranks import WORLD, everyones, group, launched, sampler_of, start, told
from tests.adapters.helpers.torch import SAMPLES, Items
from tests.adapters.torch.poison import KINDS, MODES, Learner, Prepared, run_of, sorting, train

# What must not be learnt is not: its labels and inputs are changed, and no weight moves, in any bit.


OPTIONS = {
    "accumulated": {"accumulate": 3},
    "drop_last": {"drop_last": True},
    "batches of one": {"size": 1},
    "one large batch": {"size": 64},
    "resumed within an epoch": {"stop": 5},
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_must_not_be_learnt_moves_no_weight(kind):
    check("own loop", kind, {})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [{}, {"stop": 17, "accumulate": 2}], ids=["whole", "resumed in a pruned epoch"])
def test_nor_does_it_through_any_loader(mode, options):
    check(mode, "all of it", options)


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # batches of one
@pytest.mark.parametrize("options", OPTIONS)
def test_nor_does_it_however_it_is_trained(options):
    check("own loop", "all of it", OPTIONS[options])


@settings(max_examples=24, deadline=None, suppress_health_check=list(HealthCheck))
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


# What must not be learnt, on two real processes: no weight moves, and the gradient is that of the global batch.


SIZE = 6


class Share(Sampler):
    """A rank's own samples, in an order of its own; one rank has one more than the other."""

    def __init__(self, rank):
        self.own = range(SAMPLES - 1 - rank, -1, -WORLD)

    def __len__(self):
        return len(self.own)

    def __iter__(self):
        return iter(self.own)


def dealt(run, rank, kind=DataLoader, uneven=None, id_key=None, **options):
    return wrap(kind(Items(), SIZE, sampler=sampler_of(rank, WORLD), **options), run, uneven=uneven, id_key=id_key)


def shared_stream(run, size=SIZE):
    raw = [{"n": number} for number in range(SAMPLES)]
    return DataLoader(prune_stream(raw, run, id="n", then=lambda one: (0, one["n"])), size)


RANK_MODES = {
    "own loop": dealt,
    "stateful": partial(dealt, kind=StatefulDataLoader),
    "drop": partial(dealt, uneven="drop"),
    "pad": partial(dealt, uneven="pad"),
    "id_key": partial(dealt, uneven="drop", id_key="id", collate_fn=sorting),
    "own sampler": lambda run, rank: wrap(DataLoader(Items(), SIZE, sampler=Share(rank)), run),
    "batch sampler": lambda run, rank: wrap(
        DataLoader(Items(), batch_sampler=[list(Share(rank))[at : at + SIZE] for at in range(0, 52, SIZE)]), run
    ),
    "stream": lambda run, rank: wrap(shared_stream(run), run),
    "accelerate": lambda run, rank: Prepared(wrap(DataLoader(Items(), SIZE, shuffle=True), run, with_ids=True)),
    "accelerate, split": lambda run, rank: Prepared(
        wrap(DataLoader(Items(), WORLD * SIZE, shuffle=True), run, with_ids=True), split_batches=True
    ),
    "accelerate, a stream": lambda run, rank: Prepared(wrap(shared_stream(run), run, with_ids=True)),
}
REPEATING = ("pad", "accelerate", "accelerate, split", "accelerate, a stream")
"""What these repeat at the end of an epoch is in the mean as often as it comes."""
OWN = ("own sampler", "batch sampler")
"""Of these each rank has batches of its own, and as many as the other only if none are left out of them."""


def train_rank(mode, kind, rank, *, poisoned, accumulate=1):
    learner, run = Learner(poisoned=poisoned), run_of(kind)
    learner.forward = DistributedDataParallel(learner.model)
    loader, worst = RANK_MODES[mode](run, rank), 0.0
    for epoch in run.epochs():
        came, expected = set(), None
        for number, (_, index) in enumerate(loader, 1):
            new = [one for ids in everyones(index.tolist()) for one in ids]
            if mode not in REPEATING:
                new = [one for one in dict.fromkeys(new) if one not in came]
            came |= set(new)
            new = torch.tensor(new)
            forward, learner.forward = learner.forward, learner.model
            plain = learner.plain(epoch, new, learner.losses(epoch, new))
            learner.forward = forward
            expected = plain if expected is None else [a + b for a, b in zip(expected, plain, strict=True)]
            (loader.observe(learner.losses(epoch, index)) / accumulate).backward()
            if epoch.zero_weights:
                got = [each.grad * accumulate for each in learner.model.parameters()]
                worst = max(worst, *[float((a - b).abs().max()) for a, b in zip(got, expected, strict=True)])
            if number % accumulate == 0:
                learner.step()
                expected = None
        learner.optimizer.zero_grad()
    return {
        "weights": learner.weights().tolist(),
        "error": worst,
        "observed": [record["observed"] for record in run.history],
        "kept": [record["kept"] for record in run.history],
    }


def work(rank, folder, cases):
    launched(rank)
    with group(rank, folder):
        return [
            [train_rank(mode, kind, rank, poisoned=poisoned, **options) for poisoned in (False, True)]
            for mode, kind, options in cases
        ]


def check_ranks(folder, cases):
    first, other = start(partial(work, cases=cases), folder)
    for case, of_first, of_other in zip(cases, first, other, strict=True):
        (clean, poisoned), (there, _) = of_first, of_other
        assert clean["weights"] == poisoned["weights"] == there["weights"], case
        assert max(clean["error"], there["error"]) < 1e-12, case
        assert clean["observed"] == poisoned["observed"] == there["observed"], case
    return first


def test_what_must_not_be_learnt_moves_no_weight_on_any_rank(tmp_path):
    cases = [(mode, "all of it", {}) for mode in RANK_MODES]
    for case, (found, _) in zip(cases, check_ranks(tmp_path, cases), strict=True):
        assert len(set(found["observed"])) > 1, case  # some epochs leave out by weight


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["held out", "by weight", "held out, for good", "weighed, held out", "easy, by weight"]
)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_nor_however_it_is_left_out(tmp_path, kind, accumulate):
    modes = [mode for mode in RANK_MODES if "leave_out" in KINDS[kind] or mode not in OWN]
    check_ranks(tmp_path, [(mode, kind, {"accumulate": accumulate}) for mode in modes])


def repeated(rank, folder):
    launched(rank)
    with group(rank, folder):
        return [train_rank(mode, "weighed", rank, poisoned=False) for mode in REPEATING]


def test_what_is_repeated_at_the_end_counts_once(tmp_path):
    for ranks in start(repeated, tmp_path):
        for found in ranks:
            assert found["observed"] == found["kept"] == [103, 73, 103, 73, 103]


def run_out(rank, folder):
    """Each rank has one sample a batch, and the first has one batch more."""
    with group(rank, folder):
        run = run_of("held out")
        loader, came = wrap(DataLoader(Items(), 1, sampler=Share(rank)), run), 0
        learner = Learner(poisoned=False)

        def train():
            nonlocal came
            for epoch in run.epochs():
                for _, index in loader:
                    came += len(index)
                    loader.observe(learner.losses(epoch, index)).backward()

        said = told(train)
    return [came, said]


def test_a_rank_that_has_no_batch_left_is_an_error_on_all_and_no_hang(tmp_path):
    (first, said), (other, also_said) = start(run_out, tmp_path)
    assert first == other == SAMPLES // WORLD
    assert said == also_said
    assert "rank 1" in said
