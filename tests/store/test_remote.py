"""Runs on S3: a real server of the protocol, reached as users reach it, by a plain URL and by zarr's own store."""

import gc
import json
import warnings

import pytest
from zarr.core.sync import sync
from zarr.storage import FsspecStore

from prunedata.cli.main import main
from prunedata.errors import (
    DamagedStore,
    DeniedStore,
    ForeignStore,
    PrunedataError,
    UnreachableStore,
)
from prunedata.findings.inspection import inspect
from tests.store.stored_runs import observe, outcome, start
from tests.store.test_store import OnAnyPlace

boto3 = pytest.importorskip("boto3")
s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")

BUCKET = "runs"


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    """What s3fs leaves open is collected here, not in the middle of another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def address():
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(scope="module")
def sessions():
    """Zarr stores, whose file systems are closed in the end: fsspec shares them between stores, and keeps them."""
    stores = []
    yield stores

    async def close(fs):
        await (await fs.set_session()).close()

    for fs in {id(store.fs): store.fs for store in stores}.values():
        sync(close(fs))
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(address, monkeypatch):
    """An empty bucket, which a plain URL finds because the environment says where S3 is."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield Bucket(client)
    for key in Bucket(client).contents():
        client.delete_object(Bucket=BUCKET, Key=key)
    client.delete_bucket(Bucket=BUCKET)
    client.close()


class Bucket:
    """The bucket as others see it."""

    def __init__(self, client):
        self.client = client

    def keys(self):
        return [found["Key"] for found in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]

    def contents(self):
        return {key: self.get(key) for key in self.keys()}

    def get(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def put(self, key, value):
        self.client.put_object(Bucket=BUCKET, Key=key, Body=value)

    def delete(self, key):
        self.client.delete_object(Bucket=BUCKET, Key=key)


@pytest.fixture(params=["plain URL", pytest.param("zarr's own store", marks=pytest.mark.slow)])
def store(request, bucket, address, sessions):
    url, options = f"s3://{BUCKET}/deep/run.zarr", {"endpoint_url": address, "key": "id", "secret": "key"}
    plain = request.param == "plain URL"
    sessions.append(FsspecStore.from_url(url, storage_options=None if plain else options))
    return url if plain else sessions[-1]


def train(pruner, epochs):
    for _ in range(epochs):
        observe(pruner)
        pruner.end_epoch()


def assert_refused(bucket, store, error, **changes):
    before = bucket.contents()
    with pytest.raises(error):
        start(store, resume=True, **changes)
    with pytest.raises(PrunedataError):
        start(store, **changes)
    assert bucket.contents() == before


class TestS3(OnAnyPlace):
    """What holds on any place."""


def test_a_run_has_its_objects_below_its_url_and_is_no_other(store, bucket):
    train(start(store), 2)
    assert all(key.startswith("deep/run.zarr/") for key in bucket.contents())
    assert_refused(bucket, store, ForeignStore, seed=4)


def test_inspect(store, bucket, capsys):
    with pytest.raises(ForeignStore, match="Got nothing"):
        inspect(store)
    assert bucket.keys() == []
    train(start(store), 4)
    before = bucket.contents()
    assert inspect(store)["epoch"] == 4
    assert main(["inspect", f"s3://{BUCKET}/deep/run.zarr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generation"] == 4
    assert bucket.contents() == before


def test_damage(store, bucket):
    train(start(store), 2)
    name = "hits"
    for key in (f"deep/run.zarr/{name}-0/c/0", f"deep/run.zarr/{name}-0/zarr.json"):
        whole = bucket.get(key)
        bucket.delete(key)
        assert_refused(bucket, store, DamagedStore)
        for damaged in (b"", whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
            bucket.put(key, damaged)
            assert_refused(bucket, store, DamagedStore)
        bucket.put(key, whole)
    assert start(store, resume=True).next_epoch == 2
    bucket.put(f"deep/run.zarr/{name}-0/c/0", bucket.get(f"deep/run.zarr/{name}-1/c/0")[::-1])
    assert_refused(bucket, store, DamagedStore)


def test_not_found_is_not_empty(store, bucket):
    train(start(store), 2)
    bucket.delete("deep/run.zarr/zarr.json")
    while keys := bucket.keys():
        assert_refused(bucket, store, DamagedStore)
        bucket.delete(keys[0])
    # The process has seen these objects; it must not go by what it remembers.
    assert start(store, resume=True).next_epoch == 0


def test_foreign_objects(store, bucket):
    bucket.put("deep/run.zarr/notes.txt", b"mine")
    assert_refused(bucket, store, ForeignStore)
    bucket.delete("deep/run.zarr/notes.txt")
    bucket.put("deep/run.zarr/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    assert_refused(bucket, store, ForeignStore)


def test_neighbours_and_the_mark_of_an_empty_folder_do_not_matter(store, bucket):
    others = {"deep/run.zarr/": b"", "deep/run.zarr-2/counts-0/c/0": b"other", "deep/run": b"file", "x": b""}
    for key, value in others.items():
        bucket.put(key, value)
    train(start(store, resume=True), 2)
    assert start(store, resume=True).next_epoch == 2
    assert {key: bucket.get(key) for key in others} == others


def test_a_server_that_does_not_answer_is_not_an_empty_place(bucket, sessions):
    options = {
        "endpoint_url": "http://127.0.0.1:1",
        "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1},
    }
    sessions.append(FsspecStore.from_url(f"s3://{BUCKET}/run.zarr", storage_options=options))
    for call in (lambda: start(sessions[-1], resume=True), lambda: start(sessions[-1])):
        with pytest.raises(UnreachableStore, match=r"(?i)^Expected to (read|write) .*Got no answer.*connect") as caught:
            call()
        assert isinstance(caught.value, ConnectionError)
    with pytest.raises(UnreachableStore, match=r"^Expected to read"):
        inspect(sessions[-1])


def test_a_server_that_is_down_at_a_commit_and_then_is_not(sessions, monkeypatch):
    """The run goes on in memory meanwhile, and loses nothing."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://{host}:{port}", "key": "id", "secret": "key"}
    client = boto3.client(
        "s3", endpoint_url=options["endpoint_url"], aws_access_key_id="id", aws_secret_access_key="key",
        region_name="us-east-1",
    )  # fmt: skip
    client.create_bucket(Bucket="down")
    options |= {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 5}}
    sessions.append(FsspecStore.from_url("s3://down/run.zarr", storage_options=options))
    run, whole = start(sessions[-1]), start(None)
    for one in (run, whole):
        train(one, 2)
    server.stop()
    for _ in range(2):
        with pytest.raises(UnreachableStore, match=r"the run goes on in memory, commit again .*last commit is as it"):
            train(run, 1)
    with pytest.raises(ConnectionError):
        run.commit()
    again = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    again.start()
    try:
        client.head_bucket(Bucket="down")  # moto keeps what it has in this process
        run.commit()
        train(whole, 2)
        assert outcome(start(sessions[-1], resume=True)) == outcome(run) == outcome(whole)
        train(run, 1)
        assert inspect(sessions[-1])["epoch"] == 5
    finally:
        client.close()
        again.stop()


def test_no_credentials(bucket, sessions, address, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    sessions.append(FsspecStore.from_url("s3://other/run.zarr", storage_options={"endpoint_url": address}))
    for call in (start, inspect):
        with pytest.raises(DeniedStore, match=r"^Expected credentials for .*AWS_ACCESS_KEY_ID.*profile") as caught:
            call(sessions[-1])
        assert isinstance(caught.value, PermissionError)
