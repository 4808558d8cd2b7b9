"""Steps happen whole or not at all: a SIGINT at every line of the library, other threads, handlers that look."""

import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import prunedata
from prunedata import Pruner, Schedule
from prunedata.errors import NotInEpoch
from prunedata.policies import RunningLoss
from prunedata.uninterrupted import Uninterrupted
from tests.run.alike import known

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here

PACKAGE = Path(prunedata.__file__).parent
HERE = (str(PACKAGE / "run"), str(PACKAGE / "counting"), str(PACKAGE / "uninterrupted.py"))
SAMPLES = 40
SCHEDULE = Schedule(2, window=2, start=1, block=1, pruned_per_block=1)


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def losses(ids, epoch):
    return np.cos(ids * 0.7 + epoch).astype(np.float32)


def make():
    return Pruner(SAMPLES, SCHEDULE, prune=0.3, policy=RunningLoss(), classes=4)


def train(run):
    """The rest of a run, as a notebook's cell that is run again: every batch that remains of its epoch."""
    for epoch in run.epochs():
        for ids in epoch.batches(7):
            run.observe(losses(ids, epoch.number), ids)
            run.counts  # noqa: B018 (looking cuts blocks)


def standing(run):
    """All that a run knows of its samples, and what it did, but for seconds and what depends on the order of sums."""
    records = [{k: r[k] for k in ("number", "pruned", "kept", "observed")} for r in run.history]
    return records, {name: array.tolist() for name, array in known(run).items()}


class SignalAtLine:
    """Raises a real signal at one line of the library, counted over the whole program."""

    def __init__(self, at, number=signal.SIGINT):
        self.at, self.number, self.lines = at, number, 0

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(self.number)
        return self

    def run(self, what):
        sys.settrace(self)
        try:
            what()
        finally:
            sys.settrace(None)


def test_ctrl_c_at_every_line_and_on_in_the_same_process(interruptible):
    """Batches are shuffled alike, but those of a resumed epoch are cut elsewhere: so means, and hits, may differ."""
    count = SignalAtLine(0)
    whole = make()
    count.run(lambda: train(whole))
    observed = [record["observed"] for record in whole.history]
    assert count.lines > 1000
    for at in range(1, count.lines, 7):
        run = make()
        tracer = SignalAtLine(at)
        with pytest.raises(KeyboardInterrupt):
            tracer.run(lambda run=run: train(run))
        train_again(run)
        assert [record["observed"] for record in run.history] == observed, f"interrupted at line {at}"
        assert run.visits.sum() == sum(observed)
        assert (run.counts <= run.visits).all()
        assert (run.hits <= run.visits).all()


def train_again(run):
    if run.next_epoch < SCHEDULE.epochs:
        train(run)


def test_a_step_that_a_signal_reaches_is_done_before_the_signal(interruptible):
    whole, done = Uninterrupted(), []

    def step():
        with whole:
            signal.raise_signal(signal.SIGINT)
            done.append(1)
            with whole:
                done.append(2)
            done.append(3)
        done.append(4)

    with pytest.raises(KeyboardInterrupt):
        step()
    assert done == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_raises_does_not_keep_later_signals_from_theirs(interruptible):
    handled = []

    def step():
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append("saved"))
    try:
        with pytest.raises(KeyboardInterrupt):
            step()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == ["saved"]


def test_a_handler_that_saves_a_checkpoint_at_every_line(interruptible):
    """What batch systems do before they kill: the handler returns, and training goes on as if nothing had been."""
    plain = make()
    train(plain)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)  # a handler takes some lines in each step
    try:
        counted, count = make(), SignalAtLine(0)
        count.run(lambda: train(counted))
        for at in range(1, count.lines, 23):
            run, saved = make(), []
            signal.signal(signal.SIGUSR1, lambda *_, run=run, saved=saved: saved.append(run.state_dict()))
            SignalAtLine(at, signal.SIGUSR1).run(lambda run=run: train(run))
            assert standing(run) == standing(plain), f"looked at at line {at}"
            if not saved:  # runs differ by a few lines, so the last ones may not be reached
                assert at > count.lines - 30
                continue
            other = make()
            other.load_state_dict(saved[0])
            train_again(other)
            assert other.visits.sum() == plain.visits.sum()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_looking_from_another_thread_costs_the_run_nothing():
    plain, run = make(), make()
    train(plain)
    stop, refused = threading.Event(), []

    def look():
        while not stop.is_set():
            assert (run.hits <= run.visits).all()
            run.counts  # noqa: B018
            try:
                run.state_dict()
            except NotInEpoch as error:
                refused.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        train(run)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert standing(run) == standing(plain)
    assert all("thread that trains" in str(error) for error in refused)


def test_steps_in_threads_of_their_own_end_where_the_run_is_taken_over():
    """As where an event loop has each step done by an executor: the thread that ends the epoch is told what to call."""
    plain, run = make(), make()
    train(plain)
    refused = 0
    while run.next_epoch < SCHEDULE.epochs:
        epoch = run.begin_epoch()
        for ids in epoch.batches(7):
            step = threading.Thread(target=run.observe, args=(losses(ids, epoch.number), ids))
            step.start()
            step.join()
        with pytest.raises(NotInEpoch, match=r"each step runs in a thread of its own, call pruner\.take_over\(\) here"):
            run.end_epoch()
        refused += 1
        run.take_over()
        run.end_epoch()
    assert refused == SCHEDULE.epochs
    assert standing(run) == standing(plain)
