"""From the loss tensor of the user's loop to the counts, and back as a mean to call backward() on."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.losses import DeviceBuffer, Recorder
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import LossError
from prunedata.policies import Random
from tests.adapters.helpers.torch import Items, make_pruner

CPU = torch.device("cpu")


@pytest.fixture
def opened():
    """A pruner in its first epoch, its loader, and the ids of the batch that was delivered first."""
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), batch_size=8, shuffle=True), pruner)
    pruner.begin_epoch()
    batches = iter(loader)
    return pruner, loader, next(batches)[1], batches


class TestTheMean:
    def test_carries_the_gradient_and_leaves_the_losses_alone(self, opened):
        _, loader, index, _ = opened
        weights = torch.linspace(0.5, 2.0, len(index), requires_grad=True)
        losses = weights * 3
        before, version = losses.detach().clone(), losses._version
        mean = loader.observe(losses)
        assert mean.shape == ()
        assert torch.equal(mean, losses.mean())
        mean.backward()
        assert torch.allclose(weights.grad, torch.full_like(weights, 3 / len(index)))
        assert torch.equal(losses, before)
        assert losses._version == version
        assert losses.requires_grad

    def test_is_that_of_the_dtype(self, opened):
        _, loader, index, _ = opened
        assert loader.observe(torch.rand(len(index), dtype=torch.float16)).dtype == torch.float16


def test_losses_are_copied():
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), batch_size=8, shuffle=True), pruner)
    pruner.begin_epoch()
    for _, index in loader:
        losses = torch.arange(len(index)).float()
        loader.observe(losses)
        losses.fill_(torch.nan)
    assert (pruner.counts > 0).sum() == 12 * 4 + 3  # the upper half of 12 batches of 8, and of one of 7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_dtype_is_recorded_as_it_is(dtype):
    pruner, told = make_pruner(), make_pruner()
    loader = wrap(DataLoader(Items(), batch_size=8, shuffle=True), pruner)
    pruner.begin_epoch()
    told.begin_epoch()
    random = torch.Generator().manual_seed(1)
    for _, index in loader:
        # As close together as the dtype can tell apart: one of fewer digits would find no hits.
        spread = torch.rand(len(index), generator=random, dtype=torch.float64) * 64 * torch.finfo(dtype).eps
        losses = (1 + spread).to(dtype).requires_grad_()
        loader.observe(losses)
        told.observe(losses.detach().double().numpy(), index.numpy())
    assert np.array_equal(pruner.counts, told.counts)
    assert pruner.counts.sum() > 30


@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (lambda n: torch.rand(n, 1), r"losses.squeeze\(1\)\)\. Got shape \(8, 1\)"),
        (lambda n: torch.rand(n).mean(), r"reduction='none'\)\. Got shape \(\)"),
        (lambda n: torch.rand(n - 1), r"one loss for each id\. Got 8 ids and 7 losses"),
        (np.zeros, "Expected losses as a Tensor.* Got ndarray"),
        (lambda n: 0.5, "Expected losses as a Tensor.* Got float"),
    ],
    ids=["column", "scalar", "length", "array", "float"],
)
def test_what_is_not_one_loss_a_sample_is_refused(opened, losses, message, later):
    pruner, loader, index, batches = opened
    for _ in range(later):
        loader.observe(torch.zeros(len(index)))
        index = next(batches)[1]
    with pytest.raises(LossError, match=message):
        loader.observe(losses(len(index)))
    assert not pruner.counts.any()


@pytest.mark.parametrize(
    ("shape", "hint"), [((), "reduction='none'"), ((8, 1), "losses.squeeze(1)"), ((8, 3), "the mean"), ((7,), "red")]
)
def test_a_device_refuses_alike(shape, hint):
    """Of a tensor elsewhere only the shape can be looked at without waiting for it."""
    losses = torch.empty(shape, device="meta")
    with pytest.raises(LossError, match=r"shape \(8,\), one for each sample \(.*\)\. Got \(") as caught:
        Recorder(make_pruner()).add(np.arange(8), losses)
    assert f"({hint}" in str(caught.value)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_loss_of_a_sample_without_a_batch_lacks_a_dimension(device):
    """With ``batch_size=None`` it is one number, with ``reduction="none"`` too."""
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), batch_size=None), pruner)
    pruner.begin_epoch()
    for _ in loader:
        with pytest.raises(LossError, match=r"\(losses.reshape\(1\), as the batch is one sample\)\. Got"):
            loader.observe(torch.zeros((), device=device))
        break


def sum_of(pruner):
    return pruner.state_dict()["state"]["meter"]["loss_sum"]


def block_of(pruner, capacity):
    """Hold losses back in a buffer, as if they were on a device."""
    run = pruner.attach(TorchRun(pruner))
    run.recorder.buffers_all, run.recorder.capacity = True, capacity
    return run.recorder.add


class TestDeviceBuffer:
    """On CPU tensors, where it has nothing to do but must come to the same as without it."""

    @given(
        capacity=st.integers(1, 40),
        sizes=st.lists(st.integers(1, 60), min_size=1, max_size=30),
        looks=st.sets(st.integers(0, 29), max_size=4),
        seed=st.integers(0, 1000),
        said=st.booleans(),
    )
    def test_comes_to_the_same_wherever_blocks_are_cut(self, capacity, sizes, looks, seed, said):
        pruner, told = make_pruner(policy=Random()), make_pruner(policy=Random())
        hold = block_of(pruner, capacity)
        random = np.random.default_rng(seed)
        for each in (pruner, told):
            each.begin_epoch()
        for number, size in enumerate(sizes):
            ids = random.integers(0, pruner.samples, size)
            # So far apart that their sum tells in which order the batches came.
            losses = torch.from_numpy(np.exp2(60 * random.random(size)).astype(np.float32))
            logits = torch.rand(size, 5) if said and random.random() < 0.9 else None
            told.observe(losses.numpy(), ids, logits=logits)
            hold(ids, losses, logits)
            losses.fill_(torch.nan)
            ids.fill(0)  # a buffer of the caller's own
            if number in looks:  # in the middle of a buffer
                assert pruner.state_dict()["arrays"] == told.state_dict()["arrays"]
                assert pruner.state_dict()["state"]["observed"] == told.state_dict()["state"]["observed"]
        assert sum_of(pruner) == sum_of(told)
        assert np.array_equal(pruner.counts, told.counts)
        assert pruner.state_dict()["arrays"] == told.state_dict()["arrays"]

    def test_holds_losses_back(self):
        """Else the test above would compare nothing."""
        buffer, losses, blocks = DeviceBuffer(CPU, 10), torch.rand(20), [(0, 8), (8, 16), (16, 20)]

        def batches(came):
            return [(ids.tolist(), part.tolist(), sizes.tolist()) for ids, part, sizes in came]

        expected = [(list(range(*at)), losses[slice(*at)].tolist(), [4] * ((at[1] - at[0]) // 4)) for at in blocks]
        for first in range(0, 16, 4):  # two blocks of two batches: one on its way, one filling
            assert buffer.add(np.arange(first, first + 4), losses[first : first + 4]) == []
        assert batches(buffer.add(np.arange(16, 20), losses[16:])) == expected[:1]
        assert batches(buffer.held_back()) == expected[1:]
        assert buffer.held_back() == []

    def test_forgets_what_it_holds_when_another_state_is_loaded(self):
        pruner = make_pruner()
        pruner.begin_epoch()
        pruner.observe(np.arange(8.0), np.arange(8))
        state = pruner.state_dict()
        hold = block_of(pruner, 100)
        hold(np.arange(8, 16), torch.full((8,), torch.nan))
        pruner.load_state_dict(state)
        pruner.begin_epoch()
        assert np.flatnonzero(pruner.counts).tolist() == [4, 5, 6, 7]
        assert pruner.current.remaining.sum() == pruner.samples - 8


class TestOnADevice:
    SAMPLES = 300_000

    def run(self, device, dtype=torch.float32, mode="default"):
        schedule = Schedule(3, window=3, start=1, block=2, pruned_per_block=1)
        pruner = Pruner(self.SAMPLES, schedule, prune=0.25, seed=1)
        loader = wrap(DataLoader(range(self.SAMPLES), batch_size=1000, shuffle=True), pruner)
        table = torch.rand(self.SAMPLES, generator=torch.Generator().manual_seed(2)).to(dtype).to(device)
        said = torch.rand(self.SAMPLES, 5, generator=torch.Generator().manual_seed(3)).to(dtype).to(device)
        for _ in pruner.epochs():
            for index in loader:
                where = index.pin_memory().to(device, non_blocking=True) if device == "cuda" else index
                logits = said[where] if pruner.next_epoch else None  # from the second epoch on
                if device == "cuda":
                    torch.cuda.set_sync_debug_mode(mode)  # the loop's own part may not wait either
                loader.observe(table[where].requires_grad_(), logits=logits).backward()
                if device == "cuda":
                    torch.cuda.set_sync_debug_mode("default")
        return pruner

    @pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_no_batch_makes_the_host_wait_and_nothing_is_lost(self, dtype, device, monkeypatch):
        """Four blocks and more an epoch, so that blocks are sent and landed within the loop; on a CPU, too."""
        on_cpu = self.run("cpu", dtype)
        monkeypatch.setattr(Recorder, "buffers_all", True)
        there = self.run(device, dtype, mode="error")
        assert np.array_equal(there.counts, on_cpu.counts)
        assert np.array_equal(there.visits, on_cpu.visits)
        assert np.array_equal(there.arrays["guess"], on_cpu.arrays["guess"])

    @pytest.mark.cuda
    def test_the_mode_would_tell(self):
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError, match="synchroniz"):
                torch.ones(1, device="cuda").item()
        finally:
            torch.cuda.set_sync_debug_mode("default")
