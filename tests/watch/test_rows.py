"""The row of each sample in the data set from which it was selected."""

import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset, TensorDataset

from prunedata.run.frameworks import labels_in, names_in
from prunedata.run.rows import carry_rows, original_rows

# The row of each sample in the data set from which it was selected.


@pytest.fixture(autouse=True, scope="module")
def carried():
    """As it is in a watched program."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("map", "_select_contiguous"):
            patch.setattr(Dataset, name, getattr(Dataset, name))
        carry_rows(Dataset)
        yield


KINDS = ["shuffle", "half", "odd", "split", "map", "batched", "format", "range", "columns", "folds"]
STEPS = st.lists(st.sampled_from(KINDS), max_size=5)


@given(steps=STEPS, seed=st.integers(0, 99))
@settings(deadline=None)
def test_of_hugging_faces(steps, seed):
    data = Dataset.from_dict({"place": list(range(40))})
    for number, step in enumerate(steps):
        if step == "shuffle":
            data = data.shuffle(seed=seed)
        elif step == "half":
            data = data.select(range(0, len(data), 2))
        elif step == "odd":
            data = data.filter(lambda row: row["place"] % 4 != 0)
        elif step == "range" and len(data) > 4:
            data = data.select(range(1, len(data) - 1))
        elif step == "map":
            data = data.map(lambda row: {"more": str(row["place"])})
        elif step == "batched":
            data = data.map(lambda rows, number=number: {f"n{number}": rows["place"]}, batched=True, batch_size=7)
        elif step == "columns" and len(data.column_names) > 1:
            data = data.remove_columns(data.column_names[1:]).rename_column("place", "id").rename_column("id", "place")
        elif step == "format":
            data = data.with_format("numpy").with_format(None)
        elif step == "folds" and len(data) > 4:
            data = concatenate_datasets([data.shard(3, fold, contiguous=False) for fold in (0, 2)])
        elif step == "split" and len(data) > 4:
            data = data.train_test_split(0.25, seed=seed)["train"]
    rows = original_rows(data)
    assert (list(range(len(data))) if rows is None else rows.tolist()) == data["place"]


def test_a_batched_function_that_writes_other_rows_has_a_data_set_of_its_own():
    data = Dataset.from_dict({"place": list(range(8))}).select([6, 4, 2, 0])
    backwards = data.map(lambda rows: {"n": rows["place"][::-1]}, batched=True, remove_columns=["place"])
    assert original_rows(backwards) is None
    assert original_rows(data.map(None)).tolist() == [6, 4, 2, 0]


@given(steps=st.lists(st.integers(0, 99), max_size=3))
def test_of_pytorch(steps):
    data = TensorDataset(torch.arange(64))
    for seed in steps:
        data = Subset(data, np.random.default_rng(seed).permutation(len(data))[: len(data) // 2].tolist())
    rows = original_rows(data)
    assert (list(range(len(data))) if rows is None else rows.tolist()) == [int(data[n][0]) for n in range(len(data))]


class Windows(torch.utils.data.Dataset):
    """Has other things by the names that data sets of PyTorch and of Hugging Face have."""

    def __init__(self):
        self.dataset, self._data = np.zeros((3, 9)), iter([])
        self.indices = [(series, begins) for series in range(3) for begins in (0, 4)]

    def __len__(self):
        return 6

    def __getitem__(self, place):
        series, begins = self.indices[place]
        return self.dataset[series, begins : begins + 4]


def test_of_a_data_set_with_other_indices_the_rows_are_its_own():
    assert original_rows(Windows()) is None
    assert names_in(Windows()) is labels_in(Windows()) is None
    assert original_rows(Subset(Windows(), [4, 1])).tolist() == [4, 1]
