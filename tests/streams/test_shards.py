"""The index of shards: scanned, read and kept, here and at a store that is elsewhere."""

import gzip
import json
import os
import tarfile
import zlib

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import DamagedStore, ForeignStore, PrunedataError
from prunedata.streams.shards import Shard, ShardIndex, expand
from tests.adapters.helpers.shards import write_shards, write_tar

wds = pytest.importorskip("webdataset")

IN_ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = st.text("aB.-_é/ ", min_size=1, max_size=6)
PARTS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)
NAMES = st.one_of(
    PARTS,
    st.tuples(PARTS, st.sampled_from(["jpg", "JPG", "cls", "seg.png", ""])).map(".".join),
    st.sampled_from(["__meta__", "__index__.json", "__a__/b.jpg", "a__b__.jpg", "a/__meta__", "__x.jpg", ".jpg"]),
)
MEMBERS = st.lists(st.tuples(NAMES, st.sampled_from([b"", b"x", None])), max_size=12)


def by_webdataset(urls):
    # A member that stands twice is its handler's business, and makes no other samples.
    found = wds.WebDataset(urls, shardshuffle=False, empty_check=False, handler=lambda error: True)
    return [(sample["__url__"], sample["__key__"]) for sample in found]


@IN_ONE_FOLDER
@given(MEMBERS, st.sampled_from(["w", "w:gz"]))
def test_a_scan_finds_the_samples_that_webdataset_yields(tmp_path, members, mode):
    url = write_tar(tmp_path / "one.tar", members, mode=mode)
    found = by_webdataset(url)
    keys = [key for _, key in found]
    if len(set(keys)) != len(keys):
        with pytest.raises(PrunedataError, match="each key once in a shard, and its members side by side"):
            ShardIndex.scan(url)
        return
    index = ShardIndex.scan(url)
    assert list(index.ids_of(url).items()) == [(key, place) for place, key in enumerate(keys)]
    piped = f"pipe:cat {url}"
    assert list(ShardIndex.scan(piped).ids_of(piped)) == keys


def test_ids_run_through_the_shards_and_keys_may_repeat_across_them(tmp_path):
    urls = write_shards(tmp_path, [3, 0, 2])
    index = ShardIndex.scan(urls)
    assert len(index) == 5
    assert index.urls == urls
    assert [index.ids_of(url) for url in urls] == [
        {"s0000": 0, "s0001": 1, "s0002": 2},
        {},
        {"s0000": 3, "s0001": 4},
    ]
    with pytest.raises(PrunedataError, match="one of the 3 shards"):
        index.ids_of("other.tar")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_kept_by_shard(sizes, data):
    index = ShardIndex(tuple(Shard(str(n), "\n".join(map(str, range(size))), size) for n, size in enumerate(sizes)))
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(index), max_size=len(index))), dtype=bool)
    expected = [int(keep[list(index.ids_of(str(n)).values())].sum()) if size else 0 for n, size in enumerate(sizes)]
    assert index.kept_by_shard(keep).tolist() == expected


def test_what_is_saved_is_loaded(tmp_path):
    names = [("a b/ü.JPG", b""), (os.fsdecode(b"\xff.jpg"), b""), ('"quoted".jpg', b"")]
    index = ShardIndex.scan([write_tar(tmp_path / "0.tar", names), *write_shards(tmp_path, [2, 0])[1:]])
    assert len(index) == 3
    index.save(tmp_path / "index.json")
    found = ShardIndex.load(tmp_path / "index.json")
    assert found == index
    assert found.ids_of(index.urls[0]) == index.ids_of(index.urls[0])
    found.check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tar", "000.tar", "001.tar", "index.json"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", DamagedStore),
        ("{", DamagedStore),
        ('{"prunedata_index": 1, "shards": []}', DamagedStore),
        ("[]", ForeignStore),
        ('{"a": 1}', ForeignStore),
    ],
)
def test_what_is_no_index_is_refused(tmp_path, text, error):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(error, match=r"index.json"):
        ShardIndex.load(tmp_path / "index.json")


INDEX = {"prunedata_index": 1, "shards": [["a.tar", 2, 9, "1", "x\ny"], ["b.tar", 1, 9, "1", "z"]]}
STRANGE = [None, True, 0.5, -1, 2**70, "", "\x1b[2J", [], {}, [[]], json.loads("[" * 500 + "]" * 500)]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: str(value)[:9].encode("unicode_escape").decode())
@pytest.mark.parametrize("place", range(5), ids=["url", "samples", "size", "modified", "keys"])
def test_an_index_of_a_stranger(tmp_path, place, value):
    """With the right checksum. Size and modification may be unknown."""
    found = json.loads(json.dumps(INDEX))
    path = tmp_path / "index.json"
    for shard in (0, 1):
        found["shards"][shard][place] = value
        found["crc32"] = zlib.crc32(json.dumps(found["shards"]).encode())
        path.write_text(json.dumps(found))
        sound = (
            (place in (2, 3) and value is None)
            or (place == 2 and type(value) is int)
            or (place in (0, 3) and type(value) is str)
        )
        if sound and shard == 0:
            assert len(ShardIndex.load(path)) == 3
        elif not sound:
            with pytest.raises(DamagedStore) as caught:
                ShardIndex.load(path)
            assert str(caught.value).isprintable()
    for text in ("[" * 100_000, json.dumps(value), '{"prunedata_index": 1, "shards": ' + "[" * 900 + "]" * 900 + "}"):
        path.write_text(text)
        with pytest.raises((DamagedStore, ForeignStore)):
            ShardIndex.load(path)


@pytest.mark.parametrize("url", ["a\0b", "\ud800.tar", "nobody://knows/this"])
def test_a_url_that_nothing_can_open_is_named(url):
    with pytest.raises(PrunedataError, match=r"^Expected the shard ") as caught:
        ShardIndex((Shard(url, "x", 1, 1, None),)).check()
    assert str(caught.value).isprintable()


def test_shards_that_changed_are_named(tmp_path):
    urls = write_shards(tmp_path, [3, 3, 3])
    index = ShardIndex.scan(urls)
    index.check()
    write_tar(urls[1], [("other.cls", b"1")])
    with pytest.raises(PrunedataError, match=r"1 that have changed: .*001\.tar: scan again"):
        index.check()
    os.utime(urls[2], ns=(1, 1))
    with pytest.raises(PrunedataError, match="2 that have changed"):
        index.check()
    os.remove(urls[0])
    with pytest.raises(PrunedataError, match=r"000\.tar.*No such file"):
        index.check()


@pytest.mark.parametrize("where", ["in the data", "in a header", "garbage for a header", "no tar", "missing", "empty"])
@pytest.mark.parametrize("how", ["{}", "pipe:cat {}", "file:{}"])
def test_a_shard_that_cannot_be_read_to_its_end_is_refused(tmp_path, where, how):
    path = tmp_path / "one.tar"
    write_tar(path, [(f"{n}.bin", bytes([n]) * 700) for n in range(1, 5)])
    whole = path.read_bytes()  # a header of 512 bytes and 1024 of data for each
    damaged = {
        "in the data": whole[: 3 * 1536 + 600],
        "in a header": whole[: 2 * 1536 + 100],
        "garbage for a header": whole[: 2 * 1536] + b"?" * 512 + whole[2 * 1536 + 512 :],
        "no tar": b"?" * 2000,
        "empty": b"",
    }
    path.unlink()
    if where != "missing":
        path.write_bytes(damaged[where])
    with pytest.raises(PrunedataError, match=r"(?s)a whole tar file at .*one\.tar\. Got .*: repair it, or leave"):
        ShardIndex.scan(how.format(path))


def test_a_cut_gzip_a_failing_command_and_a_line_break_in_a_key_are_refused(tmp_path):
    url = write_tar(tmp_path / "one.tar.gz", [(f"{n}.bin", os.urandom(900)) for n in range(9)], mode="w:gz")
    whole = (tmp_path / "one.tar.gz").read_bytes()
    for cut in (whole[: len(whole) // 2], whole[:100] + b"?" * 900, gzip.compress(b"?")):
        (tmp_path / "one.tar.gz").write_bytes(cut)
        with pytest.raises(PrunedataError, match="Expected a whole tar file"):
            ShardIndex.scan(url)
    whole = write_tar(tmp_path / "two.tar", [("a.bin", b"")])
    with pytest.raises(PrunedataError, match="ended with status 3"):
        ShardIndex.scan([f"pipe:cat {whole}; exit 3"])
    with pytest.raises(PrunedataError, match="without line breaks"):
        ShardIndex.scan(write_tar(tmp_path / "three.tar", [("a\nb.bin", b"")]))


def test_a_tar_that_was_cut_between_two_members_is_refused(tmp_path):
    """WebDataset reads it to the cut without a word; so the index, and the checks behind it, have to tell."""
    path = tmp_path / "one.tar"
    write_tar(path, [("a.bin", b"1"), ("b.bin", b"2")])
    whole = path.read_bytes()
    for members in (1, 2):
        path.write_bytes(whole[: members * 2 * 512])
        assert len(by_webdataset(str(path))) == members
        with pytest.raises(PrunedataError, match=r"no end mark at byte .*cut between two files"):
            ShardIndex.scan(str(path))
    path.write_bytes(whole[: 5 * 512])  # a lone zero block: written to its end
    assert len(ShardIndex.scan(str(path))) == 2


def test_no_flipped_bit_of_an_index_goes_unseen(tmp_path):
    index = ShardIndex((Shard("0.tar", "a\nb", 2, 10240, "17"), Shard("1.tar", "a", 1)))
    path = tmp_path / "index.json"
    index.save(path)
    raw, refused = path.read_bytes(), 0
    for place in range(len(raw)):
        for bit in range(8):
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :])
            try:
                assert ShardIndex.load(path) == index
            except PrunedataError:
                refused += 1
    assert refused > 7 * len(raw)


@pytest.mark.parametrize("url", ["pipe:touch ran", "http://host/'; touch ran; '", "s3://a/b`touch ran`", "gs://$(ran)"])
def test_commands_in_somebody_elses_index_are_refused(tmp_path, url):
    index = ShardIndex((Shard("plain 'name'.tar", "a", 1), Shard(url, "b", 1)))
    index.save(tmp_path / "index.json")
    with pytest.raises(PrunedataError, match="trusted=True"):
        ShardIndex.load(tmp_path / "index.json")
    assert ShardIndex.load(tmp_path / "index.json", trusted=True) == index


def test_no_shards_and_a_shard_twice_are_refused(tmp_path):
    with pytest.raises(PrunedataError, match="at least one shard"):
        ShardIndex.scan([])
    (url,) = write_shards(tmp_path, [1])
    with pytest.raises(PrunedataError, match="each shard once"):
        ShardIndex.scan([url, url])


def test_progress_wraps_the_shards(tmp_path):
    seen = []
    ShardIndex.scan(write_shards(tmp_path, [1, 1]), progress=lambda urls: (seen.append(url) or url for url in urls))
    assert [os.path.basename(url) for url in seen] == ["000.tar", "001.tar"]


@pytest.mark.parametrize(
    "urls", ["a.tar", "{000..102}.tar", "{train,val}-{08..10}.tar::c.tar", r"\{a\}", "{a..c}{,x{1,2}}", "a b::{3..1}"]
)
def test_urls_are_expanded_as_webdataset_expands_them(urls):
    assert expand(urls) == wds.shardlists.expand_urls(urls)
    assert expand([urls]) == [urls]


@pytest.mark.parametrize("pattern", ["{1", "1}", "{a{b}"])
def test_open_braces_are_refused(pattern):
    with pytest.raises(PrunedataError, match="as many closing braces"):
        expand(pattern)


def test_webdataset_writes_what_is_scanned(tmp_path):
    with wds.ShardWriter(str(tmp_path / "%03d.tar"), maxcount=4, verbose=0) as sink:
        for number in range(10):
            sink.write({"__key__": f"k{number}", "txt": str(number), "cls": number})
    index = ShardIndex.scan(f"{tmp_path}/{{000..002}}.tar")
    assert [shard.samples for shard in index.shards] == [4, 4, 2]
    assert tarfile.is_tarfile(index.urls[0])


# Shards on S3: a real server of the protocol; scanned by fsspec and read by WebDataset through it.


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
        pruner.observe(np.arange(len(pairs)), [number for number, _ in pairs])

    client.put_object(Bucket="data", Key="001.tar", Body=(tmp_path / "000.tar").read_bytes())
    with pytest.raises(PrunedataError, match=r"changed: s3://data/001\.tar"):
        index.check()
    client.delete_object(Bucket="data", Key="001.tar")
    with pytest.raises(PrunedataError, match=r"Expected the shard s3://data/001\.tar"):
        index.check()
    with pytest.raises(PrunedataError, match=r"a whole tar file at s3://data/001\.tar"):
        ShardIndex.scan(index.urls)
