"""Whose order an epoch has, what is left out of it, and its length."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.torch import (
    BATCH,
    SAMPLES,
    Items,
    by_the_core,
    flat,
    losses_of,
    make_pruner,
    pass_over,
    train,
)
from tests.adapters.lightning.helpers import QUIET, Net, data, kept_by, trainer_of
from tests.common.programs import WORKERS

KEPT, ORDERS = by_the_core(make_pruner())


class Backwards(Sampler):
    """A user's own: every sample, the last first."""

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        return iter(range(SAMPLES - 1, -1, -1))


class Buckets(Sampler):
    """A user's own batch sampler: neighbours together, in batches of uneven sizes."""

    sizes = (1, 2, 3, 40, 5, 6, 46)

    def __len__(self):
        return len(self.sizes)

    def __iter__(self):
        ends = np.cumsum(self.sizes)
        return (list(range(end - size, end)) for size, end in zip(self.sizes, ends.tolist(), strict=True))


class Repeated(Sampler):
    """As timm's RepeatAugSampler: three copies of each sample follow one another, cut to the length of the dataset."""

    def __init__(self, samples=SAMPLES):
        self.samples, self.random = samples, np.random.default_rng(0)

    def __len__(self):
        return self.samples

    def __iter__(self):
        return iter(np.repeat(self.random.permutation(SAMPLES), 3)[: self.samples].tolist())


def run(options, *, pruner=None, dataset=None):
    pruner = make_pruner() if pruner is None else pruner
    return train(wrap(DataLoader(dataset or Items(), **options), pruner), pruner)


@WORKERS
class TestAUsersOwn:
    def test_sampler_keeps_its_order(self, workers):
        seen = run({"sampler": Backwards(), "batch_size": BATCH, "num_workers": workers})
        for batches in seen:
            assert flat(batches) == sorted(flat(batches), reverse=True)
            assert {len(batch) for batch in batches[:-1]} == {BATCH}
        assert [len(flat(batches)) for batches in seen] == [len(kept) for kept in KEPT]

    def test_batch_sampler_keeps_its_batches_and_drops_empty_ones(self, workers):
        pruner = make_pruner(prune=0.6)
        loader = wrap(DataLoader(Items(), batch_sampler=Buckets(), num_workers=workers), pruner)
        kept = []
        for epoch in pruner.epochs():
            assert len(loader) == len(Buckets.sizes)
            batches = []
            for _, index in loader:
                batches.append(index.tolist())
                loader.observe(losses_of(index, epoch.number))
            filtered = [[index for index in batch if epoch.keep[index]] for batch in Buckets()]
            assert batches == [batch for batch in filtered if batch]
            kept.append(len(batches))
        assert kept[0] == len(Buckets.sizes) > min(kept)  # some were empty

    def test_sampler_may_give_a_part(self, workers):
        pruner = make_pruner()
        part = list(range(0, SAMPLES, 2))
        seen = run({"sampler": SubsetRandomSampler(part), "batch_size": BATCH, "num_workers": workers}, pruner=pruner)
        assert sorted(flat(seen[0])) == part
        assert set(flat(seen[1])) < set(part)
        assert len(flat(seen[1])) == len(set(flat(seen[1])))

    @pytest.mark.parametrize(
        "sampler",
        [
            WeightedRandomSampler(torch.arange(1, SAMPLES + 1).double(), 300, replacement=True),
            RandomSampler(Items(), replacement=True),
        ],
        ids=["weighted", "PyTorch's random one"],
    )
    def test_sampler_may_repeat(self, sampler, workers):
        pruner = make_pruner()
        seen = run({"sampler": sampler, "batch_size": BATCH, "num_workers": workers}, pruner=pruner)
        assert len(flat(seen[0])) == len(sampler) == pruner.history[0]["observed"]
        assert len(set(flat(seen[0]))) < len(sampler)
        assert 0 < len(flat(seen[1])) < len(sampler)

    @pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # batches of one
    def test_sampler_without_batches(self, workers):
        seen = run({"sampler": Backwards(), "batch_size": None, "num_workers": workers})
        assert flat(seen[0]) == list(Backwards())
        assert {len(batch) for batch in flat_once(seen)} == {1}


def flat_once(epochs):
    return [batch for batches in epochs for batch in batches]


class ListItems(Items):
    def __getitem__(self, index):
        indices = index if isinstance(index, list) else [index]
        return torch.zeros(len(indices)), torch.tensor(indices)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_sampler": BatchSampler(RandomSampler(Items()), BATCH, drop_last=False)},
        {"batch_size": BATCH, "shuffle": True, "generator": torch.Generator().manual_seed(3)},
        {"batch_size": BATCH, "sampler": RandomSampler(range(SAMPLES))},
        {"batch_size": BATCH, "sampler": DistributedSampler(Items(), num_replicas=1, rank=0)},
    ],
    ids=["batch sampler", "generator", "sampler", "distributed"],
)
def test_pytorchs_random_order_becomes_ours(options):
    assert run(options) == ORDERS


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")
@WORKERS
def test_without_batches(workers):
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), batch_size=None, shuffle=True, num_workers=workers), pruner)
    seen = train(loader, pruner)
    assert len(loader) == len(KEPT[-1])
    assert seen[0] == [[index] for index in flat(ORDERS[0])]
    assert [len(batches) for batches in seen] == [len(kept) for kept in KEPT]


def test_a_batch_sampler_in_the_place_of_the_sampler():
    sampler = BatchSampler(SequentialSampler(range(SAMPLES)), BATCH, drop_last=False)
    seen = run({"sampler": sampler, "batch_size": None}, dataset=ListItems())
    assert [flat(batches) for batches in seen[:1]] == KEPT[:1]
    assert seen[0][0] == list(range(BATCH))
    assert any(len(batch) < BATCH for batch in seen[1][:-1])


class TestDropLast:
    @pytest.mark.parametrize("policy", [{}, {"policy": Random()}], ids=["DroppingCount", "Random"])
    @pytest.mark.parametrize(
        "options",
        [
            {"batch_size": BATCH, "shuffle": True, "drop_last": True},
            {"batch_size": BATCH, "sampler": Backwards(), "drop_last": True},
            {"batch_sampler": BatchSampler(RandomSampler(Items()), BATCH, drop_last=True)},
        ],
        ids=["ours", "a user's", "batch sampler"],
    )
    def test_is_skipped(self, options, policy):
        seen = run({**options, "num_workers": 0 if policy else 2}, pruner=make_pruner(**policy))
        assert [len(batches) for batches in seen] == [len(kept) // BATCH for kept in KEPT]
        assert {len(batch) for batch in flat_once(seen)} == {BATCH}

    @pytest.mark.parametrize("sampler", [{"shuffle": True}, {"sampler": Backwards()}], ids=["ours", "a user's"])
    def test_skips_no_more_than_the_last(self, sampler):
        pruner = make_pruner()
        loader = wrap(DataLoader(Items(), batch_size=BATCH, drop_last=True, **sampler), pruner)
        pruner.begin_epoch()
        for number, (_, index) in enumerate(loader):
            if number < 11:
                loader.observe(losses_of(index, 0))
        with pytest.raises(
            SkippedSamples, match=r"all 96 kept samples .* Got 8 that were not\. 8 of them were delivered"
        ):
            pruner.end_epoch()

    @pytest.mark.parametrize("sampler", [{"shuffle": True}, {"sampler": Backwards()}], ids=["ours", "a user's"])
    def test_that_drops_all_of_an_epoch_is_told_when_the_loader_is_wrapped(self, sampler):
        options = {"batch_size": 74, "drop_last": True, **sampler}
        with pytest.raises(PrunedataError, match=r"at least one batch of 74 .*Got 73 samples in epoch 1, which would"):
            wrap(DataLoader(Items(), **options), make_pruner())
        run({**options, "batch_size": 73})

    def test_that_drops_all_of_a_ranks_share_is_told(self):
        sampler = DistributedSampler(Items(), num_replicas=2, rank=0)
        with pytest.raises(PrunedataError, match=r"Got 73 samples, 36 for each of 2 ranks, in epoch 1"):
            wrap(DataLoader(Items(), batch_size=40, sampler=sampler, drop_last=True), make_pruner())

    def test_that_drops_all_is_told_at_the_epoch_if_no_sooner(self):
        """A schedule may be changed on the way; with policy="auto" it is made on the way."""
        pruner = make_pruner()
        pruner.kept_in = lambda epoch: SAMPLES  # as it seems before
        loader = wrap(DataLoader(Items(), batch_size=74, shuffle=True, drop_last=True), pruner)
        with pytest.raises(PrunedataError, match=r"Got 73 samples in epoch 1, which would"):
            train(loader, pruner)

    def test_may_belong_to_a_sampler_that_repeats(self):
        weighted = WeightedRandomSampler(torch.ones(SAMPLES), 300, replacement=True)
        run({"sampler": weighted, "batch_size": 80, "drop_last": True})


class TestEndOfAUsersOwn:
    def test_a_loop_that_counts_batches_never_asks_for_another(self):
        pruner = make_pruner()
        part = SubsetRandomSampler(range(48))
        loader = wrap(DataLoader(Items(), batch_size=BATCH, sampler=part), pruner)
        pruner.begin_epoch()
        batches = iter(loader)
        for _ in range(6):
            loader.observe(losses_of(next(batches)[1], 0))
        pruner.end_epoch()
        assert pruner.history[0]["observed"] == 48

    @WORKERS
    def test_a_loop_left_early(self, workers):
        pruner = make_pruner()
        loader = wrap(DataLoader(Items(), batch_size=50, sampler=Backwards(), num_workers=workers), pruner)
        pruner.begin_epoch()
        loader.observe(losses_of(next(iter(loader))[1], 0))
        with pytest.raises(SkippedSamples, match="did not deliver 53 of them"):
            pruner.end_epoch()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": [slice(0, 9)], "batch_size": None}, "Expected the sampler to yield ids from 0 to 102. Got .slice"),
        ({"sampler": ["a", "b"]}, "Expected the sampler to yield ids from 0 to 102. Got ..a"),
        ({"sampler": [0.0, 1.0]}, "Expected the sampler to yield ids"),
        ({"sampler": [0, 103]}, r"ids from 0 to 102\. Got \[0, 103\]"),
        ({"sampler": [0, -1]}, r"ids from 0 to 102\. Got \[0, -1\]"),
        ({"batch_sampler": [0, 1]}, "Expected the batch sampler to yield lists of ids"),
        ({"batch_sampler": [[0, 1], [2.5]]}, "Expected the batch sampler to yield lists of ids"),
    ],
)
def test_what_is_no_id(options, message):
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), **({"batch_size": 4, **options} if "sampler" in options else options)), pruner)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=message):
        list(loader)


class TestLength:
    LENGTHS = tuple(-(-len(kept) // BATCH) for kept in KEPT)

    @WORKERS
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_is_right_before_each_epoch_and_within(self, workers, drop_last):
        pruner = make_pruner()
        loader = wrap(
            DataLoader(Items(), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=drop_last), pruner
        )
        assert loader.lengths() == [length - drop_last for length in self.LENGTHS]
        for length in self.LENGTHS:
            lengths = [len(loader)]
            epoch, delivered = pruner.begin_epoch(), 0
            for _, index in loader:
                lengths.append(len(loader))
                loader.observe(losses_of(index, epoch.number))
                delivered += 1
            lengths.append(len(loader))
            pruner.end_epoch()
            assert {*lengths, delivered} == {length - drop_last}

    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize(
        "sampler",
        [
            RandomSampler(Items(), num_samples=60, replacement=True),
            WeightedRandomSampler(torch.ones(SAMPLES), 300, replacement=True),
            Repeated(90),
            Repeated(SAMPLES),
        ],
        ids=["random", "weighted", "fewer than there are", "as many as there are"],
    )
    def test_of_a_sampler_that_repeats_is_at_most(self, sampler, drop_last):
        pruner = make_pruner()
        loader = wrap(DataLoader(Items(), batch_size=4, sampler=sampler, drop_last=drop_last), pruner)
        most = len(sampler) // 4 if drop_last else -(-len(sampler) // 4)
        assert loader.lengths() == [most] * 5
        for epoch in pruner.epochs():
            assert len(loader) == most
            came = pass_over(loader, epoch.number)
            assert came <= most
            assert epoch.pruned or came == most

    @pytest.mark.parametrize("sampler", [Backwards(), Repeated()], ids=["once", "repeats"])
    def test_of_a_users_own_is_known_better_after_the_first_epoch(self, sampler):
        pruner = make_pruner()
        loader = wrap(DataLoader(Items(), batch_size=BATCH, sampler=sampler), pruner)
        assert loader.lengths() == [13] * 5
        for epoch in pruner.epochs():
            pass_over(loader, epoch.number)
            lengths = list(self.LENGTHS) if isinstance(sampler, Backwards) else [13] * 5
            assert loader.lengths() == lengths
            assert len(loader) == lengths[epoch.number]

    @pytest.mark.parametrize(
        ("sampler", "once"),
        [
            (range(SAMPLES), True),
            ([*range(SAMPLES - 2), 0, 0], False),
            (SubsetRandomSampler(range(SAMPLES)), True),
            (SubsetRandomSampler([*range(SAMPLES - 2), 0, 0]), False),
            (DistributedSampler(range(90), num_replicas=1, rank=0), True),
            (RandomSampler(range(80), num_samples=100), False),
        ],
        ids=["range", "list", "subset", "subset that repeats", "distributed", "more than there are"],
    )
    def test_of_what_is_known_beforehand_to_give_each_sample_once(self, sampler, once):
        loader = wrap(DataLoader(Items(), batch_size=BATCH, sampler=sampler), make_pruner())
        assert loader.lengths()[1] == -(-(73 if once else len(sampler)) // BATCH)


class Seeded(Sampler):
    """Another order in each epoch that it is told."""

    def __init__(self, samples=SAMPLES):
        self.samples, self.epoch, self.told = samples, 0, []

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.told.append(epoch)

    def order(self):
        return np.random.default_rng(self.epoch).permutation(self.samples).tolist()

    def __len__(self):
        return self.samples

    def __iter__(self):
        return iter(self.order())


class SeededBatches(Seeded):
    """The same, as a batch sampler."""

    batch_size, drop_last = BATCH, False

    def __len__(self):
        return (self.samples + BATCH - 1) // BATCH

    def __iter__(self):
        order = self.order()
        return (order[first : first + BATCH] for first in range(0, self.samples, BATCH))


class Around(SeededBatches):
    """A batch sampler that knows nothing of epochs, but has a sampler that does."""

    set_epoch = property()  # hasattr says no

    def __init__(self, sampler):
        self.sampler, self.samples = sampler, sampler.samples

    def order(self):
        return self.sampler.order()


def options_of(kind, samples=SAMPLES):
    """The loader's options, and the object that is to be told."""
    source = Seeded(samples) if kind in ("sampler", "around") else SeededBatches(samples)
    if kind == "sampler":
        return {"sampler": source, "batch_size": BATCH}, source
    if kind == "no batches":
        return {"sampler": source, "batch_size": None}, source
    return {"batch_sampler": Around(source) if kind == "around" else source}, source


def kept_of(source, epoch, keep):
    return [index for index in np.random.default_rng(epoch).permutation(source.samples).tolist() if keep[index]]


@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "around"])
def test_a_loop_that_tells_what_the_loader_has(kind):
    options, source = options_of(kind)
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), **options), pruner)
    orders = []
    for epoch in pruner.epochs():
        for sampler in (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch.number)
        seen = []
        for _, index in loader:
            seen.append(index.tolist())
            loader.observe(losses_of(index, epoch.number))
        orders.append(flat(seen))
        assert orders[-1] == kept_of(source, epoch.number, epoch.keep)
    assert orders[0] != orders[2]


@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "around"])
def test_accelerate_tells_it(kind):
    options, source = options_of(kind)
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), **options), pruner, with_ids=True)
    prepared = Accelerator(cpu=True).prepare(loader)
    for epoch in pruner.epochs():
        seen = []
        for ids, (_, index) in prepared:
            seen += ids.tolist()
            loader.observe(losses_of(index, epoch.number), ids)
        assert seen == kept_of(source, epoch.number, epoch.keep)
    assert set(source.told) == set(range(5))


@pytest.mark.parametrize("kind", ["sampler", "around"])
def test_lightning_tells_it(kind):
    """It looks at a loader's sampler, and at its batch sampler's."""
    options, source = options_of(kind, 48)
    pruner, net = Pruner(48, Schedule(4, 4, 1, 2, 1), prune=0.25, seed=5), Net(schedule=False)
    masks = kept_by(pruner)
    trainer_of(pruner, max_epochs=4).fit(net, wrap(DataLoader(data(48), **options), pruner))
    for epoch, batches in net.epochs.items():
        assert flat(batches) == kept_of(source, epoch, masks[epoch])
    assert set(source.told) == set(range(4))


test_lightning_tells_it.pytestmark += QUIET


class TestAttributes:
    def test_are_those_of_the_users_own(self):
        options, source = options_of("batch sampler")
        loader = wrap(DataLoader(Items(), **options), make_pruner())
        loader.batch_sampler.epoch = 7
        loader.batch_sampler.new = "mine"
        assert (source.epoch, source.new) == (7, "mine")
        assert loader.batch_sampler.batch_size == BATCH
        assert loader.batch_sampler.order() == source.order()

    def test_that_it_lacks_are_not_there(self):
        pruner = make_pruner()
        plain = [DataLoader(Items(), batch_size=BATCH, sampler=list(range(SAMPLES)))]
        plain += [DataLoader(Items(), batch_size=BATCH, sampler=RandomSampler(Items()))]
        for loader in (*plain, *(wrap(each, pruner) for each in plain)):
            for sampler in (loader.sampler, loader.batch_sampler, loader.batch_sampler.sampler):
                assert not hasattr(sampler, "set_epoch")
        options, _ = options_of("around")
        loader = wrap(DataLoader(Items(), **options), pruner)
        assert not hasattr(loader.batch_sampler, "set_epoch")
        with pytest.raises(AttributeError, match=r"'StandIn' object has no attribute 'other'"):
            _ = wrap(plain[1], pruner).sampler.other

    def test_of_a_batch_sampler_in_the_place_of_the_sampler(self):
        options, source = options_of("no batches")
        loader = wrap(DataLoader(Items(), **options, collate_fn=list), make_pruner())
        loader.sampler.set_epoch(3)
        assert source.told == [3]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_distributed_sampler_may_be_told_and_the_order_is_ours(ranks):
    sampler = DistributedSampler(Items(), num_replicas=ranks, rank=0)
    pruner, quiet = make_pruner(), make_pruner()
    loaders = [wrap(DataLoader(Items(), batch_size=BATCH, sampler=sampler), each) for each in (pruner, quiet)]
    for epoch in (pruner.begin_epoch(), quiet.begin_epoch()):
        assert epoch.number == 0
    loaders[0].sampler.set_epoch(4)
    assert torch.equal(*(torch.cat([index for _, index in loader]) for loader in loaders))
