"""A run under every sequence of its verbs, beside a plain model of it."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from prunedata.errors import FinishedWarning, NotInEpoch, ScheduleError, SkippedSamples
from tests.common.strategies import FORMS, LOSSES, SEEDS, PlainRun, in_form, policies, pruner, schedules


class Run(RuleBasedStateMachine):
    """Begin, observe, end, save and load, change the window, in any order."""

    @initialize(
        schedule=schedules(max_epochs=6), policy=policies(), samples=st.integers(1, 12), seed=SEEDS, data=st.data()
    )
    def set_out(self, schedule, policy, samples, seed, data):
        self.samples, prune = samples, data.draw(st.integers(0, samples - 1))
        self.make = lambda: pruner(samples, schedule, prune=prune, policy=policy, seed=seed)
        self.run = self.make()
        self.model = PlainRun(samples, schedule, policy, samples - prune, seed)
        self.restored = False

    def observed(self):
        return self.model.open and not self.restored

    def _observe(self, ids, losses, form):
        given_ids, given_losses, meant = in_form(ids, losses, form)
        self.run.observe(given_losses, given_ids)
        self.model.observe(ids, meant)

    @rule()
    def begin(self):
        if self.model.number == self.model.schedule.epochs:
            with pytest.raises(NotInEpoch, match="all are done"):
                self.run.begin_epoch()
            return
        self.model.begin()
        epoch, self.restored = self.run.begin_epoch(), False
        assert epoch.number == self.model.number
        assert epoch.pruned == self.model.schedule.prunes(epoch.number)
        assert epoch.keep.tolist() == self.model.keep
        assert np.flatnonzero(epoch.remaining).tolist() == self.model.missing()
        assert sorted(x for ids in epoch.order() for x in ids.tolist()) == self.model.missing()

    @precondition(observed)
    @rule(size=st.integers(1, 8), form=st.sampled_from(FORMS), data=st.data())
    def observe(self, size, form, data):
        ids = data.draw(st.lists(st.integers(0, self.samples - 1), min_size=size, max_size=size))
        self._observe(ids, data.draw(st.lists(LOSSES, min_size=size, max_size=size)), form)

    @precondition(observed)
    @rule(form=st.sampled_from(FORMS), loss=LOSSES, spread=st.sampled_from([0.0, 0.1, 1.0]))
    def observe_the_rest(self, form, loss, spread):
        rest = self.model.missing()
        if rest:
            self._observe(rest, [loss + spread * (x % 3) for x in rest], form)

    @precondition(lambda self: not self.observed())
    @rule()
    def observe_out_of_place(self):
        with pytest.raises(NotInEpoch):
            self.run.observe([1.0], [0])

    @rule()
    def end(self):
        if not self.model.open:
            with pytest.raises(NotInEpoch):
                self.run.end_epoch()
            return
        missing = len(self.model.missing())
        if missing and (self.run.policy.needs_losses or self.model.new_visits):
            with pytest.raises(SkippedSamples, match=f"Got {missing} that were not"):
                self.run.end_epoch()
            return
        self.run.end_epoch()
        self.model.end()
        self.restored = False

    @rule(anew=st.booleans())
    def save_and_load(self, anew):
        state = pickle.loads(pickle.dumps(self.run.state_dict()))
        if anew:
            self.run = self.make()
        self.run.load_state_dict(state)
        self.restored = self.model.open

    @rule(window=st.integers(1, 7))
    def rewindow(self, window):
        at_the_end = self.model.number + self.model.open == self.model.schedule.epochs
        if at_the_end or self.model.schedule.reading == "printed":
            with pytest.raises(ScheduleError):
                self.run.rewindow(window)
        else:
            self.run.rewindow(window)
            self.model.rewindow(window)

    @rule()
    def compare(self):
        assert self.run.counts.tolist() == self.model.counts_now()
        assert self.run.hits.tolist() == self.model.hits_now()
        assert self.run.visits.tolist() == self.model.visits_now()
        assert self.run.next_epoch == self.model.number == len(self.run.history)
        assert self.run.schedule == self.model.schedule

    @rule()
    def advance(self):
        """What a loop over epochs() does: end what is complete, then begin."""
        if self.model.open and not self.model.missing():
            self.model.end()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FinishedWarning)
            epoch = next(self.run.epochs(), None)
        self.restored = False
        assert (epoch is None) == (self.model.number == self.model.schedule.epochs)
        if epoch is not None:
            self.model.begin()
            assert (epoch.number, epoch.keep.tolist()) == (self.model.number, self.model.keep)

    def teardown(self):
        if hasattr(self, "run"):
            self.compare()


TestRun = Run.TestCase
