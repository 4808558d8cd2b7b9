"""Shards on S3: a real server of the protocol; scanned by fsspec and read by WebDataset through it."""

import fsspec
import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.streams.shards import ShardIndex
from tests.adapters.helpers.shards import write_shards

wds = pytest.importorskip("webdataset")
boto3 = pytest.importorskip("boto3")
s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")


@pytest.fixture
def client(monkeypatch):
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="data")
    yield client
    client.close()
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def open_by_fsspec(url, mode, bufsize, **options):
    return fsspec.open(url, mode).open()


def test_shards_on_s3(client, tmp_path, monkeypatch):
    from prunedata.adapters.webdataset import wrap

    for path in write_shards(tmp_path, [5, 4]):
        client.upload_file(path, "data", path.rpartition("/")[2])
    index = ShardIndex.scan("s3://data/{000..001}.tar")
    assert [(shard.url, shard.samples) for shard in index.shards] == [
        ("s3://data/000.tar", 5),
        ("s3://data/001.tar", 4),
    ]
    index.check()
    monkeypatch.setitem(wds.gopen_schemes, "s3", open_by_fsspec)
    pruner = Pruner(9, Schedule(2, 2, 1, 1, 1), prune=4)
    pruned = wrap(wds.WebDataset(index.urls, shardshuffle=False), pruner, index)
    for epoch in pruner.epochs():
        pairs = list(pruned)
        assert [number for number, _ in pairs] == [int(sample["uid"]) for _, sample in pairs]
        assert [number for number, _ in pairs] == np.flatnonzero(epoch.keep).tolist()
        pruner.observe(np.ones(len(pairs)), [number for number, _ in pairs])

    client.put_object(Bucket="data", Key="001.tar", Body=(tmp_path / "000.tar").read_bytes())
    with pytest.raises(PrunedataError, match=r"changed: s3://data/001\.tar"):
        index.check()
    client.delete_object(Bucket="data", Key="001.tar")
    with pytest.raises(PrunedataError, match=r"Expected the shard s3://data/001\.tar"):
        index.check()
    with pytest.raises(PrunedataError, match=r"a whole tar file at s3://data/001\.tar"):
        ShardIndex.scan(index.urls)
