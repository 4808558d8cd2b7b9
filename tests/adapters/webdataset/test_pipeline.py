"""WebDataset as it is: shards on the disk, its own stages, torch's DataLoader over them."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner
from prunedata.adapters.webdataset import ShardIndex, wrap
from prunedata.errors import OtherData, PrunedataError, SkippedSamples
from tests.adapters.helpers.shards import SAMPLES, SIZES, dataset, one_epoch, start, write_shards, write_tar
from tests.adapters.helpers.torch import losses_of
from tests.common.programs import WORKERS

wds = pytest.importorskip("webdataset")

MORE_WORKERS_THAN_CORES = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return ShardIndex.scan(write_shards(tmp_path_factory.mktemp("shards"), SIZES))


def stages(pruned):
    return pruned.shuffle(20, seed=1).decode().to_tuple("uid", "cls").map_tuple(int, None)


def train(loader, pruner, *, batches=None):
    """Train to the end, check every id against its sample, and return the ids of each epoch in their order."""
    epochs = []
    for epoch in pruner.epochs():
        epochs.append([])
        for ids, (uids, labels) in loader:
            assert ids.tolist() == uids.tolist()
            assert (ids % 7).tolist() == labels.tolist()
            pruner.observe(losses_of(ids, epoch.number), ids)
            epochs[-1] += ids.tolist()
        assert sorted(epochs[-1]) == np.flatnonzero(epoch.keep).tolist()
    return epochs


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}, {"num_workers": 2, "in_order": False}],
    ids=["0", "2", "persistent", "out of order"],
)
def test_exactly_the_kept_samples_once_each(index, options):
    pruner = start()
    epochs = train(DataLoader(stages(wrap(dataset(index), pruner, index)), batch_size=8, **options), pruner)
    assert [len(ids) for ids in epochs] == [90, 54, 90, 54, 90]
    assert sorted(epochs[1]) != sorted(epochs[3])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_made_by_webdataset(index, workers):
    pruner = start()
    pruned = stages(wrap(dataset(index), pruner, index)).batched(8)
    epochs = train(DataLoader(pruned, batch_size=None, num_workers=workers), pruner)
    assert [len(ids) for ids in epochs] == [90, 54, 90, 54, 90]


@MORE_WORKERS_THAN_CORES
def test_more_workers_than_shards(index, monkeypatch):
    pruner = start()
    pruned = stages(wrap(dataset(index, empty_check=False), pruner, index))
    train(DataLoader(pruned, batch_size=8, num_workers=5), pruner)
    monkeypatch.setenv("NUM_WORKERS", "5")  # in this process, as a worker that fails takes seconds to stop
    monkeypatch.setenv("WORKER", "4")
    pruner = start()
    pruner.begin_epoch()
    with pytest.raises(ValueError, match="empty_check=False"):  # WebDataset's own word for it
        list(wrap(dataset(index), pruner, index))


@MORE_WORKERS_THAN_CORES
def test_an_empty_shard(tmp_path):
    index = ShardIndex.scan(write_shards(tmp_path, [5, 0, 4]))
    pruner = start(9)
    train(DataLoader(stages(wrap(dataset(index), pruner, index)), batch_size=2), pruner)
    pruner = start(9)
    pruned = stages(wrap(dataset(index, empty_check=False), pruner, index))
    train(DataLoader(pruned, batch_size=2, num_workers=3), pruner)
    assert [record["observed"] for record in pruner.history] == [record["kept"] for record in pruner.history]


def test_nodes_split_the_shards(index, monkeypatch):
    """Each node sees its own part; together they see what is kept, and the index says beforehand who sees how many."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    pruner = start(prune=0.4)
    for epoch in range(4):
        keep = pruner.begin_epoch().keep
        seen = []
        for rank in (0, 1):
            monkeypatch.setenv("RANK", str(rank))
            whole = dataset(index, nodesplitter=wds.split_by_node)
            pairs = list(stages(wrap(whole, pruner, index)))
            assert len(pairs) == index.kept_by_shard(keep)[rank::2].sum()
            seen += [number for number, _ in pairs]
        assert sorted(seen) == np.flatnonzero(keep).tolist()
        pruner.observe(losses_of(seen, epoch), seen)
        pruner.end_epoch()
    pruner.begin_epoch()
    with pytest.raises(ValueError, match="nodesplitter"):  # WebDataset's own word
        list(wrap(dataset(index), pruner, index))


def test_detshuffle_gives_each_epoch_its_order_of_shards(index):
    def orders(**options):
        pruner = start(prune=1)
        pruned = wrap(dataset(index, **options), pruner, index)
        found = []
        for _ in range(4):
            urls = [sample["__url__"] for _, sample in one_epoch(pruned, pruner)]
            found.append(tuple(dict.fromkeys(urls)))
            pruner.end_epoch()
        return found

    assert len(set(orders())) > 1
    assert len(set(orders(detshuffle=False))) == 1  # the trap that the documentation names


def untouched(sample):
    return sample


def test_ids_survive_the_stages(index):
    def odd(sample):
        return int(sample["uid"]) % 2 == 1

    cases = {
        "none": lambda p: p,
        "shuffle": lambda p: p.shuffle(30).shuffle(7, seed=3),
        "no shuffle": lambda p: p.shuffle(0),
        "map": lambda p: p.map(untouched).decode(),
        "rename": lambda p: p.rename(uid="uid", label="cls").map_dict(uid=int),
        "compose": lambda p: p.compose(wds.shuffle(9), wds.detshuffle(9), wds.map(untouched)),
        "extract": lambda p: p.rename_keys(("uid", "uid"), ("label", "cls")),
        "with_length": lambda p: p.with_length(5, silent=True),
    }
    for name, apply in cases.items():
        pruner = start()
        pairs = one_epoch(apply(wrap(dataset(index), pruner, index)), pruner)
        assert len(pairs) == SAMPLES, name
        assert all(number == int(sample["uid"]) for number, sample in pairs), name
    pruner = start()
    pairs = one_epoch(wrap(dataset(index), pruner, index).shuffle(30).select(odd).to_tuple("uid"), pruner)
    assert [number for number, _ in pairs] == [int(uid) for (uid,) in pairs_of(pairs)]
    assert len(pairs) == SAMPLES // 2
    with pytest.raises(SkippedSamples, match="45 that were not"):
        pruner.end_epoch()


def pairs_of(pairs):
    return [sample for _, sample in pairs]


def longest_first(batch):
    """As for pack_padded_sequence: the batch in another order, and without its last sample."""
    order = np.argsort(-batch[0], kind="stable")[:-1]
    return tuple(np.asarray(field)[order] for field in batch)


@WORKERS
@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_ids_in_the_samples_follow_them_through_a_stage_that_sorts_and_drops(index, form, workers):
    pruner = start()
    pruned = wrap(dataset(index), pruner, index, id_key="__id__").decode()
    if form == "tuple":
        pruned = pruned.to_tuple("uid", "cls", "__id__").map_tuple(int, None, None).batched(8).map(longest_first)
    else:
        pruned = pruned.map(lambda sample: {"uid": int(sample["uid"]), "__id__": sample["__id__"]})
    pruner.begin_epoch()
    seen = 0
    for ids, made in DataLoader(pruned, batch_size=None, num_workers=workers):
        uids = made[0].tolist() if form == "tuple" else [made["uid"]]
        assert np.atleast_1d(ids).tolist() == uids
        assert form == "tuple" or "__id__" not in made
        seen += len(uids) + (form == "tuple")  # the one that was dropped
    assert seen == SAMPLES


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (lambda pruned: pruned.to_tuple("uid"), "pass the ids on: .* as by to_tuple.* Got a tuple without"),
        (lambda pruned: pruned.to_tuple("__id__", "uid"), "the ids of samples, from 0 to 89, .* Got b?'"),
        (lambda pruned: pruned.map(lambda sample: 7), "Got a int without them"),
    ],
)
def test_stages_that_lose_the_ids_of_samples_are_told(index, stages, told):
    pruner = start()
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=told):
        next(iter(stages(wrap(dataset(index), pruner, index, id_key="__id__"))))
    with pytest.raises(PrunedataError, match="an id_key that begins with _"):
        wrap(dataset(index), pruner, index, id_key="id")


def test_batched_and_listed(index):
    pruner = start()
    tuples = wrap(dataset(index), pruner, index).to_tuple("uid").map_tuple(int)
    pruner.begin_epoch()
    for pruned, size in ((tuples.batched(8), 12), (tuples.batched(8, partial=False), 11), (tuples.listed(8), 12)):
        batches = list(pruned)
        assert len(batches) == size
        for ids, found in batches:
            assert ids.dtype == np.int64
            plain = [uid for (uid,) in found] if isinstance(found, list) and isinstance(found[0], tuple) else found[0]
            assert ids.tolist() == list(plain)
    mapped = list(tuples.batched(8).map(lambda batch: batch[0] * 2).shuffle(4, seed=1))
    assert all((ids * 2 == doubled).all() for ids, doubled in mapped)
    with pytest.raises(PrunedataError, match="batch once"):
        tuples.batched(8).batched(2)


def test_pruned_samples_are_never_decoded(index):
    pruner, decoded = start(), []
    pruned = wrap(dataset(index), pruner, index).map(lambda sample: decoded.append(int(sample["uid"])) or sample)
    for epoch in pruner.epochs():
        decoded.clear()
        ids = [number for number, _ in pruned]
        assert sorted(decoded) == np.flatnonzero(epoch.keep).tolist()
        pruner.observe(losses_of(ids, epoch.number), ids)


# -- what cannot give each sample once

ENDLESS = {
    "resampled": lambda index: wds.WebDataset(index.urls, resampled=True, shardshuffle=False),
    "repeat": lambda index: dataset(index).repeat(2),
    "with_epoch": lambda index: dataset(index).with_epoch(10),
    "by hand": lambda index: wds.DataPipeline(
        wds.SimpleShardList(index.urls), wds.resampled(9), wds.tarfile_to_samples()
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_datasets_that_repeat_samples_are_refused(index, name):
    with pytest.raises(PrunedataError, match="once in a pass"):
        wrap(ENDLESS[name](index), start(), index)


@pytest.mark.parametrize(
    ("name", "why"),
    [("repeat", "pruner.epochs"), ("with_epoch", "pruner.epochs"), ("mcached", "first epoch"), ("lmdb_cached", "first")]
    + [(name, "batch once, at the end") for name in ("unbatched", "unlisted")]
    + [("rsample", "let the pruner choose")],
)
def test_stages_that_repeat_keep_or_drop_samples_are_refused(index, name, why):
    with pytest.raises(PrunedataError, match=rf"{name}\(\): .*{why}"):
        getattr(wrap(dataset(index), start(), index), name)()
    composed = {"mcached": wds.Cached(), "unbatched": wds.unbatched(), "unlisted": wds.filters.unlisted()}
    if name in composed:
        with pytest.raises(PrunedataError, match="on once"):
            wrap(dataset(index), start(), index).compose(composed[name])


@pytest.mark.parametrize("after", ["shuffle", "decode", "to_tuple", "mcached", "batched"])
def test_stages_before_prune_are_refused(index, after):
    arguments = {"shuffle": (5,), "to_tuple": ("uid",), "batched": (5,)}.get(after, ())
    with pytest.raises(PrunedataError, match=r"call wrap\(\) first"):
        wrap(getattr(dataset(index), after)(*arguments), start(), index)


def holds_back(samples):
    yield from reversed(list(samples))


def gives_twice(samples):
    for sample in samples:
        yield sample
        yield sample


@pytest.mark.parametrize("stage", [holds_back, gives_twice])
def test_a_stage_that_loses_track_is_noticed(index, stage):
    pruner = start()
    pruned = wrap(dataset(index), pruner, index).compose(stage)
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=rf"{stage.__name__}.* matched to their ids"):
        list(pruned)


def test_other_arguments_are_refused(index):
    with pytest.raises(PrunedataError, match=r"Expected a WebDataset\. Got list"):
        wrap([1], start(), index)
    with pytest.raises(PrunedataError, match=r"Expected a ShardIndex\. Got str: ShardIndex\.load"):
        wrap(dataset(index), start(), "shards.json")
    with pytest.raises(PrunedataError, match=r"Expected a ShardIndex\. Got NoneType: ShardIndex\.load"):
        Pruner(epochs=3).wrap(dataset(index))
    for arguments in ((), (index,)):
        with pytest.raises(PrunedataError, match=r"Got a WebLoader, .* make a DataLoader of PyTorch's"):
            Pruner(epochs=3).wrap(wds.WebLoader(dataset(index)).shuffle(9), *arguments)
    with pytest.raises(PrunedataError, match=r"an index of 7 samples, .*Got one of 90"):
        wrap(dataset(index), start(7), index)


def test_a_pipeline_put_together_by_hand(index):
    pruner = start()
    whole = wds.DataPipeline(wds.SimpleShardList(index.urls), wds.split_by_worker, wds.tarfile_to_samples())
    epochs = train(DataLoader(stages(wrap(whole, pruner, index)), batch_size=8), pruner)
    assert [len(ids) for ids in epochs] == [90, 54, 90, 54, 90]


# -- shards and index


def test_shards_other_than_the_index_has_are_refused(index):
    for urls, said in ((index.urls[:2], "002.tar"), ([*index.urls, "x.tar"], "x.tar"), (index.urls * 2, "twice")):
        with pytest.raises(PrunedataError, match=rf"the 4 shards of the index, each once\. Got {len(urls)};.*{said}"):
            wrap(wds.WebDataset(urls, shardshuffle=False), start(), index)


def test_shards_that_changed_since_the_index_are_refused(tmp_path):
    urls = write_shards(tmp_path, [5, 5])
    index = ShardIndex.scan(urls)
    write_tar(urls[1], [(f"s{n:04d}.uid", b"other") for n in range(5)])
    with pytest.raises(PrunedataError, match=r"1 that have changed: .*001\.tar"):
        wrap(dataset(index), start(10), index)


def test_a_key_that_is_not_in_the_index_is_refused(tmp_path):
    urls = write_shards(tmp_path, [5])
    index, pruner = ShardIndex.scan(urls), start(5)
    pruned = wrap(dataset(index), pruner, index)
    write_tar(urls[0], [("new.uid", b"0")])  # behind the back of the check
    pruner.begin_epoch()
    with pytest.raises(PrunedataError, match=r"Got 'new' in .*000\.tar.*scan again"):
        list(pruned)


def test_pipes_and_file_urls(tmp_path):
    for form in ("pipe:cat {}", "file:{}"):
        index = ShardIndex.scan([form.format(url) for url in write_shards(tmp_path, [5, 4])])
        pruner = start(9)
        pairs = one_epoch(wrap(dataset(index), pruner, index), pruner)
        assert len(pairs) == 9
        assert all(number == int(sample["uid"]) for number, sample in pairs)


# -- going on in the middle of an epoch


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [(0, 3), (1, 4)], ids=str)
def test_a_run_goes_on_with_what_remains_even_if_its_shuffle_has_no_seed(index, kind, workers, stop):
    def load(pruner):
        pruned = wrap(dataset(index), pruner, index).shuffle(20).to_tuple("uid", "cls").map_tuple(int, int)
        return kind(pruned, batch_size=8, num_workers=workers)

    first, seen = start(), []
    loader = load(first)
    for epoch in first.epochs():
        for ids, _ in loader:
            first.observe(losses_of(ids, epoch.number), ids)
            if epoch.number == stop[0]:
                seen += ids.tolist()
                if len(seen) == 8 * stop[1]:
                    break
        if seen:
            break
    states = first.state_dict(), loader.state_dict() if kind is StatefulDataLoader else None

    second = start()
    second.load_state_dict(states[0])
    loader = load(second)
    if states[1] is not None:
        loader.load_state_dict(states[1])
    for epoch in second.epochs():
        rest = []
        for ids, (uids, _) in loader:
            assert torch.equal(ids, uids)
            second.observe(losses_of(ids, epoch.number), ids)
            rest += ids.tolist()
        own = seen if epoch.number == stop[0] else []
        assert sorted(own + rest) == np.flatnonzero(epoch.keep).tolist()


@pytest.mark.parametrize("batched", [False, True])
@WORKERS
def test_a_loader_pruned_by_the_adapter_of_data_loaders_takes_the_ids_off(index, batched, workers):
    from prunedata.adapters.torch import wrap as prune_loader

    pruner, plain = start(), start()
    pruned = wrap(dataset(index), pruner, index).shuffle(20, seed=1).to_tuple("uid", "cls").map_tuple(int, int)
    pruned = pruned.batched(8) if batched else pruned
    loader = prune_loader(DataLoader(pruned, batch_size=None if batched else 8, num_workers=workers), pruner)
    for epoch, other in zip(pruner.epochs(), plain.epochs(), strict=True):
        ids = []
        for uids, _ in loader:
            loader.observe(losses_of(uids, epoch.number))
            plain.observe(losses_of(uids, epoch.number), uids)  # in the same batches, by which hits are told
            ids += uids.tolist()
        assert sorted(ids) == np.flatnonzero(epoch.keep).tolist() == np.flatnonzero(other.keep).tolist()


def scanned(folder, *parts):
    """An index of shards with samples of these keys, one letter each."""
    folder.mkdir()
    return ShardIndex.scan(
        write_tar(folder / f"{number}.tar", [(f"{key}.uid", b"1") for key in part]) for number, part in enumerate(parts)
    )


def test_a_sample_is_named_by_its_id(tmp_path):
    index = scanned(tmp_path / "shards", "abc", "", "def")
    assert [index.place_of(number) for number in range(6)] == [(index.urls[2 * (key > "c")], key) for key in "abcdef"]
    with pytest.raises(PrunedataError, match=r"Expected an id from 0 to 5\. Got 6\."):
        index.place_of(6)


@pytest.mark.parametrize("by_name", [False, True])
def test_an_index_says_how_many_samples_there_are(index, by_name):
    run = Pruner(epochs=2)
    pruned = run.wrap(dataset(index), index=index) if by_name else run.wrap(dataset(index), index)
    assert run.samples == SAMPLES
    assert len(one_epoch(pruned, run)) == SAMPLES


def test_samples_that_went_into_other_shards_are_followed(tmp_path):
    """Ids are places in the index: shards in another order are other samples. Where they lie does not matter."""
    first, moved, later = (
        scanned(tmp_path / name, *parts)
        for name, parts in {"a": ("abc", "def"), "b": ("abc", "def"), "c": ("fx", "ab", "yec")}.items()
    )
    assert (first.keys, later.keys) == (list("abcdef"), list("fxabyec"))

    def run(index, **options):
        pruner = Pruner(epochs=3, prune=1, store=tmp_path / "run.zarr", resume=True, **options)
        return pruner, pruner.wrap(dataset(index, shardshuffle=False), index)

    pruner, pruned = run(first)
    one_epoch(pruned, pruner)
    pruner.end_epoch()
    before = dict(zip("abcdef", pruner.arrays["mean_excess"], strict=True))
    del pruner, pruned
    assert run(moved)[0].next_epoch == 1
    with pytest.raises(OtherData, match="2 are new, and 1 of the 6 are gone"):
        run(later)
    pruner, pruned = run(later, follow=True)
    assert pruner.arrays["mean_excess"].tolist() == [before.get(key, 0) for key in "fxabyec"]
    pairs = one_epoch(pruned, pruner)
    assert [later.keys[number] for number, _ in pairs] == [sample["__key__"] for _, sample in pairs]


def test_shards_in_another_order_are_other_samples_though_all_have_the_same_keys(tmp_path):
    first, moved = (scanned(tmp_path / name, "abc", "abc") for name in "ab")

    def run(index):
        pruner = Pruner(epochs=3, prune=1, store=tmp_path / "run.zarr", resume=True)
        return pruner, pruner.wrap(dataset(index, shardshuffle=False), index)

    pruner, pruned = run(first)
    one_epoch(pruned, pruner)
    pruner.end_epoch()
    del pruner, pruned
    assert run(moved)[0].next_epoch == 1
    with pytest.raises(OtherData, match="other samples at 6 of the 6 places"):
        run(ShardIndex.scan(moved.urls[::-1]))


def test_a_run_that_was_told_its_length_has_the_keys_of_the_index(tmp_path):
    index, pruner = scanned(tmp_path / "shards", "abc", "def"), Pruner(6, epochs=3, prune=1)
    wrap(dataset(index, shardshuffle=False), pruner, index)
    pruner.begin_epoch()
    assert "keys" in pruner.state_dict()["arrays"]


def test_keys_that_stand_in_two_shards_are_none(tmp_path):
    index = ShardIndex.scan([write_tar(tmp_path / f"{n}.tar", [("a.uid", b"1")]) for n in range(2)])
    pruner = Pruner(epochs=3, prune=1)
    pruner.wrap(dataset(index, shardshuffle=False), index)
    assert "keys" not in pruner.state_dict()["arrays"]
