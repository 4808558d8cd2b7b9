"""What trainers do with a loader that owns no loop: iterators that are never used, lengths before the run, copies."""

import pytest
import torch
from torch.utils.data import DistributedSampler, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters import iterable
from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import PrunedataError
from tests.adapters.helpers.torch import BATCH, SAMPLES, Items, flat, loader_of, losses_of, make_pruner, train
from tests.common.marks import WORKERS


class Counted(Items):
    read = 0

    def __getitem__(self, index):
        Counted.read += 1
        return super().__getitem__(index)


def test_an_iterator_that_is_never_used_costs_nothing():
    pruner, Counted.read = make_pruner(), 0
    loader = wrap(loader_of(Counted()), pruner)

    def with_strays(loader):
        iter(loader)
        used = iter(loader)
        iter(loader)
        return used

    epochs = train(loader, pruner, batches=with_strays)
    assert [len(flat(epoch)) for epoch in epochs] == [103, 73, 103, 73, 103]
    assert Counted.read == sum(len(flat(epoch)) for epoch in epochs)


@WORKERS
def test_a_position_waits_for_the_iterator_that_is_used(workers):
    def build():
        pruner = make_pruner()
        return pruner, wrap(loader_of(kind=StatefulDataLoader, num_workers=workers), pruner)

    pruner, loader = build()
    whole, states = [], None
    pruner.begin_epoch()
    for number, (_, index) in enumerate(loader):
        whole.append(index.tolist())
        loader.observe(losses_of(index, 0))
        if number == 4:
            states = pruner.state_dict(), loader.state_dict()
    pruner, loader = build()
    pruner.load_state_dict(states[0])
    loader.load_state_dict(states[1])
    pruner.begin_epoch()
    iter(loader)
    assert [index.tolist() for _, index in loader] == whole[5:]


@pytest.mark.parametrize(
    "options",
    [{}, {"drop_last": True}, {"sampler": RandomSampler(range(50)), "shuffle": False}],
    ids=["plain", "drop_last", "sampler"],
)
def test_lengths_are_known_before_the_run(options):
    pruner = make_pruner()
    loader = wrap(loader_of(**options), pruner)
    lengths = loader.lengths()
    found = []
    for _ in pruner.epochs():
        found.append(0)
        for _, index in loader:
            found[-1] += 1
            loader.observe(losses_of(index, 0))
    if "sampler" in options:  # which of its 50 samples are pruned is not known before
        assert all(real <= told for real, told in zip(found, lengths, strict=True))
    else:
        assert lengths == found


def test_a_stream_has_no_lengths():
    pruner = make_pruner()
    stream = iterable.wrap([{"uid": number} for number in range(SAMPLES)], pruner, id="uid")
    with pytest.raises(TypeError, match="has no length"):
        wrap(torch.utils.data.DataLoader(stream, batch_size=BATCH), pruner).lengths()


def test_a_copy_by_its_class_is_refused():
    loader = wrap(loader_of(), make_pruner())
    with pytest.raises(PrunedataError, match="build it anew"):
        type(loader)(loader.dataset, batch_size=BATCH, sampler=loader.sampler)


def test_a_trainer_may_deal_our_own_order():
    """All ranks' shares, one after another: each has as many batches, and together they have what is kept."""
    shares = []
    for rank in range(2):
        pruner = make_pruner()
        loader = wrap(loader_of(), pruner)
        assert not isinstance(loader.sampler, DistributedSampler)
        pruner.attach(TorchRun(pruner)).place = (rank, 2)
        assert isinstance(loader.sampler, DistributedSampler)
        assert len(loader.sampler) == 52
        assert len(loader) == 7
        assert loader.lengths() == [7, 5, 7, 5, 7]
        pruner.begin_epoch()
        shares.append([index.tolist() for _, index in loader])
        assert list(loader.sampler) == flat(shares[-1])
    assert [len(batch) for batch in shares[0]] == [len(batch) for batch in shares[1]]
    assert sorted({*flat(shares[0]), *flat(shares[1])}) == list(range(SAMPLES))
