"""Our own adapters, over the real frameworks, held to the contract that prunedata.testing holds others to."""

from functools import partial

import numpy as np
import pytest

from prunedata import Adapter, Pruner, Schedule
from prunedata.adapters import iterable
from prunedata.testing import CLAUSES, BrokenContract, Case, losses_of
from tests.adapters.helpers.loaders import BATCH, FRAMEWORKS, SAMPLES, framework_of, parse


class OnDataset(Adapter):
    """Keeps the mask on the dataset."""

    def __init__(self, dataset):
        self.dataset = dataset

    def begin_epoch(self, epoch):
        self.dataset.keep = epoch.remaining


SLOW = pytest.mark.slow
ALIKE = (
    "torch, stateful", "torch stream, stateful", "Hugging Face", "Hugging Face stream",
    "Hugging Face stream of a Dataset",
)  # fmt: skip
TRAINERS = ("Lightning", "Hugging Face Trainer")
DROPS_LAST = ("torch", "torch, stateful", "torch stream", "torch stream, stateful", "Grain", "Hugging Face Trainer")
FEW_WORKERS = pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")  # Lightning's
TWO_WORKERS = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on one core


def shown():
    """Frameworks and workers; slow is what differs from others in where samples lie, or in who runs the loop."""
    for name, framework in FRAMEWORKS.items():
        apart = name in TRAINERS
        yield pytest.param((name, (0,) if apart else framework.workers), marks=[SLOW] * (name in ALIKE), id=name)
        if apart:
            yield pytest.param((name, (2,)), marks=SLOW, id=f"{name}, workers")


@pytest.fixture(scope="module", params=shown())
def case(request, tmp_path_factory):
    name, workers = request.param
    framework = framework_of(name, tmp_path_factory.mktemp("shards"))

    def make(pruner, workers):
        return framework.make(pruner, workers, BATCH)

    plain = partial(make, None) if framework.plain else None
    drop_last = partial(framework.make, size=BATCH, drop_last=True) if name in DROPS_LAST else None
    return Case(
        make, SAMPLES, workers, framework.read, plain,
        reports=framework.reports, weigh=framework.weigh, records=framework.weigh is not None,
        drop_last=drop_last,
    )  # fmt: skip


@TWO_WORKERS
@pytest.mark.parametrize("workers", [0, 2])
def test_the_kit_finds_a_stale_mask_in_real_workers(workers):
    data = pytest.importorskip("torch.utils.data")
    from tests.adapters.helpers.torch import StaleMask

    def make(pruner, workers):
        dataset = StaleMask(SAMPLES)
        pruner.attach(OnDataset(dataset))
        return data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0)

    case = Case(make, SAMPLES, (workers,))
    if workers == 0:
        CLAUSES["masks"](case)
    else:
        with pytest.raises(BrokenContract, match="only what epoch 1 with 2 workers keeps"):
            CLAUSES["masks"](case)


@TWO_WORKERS
def test_the_kit_finds_ids_that_real_workers_count():
    data = pytest.importorskip("torch.utils.data")
    from tests.adapters.helpers.torch import Positions

    def make(pruner, workers):
        stream = iterable.wrap(Positions(SAMPLES), pruner, id="uid", then=parse)
        return data.DataLoader(stream, batch_size=BATCH, num_workers=workers)

    CLAUSES["ids"](Case(make, SAMPLES, (0,)))
    with pytest.raises(BrokenContract, match="Clause 'ids'"):
        CLAUSES["ids"](Case(make, SAMPLES, (2,)))


@TWO_WORKERS
@FEW_WORKERS
@pytest.mark.parametrize("clause", CLAUSES)
def test_our_adapters_keep_their_contract(case, clause):
    CLAUSES[clause](case)


def start():
    return Pruner(SAMPLES, Schedule(7, window=4, start=1, block=3, pruned_per_block=2), prune=0.4, seed=11)


def by_torch(pruner):
    """The loop of the README: the ids are off, and the loader observes."""
    torch = pytest.importorskip("torch")
    from prunedata.adapters.torch import wrap
    from tests.adapters.helpers.torch import Items

    loader = wrap(torch.utils.data.DataLoader(Items(SAMPLES), batch_size=SAMPLES, shuffle=True), pruner)
    for epoch in pruner.epochs():
        ((_, numbers),) = loader
        loader.observe(torch.from_numpy(losses_of(numbers, epoch.number)))
        yield epoch, numbers.numpy()


def by_keras(pruner):
    """``fit`` has the loop: the model's loss says what is observed, and the run's visits what was delivered."""
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    from prunedata.adapters.keras import PruneCallback, PruneMixin, wrap

    class Model(PruneMixin, keras.Model):
        def __init__(self):
            super().__init__()
            self.epoch, self.dense = keras.Variable(0.0, trainable=False), keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def loss_of(self, number, guess):
            return keras.ops.mod(number * 7919 + self.epoch * 104729, 101) + 0 * keras.ops.squeeze(guess, -1)

    class Watch(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.visits, self.passes = pruner.visits, []

        def on_epoch_begin(self, number, logs=None):
            self.model.epoch.assign(number)
            self.opened = pruner.current

        def on_epoch_end(self, number, logs=None):
            new, self.visits = pruner.visits - self.visits, pruner.visits
            self.passes.append((self.opened, np.repeat(np.arange(SAMPLES), new)))

    dataset = wrap(tf.data.Dataset.range(SAMPLES), pruner)
    dataset = dataset.map(lambda number, sample: (number, (tf.ones(1), sample))).shuffle(SAMPLES).batch(SAMPLES)
    model, watch = Model(), Watch()
    model.compile("sgd", loss=model.loss_of)
    model.fit(dataset, epochs=pruner.schedule.epochs, callbacks=[PruneCallback(pruner), watch], verbose=0)
    return watch.passes


OTHER_LOOPS = {"torch, ids off": by_torch, "Keras fit": by_keras}


def story(passes, pruner):
    """All that a run decides: the ids delivered, the masks, and what is counted."""
    told = [(sorted(numbers.tolist()), np.flatnonzero(epoch.keep).tolist()) for epoch, numbers in passes]
    records = [(each["pruned"], each["kept"], each["observed"], each["mean_loss"]) for each in pruner.history]
    return told, records, pruner.counts.tolist(), pruner.hits.tolist(), pruner.visits.tolist()


def by_the_core():
    pruner = start()

    def passes():
        for epoch in pruner.epochs():
            kept = np.flatnonzero(epoch.keep)
            pruner.observe(losses_of(kept, epoch.number), kept)
            yield epoch, kept

    return story(passes(), pruner)


@pytest.mark.parametrize("name", OTHER_LOOPS)
def test_one_run_whatever_the_loop(name):
    pruner = start()
    assert story(OTHER_LOOPS[name](pruner), pruner) == by_the_core()


def test_the_run_that_all_are_compared_with_prunes_and_changes():
    told, records, counts, _, _ = by_the_core()
    assert all(ids == kept for ids, kept in told)
    assert [kept for _, kept, _, _ in records] == [61, 37, 37, 61, 61, 37, 37]
    assert len({tuple(kept) for _, kept in told}) == 5
    assert 0 < max(counts) <= 4
