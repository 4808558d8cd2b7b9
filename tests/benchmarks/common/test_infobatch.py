"""InfoBatch is loaded from its file, and what it does to DataLoader is undone."""

import pytest
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from benchmarks.common.infobatch import InfoBatch
from tests.benchmarks.peer import infobatch_checkout


def test_infobatch_is_loaded_and_its_patch_undone(tmp_path):
    before = _BaseDataLoaderIter.__next__
    peer = InfoBatch(infobatch_checkout(tmp_path))
    assert _BaseDataLoaderIter.__next__ is before
    assert len(peer.wrap(10).scores) == 10
    assert [batch.tolist() for batch in DataLoader(range(3), batch_size=2)] == [[0, 1], [2]]


def test_the_patch_is_undone_though_the_file_fails(tmp_path):
    infobatch_checkout(tmp_path, "\nraise KeyError('later')\n")
    before = _BaseDataLoaderIter.__next__
    with pytest.raises(KeyError, match="later"):
        InfoBatch(tmp_path)
    assert _BaseDataLoaderIter.__next__ is before
