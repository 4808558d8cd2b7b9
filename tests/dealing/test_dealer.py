"""The dealer's verbs one by one: what each answers, refuses and keeps."""

import pickle
import threading
import time

import numpy as np
import pytest
import torch

from prunedata import Dealer, Pruner, Schedule, Wait
from prunedata.errors import LossError, NotInEpoch, PrunedataError, SkippedSamples, UnweighedWarning
from prunedata.policies import LossRanked

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here

SAMPLES = 50
CHANGING = Schedule(6, window=6, start=2, block=2, pruned_per_block=1)


def start(**options):
    return Pruner(SAMPLES, CHANGING, **{"prune": 0.3, "seed": 3, **options})


def dealing(batch_size=8, pruner=None, **options):
    return Dealer(start() if pruner is None else pruner, batch_size, **options)


def losses_of(ids, epoch):
    return np.random.default_rng([7, epoch]).random(SAMPLES)[ids]


def train(dealer, stop=None):
    """Train to the end, or until so many batches were reported; return the ids of each epoch's batches."""
    epochs = {}
    for done, deal in enumerate(dealer.deals("one")):
        if done == stop:
            break
        epochs.setdefault(deal.epoch, []).append(deal.ids.tolist())
        assert dealer.observe(deal, losses_of(deal.ids, deal.epoch))
    return epochs


def plain_run(pruner, batch_size=8):
    epochs = {}
    for epoch in pruner.epochs():
        for ids in epoch.batches(batch_size):
            epochs.setdefault(epoch.number, []).append(ids.tolist())
            pruner.observe(losses_of(ids, epoch.number), ids)
    return epochs


def same_run(one, other):
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert [r["mean_loss"] for r in one.history] == [r["mean_loss"] for r in other.history]


def test_weights_come_with_the_deal():
    pruner = start(policy=LossRanked())
    dealer, weighed = dealing(pruner=pruner), 0
    for deal in dealer.deals("one"):
        if deal.weights is not None:
            weighed += 1
            assert np.array_equal(deal.weights, pruner.current.weights[deal.ids])
            assert "weighted" in repr(deal)
        dealer.observe(deal, losses_of(deal.ids, deal.epoch))
    assert weighed


def test_by_weight_all_samples_are_dealt_and_the_deal_says_which_count():
    pruner, plain, weightless = start(leave_out="weight"), start(leave_out="weight"), 0
    dealer = dealing(pruner=pruner)
    for deal in dealer.deals("one"):
        losses, counted = losses_of(deal.ids, deal.epoch), pruner.current.trained
        if not pruner.current.zero_weights:
            assert deal.weights is None
        else:
            weightless += np.count_nonzero(deal.weights == 0)
            assert (deal.weights * losses).mean() == pytest.approx(losses[counted[deal.ids]].mean())
        assert dealer.observe(deal, losses)
    assert weightless == pruner.saved["visits_by_weight"] > 0
    assert [record["kept"] for record in pruner.history] == [SAMPLES] * 6
    with pytest.warns(UnweighedWarning):  # it trains on nothing
        plain_run(plain)
    same_run(pruner, plain)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "list", "tensor", "bfloat16"])
def test_losses_of_any_kind(kind):
    dealer = dealing()
    deal = dealer.deal("one")
    losses = losses_of(deal.ids, 0)
    given = {"list": losses.tolist(), "tensor": torch.tensor(losses), "bfloat16": torch.tensor(losses).bfloat16()}
    assert dealer.observe(deal, given[kind] if kind in given else losses.astype(kind))
    assert dealer.pruner.counts.sum() > 0


@pytest.mark.parametrize(
    "losses",
    [
        np.ones(7), np.ones((8, 1)), 1.0, ["x"] * 8, np.array([1.0] * 7 + [np.nan]), np.array([1.0] * 7 + [np.inf]),
        np.full(8, 1.7e308), np.ma.masked_array(np.ones(8), mask=[True] + [False] * 7),
    ],
)  # fmt: skip
def test_losses_that_cannot_be_recorded_leave_the_batch_with_its_worker(losses):
    dealer = dealing()
    deal = dealer.deal("one")
    with pytest.raises(LossError):
        dealer.observe(deal, losses)
    assert dealer.outstanding == {"one": 8}
    assert dealer.observe(deal, np.ones(8)).why == "recorded"


def test_an_epoch_may_wait_for_its_end():
    dealer = dealing(batch_size=50, auto_end=False)
    with pytest.raises(NotInEpoch, match="Expected an open epoch"):
        dealer.end_epoch()
    deal = dealer.deal("one")
    with pytest.raises(SkippedSamples, match="1 are with workers, none are still to be dealt"):
        dealer.end_epoch()
    dealer.observe(deal, np.ones(50))
    assert dealer.is_epoch_done
    assert dealer.deal("one") == Wait(epoch=0, outstanding=0)
    dealer.end_epoch()
    assert not dealer.is_epoch_done
    assert dealer.deal("one").epoch == 1


def test_the_end_of_an_epoch_is_committed(tmp_path):
    def make():
        return dealing(pruner=start(store=tmp_path / "run.zarr", resume=True))

    train(make(), stop=10)  # 7 batches an epoch
    dealer = make()
    assert dealer.pruner.next_epoch == 1
    train(dealer)
    plain = start()
    plain_run(plain)
    same_run(dealer.pruner, plain)


def test_a_commit_within_an_epoch_goes_on_with_the_same_batches(tmp_path):
    def make():
        return dealing(pruner=start(store=tmp_path / "run.zarr", resume=True))

    dealer = make()
    deals = [dealer.deal("one") for _ in range(4)]
    for place in (0, 2):
        dealer.observe(deals[place], losses_of(deals[place].ids, 0))
    dealer.commit()
    dealer = make()
    assert [dealer.deal("two").number for _ in range(5)] == [1, 3, 4, 5, 6]


def test_a_pruner_that_is_loaded_by_itself_takes_its_dealer_along():
    dealer = dealing()
    state = dealer.pruner.state_dict()
    deal = dealer.deal("one")
    dealer.pruner.load_state_dict(state)
    assert not dealer.observe(deal, np.ones(8))
    assert dealer.deal("one").ids.tolist() == deal.ids.tolist()


def test_staleness_is_counted_in_versions_of_the_weights():
    dealer = dealing()
    deals = [dealer.deal(worker) for worker in range(6)]
    ones = np.ones(8)
    dealer.observe(deals[0], ones, version=0)
    dealer.observe(deals[1], ones, version=0, newest=3)
    dealer.observe(deals[2], ones, version=2)  # 3 is the newest that was named
    dealer.observe(deals[3], ones)  # not counted
    dealer.observe(deals[4], ones, version=5)
    dealer.observe(deals[1], ones, version=0, newest=9)  # reported before: not counted
    assert dealer.staleness == {0: 2, 1: 1, 3: 1}
    other = dealing()
    other.load_state_dict(dealer.state_dict())
    assert other.staleness == dealer.staleness
    other.observe(other.deal("one"), ones, version=4)
    assert other.staleness == {0: 2, 1: 2, 3: 1}


@pytest.mark.parametrize("versions", [{"version": -1}, {"version": 1.5}, {"version": 3, "newest": 2}, {"newest": 2}])
def test_versions_that_make_no_sense_record_nothing(versions):
    dealer = dealing()
    deal = dealer.deal("one")
    with pytest.raises(PrunedataError, match="version"):
        dealer.observe(deal, np.ones(8), **versions)
    assert dealer.outstanding == {"one": 8}
    assert dealer.staleness == {}


@pytest.mark.parametrize("ticket", ["", "0", "x-y", "x-²", 3, None, "later"])
def test_what_is_no_ticket_is_refused(ticket):
    dealer = dealing()
    deal = dealer.deal("one")
    ticket = deal.ticket.replace("-0", "-1") if ticket == "later" else ticket
    with pytest.raises(PrunedataError, match="ticket"):
        dealer.observe(ticket, np.ones(8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dealer("x", 8),
        lambda: dealing(0),
        lambda: dealing(deal_again_after=0),
        lambda: dealing().deal(["one"]),
        lambda: dealing(pruner=dealing().pruner),
        lambda: dealing().load_state_dict(start().state_dict()),
        lambda: dealing().load_state_dict(dealing(9).state_dict()),
        lambda: dealing().load_state_dict(dealing(pruner=start(seed=4)).state_dict()),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(PrunedataError):
        make()


def test_a_state_that_is_refused_changes_nothing():
    dealer = dealing()
    deal = dealer.deal("one")
    with pytest.raises(PrunedataError):
        dealer.load_state_dict(dealing(pruner=start(seed=4)).state_dict())
    assert dealer.observe(deal, np.ones(8))


def test_a_dealer_is_not_copied():
    with pytest.raises(TypeError, match="Expected a Dealer to stay the only one of its run"):
        pickle.dumps(dealing())


def test_an_epoch_whose_commit_fails_has_ended():
    dealer = dealing(batch_size=50)
    failing = pytest.MonkeyPatch()
    with failing.context() as patch:
        patch.setattr(dealer.pruner._engine, "commit", lambda: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            dealer.observe(dealer.deal("one"), np.ones(50))
    assert dealer.deal("one").epoch == 1


def test_threads_that_die_and_come_late_share_a_dealer():
    dealer, ended = dealing(batch_size=3, deal_again_after=0.05), threading.Event()

    def work(name):
        random = np.random.default_rng(name)
        while (deals := dealer.deal_many(name, int(random.integers(1, 4)))) is not None:
            if isinstance(deals, Wait) or random.random() < 0.1:  # forgets its batches
                time.sleep(0.001)
                continue
            dealer.observe_many([(deal, losses_of(deal.ids, deal.epoch)) for deal in deals])
            if random.random() < 0.05:
                dealer.lost(name)
                dealer.state_dict()
        ended.set()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended.is_set()
    assert [record["observed"] for record in dealer.pruner.history] == [50, 50, 35, 50, 35, 50]
    assert dealer.pruner.visits.sum() == 270
