"""The dealer in a Ray actor, with workers in actors and tasks of their own, some of which are killed."""

import os
import signal
import time

import numpy as np
import pytest
import torch

ray = pytest.importorskip("ray")

from benchmarks.common.processes.on_ray import on_ray  # noqa: E402
from prunedata import Deal, Pruner, Schedule, Wait  # noqa: E402
from prunedata.adapters.ray import RayDealer, serve  # noqa: E402
from prunedata.errors import DealerDied, LossError, PrunedataError, UnweighedWarning  # noqa: E402
from prunedata.policies import Random  # noqa: E402
from tests.common.programs import run_python  # noqa: E402

SAMPLES = 60
SCHEDULE = Schedule(4, window=4, start=1, block=2, pruned_per_block=1)
KEPT = [60, 45, 60, 45]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One Ray for all tests."""
    with on_ray():
        yield


def maker(**options):
    # A closure, so that Ray sends it by value: its workers cannot import a test.
    options = {"prune": 0.25, "seed": 5, **options}
    samples, schedule = SAMPLES, SCHEDULE
    return lambda: Pruner(samples, schedule, **options)


def losses_of(ids, epoch):
    return np.random.default_rng([7, epoch]).random(SAMPLES)[ids]


def make_worker():
    """A class by value, as Ray's workers cannot import a test."""

    @ray.remote(num_cpus=0)
    class Worker:
        def pid(self):
            return os.getpid()

        def train(self, dealer, name, pause=0.0, pause_at=None):
            """Train to the end; pause before each report, and very long before the one of that number."""
            reported = []
            for deal in dealer.deals(name, poll=0.01):
                time.sleep(pause)
                if pause_at is not None and len(reported) == pause_at:
                    time.sleep(600)
                assert dealer.observe(deal, np.random.default_rng([7, deal.epoch]).random(60)[deal.ids])
                reported.append((deal.epoch, deal.ids.tolist()))
            return reported

    return Worker


def plain_run(**options):
    pruner = maker(**options)()
    for epoch in pruner.epochs():
        for ids in epoch.batches(8):
            pruner.observe(losses_of(ids, epoch.number), ids)
    return pruner


def facts(dealer):
    return dealer.ask(lambda run: (run.history, run.counts, run.visits))


def test_one_worker_is_dealt_what_a_plain_loop_gets():
    dealer = serve(maker(), 8)
    reported = ray.get(make_worker().remote().train.remote(dealer, "one"))
    assert dealer.is_finished
    assert dealer.outstanding == {}
    history, counts, visits = facts(dealer)
    assert [record["kept"] for record in history] == KEPT
    plain = plain_run()
    assert np.array_equal(counts, plain.counts)
    assert np.array_equal(visits, plain.visits)
    assert len(reported) == sum(-(-kept // 8) for kept in KEPT)
    dealer.ask(lambda run: run.validated(0.75))  # a figure of the epoch that has ended last
    assert [record.get("validation") for record in facts(dealer)[0]] == [None] * (len(KEPT) - 1) + [0.75]


def test_by_weight_all_samples_are_dealt():
    dealer = serve(maker(leave_out="weight"), 8)
    reported = ray.get(make_worker().remote().train.remote(dealer, "one"))
    assert [sum(len(ids) for epoch, ids in reported if epoch == number) for number in range(4)] == [SAMPLES] * 4
    history, counts, visits = facts(dealer)
    assert [record.get("by_weight", 0) for record in history] == [SAMPLES - kept for kept in KEPT]
    with pytest.warns(UnweighedWarning):  # it trains on nothing
        plain = plain_run(leave_out="weight")
    assert np.array_equal(counts, plain.counts)
    assert np.array_equal(visits, plain.visits)


@pytest.mark.parametrize("reads", [False, True])
def test_a_run_whose_workers_never_read_what_losses_weigh_is_warned(reads):
    dealer = serve(maker(holdout=0.2), 8)
    dealer.ask(lambda run: __import__("warnings").simplefilter("error"))  # in the actor, where nobody looks
    deal = dealer.deal("one")
    while isinstance(deal, Deal) and deal.epoch == 0:
        last, deal = deal, None
        assert not reads or last.weights.shape == last.ids.shape
        try:
            assert dealer.observe(last, np.cos(last.ids))
        except UnweighedWarning:
            assert not reads
            return
        deal = dealer.deal("one")
    assert reads


def test_a_figure_may_come_after_the_dealer_was_started_again(tmp_path):
    make = maker(store=tmp_path / "run.zarr", resume=True, policy="auto", classes=3)
    dealer = serve(make, SAMPLES)
    for epoch in range(2):
        deal = dealer.deal("one")
        assert dealer.observe(deal, losses_of(deal.ids, epoch))
        if epoch == 1:
            os.kill(dealer.ask(lambda run: os.getpid()), signal.SIGKILL)
            dealer = serve(make, SAMPLES)
            assert dealer.ask(lambda run: run.awaits_figure)
        dealer.ask(lambda run: run.validated(0.5))
    assert [record["validation"] for record in facts(dealer)[0]] == [0.5, 0.5]


def test_workers_in_tasks_share_an_epoch():
    @ray.remote(num_cpus=0)
    def work(dealer, name):
        return [
            (deal.epoch, sample)
            for deal in dealer.deals(name, poll=0.01)
            if dealer.observe(deal, np.cos(deal.ids), version=0)
            for sample in deal.ids.tolist()
        ]

    dealer = serve(maker(policy=Random()), 8)
    visits = [visit for some in ray.get([work.remote(dealer, name) for name in range(3)]) for visit in some]
    assert len(visits) == len(set(visits)) == sum(KEPT)
    assert dealer.staleness == {0: sum(-(-kept // 8) for kept in KEPT)}


def test_the_others_do_what_a_killed_worker_had():
    dealer, Worker = serve(maker(), 8), make_worker()
    doomed, other = Worker.remote(), Worker.remote()
    pid = ray.get(doomed.pid.remote())
    stuck = doomed.train.remote(dealer, "doomed", pause_at=2)
    while "doomed" not in dealer.outstanding:
        time.sleep(0.01)
    going_on = other.train.remote(dealer, "other")
    while not (isinstance(answer := dealer.deal("driver"), Wait) and answer.outstanding == 8):  # all others are done
        dealer.lost("driver")
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    ray.get(going_on)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(stuck)
    history, _, visits = facts(dealer)
    assert [record["observed"] for record in history] == KEPT
    assert visits.sum() == sum(KEPT)


def test_a_worker_that_takes_too_long_is_not_waited_for():
    dealer = serve(maker(), 8, deal_again_after=0.2)
    late = dealer.deal("late")
    ray.get(make_worker().remote().train.remote(dealer, "other"))
    receipt = dealer.observe(late, np.ones(8))
    assert not receipt
    assert [record["observed"] for record in facts(dealer)[0]] == KEPT


def test_a_killed_dealer_is_a_clear_error_and_the_run_goes_on_from_its_last_commit(tmp_path):
    make = maker(store=tmp_path / "run.zarr", resume=True)
    dealer, Worker = serve(make, 8), make_worker()
    working = Worker.remote().train.remote(dealer, "one", pause=0.005)
    while dealer.ask(lambda run: run.next_epoch) < 2:
        time.sleep(0.01)
    os.kill(dealer.ask(lambda run: os.getpid()), signal.SIGKILL)
    with pytest.raises(DealerDied, match=r"Expected the actor of the dealer to answer.*process or node died"):
        ray.get(working)
    with pytest.raises(ConnectionError, match="start the dealer again from its store"):
        dealer.deal("driver")

    dealer = serve(make, 8)
    assert dealer.ask(lambda run: run.next_epoch) >= 2
    ray.get(Worker.remote().train.remote(dealer, "one"))
    history, counts, visits = facts(dealer)
    plain = plain_run()
    assert np.array_equal(counts, plain.counts)
    assert np.array_equal(visits, plain.visits)
    assert [record["observed"] for record in history] == KEPT


def test_state_goes_into_a_checkpoint_and_back():
    dealer = serve(maker(), 8)
    first, second = dealer.deal("one"), dealer.deal("one")
    assert dealer.observe(second, torch.ones(8, dtype=torch.bfloat16, requires_grad=True))
    state = dealer.state_dict()
    other = serve(maker(), 8)
    other.load_state_dict(state)
    assert [other.deal("two").number for _ in range(2)] == [0, 2]
    receipt = other.observe(first, np.ones(8))
    assert not receipt
    assert "another dealer" in receipt.why


def test_an_epoch_may_wait_for_its_end(tmp_path):
    dealer = serve(maker(store=tmp_path / "run.zarr"), 60, auto_end=False)
    deal = dealer.deal("one")
    dealer.commit()
    assert dealer.skip(deal)
    assert dealer.is_epoch_done
    assert dealer.deal("one") == Wait(0, 0)
    dealer.end_epoch()
    assert dealer.deal("one").epoch == 1


def test_errors_of_the_dealer_are_raised_as_they_are():
    dealer = serve(maker(), 8)
    deal = dealer.deal("one")
    with pytest.raises(LossError, match=r"^Expected finite losses"):
        dealer.observe(deal, np.full(8, np.nan))
    assert dealer.lost("one") == 8
    with pytest.raises(PrunedataError, match=r"^Expected batch_size"):
        serve(maker(), 0)
    with pytest.raises(PrunedataError, match="Expected a function that makes the Pruner"):
        serve("pruner", 8)
    with pytest.raises(PrunedataError, match=r"Expected a Pruner. Got int"):
        serve(lambda: 3, 8)


def test_an_actor_that_does_not_answer_is_given_up():
    dealer = serve(maker(), 8)
    assert dealer._within == 1800  # two busy cores took longer than five minutes
    impatient = RayDealer(dealer._actor, 0.2)
    with pytest.raises(
        DealerDied, match=r"answer .*\(\)\. Got no answer within 0.2 seconds.*give serve\(\) a larger answer_within"
    ):
        impatient.ask(lambda run: time.sleep(2))


def test_without_ray_the_module_says_what_to_install(tmp_path):
    said = run_python("import sys; sys.modules['ray'] = None; import prunedata.adapters.ray", cwd=tmp_path).stderr
    assert "ImportError: prunedata.adapters.ray needs Ray: pip install ray" in said
