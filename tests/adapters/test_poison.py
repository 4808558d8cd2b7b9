"""Loops of one's own learn nothing of what doesn't count, are warned if they would, and lose no figure."""

from functools import partial

import pytest

from tests.adapters.helpers.loaders import SHARDS, Batches, core, grain_map, raw_records
from tests.adapters.helpers.loops import (
    MODES,
    RUNS,
    assert_figures_are_not_lost,
    assert_learns_no_more,
    assert_warned_unless_it_weighs,
    over_deals,
    train,
)


def plain_core(pruner, size, drop):
    return core(pruner, 0, size)


def of_iterable(pruner, size, drop):
    iterable = pytest.importorskip("prunedata.adapters.iterable")
    return Batches(iterable.wrap(raw_records(), pruner, id="uid"), size)


def of_grain(pruner, size, drop):
    pytest.importorskip("grain")
    return grain_map(pruner, 0, size, drop_last=drop)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    pytest.importorskip("webdataset")
    from prunedata.adapters.webdataset import ShardIndex
    from tests.adapters.helpers.shards import write_shards

    return ShardIndex.scan(write_shards(tmp_path_factory.mktemp("shards"), SHARDS))


def of_webdataset(pruner, size, drop, *, index):
    from prunedata.adapters.webdataset import wrap
    from tests.adapters.helpers.shards import dataset

    pairs = wrap(dataset(index, shardshuffle=False, detshuffle=False), pruner, index)
    return pairs.decode().to_tuple("uid").map_tuple(int).batched(size)


LOOPS = {"core": plain_core, "iterable": of_iterable, "Grain": of_grain, "WebDataset": of_webdataset, "dealer": None}
OVER_LOADERS = [name for name, make in LOOPS.items() if make is not None]


@pytest.fixture(params=LOOPS)
def loop(request, index):
    """How a loop is trained, and what over."""
    make = LOOPS[request.param]
    if make is None:
        return over_deals, None
    return train, partial(make, index=index) if make is of_webdataset else make


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_learnt_of_what_does_not_count(loop, run):
    assert_learns_no_more(*loop, RUNS[run])


# In batches of one sample there are no hits.
@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")
@pytest.mark.parametrize("mode", ["batches of one", "resumed"])
def test_nothing_is_learnt_in_any_mode(loop, mode):
    assert_learns_no_more(*loop, RUNS["held out and left out by weight"], **MODES[mode])


def test_nothing_is_learnt_without_a_remainder():
    assert_learns_no_more(train, of_grain, RUNS["held out and left out by weight"], drop=True)


@pytest.mark.parametrize("run", ["held out", "left out by weight", "weighed"])
def test_a_loop_that_never_asks_what_losses_weigh_is_warned(loop, run):
    assert_warned_unless_it_weighs(*loop, RUNS[run])


@pytest.mark.parametrize("stopped", [0, 6, 9])
@pytest.mark.parametrize("name", OVER_LOADERS)
def test_no_figure_is_lost_between_a_last_batch_and_it(name, stopped, index):
    make = LOOPS[name]
    assert_figures_are_not_lost(partial(make, index=index) if make is of_webdataset else make, stopped)


def test_no_figure_is_lost_where_a_remainder_is_dropped():
    assert_figures_are_not_lost(of_grain, 6, drop=True)
