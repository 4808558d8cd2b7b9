"""A dealer under every sequence of what its workers may do, beside a plain model of it."""

import copy
import pickle

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from prunedata import Deal, Dealer, Wait
from prunedata.run.order import cut_batches, epoch_order
from tests.common.strategies import LOSSES, SEEDS, PlainRun, policies, pruner, schedules

WORKERS = st.integers(0, 3)
TIMEOUT = 10


class Model:
    """The batches of the open epoch in lists, and the run as plain loops."""

    def __init__(self, plain, batch_size):
        self.plain, self.batch_size = plain, batch_size
        self.visited, self.skipped, self.out = [], set(), {}  # out: ticket -> (number, worker, since)
        self.returned, self.fresh, self.batches = [], [], None

    @property
    def finished(self):
        return not self.plain.open and self.plain.number == self.plain.schedule.epochs

    def open(self):
        if self.batches is not None:
            return
        self.plain.begin()
        order = epoch_order(np.array(self.plain.keep), seed=self.plain.seed, epoch=self.plain.number)
        self.batches = [ids.tolist() for ids in cut_batches(order, self.batch_size)]
        seen = self.skipped | {k for k, ids in enumerate(self.batches) if self.plain.new_visits[ids[0]]}
        self.fresh = [k for k in range(len(self.batches)) if k not in seen]

    def done(self):
        return not (self.returned or self.fresh or self.out)

    def put_back(self, which):
        for ticket in [ticket for ticket, (_, worker, since) in self.out.items() if which(worker, since)]:
            self.returned.append(self.out.pop(ticket)[0])
        self.returned.sort()

    def settle(self, ticket):
        return self.out.pop(ticket)[0]

    def end_if_done(self):
        if self.batches is not None and self.done():
            kept = [x for x, keep in enumerate(self.plain.keep) if keep]
            skipped = [x for k in self.skipped for x in self.batches[k]]
            assert sorted([x for x in kept if self.plain.new_visits[x]] + skipped) == kept
            assert max(self.plain.new_visits.values(), default=0) <= 1
            self.plain.end()
            self.batches, self.skipped = None, set()


class Dealing(RuleBasedStateMachine):
    """Workers join, die, repeat and come late; the state is saved and loaded at any point."""

    @initialize(
        schedule=schedules(max_epochs=4), policy=policies(), samples=st.integers(1, 12), seed=SEEDS, data=st.data()
    )
    def set_out(self, schedule, policy, samples, seed, data):
        prune, self.batch_size = data.draw(st.integers(0, samples - 1)), data.draw(st.integers(1, 5))
        self.now, self.tickets, self.saved, self.sizes = 0.0, [], [], {}

        def make():
            run = pruner(samples, schedule, prune=prune, policy=policy, seed=seed)
            return Dealer(run, self.batch_size, deal_again_after=TIMEOUT, clock=lambda: self.now)

        self.make, self.dealer = make, make()
        self.model = Model(PlainRun(samples, schedule, policy, samples - prune, seed), self.batch_size)

    def _losses(self, ticket, loss, spread):
        return [loss + spread * (x % 3) for x in self.sizes[ticket]]

    @rule(worker=WORKERS)
    def ask(self, worker):
        model = self.model
        model.put_back(lambda _, since: since <= self.now - TIMEOUT)
        while not model.finished:
            model.open()
            if not model.done():
                break
            model.end_if_done()  # an epoch that was restored when all but the skipped had been seen
        answer = self.dealer.deal(worker)
        if model.finished:
            assert answer is None
        elif not (model.returned or model.fresh):
            out = sum(len(model.batches[number]) for number, _, _ in model.out.values())
            assert answer == Wait(model.plain.number, out)
        else:
            self._check(answer, worker)

    def _check(self, deal, worker):
        model = self.model
        number = (model.returned or model.fresh).pop(0)
        assert isinstance(deal, Deal)
        assert (deal.epoch, deal.number, deal.worker) == (model.plain.number, number, worker)
        assert deal.ids.tolist() == model.batches[number]
        assert deal.ticket not in self.sizes
        model.out[deal.ticket] = (number, worker, self.now)
        self.tickets.append(deal.ticket)
        self.sizes[deal.ticket] = deal.ids.tolist()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), loss=LOSSES, spread=st.sampled_from([0.0, 0.1, 1.0]))
    def report(self, data, loss, spread):
        """Any deal there ever was: outstanding, reported, taken back, of an epoch long ended or of another life."""
        self._report(data.draw(st.sampled_from(self.tickets)), loss, spread)

    @precondition(lambda self: self.model.out)
    @rule(data=st.data(), loss=LOSSES, spread=st.sampled_from([0.0, 0.1, 1.0]))
    def report_one_that_is_out(self, data, loss, spread):
        self._report(data.draw(st.sampled_from(sorted(self.model.out))), loss, spread)

    def _report(self, ticket, loss, spread):
        losses = self._losses(ticket, loss, spread)
        receipt = self.dealer.observe(ticket, np.array(losses))
        assert bool(receipt) == (ticket in self.model.out), receipt.why
        if receipt:
            number = self.model.settle(ticket)
            self.model.plain.observe(self.model.batches[number], losses)
            self.model.end_if_done()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def skip(self, data):
        ticket = data.draw(st.sampled_from(self.tickets))
        receipt = self.dealer.skip(ticket)
        assert bool(receipt) == (ticket in self.model.out)
        if receipt:
            self.model.skipped.add(self.model.settle(ticket))
            self.model.end_if_done()

    @rule(worker=WORKERS)
    def die(self, worker):
        had = self.dealer.outstanding.get(worker, 0)
        assert self.dealer.lost(worker) == had
        assert had == sum(len(self.model.batches[k]) for k, w, _ in self.model.out.values() if w == worker)
        self.model.put_back(lambda w, _: w == worker)

    @rule(seconds=st.sampled_from([1, TIMEOUT]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def save(self):
        self.saved.append((pickle.dumps(self.dealer.state_dict()), copy.deepcopy(self.model)))

    @precondition(lambda self: self.saved)
    @rule(anew=st.booleans(), data=st.data())
    def load(self, anew, data):
        """Any state that was saved, so that old tickets are of reports that never were."""
        state, model = data.draw(st.sampled_from(self.saved))
        if anew:
            self.dealer = self.make()
        self.dealer.load_state_dict(pickle.loads(state))
        self.model = copy.deepcopy(model)
        self.model.out, self.model.returned, self.model.batches = {}, [], None

    @rule()
    def compare(self):
        run, plain = self.dealer.pruner, self.model.plain
        assert run.counts.tolist() == plain.counts_now()
        assert run.hits.tolist() == plain.hits_now()
        assert run.visits.tolist() == plain.visits_now()
        assert run.next_epoch == plain.number
        assert self.dealer.is_finished == self.model.finished

    def teardown(self):
        """One worker does what is left, with no help but the clock's."""
        if not hasattr(self, "dealer"):
            return
        self.compare()
        self.now += TIMEOUT
        for _ in range(4 * 12 + 4):  # all batches of all epochs, and an answer between
            if self.model.finished:
                break
            self.ask(0)
            for ticket in list(self.model.out):
                self._report(ticket, 0.5, 1.0)
        assert self.dealer.deal(0) is None
        self.compare()


TestDealing = Dealing.TestCase
