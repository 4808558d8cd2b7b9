"""Each framework's loader, pruned, as a user would build it: they give pairs (ids, batch), and a batch its numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from prunedata.adapters import iterable

SAMPLES = 61
BATCH = 6
SHARDS = [20, 3, 25, 13]


@dataclass(frozen=True)
class Framework:
    """How a framework's loader is made, pruned if there is a pruner, and which workers it can have."""

    make: Callable[..., Any]  # make(pruner or None, workers, batch size)
    read: Callable[[Any], Any]
    workers: tuple[int, ...] = (0, 2)
    plain: bool = True
    reports: bool = True  # whether it can know what reached the loop
    weigh: Callable[..., float] | None = None


class CoreBatches:
    """The core alone, without any loader."""

    def __init__(self, pruner, size):
        self.pruner, self.size = pruner, size

    def __iter__(self):
        for ids in self.pruner.current.batches(self.size):
            yield ids, {"number": ids}


class Batches:
    """A loop of one's own that collects pairs into batches."""

    def __init__(self, stream, size):
        self.stream, self.size = stream, size

    def __iter__(self):
        pairs = []
        for pair in self.stream:
            pairs.append(pair)
            if len(pairs) == self.size:
                yield self._batch(pairs)
                pairs = []
        if pairs:
            yield self._batch(pairs)

    def _batch(self, pairs):
        return [number for number, _ in pairs], {"number": [sample for _, sample in pairs]}


def raw_records():
    """In an order in which no id is its position."""
    return [{"uid": place * 31 % SAMPLES, "text": str(place * 31 % SAMPLES)} for place in range(SAMPLES)]


def parse(record):
    return int(record["text"])


def records_of(shards):
    """What Hugging Face's from_generator takes: it splits the list between workers."""
    for records in shards:
        yield from records


def core(pruner, workers, size):
    return CoreBatches(pruner, size)


def plain_python(pruner, workers, size):
    return Batches(iterable.wrap(raw_records(), pruner, id="uid", then=parse), size)


def torch_loader(dataset, pruner, workers, size, *, stateful=False, **options):
    """A DataLoader, pruned if there is a pruner."""
    data = pytest.importorskip("torch.utils.data")
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader if stateful else data.DataLoader
    from prunedata.adapters.torch import wrap

    loader = kind(dataset, batch_size=size, num_workers=workers, persistent_workers=stateful and workers > 0, **options)
    return loader if pruner is None else wrap(loader, pruner, with_ids=True)


def torch_map(pruner, workers, size, **options):
    pytest.importorskip("torch")
    from tests.adapters.helpers.torch import Items

    return torch_loader(Items(SAMPLES), pruner, workers, size, shuffle=True, **options)


def lightning_fit(pruner, workers, size):
    """Lightning's Trainer, which is stopped in each training step."""
    pytest.importorskip("lightning")
    pytest.importorskip("greenlet")
    loader = torch_map(pruner, workers, size)
    if pruner is None:
        return loader
    from tests.adapters.lightning.helpers import FitLoader

    return FitLoader(pruner, loader)


def torch_stream(pruner, workers, size, **options):
    pytest.importorskip("torch")
    from tests.adapters.helpers.torch import Records

    records = Records(raw_records())
    if pruner is None:
        return torch_loader(records.map(parse), None, workers, size)
    return torch_loader(iterable.wrap(records, pruner, id="uid", then=parse), pruner, workers, size, **options)


def hf_map(pruner, workers, size):
    dataset = pytest.importorskip("datasets").Dataset.from_dict({"number": list(range(SAMPLES))})
    return torch_loader(dataset, pruner, workers, size, shuffle=True)


class TrainerBatches:
    """The batches that Hugging Face's Trainer trains on, with the ids that it takes off."""

    def __init__(self, trainer):
        self.loader = trainer.get_train_dataloader()

    def __iter__(self):
        for batch in self.loader:
            yield batch.pop("prunedata_ids"), batch

    def __getattr__(self, name):
        return getattr(self.loader, name)


def hf_trainer(pruner, workers, size, *, drop_last=False):
    pytest.importorskip("transformers")
    from tests.adapters.huggingface.trainers import Unpruned, build

    rows = {"number": list(range(SAMPLES)), "unused": ["text"] * SAMPLES}
    options = {
        "dataset": pytest.importorskip("datasets").Dataset.from_dict(rows),
        "per_device_train_batch_size": size,
        "dataloader_num_workers": workers,
        "dataloader_drop_last": drop_last,
    }
    with TemporaryDirectory() as folder:  # a trainer makes its folder, though nothing is saved
        if pruner is None:
            return build(None, folder, trainer=Unpruned, **options)[0].get_train_dataloader()
        return TrainerBatches(build(pruner, folder, **options)[0])


def hf_parse(record):
    return {"number": int(record["text"])}


def hf_stream(pruner, workers, size, *, generated):
    datasets = pytest.importorskip("datasets")
    if generated:
        shards = [raw_records()[first::3] for first in range(3)]
        raw = datasets.IterableDataset.from_generator(records_of, gen_kwargs={"shards": shards})
    else:
        raw = datasets.Dataset.from_list(raw_records()).to_iterable_dataset(num_shards=4)
    if pruner is None:
        return torch_loader(raw.map(hf_parse, remove_columns=["uid", "text"]), None, workers, size)
    return torch_loader(iterable.wrap(raw, pruner, id="uid", then=hf_parse), pruner, workers, size)


def web_dataset(pruner, workers, size, *, index):
    wds = pytest.importorskip("webdataset")
    from prunedata.adapters.webdataset import wrap

    stream = wds.WebDataset(index.urls, shardshuffle=10, detshuffle=True, seed=1)
    stream = stream if pruner is None else wrap(stream, pruner, index)
    stream = stream.shuffle(20, seed=1).decode().to_tuple("cls", "uid").map_tuple(int, int)
    return torch_loader(stream, pruner, workers, size)


def tf_data(pruner, workers, size):
    tf = pytest.importorskip("tensorflow")
    from prunedata.adapters.tensorflow import wrap

    dataset = tf.data.Dataset.from_tensor_slices([str(number) for number in range(SAMPLES)])
    if pruner is None:
        return dataset.map(tf_parse).batch(size)
    dataset = wrap(dataset, pruner).map(lambda number, text: (number, tf_parse(text)))
    return dataset.shuffle(20, seed=1).batch(size).prefetch(1)


def tf_parse(text):
    import tensorflow as tf

    return {"number": tf.strings.to_number(text, tf.int64)}


def grain_map(pruner, workers, size, *, drop_last=False):
    grain = pytest.importorskip("grain")
    from prunedata.adapters.grain import wrap

    dataset = grain.MapDataset.source([str(number) for number in range(SAMPLES)]).map(grain_parse)
    if pruner is None:
        return dataset.batch(size)
    return wrap(dataset, pruner, lambda kept: kept.batch(size, drop_remainder=drop_last))


def grain_parse(text):
    return {"number": np.int64(text)}


def number(batch):
    return np.asarray(batch["number"])


def itself(batch):
    return np.asarray(batch)


def last(batch):
    return np.asarray(batch[-1])


def weigh(loader, ids, losses):
    """What a loop trains on that gives its losses to a DataLoader of ours."""
    torch = pytest.importorskip("torch")
    mean = loader.observe(torch.tensor(losses, requires_grad=True), ids)
    mean.backward()
    return mean.item()


FRAMEWORKS = {
    "core": Framework(core, number, workers=(0,), plain=False, reports=False),
    "plain Python": Framework(plain_python, number, workers=(0,), plain=False),
    "torch": Framework(torch_map, last, weigh=weigh),
    "torch, stateful": Framework(partial(torch_map, stateful=True), last, weigh=weigh),
    "Lightning": Framework(lightning_fit, last, weigh=weigh),
    "torch stream": Framework(torch_stream, itself, weigh=weigh),
    "torch stream, stateful": Framework(partial(torch_stream, stateful=True), itself, weigh=weigh),
    "WebDataset": Framework(web_dataset, last, weigh=weigh),
    "Hugging Face": Framework(hf_map, number, weigh=weigh),
    "Hugging Face Trainer": Framework(hf_trainer, number, weigh=weigh),
    "Hugging Face stream": Framework(partial(hf_stream, generated=True), number, weigh=weigh),
    "Hugging Face stream of a Dataset": Framework(partial(hf_stream, generated=False), number, weigh=weigh),
    "tf.data": Framework(tf_data, number, workers=(0,), reports=False),  # tf.data reads ahead of the loop
    "Grain": Framework(grain_map, number, workers=(0,)),  # it starts its processes anew in each pass, in seconds
}


def framework_of(name, folder):
    """A framework by its name; ``folder`` is where shards may be written."""
    framework = FRAMEWORKS[name]
    if framework.make is not web_dataset:
        return framework
    pytest.importorskip("webdataset")
    from prunedata.adapters.webdataset import ShardIndex
    from tests.adapters.helpers.shards import write_shards

    index = ShardIndex.scan(write_shards(folder, SHARDS))
    return replace(framework, make=partial(web_dataset, index=index))
