"""Damaged shards: WebDataset's own handlers decide, ids stay right, and nothing is lost silently."""

import io
import os
from collections import Counter

import pytest
import torch
import webdataset as wds
from PIL import Image
from torch.utils.data import DataLoader

from prunedata.adapters.webdataset import ShardIndex, wrap
from prunedata.errors import SkippedSamples
from tests.adapters.helpers.shards import dataset, one_epoch, start, write_shards, write_tar
from tests.adapters.helpers.torch import losses_of
from tests.common.programs import WORKERS


def quiet(error):
    return True


def test_a_truncated_shard(tmp_path):
    urls = write_shards(tmp_path, [6, 6, 6])
    index = ShardIndex.scan(urls)
    pruner = start(18)
    strict, lenient = (
        wrap(dataset(index, shardshuffle=False, **options), pruner, index)
        for options in ({}, {"handler": wds.warn_and_continue})
    )
    with open(urls[1], "rb+") as file:
        file.truncate(3 * 2048 + 600)  # after the fourth sample's first member
    pruner.begin_epoch()
    with pytest.raises(Exception, match="unexpected end of data"):
        list(strict)
    with pytest.warns(UserWarning, match="unexpected end of data"):
        pairs = list(lenient)
    assert all(number == int(sample["uid"]) for number, sample in pairs)
    missing = sorted(set(range(18)) - {number for number, _ in pairs})
    assert missing == [10, 11]
    assert "cls" not in dict(pairs)[9]
    ids = [number for number, _ in pairs]
    pruner.observe(losses_of(ids, 0), ids)
    with pytest.raises(SkippedSamples, match="2 that were not"):
        pruner.end_epoch()


def test_a_shard_cut_in_its_first_sample_does_not_run_into_the_next(tmp_path):
    """WebDataset alone would take the members of the next shard's sample of the same key for it."""
    urls = write_shards(tmp_path, [3, 3])
    index = ShardIndex.scan(urls)
    pruner = start(6)
    pruned = wrap(dataset(index, shardshuffle=False, handler=quiet), pruner, index)
    with open(urls[0], "rb+") as file:
        file.truncate(1536)  # between the header and the data of its second member
    found = {number: {name for name in sample if name[0] != "_"} for number, sample in one_epoch(pruned, pruner)}
    assert found == {0: {"uid"}, 3: {"uid", "cls"}, 4: {"uid", "cls"}, 5: {"uid", "cls"}}


@WORKERS
def test_an_undecodable_image_and_a_missing_member(tmp_path, workers):
    urls = []
    for shard in range(2):
        members = []
        for place in range(10):
            uid = 10 * shard + place
            image = io.BytesIO()
            Image.new("RGB", (4, 4), (uid, uid, uid)).save(image, "png")
            members.append((f"{place}.png", b"no image" if uid == 13 else image.getvalue()))
            if uid != 4:
                members.append((f"{place}.cls", str(uid).encode()))
        urls.append(write_tar(tmp_path / f"{shard}.tar", members))
    index = ShardIndex.scan(urls)
    pruner = start(20)
    pruned = wrap(dataset(index), pruner, index).shuffle(6, seed=1)
    pruned = pruned.decode("torchrgb", handler=quiet).to_tuple("png", "cls", handler=quiet)
    pruner.begin_epoch()
    seen = []
    for ids, (images, labels) in DataLoader(pruned, batch_size=4, num_workers=workers):
        assert torch.equal(ids, labels)
        assert torch.equal((images[:, 0, 0, 0] * 255).round().long(), ids)
        seen += ids.tolist()
        pruner.observe(losses_of(ids, 0), ids)
    assert sorted(set(range(20)) - set(seen)) == [4, 13]
    assert Counter(seen).most_common(1)[0][1] == 1
    with pytest.raises(SkippedSamples, match="2 that were not"):
        pruner.end_epoch()


def test_a_shard_that_is_gone(tmp_path):
    index = ShardIndex.scan(write_shards(tmp_path, [6, 6]))
    pruner = start(12)
    pruned = wrap(dataset(index, handler=quiet), pruner, index)
    os.remove(index.urls[0])
    pairs = one_epoch(pruned, pruner)
    assert sorted(number for number, _ in pairs) == [6, 7, 8, 9, 10, 11]
    with pytest.raises(SkippedSamples, match="6 that were not"):
        pruner.end_epoch()
