"""What several processes had observed, joined, and batches of one sample: the state of one process."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Adapter, Delivery, Pruner, Schedule
from prunedata.counting.counts import Tally
from prunedata.counting.joining import join
from prunedata.errors import LossError, PrunedataError, SkippedSamples
from prunedata.policies import DroppingCount, EasyPruning, LossRanked, RunningLoss
from prunedata.run.epoch import Epoch
from prunedata.run.group import Group
from prunedata.run.waiting import SharedBatches, SharedSteps, WaitingLosses

# What several processes had observed of an epoch, joined: the state of one process that had observed it all.


SAMPLES = 24
SCHEDULE = Schedule(3, window=3, start=1, block=2, pruned_per_block=1)


class Rank(Group):
    """This process is one of several. Nothing is merged, as no epoch ends here."""

    def __init__(self, rank, processes):
        self.rank, self.processes = rank, processes


def make(rank=0, processes=1, **options):
    run = Pruner(SAMPLES, SCHEDULE, **{"prune": 6, "policy": RunningLoss(), **options})
    if processes > 1:
        run.join(Rank(rank, processes))
    return run


def part(rank, processes, ids, losses, sizes=None, **options):
    run = make(rank, processes, **options)
    run.begin_epoch()
    for batch in np.split(ids, [] if sizes is None else np.cumsum(sizes)):
        run.observe(losses[batch], batch)
    return run


@given(st.data(), st.integers(1, 5), st.floats(0, 1))
def test_shares_that_were_observed_anywhere_are_observed_by_all_who_load_them(data, processes, seen):
    """A sample on several ranks, as padding repeats some, counts once; a rank may have observed nothing."""
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    losses = random.random(SAMPLES)
    shares = [np.flatnonzero(random.random(SAMPLES) < seen / processes) for _ in range(processes)]
    runs = [part(rank, processes, ids, losses, [len(ids) // 2]) for rank, ids in enumerate(shares)]
    states = [run.state_dict() for run in runs]
    order = data.draw(st.permutations(states))

    whole = make()
    whole.load_state_dict(iter(order))
    epoch = whole.begin_epoch()
    anywhere = np.zeros(SAMPLES, bool)
    anywhere[np.concatenate(shares)] = True
    assert np.array_equal(epoch.remaining, epoch.keep & ~anywhere)
    hits = np.maximum.reduce([run.counts for run in runs])
    assert np.array_equal(whole.counts, hits)
    rest = np.flatnonzero(epoch.remaining)
    whole.observe(losses[rest], rest)
    whole.end_epoch()
    assert whole.visits.tolist() == [1] * SAMPLES
    assert whole.history[0]["observed"] == SAMPLES
    total = sum(losses[ids].sum() for ids in [*shares, rest])
    assert whole.history[0]["mean_loss"] == pytest.approx(total / sum(map(len, [*shares, rest])))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("repeats", [False, True])
def test_if_a_sample_comes_again_anywhere_all_visits_count(order, repeats):
    """Sample 3 comes on two processes; that the last one sees sample 9 twice shows that this is no padding."""
    losses = np.arange(float(SAMPLES))
    shares = [[1, 2, 3], [3, 4, 5], [8, 9, 9] if repeats else [8, 9, 10]]
    runs = [part(rank, 3, np.array(ids), losses) for rank, ids in enumerate(shares)]
    states = [run.state_dict() for run in runs]
    whole = make()
    whole.load_state_dict([states[rank] for rank in order])
    whole.begin_epoch()
    whole.skip(SAMPLES)
    whole.end_epoch()
    expected = np.bincount(np.concatenate(shares), minlength=SAMPLES)
    assert whole.visits.tolist() == (expected if repeats else np.minimum(expected, 1)).tolist()
    hits = sum(run.counts.astype(int) for run in runs)
    assert whole.hits.tolist() == hits.tolist()
    assert whole.history[0]["observed"] == whole.visits.sum()


def test_more_visits_than_a_tally_can_hold_are_told():
    states = []
    for rank in range(2):
        run = part(rank, 2, np.zeros(40_000, int), np.ones(SAMPLES), policy=DroppingCount())
        states.append(run.state_dict())
    with pytest.raises(LossError, match="at most 65535 times"):
        make(policy=DroppingCount()).load_state_dict(states)


def test_policies_keep_what_each_process_had_seen():
    losses = np.linspace(-1, 2, SAMPLES)
    runs = [part(rank, 3, np.arange(rank, SAMPLES, 3), losses) for rank in range(3)]
    whole = make()
    whole.load_state_dict([run.state_dict() for run in runs])
    whole.begin_epoch()
    whole.end_epoch()
    assert len(whole.arrays) == 2
    for rank, run in enumerate(runs):
        run.skip(SAMPLES)
        run.end_epoch()
        for name, array in whole.arrays.items():
            assert np.array_equal(array[rank::3], run.arrays[name][rank::3])
    for array in whole.arrays.values():
        assert (array < 0).any()  # of a sample that a rank has not seen, its zero would be the larger


def test_where_every_visit_counts_sums_of_losses_add_up():
    """A sample that came twice on one rank and once on another has the mean of its three visits."""
    losses = np.linspace(-1, 2, SAMPLES)
    given = [np.array([0, 1, 0, 2]), np.array([0, 3, 4])]
    whole = make()
    whole.load_state_dict([part(rank, 2, ids, losses).state_dict() for rank, ids in enumerate(given)])
    whole.skip(SAMPLES)
    whole.begin_epoch()
    whole.skip(SAMPLES)
    whole.end_epoch()
    excess = [losses[ids] - losses[ids].mean() for ids in given]
    expected = (excess[0][0] + excess[0][2] + excess[1][0]) / 3
    assert whole.visits[:5].tolist() == [3, 1, 1, 1, 1]
    assert whole.arrays["mean_excess"][0] == pytest.approx(expected, rel=1e-6)
    assert whole.arrays["mean_excess"][3] == pytest.approx(excess[1][1], rel=1e-6)


def test_the_joined_state_can_be_saved_again_and_joined_again():
    losses = np.arange(float(SAMPLES))
    first = [part(rank, 2, np.arange(rank, 12, 2), losses).state_dict() for rank in range(2)]
    runs = []
    for rank in range(3):
        runs.append(make(rank, 3))
        runs[-1].load_state_dict(first)
        runs[-1].begin_epoch()
        ids = np.arange(12 + rank, 21, 3)
        runs[-1].observe(losses[ids], ids)
    whole = make()
    whole.load_state_dict([run.state_dict() for run in runs])
    assert np.flatnonzero(whole.begin_epoch().remaining).tolist() == [21, 22, 23]
    whole.observe(losses[21:], np.arange(21, 24))
    whole.end_epoch()
    assert whole.history[0]["mean_loss"] == losses.mean()


def test_between_epochs_all_states_say_the_same():
    run = part(0, 1, np.arange(SAMPLES), np.arange(float(SAMPLES)))
    run.end_epoch()
    again = make()
    again.load_state_dict([run.state_dict()] * 3)
    assert again.next_epoch == 1
    assert again.counts.tolist() == run.counts.tolist()


@pytest.mark.parametrize("policy", [LossRanked(), EasyPruning()])
@pytest.mark.parametrize("epochs", [0, 1])
def test_policies_that_hold_nan_for_samples_that_were_never_observed_are_joined(policy, epochs):
    """In the first epoch that is all of them, on every rank; and NaN is not equal to itself."""
    losses = np.arange(float(SAMPLES))

    def begun(ids, group=None):
        run = make(policy=policy)
        for epoch in range(epochs + 1):
            if epoch == epochs and group is not None:
                run.join(group)
            run.begin_epoch()
            seen = ids if epoch == epochs else np.arange(SAMPLES)
            run.observe(losses[seen], seen)
            if epoch < epochs:
                run.end_epoch()
        return run

    whole, joined = begun(np.arange(SAMPLES // 2)), make(policy=policy)
    states = [begun(np.arange(rank, SAMPLES // 2, 2), Rank(rank, 2)).state_dict() for rank in range(2)]
    joined.load_state_dict(states)
    for run in (joined, whole):
        rest = np.flatnonzero(run.begin_epoch().remaining)
        run.observe(losses[rest], rest)
        run.end_epoch()
    assert np.array_equal(joined.arrays["loss"], whole.arrays["loss"])
    assert not np.isnan(joined.arrays["loss"]).any()
    states[1]["arrays"]["loss"] |= {"data": np.ones(SAMPLES, "<f4").tobytes()}
    with pytest.raises(PrunedataError, match=r"one run saved at one moment.*differ in loss"):
        make(policy=policy).load_state_dict(states)


class Loader(Adapter):
    """It leaves the last two samples out, as those of all ranks do."""

    def begin_epoch(self, epoch):
        self.delivery = Delivery(0, left_out=2)
        self.delivery.end()


@pytest.mark.parametrize(("skipped", "enough"), [((2, 4), True), ((6, 0), True), ((5, 0), False), ((3, 2), False)])
def test_what_each_process_skipped_counts_for_all(skipped, enough):
    """8 samples are missing, of which the loaders leave out 2."""
    states = []
    for rank, number in enumerate(skipped):
        run = make(rank, 2)
        run.attach(Loader())
        run.begin_epoch()
        run.observe(np.arange(8.0), np.arange(rank, 16, 2))
        run.skip(number)
        states.append(run.state_dict())
    whole = make()
    whole.load_state_dict(states)
    if enough:
        whole.end_epoch()
        assert whole.next_epoch == 1
    else:
        with pytest.raises(SkippedSamples, match="Got 1 that were not"):
            whole.end_epoch()


@given(st.data(), st.integers(0, 70), st.integers(1, 5))
def test_bits_say_who_was_seen_and_hit_on_any_rank(data, samples, ranks):
    """Also where a sample was visited and hit often, on several ranks or on none, and a rank saw nothing."""
    tallies, seen, hit = [], np.zeros(samples, bool), np.zeros(samples, bool)
    some = st.lists(st.tuples(st.integers(0, max(0, samples - 1)), st.booleans()), max_size=60 if samples else 0)
    for _ in range(ranks):
        tallies.append(Tally(samples))
        for number, was_hit in data.draw(some):
            times = data.draw(st.sampled_from([1, 2, 300, 65_535]))
            if int(tallies[-1].visits[number]) + times <= Tally.LIMIT:
                tallies[-1].packed[number] += np.uint32(times * (1 + was_hit * 65536))
                seen[number], hit[number] = True, hit[number] or was_hit
    bits = np.bitwise_or.reduce([tally.bits() for tally in tallies])
    assert bits.size == -(-samples // 4)
    for tally in tallies:
        tally.set_bits(bits)
        assert tally.visits.tolist() == seen.tolist()
        assert tally.hits.tolist() == hit.tolist()
        assert tally.observed == seen.sum()


@given(st.data(), st.integers(1, 60), st.integers(1, 4), st.integers(1, 20), st.sampled_from([0.0, 0.3]))
def test_losses_are_held_against_the_mean_of_their_global_batch(data, samples, ranks, size, tolerance):
    """By plain loops; some samples are pruned, some are not observed, and a rank may have none."""
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    keep, losses = random.random(samples) < 0.8, random.integers(-4, 9, samples) / 4
    epoch = Epoch(3, True, keep.view(np.uint8), 7)
    shared = SharedBatches(size, data.draw(st.booleans()))
    owner = random.integers(-1, ranks, samples)  # -1: not observed
    order = np.concatenate([np.zeros(0, int), *epoch.order(shuffle=shared.shuffle)])
    batches = [order[first : first + size] for first in range(0, order.size, size)] + [np.flatnonzero(~keep)]
    hits, means = np.zeros(samples, bool), {}
    for batch in (each[owner[each] >= 0] for each in batches):
        if batch.size:
            mean = sum(losses[batch].tolist()) / batch.size
            hits[batch] = losses[batch] > mean + tolerance * abs(mean)
            means |= dict.fromkeys(batch.tolist(), mean)

    sums = []

    def settle(rank, add_up):
        waiting = WaitingLosses.none(shared, samples)
        waiting.losses[owner == rank] = losses[owner == rank]
        return waiting.settle(epoch, owner == rank, add_up)

    for rank in range(ranks):
        settle(rank, lambda own: sums.append(own) or own)
    for rank in range(ranks):
        settled = settle(rank, lambda own: sum(sums))[0]
        assert sorted(settled.ids.tolist()) == np.flatnonzero(owner == rank).tolist()
        assert settled.losses.tolist() == losses[settled.ids].tolist()
        assert settled.hits(tolerance).tolist() == hits[settled.ids].tolist()
        assert np.repeat(settled.means, settled.sizes).tolist() == [means[number] for number in settled.ids.tolist()]


@given(st.data(), st.integers(1, 60), st.integers(1, 4), st.integers(1, 6))
def test_losses_of_a_stream_are_held_against_the_mean_of_their_step(data, samples, ranks, size):
    """Each rank reads a share of its own, of any size. Settled at the end; or saved, joined and settled by one."""
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    keep, losses = np.ones(samples, bool), random.integers(-4, 9, samples) / 4
    epoch = Epoch(3, True, keep.view(np.uint8), 7)
    owner = random.integers(0, ranks, samples)
    shares = [random.permutation(np.flatnonzero(owner == rank)) for rank in range(ranks)]
    steps = -(-max(share.size for share in shares) // size)
    batches = [[share[first * size : (first + 1) * size] for share in shares] for first in range(steps)]
    means = {
        number: losses[np.concatenate(step)].mean() for step in batches for number in np.concatenate(step).tolist()
    }
    tallies = []
    for rank in range(ranks):
        waiting, tally = WaitingLosses.none(SharedSteps(), samples), Tally(samples)
        for step in batches:
            waiting.shared.take(step[rank])
            assert waiting.add(step[rank], losses[step[rank]])
            tally.add(step[rank], np.zeros(step[rank].size, bool))
        tallies.append((waiting, tally))
    sums = []
    for waiting, _ in tallies:
        waiting.settle(epoch, waiting.losses > -np.inf, lambda own: sums.append(own) or own)
    for rank, (waiting, _) in enumerate(tallies):
        settled = waiting.settle(epoch, waiting.losses > -np.inf, lambda own: sum(sums))[0]
        assert sorted(settled.ids.tolist()) == sorted(shares[rank].tolist())
        assert np.repeat(settled.means, settled.sizes) == pytest.approx([means[one] for one in settled.ids.tolist()])
    # As rejoin() does it with what each rank has saved.
    (whole, tally), *others = tallies
    arrays = {name: array.copy() for name, array in whole.arrays.items()}
    for waiting, other in others:
        mine = [np.where(other.packed != 0, array, array.min()) for array in waiting.arrays.values()]
        theirs = iter(mine)
        join(
            tally,
            arrays,
            lambda own, other=other: own.set_bits(own.bits() | other.bits()),
            lambda own, it=theirs: np.maximum(own, next(it)),
        )
    settled = WaitingLosses.restored({"steps": True}, arrays).settle(epoch, keep)[0]
    assert sorted(settled.ids.tolist()) == list(range(samples))
    assert np.repeat(settled.means, settled.sizes) == pytest.approx([means[one] for one in settled.ids.tolist()])


def test_losses_that_came_in_no_common_step_do_not_wait():
    steps = SharedSteps()
    steps.take([1, 2])  # nothing waits yet, so that nothing is noted
    waiting = WaitingLosses.none(steps, 5)
    steps.take([1, 2])
    steps.take([])
    assert not waiting.add(np.array([2, 3]), np.ones(2))
    assert waiting.add(np.array([2, 1]), np.ones(2))
    assert np.flatnonzero(waiting.losses > -np.inf).tolist() == [1, 2]
    assert (steps.taken, steps.steps.tolist()) == (2, [-1, 0, 0, -1, -1])


class TestRefused:
    def states(self, processes=3):
        losses = np.arange(float(SAMPLES))
        return [part(rank, processes, np.arange(rank, 12, 3), losses).state_dict() for rank in range(processes)]

    @pytest.mark.parametrize(
        ("which", "told"),
        [([0, 1], "those of the ranks 0, 1"), ([1], "that of rank 1"), ([0, 1, 1], "those of the ranks 0, 1, 1")],
        ids=str,
    )
    def test_some_of_the_states(self, which, told):
        states = self.states()
        with pytest.raises(PrunedataError, match=f"Expected the states of all 3 ranks.*Got {told}: load_state_dict"):
            make().load_state_dict([states[rank] for rank in which])

    def test_one_state_alone_when_it_is_gone_on_with(self):
        run = make()
        run.load_state_dict(self.states()[1])
        with pytest.raises(PrunedataError, match=r"with 3 processes.*Got 1 and the state of rank 1 alone: pass load_s"):
            run.begin_epoch()
        assert run.state_dict()["state"]["rank"] == 1  # it is what it was, and may be saved

    def test_states_of_different_moments(self):
        states = self.states(2)
        other = part(1, 2, np.arange(SAMPLES), np.ones(SAMPLES), seed=8).state_dict()
        with pytest.raises(PrunedataError, match=r"one run saved at one moment.*number 0 and 1 that differ in run"):
            make().load_state_dict([states[0], other])
        later = make(0, 2)
        later.load_state_dict([states[0], states[1]])
        later.begin_epoch()
        later.skip(SAMPLES)
        later.end_epoch()
        later.begin_epoch()
        with pytest.raises(PrunedataError, match=r"differ in epoch 0 and 1, absent, counts, .*visits"):
            make().load_state_dict([states[0], later.state_dict()])

    def test_a_rank_beyond_the_processes(self):
        state = json.loads(json.dumps(self.states()[0], default=list))
        state["state"]["rank"] = 3
        for array in state["arrays"].values():
            array["data"] = bytes(array["data"])
        with pytest.raises(PrunedataError, match="the state's rank to be"):
            make().load_state_dict(state)

    def test_nothing_changes(self):
        run = part(0, 1, np.arange(5), np.arange(5.0))
        before = run.state_dict()["arrays"]
        with pytest.raises(PrunedataError):
            run.load_state_dict(self.states()[:2])
        assert run.state_dict()["arrays"] == before


# Batches of one sample: their losses are held against the mean of the epoch so far.


LOSSES = st.floats(-1e3, 1e3, width=32)


def run_of(samples, **options):
    return Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=1, **options)


def plainly(losses, sizes):
    """The excess of each sample's one loss, in the order of the epoch."""
    excess, total, number, first = [], 0.0, 0, 0
    for size in sizes:
        batch = losses[first : first + size]
        first, total, number = first + size, total + sum(batch), number + size
        mean = total / number if size == 1 else sum(batch) / size
        excess += [loss - mean for loss in batch]
    return excess


@given(st.lists(st.lists(LOSSES, min_size=1, max_size=4), min_size=2, max_size=30), st.data())
def test_the_excess_is_that_of_the_plain_rule_wherever_the_run_is_read_or_stopped(batches, data):
    losses, sizes = [loss for batch in batches for loss in batch], [len(batch) for batch in batches]
    policy = RunningLoss(decay=0)
    run, ids = run_of(len(losses), policy=policy), np.arange(len(losses))
    run.begin_epoch()
    first = 0
    for size in sizes:
        run.observe(np.array(losses[first : first + size]), ids[first : first + size])
        first += size
        done = data.draw(st.sampled_from(["go on", "read", "stop"]))
        if done == "read":
            assert run.visits[:first].all()
        elif done == "stop":
            state, run = run.state_dict(), run_of(len(losses), policy=policy)
            run.load_state_dict(state)
            run.begin_epoch()
    run.end_epoch()
    np.testing.assert_allclose(run.arrays["mean_excess"], plainly(losses, sizes), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(run.arrays["excess"], plainly(losses, sizes), rtol=1e-4, atol=1e-3)


def test_the_papers_count_needs_batches():
    run = run_of(3, policy=DroppingCount())
    run.begin_epoch()
    for number in range(3):
        run.observe([float(number)], [number])
    run.end_epoch()
    assert run.counts.tolist() == [0, 0, 0]
    assert run.arrays["mean_excess"].tolist() == [0.0, 0.5, 1.0]
