"""Hugging Face datasets: map-style through PyTorch's loader, iterable ones through streams. The contract itself is
tested in test_conformance; here are the ways of this framework.
"""

import io
import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters import iterable
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, OtherData
from prunedata.keys import hash_keys
from prunedata.testing import losses_of
from tests.adapters.helpers.rows import check_rows_are_followed
from tests.common.programs import WORKERS

datasets = pytest.importorskip("datasets")

SAMPLES = 60
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # two workers on one core


def start():
    return Pruner(SAMPLES, Schedule(5, window=5, start=1, block=2, pruned_per_block=1), prune=0.3, seed=3)


def png(number):
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.new("L", (4, 4), number).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def images():
    """A Dataset with a column of images, in which the picture of a sample has its uid as its colour."""
    columns = {"uid": list(range(SAMPLES)), "image": [{"bytes": png(uid), "path": None} for uid in range(SAMPLES)]}
    features = datasets.Features({"uid": datasets.Value("int64"), "image": datasets.Image()})
    return datasets.Dataset.from_dict(columns, features=features)


def decode(record):
    from PIL import Image

    assert set(record["image"]) == {"bytes", "path"}, "decoded before it was known whether it is kept"
    return np.array(Image.open(io.BytesIO(record["image"]["bytes"])))


def train(loader, pruner, read):
    for epoch in pruner.epochs():
        seen = []
        for batch in loader:
            numbers = read(batch)
            loader.observe(torch.from_numpy(losses_of(numbers, epoch.number)))
            seen += numbers.tolist()
        assert sorted(seen) == np.flatnonzero(epoch.keep).tolist()
    assert [record["kept"] for record in pruner.history] == [60, 42, 60, 42, 60]


@WORKERS
def test_only_what_is_kept_is_decoded(images, workers):
    raw = images.to_iterable_dataset(num_shards=3).cast_column("image", datasets.Image(decode=False))
    pruner, decoded = start(), []

    def then(record):
        decoded.append(record["uid"])
        return decode(record)

    stream = iterable.wrap(raw, pruner, id="uid", then=then)
    train(wrap(DataLoader(stream, batch_size=8, num_workers=workers), pruner), pruner, lambda batch: batch[:, 0, 0])
    if workers == 0:
        assert len(decoded) == sum(record["kept"] for record in pruner.history)


def test_without_the_cast_all_is_decoded_before_it_can_be_dropped(images):
    """The trap. Casting back behind the filter would not help: it does not decode."""
    pruner = start()
    stream = iterable.wrap(images.to_iterable_dataset(), pruner, id="uid", then=decode)
    pruner.begin_epoch()
    with pytest.raises(TypeError, match="not iterable"):
        next(iter(stream))
    uncast = images.to_iterable_dataset().cast_column("image", datasets.Image(decode=False))
    assert set(next(iter(uncast.filter(bool)))["image"]) == {"bytes", "path"}


@WORKERS
def test_map_style_decodes_only_what_the_sampler_asks_for(images, workers):
    asked = []

    def transform(rows):
        asked.extend(rows["uid"])
        return {"uid": rows["uid"], "pixels": [np.array(image) for image in rows["image"]]}

    pruner = start()
    loader = DataLoader(images.with_transform(transform), batch_size=8, shuffle=True, num_workers=workers)
    train(wrap(loader, pruner), pruner, lambda batch: batch["pixels"][:, 0, 0])
    if workers == 0:
        assert len(asked) == sum(record["kept"] for record in pruner.history)


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_formatted_streams(images, name):
    raw = images.select_columns(["uid"]).to_iterable_dataset(num_shards=2).with_format(name)
    pruner = start()
    stream = iterable.wrap(raw, pruner, id="uid", then=lambda record: record["uid"])
    train(wrap(DataLoader(stream, batch_size=8), pruner), pruner, lambda batch: batch)
    assert [record["observed"] for record in pruner.history] == [60, 42, 60, 42, 60]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_each_epoch_can_have_an_order_of_its_own(images, workers, persistent):
    raw = images.select_columns(["uid"]).to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=20)
    pruner, orders = start(), []
    stream = iterable.wrap(raw, pruner, id="uid", then=lambda record: record["uid"])
    loader = wrap(DataLoader(stream, batch_size=8, num_workers=workers, persistent_workers=persistent), pruner)
    for epoch in pruner.epochs():
        raw.set_epoch(epoch.number)
        orders.append([])
        for numbers in loader:
            loader.observe(torch.from_numpy(losses_of(numbers, epoch.number)))
            orders[-1] += numbers.tolist()
    assert [len(order) for order in orders] == [60, 42, 60, 42, 60]
    assert orders[0] != orders[2] != orders[4]


def test_a_column_that_is_not_there_or_no_integer_is_told(images):
    pruner = start()
    pruner.begin_epoch()
    with pytest.raises(LossError, match=r"Expected an int as the id of a sample\. Got 0\.0"):
        next(iter(iterable.wrap(images.to_iterable_dataset(), pruner, id=lambda record: float(record["uid"]))))


def test_rows_are_followed_by_their_keys(tmp_path):
    def wrapped(pruner, rows):
        loader = wrap(
            DataLoader(datasets.Dataset.from_dict({"uid": rows}), batch_size=7, shuffle=True), pruner, with_ids=True
        )
        return lambda: ((ids.tolist(), batch["uid"].tolist()) for ids, batch in loader)

    check_rows_are_followed(wrapped, tmp_path)


def test_a_column_of_keys_is_read_at_once(monkeypatch):
    column = datasets.Dataset.from_dict({"name": [f"row {number}" for number in range(SAMPLES)]})["name"]
    reads, plain = [], type(column).__getitem__
    monkeypatch.setattr(type(column), "__getitem__", lambda column, key: reads.append(key) or plain(column, key))
    monkeypatch.setattr(type(column), "__iter__", None)
    assert np.array_equal(hash_keys(column), hash_keys([f"row {number}" for number in range(SAMPLES)]))
    assert len(reads) == 1


# -- a run that goes on: the library's own fingerprint shows that rows are the same, where it can


@pytest.fixture
def read(monkeypatch):
    """The ids that are read one by one, as for fingerprints."""
    ids, plain = [], datasets.Dataset.__getitem__

    def counted(dataset, key):
        if isinstance(key, int):
            ids.append(key)
        return plain(dataset, key)

    monkeypatch.setattr(datasets.Dataset, "__getitem__", counted)
    return ids


def rows(folder, first=0, cache="cache"):
    """A Dataset in files of the library's, made by a function that reads a file."""
    said = folder / "said"
    said.write_text(str(first))

    def generate():
        yield from ({"number": number + int(said.read_text())} for number in range(SAMPLES))

    return datasets.Dataset.from_generator(generate, cache_dir=str(folder / cache))


def resumed(dataset, store):
    run = Pruner(SAMPLES, epochs=4, leave_out="nothing", store=store, resume=True)
    wrap(DataLoader(dataset, batch_size=20), run)
    epoch = run.begin_epoch()
    for ids in epoch.batches(20):
        run.observe(np.cos(ids), ids)
    run.end_epoch()
    return run.next_epoch


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows,
        lambda rows: rows.map(lambda row: {"twice": 2 * row["number"]}),
        lambda rows: rows.shuffle(seed=1),
        lambda rows: rows.select(np.random.default_rng(0).permutation(SAMPLES)),
        lambda rows: datasets.concatenate_datasets([rows.select(range(40)), rows.select(range(40, 60))]),
        lambda rows: rows.with_format("torch"),
    ],
    ids=["as it is", "mapped", "shuffled", "selected", "joined", "formatted"],
)
def test_of_rows_in_its_files_none_is_read_when_a_run_goes_on(change, read, tmp_path):
    dataset = change(rows(tmp_path))
    read.clear()
    assert resumed(dataset, tmp_path / "run.zarr") == 1
    assert len(read) == 32
    read.clear()
    assert resumed(change(rows(tmp_path)), tmp_path / "run.zarr") == 2
    assert not read


def test_a_transform_that_changed_has_the_same_rows_and_another_order_has_not(read, tmp_path):
    mapped = rows(tmp_path).map(lambda row: {"twice": 2 * row["number"]})
    resumed(mapped, tmp_path / "run.zarr")
    again = rows(tmp_path).map(lambda row: {"twice": row["number"] + row["number"]})
    assert again._fingerprint != mapped._fingerprint
    read.clear()
    assert resumed(again, tmp_path / "run.zarr") == 2
    assert len(read) == 32
    with pytest.raises(OtherData, match="at 30 of the 30 places"):
        resumed(again.select([*range(1, SAMPLES), 0]), tmp_path / "run.zarr")


def added(folder, first, dataset, **options):
    """Rows that ``map`` makes by a function that reads a file."""
    said = folder / "said"
    said.write_text(str(first))
    return dataset.map(lambda row: {"sum": row["number"] + int(said.read_text())}, **options)


def images_in(folder, first):
    files = [folder / f"{number}.png" for number in range(SAMPLES)]
    for number, file in enumerate(files):
        file.write_bytes(png(number + first))
    table = datasets.Dataset.from_dict({"image": list(map(str, files))})
    table.save_to_disk(folder / "table") if not first else None
    return datasets.load_from_disk(folder / "table").cast_column("image", datasets.Image())


def in_memory():
    return datasets.Dataset.from_dict({"number": list(range(SAMPLES))})


OTHERS = {
    "made anew in the same folder": lambda folder, first: (
        shutil.rmtree(folder / "cache", ignore_errors=True), rows(folder, first))[1],
    "made in another folder": lambda folder, first: rows(folder, first, cache=f"cache {first}"),
    "mapped in memory": lambda folder, first: added(folder, first, in_memory()),
    "mapped in another folder": lambda folder, first: added(
        folder, first, in_memory(), cache_file_name=str(folder / f"{first}.arrow"), load_from_cache_file=False),
    "a column in memory": lambda folder, first: rows(folder).add_column(
        "more", [first] * SAMPLES, new_fingerprint="0123456789abcdef"),
    "an order in memory": lambda folder, first: rows(folder).select(
        np.roll(np.arange(SAMPLES), first)[::2].repeat(2), new_fingerprint="0123456789abcdef"),
    "files of images": images_in,
}  # fmt: skip
"""Other rows under the same fingerprint: the files that a function reads are not in it."""


@pytest.mark.parametrize("other", OTHERS)
def test_other_rows_under_the_same_fingerprint_are_noticed(other, tmp_path):
    first = OTHERS[other](tmp_path, 0)
    known = first._fingerprint
    resumed(first, tmp_path / "run.zarr")
    again = OTHERS[other](tmp_path, 2)
    assert again._fingerprint == known
    with pytest.raises(OtherData):
        resumed(again, tmp_path / "run.zarr")


def test_what_a_transform_reads_is_noticed_too(tmp_path):
    class Adding:
        def __init__(self, number):
            self.number = number

        def __call__(self, batch):
            return {"sum": [number + self.number[0] for number in batch["number"]]}

    told = [0]
    transformed = rows(tmp_path).with_transform(Adding(told))
    resumed(transformed, tmp_path / "run.zarr")
    told[0] = 1
    with pytest.raises(OtherData):
        resumed(transformed, tmp_path / "run.zarr")
