import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import DamagedStore, NotInEpoch, PrunedataError
from prunedata.streams.maskfile import MaskFile, Resumable, publish
from tests.common.programs import FEWER

EVERY_OTHER = Schedule(4, window=4, start=1, block=2, pruned_per_block=1)


def start(samples=20, **options):
    return Pruner(samples, EVERY_OTHER, **{"prune": 0.5, "seed": 3, **options})


def test_nothing_can_be_read_before_the_first_epoch():
    pruner = start()
    mask = publish(pruner)
    assert mask.epoch() is None
    with pytest.raises(NotInEpoch, match=r"inside `for epoch in pruner.epochs"):
        mask.read()


@FEWER
@given(st.integers(2, 300), st.integers(0, 9))
def test_a_reader_that_was_sent_away_sees_every_epoch(samples, seed):
    pruner = start(samples, seed=seed)
    far = pickle.loads(pickle.dumps(publish(pruner)))
    for epoch in pruner.epochs():
        np.testing.assert_array_equal(far.read(), epoch.keep)
        assert far.read().dtype == np.bool_
        assert far.epoch() == epoch.number
        pruner.observe(np.random.default_rng(epoch.number).random(epoch.kept), np.flatnonzero(epoch.keep))


def test_an_epoch_that_is_open_is_published_at_once_and_one_that_goes_on_without_what_was_observed():
    pruner = start()
    pruner.begin_epoch()
    assert publish(pruner).epoch() == 0
    pruner.observe([0.5, 0.5], [1, 4])
    second = start()
    mask = publish(second)
    second.load_state_dict(pruner.state_dict())
    second.begin_epoch()
    assert np.flatnonzero(~mask.read()).tolist() == [1, 4]


def test_a_reader_never_sees_half_a_mask(tmp_path):
    """Whoever has the old file open goes on with it: it is replaced, not overwritten."""
    mask = MaskFile(str(tmp_path / "mask"))
    pruner = start()
    mask.write(pruner.begin_epoch())
    with open(mask.path, "rb") as old:
        pruner.observe(np.arange(20.0), np.arange(20))
        pruner.end_epoch()
        mask.write(pruner.begin_epoch())
        assert old.read() == bytes(8) + (20).to_bytes(8, "little") + b"\1" * 20
    assert not mask.read().all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mask", "mask.passes"]


@given(st.data())
@FEWER
def test_a_mask_that_is_not_as_it_was_written_is_refused(data):
    """A cut one would end the epoch of a worker with an IndexError, or leave out whatever is missing."""
    pruner = start(samples=30)
    mask = publish(pruner)
    pruner.begin_epoch()
    with open(mask.path, "rb") as file:
        whole = file.read()
    damaged = data.draw(
        st.integers(0, len(whole) - 1).map(lambda length: whole[:length])
        | st.binary(min_size=1, max_size=9).map(lambda more: whole + more)
        | st.tuples(st.integers(16, 45), st.integers(2, 255)).map(
            lambda at: whole[: at[0]] + bytes([at[1]]) + whole[at[0] + 1 :]
        )
    )
    with open(mask.path, "wb") as file:
        file.write(damaged)
    with pytest.raises(DamagedStore, match=r"Expected the mask of an epoch in .*Got "):
        mask.read()


def test_a_run_has_one_file_however_often_it_is_asked_for(tmp_path, monkeypatch):
    """Each stream that is wrapped asks for it, and each again when a cell of a notebook is run again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pruner = start()
    assert len({publish(pruner).path for _ in range(5)}) == 1
    pruner.begin_epoch()
    assert len(list(tmp_path.iterdir())) == 1
    assert publish(pruner).epoch() == 0


def test_a_folder_that_a_cleaner_removes_is_there_again_in_the_next_epoch():
    pruner = start()
    mask = publish(pruner)
    far = pickle.loads(pickle.dumps(mask))
    for epoch in pruner.epochs():
        assert far.read().sum() == epoch.kept
        pruner.observe(np.arange(epoch.kept), np.flatnonzero(epoch.keep))
        folder = Path(mask.path).parent
        shutil.rmtree(folder)
        with pytest.raises(NotInEpoch, match=f"delete {folder} meanwhile"):
            far.read()
    assert pruner.next_epoch == 4


IN_A_FORK = """
import gc, os
from pathlib import Path
from tests.streams.test_maskfile import publish, start
pruner = start()
folder = Path(publish(pruner).path).parent
pruner.begin_epoch()
child = os.fork()
if child == 0:
    del pruner
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (folder / "mask").is_file()
del pruner
gc.collect()
assert not folder.exists()
"""


def test_the_file_goes_with_its_pruner_but_not_with_a_copy_in_a_fork():
    """In a process of its own: one that has loaded a framework has threads, and its fork may crash."""
    subprocess.run([sys.executable, "-c", IN_A_FORK], check=True)


def test_a_state_from_a_later_epoch_says_that_the_pruner_was_not_restored(tmp_path):
    stream = Resumable()
    stream.mask = MaskFile(str(tmp_path / "mask"))
    assert stream.state_dict() == {"epoch": None}
    stream.load_state_dict({"epoch": 3})  # nothing is known yet
    stream.mask.write(start().begin_epoch())
    assert stream.state_dict() == {"epoch": 0}
    stream.load_state_dict({"epoch": None})
    stream.load_state_dict({"epoch": 0})
    with pytest.raises(PrunedataError, match=r"epoch 3.*Got one in epoch 0.*pruner.load_state_dict"):
        stream.load_state_dict({"epoch": 3})
    for forged in (None, [], {}, {"epoch": "x"}, {"epoch": 10**5000}, {"epoch": 1.5}):
        with pytest.raises(PrunedataError, match=r"Expected the (state of a|epoch of a stream)"):
            stream.load_state_dict(forged)
