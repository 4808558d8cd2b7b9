"""``prune`` over real ``tf.data`` pipelines, and what must not happen to a mask in them."""

import subprocess
import sys
from functools import partial

import jax
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.adapters.tensorflow import dataset as adapter
from prunedata.adapters.tensorflow import wrap
from prunedata.errors import LossError, OtherData, PrunedataError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.rows import check_rows_are_followed
from tests.adapters.helpers.tensorflow import (
    CHANGING,
    KEPT,
    SAMPLES,
    flat,
    losses_of,
    make_pruner,
    one_epoch,
    parse,
    raw,
    train,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """TFRecord files of unequal length; record i holds i, and as many letters."""
    folder, first, paths = tmp_path_factory.mktemp("records"), 0, []
    for number, end in enumerate((200, 201, 460, SAMPLES)):
        paths.append(str(folder / f"{number}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for uid in range(first, end):
                feature = {"uid": tf.train.Feature(int64_list=tf.train.Int64List(value=[uid]))}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        first = end
    return paths


def parse_record(number, record):
    return number, tf.io.parse_single_example(record, {"uid": tf.io.FixedLenFeature([], tf.int64)})["uid"]


@pytest.mark.parametrize(
    "follow",
    [
        lambda pairs: pairs.map(parse).batch(32),
        lambda pairs: pairs.shuffle(100, seed=1).map(parse, tf.data.AUTOTUNE, deterministic=False).batch(32),
        lambda pairs: pairs.map(parse, tf.data.AUTOTUNE).shuffle(SAMPLES).batch(32).prefetch(tf.data.AUTOTUNE),
        lambda pairs: pairs.batch(7).map(parse),
    ],
    ids=["plain", "shuffled before", "shuffled after", "vectorised"],
)
def test_each_epoch_delivers_its_samples_once_each_beside_their_ids(follow):
    pruner = make_pruner()
    epochs = train(follow(wrap(raw(), pruner)), pruner)
    assert [len(flat(batches)) for batches in epochs] == KEPT
    assert sorted(flat(epochs[1])) != sorted(flat(epochs[3])), "the mask must change"


def test_it_is_traced_once_in_a_run():
    traced = []

    def counted(number, text):
        traced.append("map")
        return parse(number, text)

    pruner = make_pruner()
    train(wrap(raw(), pruner).map(counted).batch(32), pruner)
    assert traced == ["map"]


def test_pruned_samples_are_not_parsed():
    parsed = []

    def note(text):
        parsed.append(int(text))
        return np.int64(text)

    pruner = make_pruner(100)
    pairs = wrap(raw(100), pruner).map(lambda number, text: (number, tf.numpy_function(note, [text], tf.int64)))
    for epoch in pruner.epochs():
        parsed.clear()
        for ids, _ in pairs.batch(16):
            pruner.observe(losses_of(ids, epoch.number), ids)
        assert parsed == np.flatnonzero(epoch.keep).tolist()


@pytest.mark.parametrize(
    "element",
    [
        {"a": np.arange(SAMPLES), "b": (np.arange(SAMPLES), np.ones((SAMPLES, 2, 3), np.float32))},
        (np.arange(SAMPLES), np.zeros((SAMPLES, 70_000), np.uint8)),  # large: few fit into a chunk
    ],
    ids=["nested", "large"],
)
def test_samples_keep_their_structure(element):
    pruner = make_pruner()
    pairs = wrap(tf.data.Dataset.from_tensor_slices(element), pruner)
    assert pairs.element_spec[1] == tf.data.Dataset.from_tensor_slices(element).element_spec
    train(pairs.map(lambda number, sample: (number, tf.nest.flatten(sample)[0])).batch(32), pruner)


PARTS = {"all": [True] * 4, "none": [False] * 4, "some": [True, False, False, True]}


@given(st.lists(st.sampled_from(list(PARTS)), min_size=1, max_size=5), st.integers(0, 3))
@example(["all", "none", "some", "all"], 3)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_are_filtered_whatever_of_them_is_kept(monkeypatch, parts, more):
    monkeypatch.setattr(adapter, "CHUNK", 4)
    keep = np.concatenate([*(PARTS[part] for part in parts), [False, True, True][:more]]).astype(bool)
    assume(0 < keep.sum() < keep.size)
    pruner = Pruner(keep.size, Schedule(2, 2, 1, 1, 1), prune=int((~keep).sum()))
    pairs = wrap(raw(keep.size), pruner)
    for epoch in pruner.epochs():
        kept = np.flatnonzero(keep) if epoch.pruned else np.arange(keep.size)
        assert [(int(uid), int(text)) for uid, text in pairs.as_numpy_iterator()] == [(uid, uid) for uid in kept]
        pruner.observe(np.where(keep, 0.0, 1.0)[kept], kept)


def test_the_first_sample_does_not_wait_for_hundreds_of_files():
    read, pruner = [], Pruner(1000, epochs=2)
    files = (read.append(number) or b"an image" for number in range(1000))
    pairs = wrap(tf.data.Dataset.from_generator(lambda: files, output_signature=tf.TensorSpec((), tf.string)), pruner)
    pruner.begin_epoch()
    next(iter(pairs))
    assert len(read) < 100


def test_samples_of_various_shapes():
    pruner = make_pruner()
    ragged = tf.data.Dataset.range(SAMPLES).map(lambda uid: tf.fill([uid % 5], uid))
    assert not ragged.element_spec.shape.is_fully_defined()
    pairs = wrap(ragged, pruner)
    sums = pairs.map(lambda number, many: (number, tf.where(number % 5 > 0, tf.reduce_max(many), number)))
    train(sums.batch(32), pruner)


@pytest.mark.parametrize("reads", [None, 3])
def test_records(files, reads):
    pruner = make_pruner()
    records = tf.data.TFRecordDataset(files, num_parallel_reads=reads)
    assert records.cardinality() == tf.data.UNKNOWN_CARDINALITY
    pairs, order = wrap(records, pruner), {}
    for epoch in pruner.epochs():
        for ids, uids in pairs.map(parse_record).shuffle(100).batch(32):
            for number, uid in zip(ids.numpy().tolist(), uids.numpy().tolist(), strict=True):
                assert order.setdefault(number, uid) == uid, "an id belongs to its record in every epoch"
            pruner.observe(losses_of(ids, epoch.number), ids)
    assert sorted(order.values()) == list(range(SAMPLES))
    if reads is None:
        assert all(number == uid for number, uid in order.items()), "the position in the order of files"
    assert [record["observed"] for record in pruner.history] == KEPT


@pytest.mark.parametrize("stop", [(0, 0), (0, 5), (1, 3), (3, 13)], ids=str)
def test_a_run_goes_on_in_the_middle_of_an_epoch(stop):
    first, done = make_pruner(), []
    dataset = wrap(raw(), first).map(parse).shuffle(SAMPLES).batch(32)
    for epoch in first.epochs():
        for number, (ids, _) in enumerate(dataset):
            if (epoch.number, number) == stop:
                break
            first.observe(losses_of(ids, epoch.number), ids)
            done += ids.numpy().tolist() if epoch.number == stop[0] else []
        if epoch.number == stop[0]:
            break
    state = first.state_dict()

    second = make_pruner()
    dataset = wrap(raw(), second).map(parse).shuffle(SAMPLES).batch(32)
    second.load_state_dict(state)
    for epoch in second.epochs():
        rest = []
        for ids, _ in dataset:
            rest += ids.numpy().tolist()
            second.observe(losses_of(ids, epoch.number), ids)
        before = done if epoch.number == stop[0] else []
        assert sorted(before + rest) == np.flatnonzero(epoch.keep).tolist()
    assert [record["observed"] for record in second.history] == KEPT


def test_a_dataset_may_be_pruned_in_an_open_epoch_and_again():
    """As by a cell of a notebook that is run again."""
    pruner = make_pruner()
    pruner.begin_epoch()
    pruner.observe(losses_of(range(3), 0), range(3))
    pruner.begin_epoch()
    assert [int(number) for number, _ in wrap(raw(), pruner).take(2)] == [3, 4]
    assert [int(number) for number, _ in wrap(raw(), pruner).take(2)] == [3, 4]


def test_losses_may_come_as_tensors_of_any_kind():
    for epoch in (pruner := make_pruner(100, prune=0.5)).epochs():
        ids = np.flatnonzero(epoch.keep)
        half = tf.constant(losses_of(ids, epoch.number), tf.float16)
        pruner.observe(half, tf.constant(ids, tf.int32))
    assert pruner.visits.sum() == 3 * 100 + 2 * 50


# -- refused, with the reason


def test_losses_are_observed_outside_of_a_traced_step():
    pruner = make_pruner(100, prune=0.5)
    pruner.begin_epoch()
    for compiled in (partial(tf.function, autograph=False), jax.jit):  # autograph raises its own error around it
        with pytest.raises(LossError):
            compiled(pruner.observe)(np.ones(4, np.float32), np.arange(4))


def mixed(**options):
    return tf.data.Dataset.sample_from_datasets([raw().take(40), raw().skip(40)], [0.5, 0.5], **options)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (lambda: raw().batch(8), "Got one of batches"),
        (lambda: raw().batch(8).map(lambda text: text), "Got one of batches"),
        (lambda: raw().repeat(), "repeat"),
        (lambda: raw().repeat(2), f"Got one of {2 * SAMPLES}"),
        (lambda: raw(SAMPLES - 1), f"Got one of {SAMPLES - 1}"),
        (lambda: raw().shuffle(10), "Shuffle after wrap"),
        (lambda: raw().shuffle(10, seed=1).map(lambda text: text), "Shuffle after wrap"),
        (lambda: raw().shuffle(10, reshuffle_each_iteration=False), "Shuffle after wrap"),
        (mixed, "sample_from_datasets"),
        (lambda: mixed(seed=3, rerandomize_each_iteration=True), "sample_from_datasets"),
        (lambda: raw().map(lambda text: text, 2, deterministic=False), "deterministic"),
        (lambda: raw().with_options(unordered()), "deterministic"),
        (lambda: [1, 2], "Got list: make one whose elements are your samples"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_datasets_that_cannot_be_pruned(dataset, why):
    tf.random.set_seed(None)  # with a seed, as another test may have set one, a shuffle can have one order
    with pytest.raises(PrunedataError, match=why):
        wrap(dataset(), make_pruner())


def test_the_number_of_batches_is_not_that_of_the_samples():
    for batched in (raw().batch(8), raw().shuffle(10).padded_batch(8).prefetch(1)):
        with pytest.raises(PrunedataError, match=r"Got one of batches, .*call wrap\(\) first"):
            Pruner(epochs=4).wrap(batched)
    Pruner(SAMPLES // 8 + 1, epochs=4).wrap(raw().batch(8))  # who gives the number may mean them


def unordered():
    options = tf.data.Options()
    options.deterministic = False
    return options


def test_an_order_that_is_the_same_in_every_run_is_as_good_as_none():
    for same in (raw().shuffle(SAMPLES, seed=3, reshuffle_each_iteration=False), mixed(seed=3)):
        pruner = make_pruner()
        train(wrap(same, pruner).map(by_content).batch(32), pruner)
        assert [record["observed"] for record in pruner.history] == [record["kept"] for record in pruner.history]


def by_content(number, text):
    return number, number


def test_what_is_unbatched_is_not_batched(files):
    for whole in (
        raw().batch(8).unbatch(),
        tf.data.TFRecordDataset(files).batch(8).unbatch(),
        raw().batch(8).interleave(tf.data.Dataset.from_tensor_slices, cycle_length=3),
        raw().batch(8).interleave(tf.data.Dataset.from_tensor_slices, cycle_length=3, num_parallel_calls=2),
    ):
        pruner = make_pruner()
        train(wrap(whole, pruner).map(by_content).batch(32), pruner)
        assert [record["observed"] for record in pruner.history] == [record["kept"] for record in pruner.history]


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (lambda files: tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE), "cycle_length"),
        (lambda files: tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset), "cycle_length"),
        (
            lambda files: tf.data.Dataset.from_tensor_slices(files).interleave(
                tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2, deterministic=False
            ),
            "deterministic",
        ),
        (lambda files: tf.data.TFRecordDataset(tf.data.Dataset.list_files(files)), "list_files"),
        (lambda files: tf.data.TFRecordDataset(files).shuffle(100), "Shuffle after wrap"),
        (lambda files: tf.data.TFRecordDataset(files).batch(4), "Got one of batches"),
        (
            lambda files: (
                tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset, cycle_length=2).batch(4)
            ),
            "Got one of batches",
        ),
    ],
)
def test_records_in_an_order_that_may_change(files, records, why):
    with pytest.raises(PrunedataError, match=why):
        wrap(records(files), make_pruner())


def test_a_dataset_is_pruned_once():
    pruner = make_pruner()
    with pytest.raises(PrunedataError, match="Got the result of wrap"):
        wrap(wrap(raw(), pruner).map(parse), pruner)


# -- noticed when it happens


def test_more_records_than_the_pruner_has_samples(files):
    pruner = make_pruner(SAMPLES - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"Expected a dataset of {SAMPLES - 1} samples"):
        one_epoch(wrap(tf.data.TFRecordDataset(files), pruner), pruner)


def test_fewer_records_than_the_pruner_has_samples(files):
    pruner = make_pruner(SAMPLES + 2)
    with pytest.raises(SkippedSamples, match="did not deliver 2 of them"):
        one_epoch(wrap(tf.data.TFRecordDataset(files), pruner), pruner)


def test_a_policy_without_losses_is_held_to_what_was_delivered():
    pruner = make_pruner(policy=Random())
    pairs = wrap(raw(), pruner)
    for epoch in pruner.epochs():
        assert len(list(pairs)) == epoch.kept
    assert [record["observed"] for record in pruner.history] == [0] * 5
    pruner = make_pruner(policy=Random())
    pairs = wrap(raw(), pruner)
    with pytest.raises(SkippedSamples, match="did not deliver"):
        for _ in pruner.epochs():
            pass


def test_a_batch_that_is_dropped_can_be_skipped():
    pruner = make_pruner()
    dataset = wrap(raw(), pruner).shuffle(SAMPLES).batch(32, drop_remainder=True)
    for epoch in pruner.epochs():
        pruner.skip(epoch.kept % 32)
        for ids, _ in dataset:
            pruner.observe(losses_of(ids, epoch.number), ids)
    assert [record["observed"] for record in pruner.history] == [kept // 32 * 32 for kept in KEPT]


def test_of_samples_that_a_later_step_drops_the_error_says_to_skip_them():
    pruner = make_pruner()
    with pytest.raises(SkippedSamples, match=r"pruner.skip\(\)"):
        one_epoch(wrap(raw(), pruner).take(SAMPLES - 5), pruner)


def test_of_a_generator_that_shuffles_it_warns_that_losses_go_to_wrong_samples():
    random = np.random.default_rng(0)
    source = tf.data.Dataset.from_generator(
        lambda: iter(random.permutation(SAMPLES)), output_signature=tf.TensorSpec((), tf.int64)
    )
    pruner = make_pruner()
    wrap(source, pruner)
    with pytest.warns(UserWarning, match="wrong samples"):
        pruner.state_dict()


def test_without_tensorflow_the_extra_is_named():
    code = "import sys; sys.modules['tensorflow'] = None\nimport prunedata.adapters.tensorflow"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install tensorflow" in done.stderr


def test_the_pruner_goes_when_nobody_needs_it():
    import gc
    import weakref

    pruner = Pruner(100, CHANGING, prune=0.3)
    pairs = wrap(raw(100), pruner)
    gone = weakref.ref(pruner)
    del pruner, pairs
    gc.collect()
    assert gone() is None


def test_a_dataset_says_how_many_samples_it_has():
    run = Pruner(epochs=2)
    wrapped = run.wrap(tf.data.Dataset.range(12))
    run.begin_epoch()
    ids = [int(number) for number, _ in wrapped]
    run.observe(np.ones(12), ids)
    assert (run.samples, ids) == (12, list(range(12)))
    with pytest.raises(PrunedataError, match="does not know"):
        Pruner(epochs=2).wrap(tf.data.Dataset.range(12).filter(lambda number: number > 3))


def test_rows_are_followed_by_their_keys(tmp_path):
    def wrapped(pruner, rows):
        data = pruner.wrap(tf.data.Dataset.from_tensor_slices(np.array(rows))).shuffle(50, seed=1).batch(7)
        return lambda: ((ids.numpy(), values.numpy()) for ids, values in data)

    check_rows_are_followed(wrapped, tmp_path)


def test_other_rows_are_noticed_without_keys_by_the_first_of_them(tmp_path):
    reads = []

    def resumed(rows):
        def generate():
            for row in rows:
                reads.append(row)
                yield {"row": row, "text": f"text {row}"}

        spec = {"row": tf.TensorSpec((), tf.int64), "text": tf.TensorSpec((), tf.string)}
        run = Pruner(SAMPLES, epochs=4, policy=Random(), prune=0.1, store=tmp_path / "run.zarr", resume=True)
        pairs = run.wrap(tf.data.Dataset.from_generator(generate, output_signature=spec)).batch(64)
        run.begin_epoch()
        for ids, batch in pairs:
            run.observe(np.cos(batch["row"]), ids.numpy())
        run.end_epoch()
        return run.next_epoch

    assert resumed(range(SAMPLES)) == 1
    assert len(reads) == SAMPLES + 32
    assert resumed(range(SAMPLES)) == 2
    with pytest.raises(OtherData, match="at 29 of the 30 places"):
        resumed([0, *range(2, SAMPLES), 1])
    assert resumed(range(SAMPLES)) == 3
