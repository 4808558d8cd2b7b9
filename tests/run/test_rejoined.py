"""Ranks that stop within an epoch and go on are as if they had never stopped: each observation is in one of them."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.counting.joining import join
from prunedata.errors import LossError, PrunedataError
from prunedata.policies import RunningLoss
from prunedata.run.group import Group
from prunedata.run.waiting import SharedBatches
from tests.run.alike import known

SAMPLES = 30
SCHEDULE = Schedule(3, window=3, start=1, block=2, pruned_per_block=1)


class Table:
    """Where ranks, as threads of one process, exchange what they have."""

    def __init__(self, processes):
        self.given, self.barrier = [None] * processes, threading.Barrier(processes)

    def exchange(self, rank, mine):
        self.given[rank] = mine
        self.barrier.wait(20)
        everyone = list(self.given)
        self.barrier.wait(20)
        return everyone


class Threads(Group):
    """The ranks, by plain sums over what all of them have."""

    def __init__(self, rank, table):
        self.rank, self.processes, self.table = rank, len(table.given), table

    def _all(self, mine):
        return self.table.exchange(self.rank, mine)

    def add_up(self, numbers):
        return sum(self._all(np.array(numbers)))

    def meet(self, sums, failure, tally, shared):
        return [sum(column) for column in zip(*self._all(sums), strict=True)]

    def merge(self, tally, arrays):
        bits = np.bitwise_or.reduce(self._all(tally.bits()))
        join(tally, arrays, lambda one: one.set_bits(bits), lambda values: np.maximum.reduce(self._all(values)))


def in_ranks(processes, work):
    """What `work(group)` returns on each rank."""
    table, results = Table(processes), [None] * processes

    def go(rank):
        try:
            results[rank] = work(Threads(rank, table))
        except BaseException as error:
            results[rank] = error
            table.barrier.abort()

    threads = [threading.Thread(target=go, args=(rank,)) for rank in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def make(group=None):
    labels = np.arange(SAMPLES) % 4
    run = Pruner(SAMPLES, SCHEDULE, prune=6, policy=RunningLoss(), classes=4, labels=labels)
    if group is not None:
        run.join(group)
    return run


def losses(ids, epoch):
    return (1 + np.sin(ids * 1.3 + epoch)).astype(np.float32)


def logits(ids, epoch):
    return np.stack([np.random.default_rng((epoch, int(one))).normal(size=4) for one in ids])


def train(run, group, size, shared, *, batches=None, said=False):
    """This rank's share of the rest of an epoch, or of some global batches of it; `said` whether with logits."""
    epoch = run.current
    if shared and group.processes > 1:
        rest = epoch.remaining is not epoch.keep
        run.share_batches(SharedBatches(size, shuffle=True, rest=rest))
    for number, ids in enumerate(epoch.batches(size)):
        if number == batches:
            return
        own = ids[group.rank :: group.processes]
        if own.size:
            run.observe(losses(own, epoch.number), own, logits=logits(own, epoch.number) if said else None)


def facts(run):
    records = [{k: r[k] for k in ("kept", "observed")} for r in run.history]
    means = [r["mean_loss"] for r in run.history]
    return records, means, {name: array.tobytes() for name, array in known(run).items()}


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(3, 9), st.integers(0, 4), st.booleans(),
    st.sampled_from(["same process", "own states", "all states"]), st.booleans(),
)  # fmt: skip
def test_ranks_that_go_on_within_an_epoch_are_as_if_they_had_not_stopped(first, then, size, done, shared, how, said):
    """Whole global batches are done before, so that the rest is cut alike. From all states any number goes on."""
    # Else one process has the sums of the epoch so far, by which batches of one sample are judged.
    shared, then = (True, then) if how == "all states" else (shared, first)

    def whole(group):
        run = make(group)
        for _ in range(2):
            run.begin_epoch()
            train(run, group, size, shared, said=said)
            run.end_epoch()
        return facts(run)

    def start(group):
        run = make(group)
        run.begin_epoch()
        train(run, group, size, shared, batches=done, said=said)
        return run if how == "same process" else run.state_dict()

    def go_on(group):
        if how == "same process":
            run = begun[group.rank]
            run.take_over()
            run.join(group)
        else:
            run = make(group)
            run.load_state_dict(begun if how == "all states" else begun[group.rank])
        epoch = run.begin_epoch()
        # A mask, and no sums, is what a rank has of what the others observed.
        seen = np.isin(np.arange(SAMPLES), np.concatenate([[], *list(epoch.order_of(epoch.keep))])) & ~epoch.remaining
        assert seen.sum() == min(SAMPLES, done * size)
        train(run, group, size, shared, said=said)
        run.end_epoch()
        run.begin_epoch()
        train(run, group, size, shared, said=said)
        run.end_epoch()
        return facts(run)

    begun = in_ranks(first, start)
    (expected, *_), found = in_ranks(first, whole), in_ranks(then, go_on)
    assert all(each == found[0] for each in found)
    assert found[0][0] == expected[0]
    assert found[0][1] == pytest.approx(expected[1])  # of sums in another order
    for name in ("counts", "hits", "visits", "high", *(["guess"] if said else [])):
        assert found[0][2][name] == expected[2][name]
    if how != "all states":  # there one process adds up the losses of a whole batch
        assert found[0][2] == expected[2]  # bit for bit


@pytest.mark.parametrize("late", [False, True])
def test_the_first_rank_alone_has_what_all_were_resumed_with(late):
    """Each loads all states and begins; it meets the others then, as where a loader is wrapped within the loop."""
    begun = make()
    begun.begin_epoch()
    begun.observe(losses(np.arange(10), 0), np.arange(10))
    state = begun.state_dict()

    def go_on(group):
        run = make()
        run.load_state_dict([state])
        run.begin_epoch()
        if late:
            run.observe(np.ones(1), np.array([10]))
        run.join(group)
        train(run, group, 7, shared=False)
        run.end_epoch()
        return run.history[0], run.visits.tolist()

    if late:
        with pytest.raises((PrunedataError, threading.BrokenBarrierError), match=r"meet before losses of epoch 0|^$"):
            in_ranks(2, go_on)
        return
    for record, visits in in_ranks(2, go_on):
        assert (record["observed"], visits) == (SAMPLES, [1] * SAMPLES)
        assert record["mean_loss"] == pytest.approx(losses(np.arange(SAMPLES), 0).mean(dtype=float))


@given(st.integers(2, 4), st.sets(st.integers(0, 3), min_size=1), st.booleans(), st.sampled_from([4, 5000]))
def test_all_ranks_keep_what_logits_say_if_one_of_them_has_any(processes, which, shared, classes):
    def work(group):
        run = Pruner(SAMPLES, SCHEDULE, prune=6, policy=RunningLoss())
        run.join(group)
        for _ in range(2):
            epoch = run.begin_epoch()
            if shared:
                run.share_batches(SharedBatches(7, shuffle=True))
            for ids in epoch.batches(7):
                own = ids[group.rank :: group.processes]
                said = np.eye(4, classes)[own % 4] if group.rank in which else None
                if own.size:
                    run.observe(losses(own, epoch.number), own, logits=said)
            run.end_epoch()
        return run.arrays.get("guess"), facts(run)

    (guess, first), *rest = in_ranks(processes, work)
    assert all(facts == first for _, facts in rest)
    if which >= set(range(processes)):
        assert guess.tolist() == (np.arange(SAMPLES) % 4).tolist()
    elif min(which) >= processes:
        assert guess is None
    else:
        assert set(np.unique(guess[guess >= 0])) <= set(range(4))


def test_ranks_with_other_numbers_of_classes_are_refused_together():
    def work(group):
        run = make(group)
        run._engine.ledger.arrays.guess._expected = run._engine.ledger.arrays.guess._labels = None
        run.begin_epoch()
        for ids in run.current.batches(SAMPLES):
            own = ids[group.rank :: group.processes]
            run.observe(losses(own, 0), own, logits=np.eye(4 + group.rank)[own % 4])
        with pytest.raises(LossError, match="Expected logits of as many classes on all ranks"):
            run.end_epoch()

    in_ranks(3, work)
