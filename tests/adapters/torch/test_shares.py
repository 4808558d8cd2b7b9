"""Shares of an epoch, of any number of ranks in one process: what each rank weighs, and what it records."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch import wrap
from prunedata.run.order import epoch_order
from tests.adapters.helpers.torch import Items, make_pruner

MODES = ("weights", "drop", "pad")


def share_of(rank, ranks, seen, *, batch, losses, **options):
    """One rank's pass over what remains: of each step the ids, what was returned, and its gradient by sample."""
    uneven, drop_last = options["uneven"], options["drop_last"]
    items = Items(seen.size)
    sampler = DistributedSampler(items, num_replicas=ranks, rank=rank)
    pruner = make_pruner(seen.size, prune=1)
    given = DataLoader(items, batch_size=batch, sampler=sampler, drop_last=drop_last)
    loader = wrap(given, pruner, with_ids=True, uneven=uneven)
    pruner.begin_epoch()
    pruner.observe(losses[seen].double().numpy(), np.flatnonzero(seen))
    pruner.begin_epoch()
    steps = []
    for ids, _ in loader:
        own = losses[ids].clone().requires_grad_()
        mean = loader.observe(own, ids)
        mean.backward()
        steps.append((ids.tolist(), mean.detach(), own.grad))
    pruner._engine.flush()
    return steps, pruner._engine.opened.tally.visits - seen, loader._order.delivery.left_out


@st.composite
def worlds(draw):
    """An epoch, of which some was observed before: by any number of ranks, which left off anywhere."""
    samples = draw(st.integers(2, 40))
    seen = np.array(draw(st.lists(st.booleans(), min_size=samples, max_size=samples)))
    if draw(st.booleans()):
        seen[:] = False
    options = {"uneven": draw(st.sampled_from(MODES)), "drop_last": draw(st.booleans())}
    return seen, draw(st.integers(2, 4)), draw(st.integers(1, 5)), options


def shares(seen, ranks, batch, options, losses):
    if options["drop_last"] and seen.size - 1 < batch * ranks:
        return None  # which is refused: an epoch would have no batch
    return [share_of(rank, ranks, seen, batch=batch, losses=losses, **options) for rank in range(ranks)]


@given(worlds())
def test_the_ranks_average_is_the_mean_of_the_global_batch_in_every_step(world):
    seen, ranks, batch, options = world
    losses = torch.from_numpy(np.random.default_rng(0).random(seen.size))
    found = shares(seen, ranks, batch, options, losses)
    assume(found is not None)
    order = np.concatenate(list(epoch_order(~seen, seed=5, epoch=0)))
    every = options["uneven"] == "weights"
    for number, step in enumerate(zip(*(steps for steps, *_ in found), strict=True)):
        means = torch.stack([mean for _, mean, _ in step])
        ids = order[number * batch * ranks : (number + 1) * batch * ranks]
        if every or len(ids) == batch * ranks:
            torch.testing.assert_close(means.mean(), losses[ids].mean(), rtol=1e-15, atol=1e-15)
            gradient = torch.zeros(seen.size, dtype=torch.float64)
            for own, _, slopes in step:
                gradient.index_add_(0, torch.tensor(own), slopes / ranks)
            torch.testing.assert_close(gradient[ids], torch.full((len(ids),), 1 / len(ids), dtype=torch.float64))
            assert gradient.count_nonzero() == len(ids)
        else:  # as many samples on each rank
            for own, mean, slopes in step:
                assert mean == losses[own].mean()
                assert slopes.tolist() == [1 / len(own)] * len(own)


@given(worlds())
def test_what_remains_is_recorded_once_but_for_what_is_left_out(world):
    """Also where what pads a share is in that share already, at one sample a batch."""
    seen, ranks, batch, options = world
    found = shares(seen, ranks, batch, options, torch.ones(seen.size, dtype=torch.float64))
    assume(found is not None)
    visits = sum(visits.astype(int) for _, visits, _ in found)
    assert visits[seen].tolist() == [0] * int(seen.sum())
    assert set(visits[~seen].tolist()) <= {0, 1}
    assert {left_out for *_, left_out in found} == {int((visits[~seen] == 0).sum())}
    if options["uneven"] != "drop" and not options["drop_last"]:
        assert visits[~seen].all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_tail_is_finite_in_every_dtype_whose_mean_is(dtype):
    """76 samples on 2 ranks: their sums are above 65,504, the largest float16. One rank of 3 has a sample alone."""
    for ranks, batch, samples, size in ((2, 64, 76, 2104.0), (3, 8, 25, 40_000.0)):
        losses = torch.full((samples,), size, dtype=dtype)
        losses[: samples // 3] /= 2
        found = shares(np.zeros(samples, bool), ranks, batch, {"uneven": "weights", "drop_last": False}, losses)
        exact = losses.double()
        rounding = 4 * torch.finfo(dtype).eps
        for step in zip(*(steps for steps, *_ in found), strict=True):
            ids = [number for own, _, slopes in step for number in np.array(own)[slopes.double().numpy() != 0]]
            mean = sum(float(mean) for _, mean, _ in step) / ranks
            assert mean == pytest.approx(float(exact[ids].mean()), rel=rounding)
            for _, _, slopes in step:
                used = slopes[slopes != 0]
                assert (used.double() * len(ids) / ranks).tolist() == pytest.approx([1] * len(used), rel=rounding)
