"""A run that goes on with another data set, of the same length: noticed, and nothing is lost."""

import os
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset

from prunedata import Pruner
from prunedata.errors import ForeignStore, OtherData, PrunedataError
from prunedata.policies import Random
from prunedata.run.identity import PROBED, TWICE
from tests.adapters.helpers.rows import check_rows_are_followed

SAMPLES = 60
ROWS = torch.arange(SAMPLES * 3.0).reshape(SAMPLES, 3)


def rows(order=range(SAMPLES)):
    return Subset(TensorDataset(ROWS, torch.arange(SAMPLES) % 5), list(order))


class Flipped(Dataset):
    """Samples that a transform changes at random, by each of the generators that transforms use."""

    def __init__(self, first=0):
        self.first = first

    def __len__(self):
        return SAMPLES

    def __getitem__(self, at):
        drawn = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
        return {"row": self.first + at, "noise": torch.tensor(drawn)}


def train(dataset, epochs=1, pruner=None, **options):
    run = pruner or Pruner(epochs=4, policy=Random(), prune=6, **options)
    loader = run.wrap(DataLoader(dataset, batch_size=16, shuffle=True))
    for _ in run.epochs():
        for batch in loader:
            values = batch["row"] if isinstance(batch, dict) else batch[0].reshape(len(batch[0]), -1)[:, 0]
            run.observe(values.float() / 10)
        epochs -= 1
        if not epochs:
            break
    run.commit()
    return run


def test_rows_in_another_order_are_an_error_and_the_run_stays(tmp_path):
    train(rows(), store=tmp_path)
    moved = [*range(1, SAMPLES), 0]
    with pytest.raises(OtherData, match=r"Got other samples at 30 of the 30 places"):
        train(rows(moved), store=tmp_path, resume=True)
    assert train(rows(), store=tmp_path, resume=True).next_epoch == 2


@given(st.permutations(range(SAMPLES)))
def test_of_a_checkpoint_too(order):
    state = train(rows()).state_dict()
    pruner = Pruner(SAMPLES, epochs=4, policy=Random(), prune=6)
    pruner.load_state_dict(state)
    probed = pruner._engine.identity._ids.tolist()
    if any(order[at] != at for at in probed):
        with pytest.raises(OtherData):
            train(rows(order), pruner=pruner)
    else:
        train(rows(order), pruner=pruner)


def test_a_checkpoint_that_is_loaded_after_the_loader_was_wrapped_changes_nothing_if_it_is_refused():
    state = train(rows()).state_dict()
    pruner = Pruner(SAMPLES, epochs=4, policy=Random(), prune=6)
    pruner.wrap(DataLoader(rows(reversed(range(SAMPLES))), batch_size=16))
    with pytest.raises(OtherData):
        pruner.load_state_dict(state)
    assert (pruner.next_epoch, pruner.history) == (0, [])


def test_other_data_is_taken_if_that_is_asked_for_and_is_the_runs_from_then_on(tmp_path):
    train(rows(), store=tmp_path)
    other = rows(reversed(range(SAMPLES)))
    assert train(other, store=tmp_path, resume="other data").next_epoch == 2
    assert train(other, store=tmp_path, resume=True).next_epoch == 3
    with pytest.raises(OtherData):
        train(rows(), store=tmp_path, resume=True)


def test_several_loaders_of_a_run_have_the_same_rows():
    """They may read them in another way, or have a part by a sampler; a fold, or another order, is an error."""
    fold = list(range(SAMPLES // 2))
    run = Pruner(len(fold), epochs=4)
    run.wrap(DataLoader(rows(fold), batch_size=16))
    for same in (rows(fold), Subset(TensorDataset(2 * ROWS), fold), TensorDataset(ROWS[: len(fold)])):
        run.wrap(DataLoader(same, batch_size=16))
    run.wrap(DataLoader(rows(fold), batch_size=8, sampler=SubsetRandomSampler(fold[:10])))
    for others in (fold[::-1], list(range(len(fold), SAMPLES))):
        with pytest.raises(OtherData):
            run.wrap(DataLoader(rows(others), batch_size=16))


def test_samples_that_are_changed_at_random_are_the_same(tmp_path):
    torch.manual_seed(0)
    train(Flipped(), store=tmp_path)
    torch.manual_seed(1)
    train(Flipped(), store=tmp_path, resume=True)
    with pytest.raises(OtherData):
        train(Flipped(first=1), store=tmp_path, resume=True)


def test_it_reads_32_samples_at_most_and_draws_nothing(tmp_path):
    reads = []

    class Counting(Flipped):
        def __getitem__(self, at):
            reads.append(at)
            return super().__getitem__(at)

    states = []
    for store in (None, tmp_path):
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002
        random.seed(3)
        reads.clear()
        train(Counting(), store=store)
        states.append((torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()))  # noqa: NPY002
        assert len(reads) - SAMPLES == (0 if store is None else PROBED + TWICE)
    assert states[0] == states[1]


def test_a_data_set_that_cannot_be_read_now_is_unknown(tmp_path):
    class Broken(Flipped):
        broken = False

        def __getitem__(self, at):
            if self.broken:
                raise OSError(at)
            return super().__getitem__(at)

    train(Broken(), store=tmp_path)
    broken = Broken()
    broken.broken = True
    Pruner(SAMPLES, epochs=4, policy=Random(), prune=6, store=tmp_path, resume=True).wrap(DataLoader(broken))


def test_what_else_resume_may_be_is_refused():
    with pytest.raises(PrunedataError, match='Expected resume to be True, False or "other data"'):
        Pruner(SAMPLES, epochs=4, resume="data")


class OpensInItsWorker(Flipped):
    """As one that opens a file when it is first read: this process must not, as workers would share its place."""

    def __init__(self, first=0):
        super().__init__(first)
        self.made_in, self.opened = os.getpid(), False

    def __getitem__(self, at):
        assert os.getpid() != self.made_in
        return {"row": self.first + at}


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_data_set_that_workers_read_is_read_by_a_worker(tmp_path, context):
    def wrapped(dataset):
        run = Pruner(SAMPLES, epochs=4, policy=Random(), prune=6, store=tmp_path, resume=True)
        return run, run.wrap(DataLoader(dataset, batch_size=20, num_workers=1, multiprocessing_context=context))

    run, loader = wrapped(OpensInItsWorker())
    run.begin_epoch()
    for batch in loader:
        run.observe(batch["row"].float())
    torch.manual_seed(0)
    run.end_epoch()
    assert torch.initial_seed() == 0
    assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(0).get_state())
    assert None not in run.state_dict()["state"]["data"][:-1]
    del run, loader
    assert wrapped(OpensInItsWorker())[0].next_epoch == 1
    with pytest.raises(OtherData):
        wrapped(OpensInItsWorker(first=1))


class Folder(Dataset):
    """As torchvision's folders: files with their classes in a list."""

    def __init__(self, root, names):
        self.root = str(root)
        self.samples = [(os.path.join(root, name), at % 3) for at, name in enumerate(names)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, at):
        path, label = self.samples[at]
        return torch.tensor(float(path.rpartition("/")[2])), label


FILES = [f"class {number % 3}/{number}" for number in range(SAMPLES)]


def test_files_of_a_folder_are_its_keys_wherever_it_lies(tmp_path):
    train(Folder("/here", FILES), store=tmp_path)
    assert train(Folder("/there/now/", FILES), store=tmp_path, resume=True).next_epoch == 2
    with pytest.raises(OtherData, match="1 are new, and 1 of the 60 are gone"):
        train(Folder("/here", [*FILES[:-1], "class 0/99"]), store=tmp_path, resume=True)


def test_a_folder_that_grew_and_a_part_of_it_are_followed(tmp_path):
    options = {"store": tmp_path, "leave_out": "nothing"}
    train(Folder("/here", FILES), **options)
    files = sorted([*FILES, "class 0/98", "class 2/99"])
    with pytest.raises(ForeignStore, match="follow=True and no number of samples"):
        Pruner(len(files), epochs=4, policy=Random(), prune=6, resume=True, follow=True, **options)
    run = train(Folder("/here", files), resume=True, follow=True, **options)
    assert (run.samples, run.next_epoch) == (62, 2)
    assert np.flatnonzero(run.visits == 1).tolist() == [files.index(f"class {name}") for name in ("0/98", "2/99")]
    assert (run.visits >= 1).all()
    del run
    part = Subset(Folder("/here", files), torch.arange(0, 62, 2))
    assert train(part, resume=True, follow=True, **options).samples == 31


def test_rows_that_were_shuffled_are_followed_when_the_loader_is_wrapped(tmp_path):
    run = train(Folder("/here", FILES), store=tmp_path)
    before = run.arrays["mean_excess"]
    del run
    given = Pruner(SAMPLES, epochs=4, policy=Random(), prune=6, store=tmp_path, resume=True, follow=True)
    with pytest.raises(PrunedataError, match="Expected keys beside follow=True"):
        given.begin_epoch()
    given.wrap(DataLoader(Folder("/here", FILES[::-1]), batch_size=16))
    assert np.array_equal(given.arrays["mean_excess"], before[::-1])
    del given
    assert train(Folder("/here", FILES[::-1]), store=tmp_path, resume=True).next_epoch == 2


def test_a_loader_of_other_rows_changes_nothing(tmp_path):
    train(Folder("/here", FILES), store=tmp_path)
    given = Pruner(SAMPLES, epochs=4, policy=Random(), prune=6, store=tmp_path, resume=True)
    before = given.visits
    with pytest.raises(OtherData):
        given.wrap(DataLoader(Folder("/here", FILES[::-1]), batch_size=16))
    assert np.array_equal(given.visits, before)
    assert given.wrap(DataLoader(Folder("/here", FILES), batch_size=16))


@pytest.mark.parametrize("names", [[FILES[0], *FILES[:-1]], None])
def test_names_that_repeat_are_none_and_keys_that_are_given_hold(names):
    dataset = TensorDataset(ROWS) if names is None else Folder("/here", names)
    for keys, known in ((None, False), (range(SAMPLES), True)):
        run = Pruner(SAMPLES, epochs=4, keys=keys)
        run.wrap(DataLoader(dataset, batch_size=16))
        assert ("keys" in run.state_dict()["arrays"]) == known


def test_rows_are_followed_by_their_keys(tmp_path):
    def wrapped(pruner, rows):
        loader = pruner.wrap(DataLoader(TensorDataset(torch.tensor(rows)), batch_size=7, shuffle=True), with_ids=True)
        return lambda: ((ids, values.numpy()) for ids, (values,) in loader)

    check_rows_are_followed(wrapped, tmp_path)
