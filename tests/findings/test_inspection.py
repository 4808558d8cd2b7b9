"""What is said of a run's store, against the run itself; and that saying it touches nothing."""

import asyncio
import json

import numpy as np
import pytest
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from prunedata import Schedule
from prunedata.errors import DamagedStore, ForeignStore
from prunedata.findings.inspection import inspect
from prunedata.store.run_store import RunStore
from tests.store.stored_runs import SAMPLES, SCHEDULE, build, contents, observe, start


def test_it_says_what_the_run_was_given_and_where_it_stands(tmp_path):
    run = build(tmp_path)
    found = inspect(tmp_path)
    assert [found[name] for name in ("samples", "prune", "seed", "batch_size")] == [SAMPLES, 90, 3, None]
    assert found["policy"] == {"name": "DroppingCount", "tolerance": 0.0, "by": "window"}
    assert Schedule.from_dict(found["schedule"]) == SCHEDULE
    assert (found["epoch"], found["open"], found["generation"]) == (6, True, 8)
    assert [(array["name"], array["shape"]) for array in found["arrays"]] == [
        (name, [SAMPLES]) for name in ("counts", "hits", "keys", "mean_excess", "open-mean_excess", "tally", "visits")
    ]
    assert [record["pruned"] for record in found["history"]] == [SCHEDULE.prunes(epoch) for epoch in range(6)]
    assert [record["number"] for record in run.history] == [record["number"] for record in found["history"]]
    assert json.loads(json.dumps(found)).keys() == found.keys()


@pytest.mark.parametrize(("dropped", "again"), [(0, 0), (1, 0), (0, 2)])
def test_counts_and_the_most_pruned_are_those_of_the_run(tmp_path, dropped, again):
    """Samples of a batch that was dropped are not pruned, and those that were observed again are not pruned less."""
    run = start(tmp_path)
    left_out = np.zeros(SAMPLES, dtype=int)
    for number in range(8):
        observe(run, -dropped or None)
        run.skip(50 * dropped)
        for _ in range(again):
            run.observe(np.cos(np.arange(SAMPLES)), np.arange(SAMPLES))  # those that are left out, too
        left_out += ~run.current.keep
        run.end_epoch()
        if number == 3:
            run = start(tmp_path, resume=True)
    found = inspect(tmp_path, top=25)
    values, numbers = np.unique(run.counts, return_counts=True)
    assert found["counts_histogram"] == dict(zip(values.tolist(), numbers.tolist(), strict=True))
    most = found["most_pruned"]
    assert len(most) == 25
    assert [sample["pruned"] for sample in most] == np.sort(left_out)[::-1][:25].tolist()
    arrays = {"pruned": left_out, "hits": run.hits, "visits": run.visits, "count": run.counts}
    for sample in most:
        assert sample == {"id": sample["id"]} | {name: array[sample["id"]] for name, array in arrays.items()}
    assert len({sample["id"] for sample in most}) == 25


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_run_that_has_pruned_nothing_yet(tmp_path, epochs):
    run = start(tmp_path)
    for _ in range(epochs):
        observe(run)
        run.end_epoch()
    found = inspect(tmp_path)
    assert (found["epoch"], found["most_pruned"]) == (epochs, [])
    assert sum(found["counts_histogram"].values()) == SAMPLES


@pytest.mark.parametrize("store", [str, LocalStore, lambda path: LocalStore(path, read_only=True)])
def test_a_look_touches_nothing(tmp_path, store):
    build(tmp_path / "run.zarr")
    before = contents(tmp_path)
    assert inspect(store(tmp_path / "run.zarr"))["epoch"] == 6
    with pytest.raises(ForeignStore, match="Got nothing"):
        inspect(store(tmp_path / "deep" / "none.zarr"))
    assert contents(tmp_path) == before


def test_an_empty_folder_holds_no_run(tmp_path):
    for store in (tmp_path, MemoryStore()):
        with pytest.raises(ForeignStore, match="Got nothing"):
            inspect(store)


class Busy(WrapperStore):
    """A store whose run commits while somebody reads it."""

    commits = 0
    run = None

    async def get(self, key, prototype, byte_range=None):
        if key.startswith("counts") and self.commits:
            self.commits -= 1
            state = {"epoch": self.commits}
            for value in (1, 2):
                await self.commit(state, np.full(9, value + self.commits, dtype=np.uint8))
        return await super().get(key, prototype, byte_range)

    async def commit(self, state, counts):
        await asyncio.to_thread(self.run.write, state, {"counts": counts})


@pytest.mark.parametrize("commits", [1, 3])
def test_a_run_that_commits_meanwhile_is_not_taken_for_damaged(commits):
    """Two commits later the slot that is being read holds something else."""
    place = MemoryStore()
    run = RunStore(place)
    run.create({})
    run.write({"epoch": -1}, {"counts": np.arange(9, dtype=np.uint8)})
    busy = Busy(place)
    busy.run, busy.commits = run, commits
    state, arrays = RunStore(busy, mode="r").read()
    assert (state, busy.commits) == ({"epoch": 0, "history": []}, 0)
    assert arrays["counts"].tolist() == [2] * 9
    busy.commits = 0
    place._store_dict["counts-1/c/0"] = place._store_dict.pop("counts-0/c/0")
    with pytest.raises(DamagedStore):
        RunStore(busy, mode="r").read()
