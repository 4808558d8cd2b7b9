"""Our own adapters, over the real frameworks, held to the contract that prunedata.testing holds others to."""

from functools import partial

import pytest

from prunedata import Adapter
from prunedata.adapters import iterable
from prunedata.testing import CLAUSES, BrokenContract, Case
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
@FEW_WORKERS
@pytest.mark.parametrize("clause", CLAUSES)
def test_our_adapters_keep_their_contract(case, clause):
    CLAUSES[clause](case)


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
