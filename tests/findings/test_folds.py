"""Runs on rows that they share: joined by keys, or by ids; one list of what all of them suspect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import PrunedataError
from prunedata.findings.folds import joined_table, shared_rows
from prunedata.findings.searched import state_of
from prunedata.keys import hash_keys, key_text

ROWS = 30
SPLITS = st.lists(st.sets(st.integers(0, ROWS - 1), min_size=3), min_size=1, max_size=4)


def watched(rows, *, keys=True, wrong=(3, 8), epochs=2, **options):
    """A run over some rows, of which some have high losses."""
    rows = list(rows)
    run = Pruner(
        len(rows), epochs=4, leave_out="nothing", keys=[f"row {row}" for row in rows] if keys else None, **options
    )
    for _ in range(epochs):
        epoch = run.begin_epoch()
        for ids in epoch.batches(10):
            run.observe(np.array([5.0 + rows[i] if rows[i] in wrong else rows[i] / 99 for i in ids]), ids)
        run.end_epoch()
    return state_of(run)


@given(SPLITS)
def test_each_row_is_there_once_and_is_found_in_each_run(splits):
    runs = [watched(sorted(split), epochs=0) for split in splits]
    for run, split in zip(runs, splits, strict=True):
        run.arrays["keys"] = hash_keys([f"row {row}" for row in sorted(split)])
    places = shared_rows(runs).places
    assert places.shape == (len(splits), len(set().union(*splits)))
    for at in range(places.shape[1]):
        found = {sorted(split)[place] for split, place in zip(splits, places[:, at], strict=True) if place >= 0}
        (row,) = found
        assert [row in split for split in splits] == (places[:, at] >= 0).tolist()


@given(SPLITS)
def test_a_row_is_judged_by_the_mean_of_its_ranks_in_the_runs_that_trained_on_it(splits):
    runs = [watched(sorted(split)) for split in splits]
    table = joined_table(runs, ROWS)
    names = {key_text(int(key)): row for row, key in enumerate(hash_keys([f"row {row}" for row in range(ROWS)]))}
    assert sorted(names[key] for key in table["key"]) == sorted(set().union(*splits))
    for at, key in enumerate(table["key"].tolist()):
        row = names[key]
        ranks = []
        for run, split in zip(runs, splits, strict=True):
            if row in split:
                scores = run.mean_excess
                mine = scores[sorted(split).index(row)]
                ranks.append(((scores < mine).sum() + (scores == mine).sum() / 2) / len(split))
        assert table["score"][at] == pytest.approx(np.mean(ranks))
        assert table["runs"][at] == len(ranks)
        first = next(number for number, split in enumerate(splits) if row in split)
        assert (table["run"][at], table["id"][at]) == (first, sorted(splits[first]).index(row))
    assert (np.diff(table["score"]) <= 0).all()


def test_without_keys_equal_ids_are_one_row():
    table = joined_table([watched(range(ROWS), keys=False), watched(range(ROWS), seed=1, keys=True)], 2)
    assert "key" not in table
    assert sorted(table["id"].tolist()) == [3, 8]
    with pytest.raises(PrunedataError, match="Got one of 30 and one of 20, and not all of them have keys"):
        joined_table([watched(range(ROWS), keys=False), watched(range(20))], 2)


def test_what_a_run_left_out_for_good_or_held_out_it_does_not_judge():
    runs = [watched(range(ROWS), without=[3]), watched(range(ROWS))]
    table = joined_table(runs, ROWS)
    at = table["id"].tolist().index(3)
    assert table["runs"][at] == 1
    with pytest.raises(PrunedataError, match="Got none in any of the runs"):
        joined_table([watched(range(ROWS), epochs=0)], 2)


def test_folds_find_wrong_labels_as_well_as_one_run_on_all(tmp_path):
    """And better than networks that did not train on the row, where a network can learn labels by repetition."""
    torch, data = pytest.importorskip("torch"), pytest.importorskip("sklearn.datasets")
    images, labels = data.load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    wrong = random.permutation(labels.size)[:360]
    labels[wrong] = (labels[wrong] + random.integers(1, 10, wrong.size)) % 10
    inputs, targets = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)

    def train(rows, seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        run = Pruner(epochs=15, seed=seed, leave_out="nothing", keys=rows)
        for epoch in run.epochs():
            for ids in epoch.batches(64):
                at = rows[ids]
                losses = torch.nn.functional.cross_entropy(model(inputs[at]), targets[at], reduction="none")
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
                run.observe(losses.detach().numpy(), ids)
        return state_of(run), model

    def auc(scores):
        ranks = np.argsort(np.argsort(scores))
        return (ranks[wrong].mean() - (wrong.size - 1) / 2) / (labels.size - wrong.size)

    fold, out, runs = np.arange(labels.size) % 5, np.empty(labels.size), []
    for number in range(5):
        state, model = train(np.flatnonzero(fold != number), number)
        runs.append(state)
        held = np.flatnonzero(fold == number)
        with torch.no_grad():
            out[held] = torch.nn.functional.cross_entropy(model(inputs[held]), targets[held], reduction="none").numpy()
    table, joined = joined_table(runs, labels.size), np.empty(labels.size)
    order = {key_text(int(key)): row for row, key in enumerate(hash_keys(np.arange(labels.size)))}
    joined[[order[key] for key in table["key"].tolist()]] = table["score"]
    alone = train(np.arange(labels.size), 0)[0].mean_excess
    assert auc(joined) > 0.997
    assert auc(joined) > auc(alone) - 0.001
    assert auc(joined) > auc(out)
