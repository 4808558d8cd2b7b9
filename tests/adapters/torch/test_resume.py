"""Stopped at any batch and gone on with in new objects, a run is the run that was never stopped."""

import io
import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.torch import BATCH, Items, losses_of, make_pruner
from tests.common.programs import WORKERS

SCHEDULE = Schedule(4, window=4, start=1, block=2, pruned_per_block=1)
BOTH = pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
SLOW = pytest.mark.slow  # dozens of workers each; those without this mark show that workers change nothing


@dataclass
class Run:
    """A model and all that is trained with it. ``log`` has the epoch, and the ids, of each batch."""

    kind: type = DataLoader
    options: dict = field(default_factory=dict)
    pruning: dict = field(default_factory=dict)
    items: Items = field(default_factory=Items)

    def __post_init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Dropout(0.1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.pruner = make_pruner(schedule=SCHEDULE, **self.pruning)
        self.loader = self.build()
        self.log, self.masks, self.saved = [], {}, {}

    def another_loader(self):
        with torch.random.fork_rng():  # to build a StatefulDataLoader draws a number
            return self.build()

    def build(self):
        return wrap(self.kind(self.items, **{"batch_size": BATCH, "shuffle": True, **self.options}), self.pruner)

    def parts(self):
        parts = [self.model, self.optimizer, self.pruner]
        return [*parts, self.loader] if self.kind is StatefulDataLoader else parts

    def save(self):
        """Save a checkpoint as one does, in a form that cannot share anything with the run."""
        file = io.BytesIO()
        # Dropout draws from the global generator. A loader that did too would draw more when it is resumed.
        torch.save([torch.get_rng_state(), *(part.state_dict() for part in self.parts())], file)
        return file.getvalue()

    def load(self, checkpoint):
        generator, *states = torch.load(io.BytesIO(checkpoint), weights_only=True)
        for part, state in zip(self.parts(), states, strict=True):
            part.load_state_dict(state)
        torch.set_rng_state(generator)
        return self

    def go(self, stop=None, *, after_epoch=False, saving=()):
        """Train to the end, or to ``stop`` batches and, with ``after_epoch``, to the end of their epoch's loop.

        Save a checkpoint in ``saved`` after each number of batches in ``saving``.
        """
        self.epochs = self.pruner.epochs()  # kept: a generator that goes would end an epoch that was seen whole
        for epoch in self.epochs:
            self.masks[epoch.number] = epoch.keep.tolist()
            for features, index in self.loader:
                self.optimizer.zero_grad()
                losses = torch.nn.functional.cross_entropy(self.model(features), index % 5, reduction="none")
                self.loader.observe(losses).backward()
                self.optimizer.step()
                self.log.append((epoch.number, index.tolist()))
                if len(self.log) in saving:
                    self.saved[len(self.log)] = self.save()
                if len(self.log) == stop and not after_epoch:
                    return self
            if stop is not None and len(self.log) >= stop:
                return self
        return self

    def outcome(self):
        weights = [value.tolist() for value in self.model.state_dict().values()]
        return weights, self.pruner.counts.tolist(), [record["mean_loss"] for record in self.pruner.history]


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads would wait for each other longer than they work on so small a model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def assert_resumed(stop, checkpoint, whole=None, **options):
    """Assert that a run that is stopped is the one that is not."""
    whole = whole or Run(**options).go()
    again = Run(**options).load(checkpoint).go()
    assert again.log == whole.log[stop:]
    assert again.outcome() == whole.outcome()
    assert all(mask == whole.masks[epoch] for epoch, mask in again.masks.items())


def test_the_run_prunes_by_its_losses():
    whole = Run().go()
    assert [sum(mask) for mask in whole.masks.values()] == [103, 73, 103, 73]
    assert whole.masks[1] != whole.masks[3]
    assert len(whole.log) == 13 + 10 + 13 + 10


@BOTH
@pytest.mark.parametrize("drop_last", [False, True])
def test_at_every_batch_alike(kind, drop_last):
    options = {"kind": kind, "options": {"drop_last": drop_last}}
    whole = Run(**options).go(saving=range(1, 47))
    assert len(whole.saved) == 46 - 4 * drop_last
    for stop, checkpoint in whole.saved.items():
        assert_resumed(stop, checkpoint, whole, **options)


@pytest.mark.parametrize(
    ("kind", "options", "stops"),
    [
        *((kind, {}, (13, 16)) for kind in (DataLoader, StatefulDataLoader)),  # with an epoch's last batch, and within
        *(
            pytest.param(kind, options, (1, 12, 13, 16, 22, 41), marks=SLOW)
            for kind in (DataLoader, StatefulDataLoader)
            for options in ({"persistent_workers": True, "prefetch_factor": 4}, {"drop_last": True}, {"shuffle": False})
        ),
        pytest.param(StatefulDataLoader, {"snapshot_every_n_steps": 4}, (3, 4, 15, 18), marks=SLOW),
    ],
)
def test_with_workers_wherever_it_is_stopped(kind, options, stops):
    options = {"kind": kind, "options": {"num_workers": 2, **options}}
    whole = Run(**options).go(saving=stops)
    assert tuple(whole.saved) == stops
    for stop, checkpoint in whole.saved.items():
        assert_resumed(stop, checkpoint, whole, **options)


@BOTH
@WORKERS
@pytest.mark.parametrize("drop_last", [False, True])
def test_after_an_epochs_last_batch(kind, workers, drop_last):
    """The usual place: the loop over batches is done, the epoch is not ended yet."""
    options = {"kind": kind, "options": {"num_workers": workers, "drop_last": drop_last}}
    checkpoint = (run := Run(**options).go(14, after_epoch=True)).save()
    assert run.pruner.next_epoch == 1
    assert_resumed(len(run.log), checkpoint, **options)


@BOTH
@WORKERS
def test_between_epochs_and_before_the_first(kind, workers):
    options = {"kind": kind, "options": {"num_workers": workers}}
    run = Run(**options)
    before = run.save()
    assert run.loader._iterator is None
    run.go(14, after_epoch=True).pruner.end_epoch()
    assert_resumed(23, run.save(), **options)
    assert_resumed(0, before, **options)


@BOTH
@WORKERS
def test_asking_for_states_changes_nothing(kind, workers):
    options = {"kind": kind, "options": {"num_workers": workers, "persistent_workers": workers > 0}}
    whole, run = Run(**options).go(), Run(**options)
    for stop in (5, 13, 20, 37):
        run.save()
        run.go(stop, after_epoch=True)
    run.epochs.close()  # as a loop that is left: the last epoch was seen whole, so it ends
    assert (run.log, run.outcome()) == (whole.log, whole.outcome())


@BOTH
@WORKERS
def test_stopped_twice(kind, workers):
    options = {"kind": kind, "options": {"num_workers": workers}}
    first = Run(**options).go(15).save()
    assert_resumed(18, Run(**options).load(first).go(3).save(), **options)
    assert_resumed(15, Run(**options).load(first).save(), **options)  # loaded, and saved again at once


@BOTH
@WORKERS
def test_back_in_the_same_objects(kind, workers):
    options = {"kind": kind, "options": {"num_workers": workers, "persistent_workers": workers > 0}}
    whole, run = Run(**options).go(), Run(**options).go(15)
    checkpoint = run.save()
    run.go(18)
    assert_resumed(15, run.load(checkpoint).save(), whole, **options)  # loaded, and saved again at once
    assert run.loader._iterator is None or kind is DataLoader
    run.go(30)
    run.log.clear()
    run.load(checkpoint).go()
    assert (run.log, run.outcome()) == (whole.log[15:], whole.outcome())


@WORKERS
@pytest.mark.parametrize("stops", [(3, 5), (15, 18)], ids=str)
def test_saved_in_a_second_pass(stops, workers):
    """A loop that was left and run again: its position is one in what remained, and says nothing of the epoch."""
    options = {"kind": StatefulDataLoader, "options": {"num_workers": workers}}
    run = Run(**options)
    for stop in stops:
        run.go(stop)
    assert_resumed(stops[-1], run.save(), **options)


@WORKERS
def test_saved_after_another_loader_went_on(workers):
    options = {"kind": StatefulDataLoader, "options": {"num_workers": workers}}
    run = Run(**options).go(3)
    left = run.loader
    run.loader = run.another_loader()
    run.go(5)
    saved = [run.save()]  # with the state of the loader that went on
    run.loader = left
    saved.append(run.save())
    for checkpoint in saved:
        assert_resumed(5, checkpoint, **options)


@WORKERS
def test_another_loader_goes_on_before_the_one_whose_position_was_loaded(workers):
    options = {"kind": StatefulDataLoader, "options": {"num_workers": workers}}
    whole = Run(**options).go()
    again = Run(**options).load(Run(**options).go(3).save())
    loaded, again.loader = again.loader, again.another_loader()
    again.go(2)
    again.loader = loaded
    again.go()
    assert (again.log, again.outcome()) == (whole.log[3:], whole.outcome())


def test_a_loop_that_is_begun_again_and_not_run_keeps_its_position():
    """Without losses the position is all there is, so it must not be given up without need."""
    options = {"kind": StatefulDataLoader, "pruning": {"policy": Random()}}
    run = Run(**options).go(3)
    before = run.loader.state_dict()
    run.pruner.begin_epoch()
    assert before["loader"] is not None
    assert run.loader.state_dict() == before


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2, "in_order": False},
        {"shuffle": False, "sampler": SubsetRandomSampler(range(103))},
    ],
    ids=["out of order", "a random sampler"],
)
@pytest.mark.parametrize("stop", [6, 13, 17])
def test_what_no_position_tells_is_told_by_the_pruner(kind, options, stop):
    """Its batches come in another order the second time: none twice and none missing all the same."""
    first = Run(kind, options, items=Items(slow=True)).go(stop)
    again = Run(kind, options, items=Items(slow=True)).load(first.save()).go()
    for epoch, batches in itertools.groupby(first.log + again.log, key=lambda entry: entry[0]):
        mask = again.masks.get(epoch, first.masks.get(epoch))
        assert sorted(index for _, batch in batches for index in batch) == np.flatnonzero(mask).tolist()


@pytest.mark.parametrize("more", [{"batch_size": 3}, {"batch_size": 16}, {"num_workers": 2}], ids=str)
def test_a_position_in_batches_of_another_loader_is_not_used(more):
    """It counts batches, of which smaller ones would come twice, and of larger ones some never."""
    run = Run(StatefulDataLoader).go(15)
    again = Run(StatefulDataLoader, more).load(run.save()).go()
    seen = [index for epoch, batch in run.log + again.log if epoch == 1 for index in batch]
    assert sorted(seen) == np.flatnonzero(run.masks[1]).tolist()


def test_what_was_skipped_before_a_position_need_not_be_observed_after_it():
    """It does not come again, as it does behind a plain loader, which has no position."""

    def go_on(states=None, stop=None):
        pruner = make_pruner()
        loader = wrap(StatefulDataLoader(Items(), BATCH, shuffle=True), pruner, with_ids=True)
        for one, state in zip((pruner, loader), states or (), strict=False):
            one.load_state_dict(state)
        if stop == 0:  # loaded, and saved again at once
            return pruner.state_dict(), loader.state_dict()
        pruner.begin_epoch()
        for number, (ids, _) in enumerate(loader):
            if states is None and number == 1:
                pruner.skip(len(ids))
            else:
                pruner.observe(losses_of(ids, 0), ids)
            if number == stop:
                return pruner.state_dict(), loader.state_dict()
        pruner.end_epoch()
        return pruner.history[0]["observed"]

    saved = go_on(stop=3)
    assert go_on(saved) == go_on(go_on(saved, stop=0)) == go_on(go_on(saved, stop=2)) == go_on() == 103 - BATCH


@WORKERS
def test_without_losses_the_position_is_all_there_is(workers):
    def run(stop=None, states=None):
        pruner = make_pruner(schedule=SCHEDULE, policy=Random())
        loader = StatefulDataLoader(Items(), batch_size=BATCH, shuffle=True, num_workers=workers)
        loader, log = wrap(loader, pruner), []
        if states is not None:
            pruner.load_state_dict(states[0])
            loader.load_state_dict(states[1])
        if stop == 0:
            return log, (pruner.state_dict(), loader.state_dict())
        for epoch in pruner.epochs():
            for _, index in loader:
                log.append((epoch.number, index.tolist()))
                if len(log) == stop:
                    return log, (pruner.state_dict(), loader.state_dict())
        return log, None

    whole, _ = run()
    for stop in (1, 13, 17, 23):
        _, states = run(stop)
        assert run(states=states)[0] == whole[stop:]
        _, at_once = run(0, states)  # loaded, and saved again before a batch came
        assert run(states=at_once)[0] == whole[stop:]


def before_its_losses(kind):
    """A run in its first epoch, between its second batch and the losses of it."""
    run = Run(kind)
    run.pruner.begin_epoch()
    batches = iter(run.loader)
    run.loader.observe(losses_of(next(batches)[1], 0))
    next(batches)
    return run


class TestRefused:
    def test_a_loader_before_its_pruner(self):
        run = Run(StatefulDataLoader).go(15)
        state = run.loader.state_dict()
        with pytest.raises(
            PrunedataError, match=r"state of epoch 0, .* of epoch 1: call pruner\.load_state_dict\(\) fi"
        ):
            Run(StatefulDataLoader).loader.load_state_dict(state)

    def test_another_batch_size_where_no_losses_tell_what_remains(self):
        run = Run(StatefulDataLoader, pruning={"policy": Random()}).go(3)
        other = Run(StatefulDataLoader, {"batch_size": 3}, {"policy": Random()})
        with pytest.raises(PrunedataError, match=f"batch_size={BATCH} to resume .* Got batch_size=3"):
            other.load(run.save())

    def test_losses_before_the_epoch_is_begun_again(self):
        run = Run().load(Run().go(15).save())
        _, index = next(iter(run.loader))
        with pytest.raises(PrunedataError, match=r"Expected begin_epoch\(\) before observe"):
            run.loader.observe(losses_of(index, 1))

    def test_a_position_ahead_of_the_losses_is_told_at_the_end(self):
        """Going on would leave that batch out."""
        run = before_its_losses(StatefulDataLoader)
        with pytest.raises(SkippedSamples, match=r"Got 8 that were not.* 8 of them were delivered"):
            Run(StatefulDataLoader).load(run.save()).go()

    @BOTH
    def test_a_loop_left_early_after_a_resume_is_told_the_right_numbers(self, kind):
        again = Run(kind).load(Run(kind).go(5).save()).go(3)
        with pytest.raises(SkippedSamples, match=r"Got 39 that were not.* did not deliver 39 of them: "):
            again.pruner.end_epoch()

    def test_a_plain_loader_delivers_that_batch_again(self):
        again = Run().load(before_its_losses(DataLoader).save()).go()
        assert again.log[0] == Run().go(2).log[1]


def test_a_plain_loader_has_a_state_too():
    """So that code which asks every loader for its state needs no exception for this one."""
    whole, run = Run().go(), Run().go(15)
    checkpoint, position = run.save(), run.loader.state_dict()
    again = Run().load(checkpoint)
    again.loader.load_state_dict(position)
    assert (again.go().log, again.outcome()) == (whole.log[15:], whole.outcome())


def test_an_epoch_of_which_all_was_fetched_and_nothing_observed_goes_on():
    """A prefetcher may be that far ahead. Nothing is missing before the loop has gone on."""
    pruner = make_pruner()
    loader = wrap(DataLoader(Items(), BATCH, shuffle=True), pruner, with_ids=True)
    pruner.begin_epoch()
    assert len(list(loader)) == len(loader)
    again = make_pruner()
    again.load_state_dict(pruner.state_dict())
    loader = wrap(DataLoader(Items(), BATCH, shuffle=True), again, with_ids=True)
    for epoch in again.epochs():
        for ids, _ in loader:
            loader.observe(losses_of(ids, epoch.number), ids)
    assert again.history[0]["observed"] == pruner.samples
