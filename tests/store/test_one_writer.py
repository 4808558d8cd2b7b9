"""One process writes to a run's store at a time; and within it, the Pruner that was made last."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import warnings

import pytest
from zarr.storage import MemoryStore

from prunedata.errors import RunExists, StoreError
from prunedata.findings.inspection import inspect
from tests.common.programs import ROOT
from tests.store.stored_runs import is_locked, outcome
from tests.store.test_store import start, train

ALONE = "only process that writes"
OPENS = """
import sys
from tests.store.test_store import start, train
run = start(sys.argv[1], resume=True)
train(run, 1)
print(run.next_epoch, flush=True)
sys.stdin.read()  # lives until it is told to end
"""


RACES = """
import gc, sys
from prunedata.errors import StoreError
from tests.store.test_store import start, train
print(flush=True)
for place in sys.stdin:
    try:
        run = start(place.strip(), resume=True)
        train(run, 1)
        print("done", flush=True)
    except StoreError as error:
        print(error, flush=True)
    run = None
    gc.collect()
"""


def another(*arguments, code=OPENS):
    """A process that resumes the run, trains an epoch, and lives on."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def resumed_elsewhere(place):
    """What another process that resumes the run prints, and its errors."""
    return another(place).communicate()


def forked(work):
    """Do something in a forked child; return whether it was refused with a StoreError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # zarr keeps a thread
        child = os.fork()
    if not child:
        status = 2
        try:
            work()
            status = 0
        except StoreError:
            status = 1
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1)
    return status == 1


def test_a_second_process_is_refused_while_the_first_lives(tmp_path):
    run = start(tmp_path / "run.zarr")
    train(run, 1)
    out, err = resumed_elsewhere(tmp_path / "run.zarr")
    assert out == ""
    assert f"StoreError: Expected to be the {ALONE}" in err
    assert inspect(tmp_path / "run.zarr")["epoch"] == 1  # to look is allowed at any time
    train(run, 1)
    del run
    gc.collect()
    assert resumed_elsewhere(tmp_path / "run.zarr") == ("3\n", "")


def test_a_store_is_free_when_its_process_was_killed(tmp_path):
    place = tmp_path / "run.zarr"
    train(start(place), 1)
    gc.collect()
    other = another(place)
    assert other.stdout.readline() == "2\n"
    for resume in (True, False):
        with pytest.raises(StoreError, match=ALONE):
            start(place, resume=resume)
    other.send_signal(signal.SIGKILL)
    other.communicate()
    run = start(place, resume=True)
    assert run.next_epoch == 2
    train(run, 4)
    whole = start(None)
    train(whole, 6)
    assert outcome(run) == outcome(whole)


def test_of_processes_that_open_it_at_one_instant_one_writes(tmp_path):
    """Also where nothing is there yet. Who was not refused has written an epoch, and nothing is torn."""
    processes = [another(code=RACES) for _ in range(3)]
    for process in processes:
        process.stdout.readline()
    for number in range(15):
        place = tmp_path / f"{number}.zarr"
        for process in processes:
            process.stdin.write(f"{place}\n")
            process.stdin.flush()
        said = [process.stdout.readline().strip() for process in processes]
        assert all(line == "done" or ALONE in line for line in said)
        assert inspect(place)["epoch"] == said.count("done") >= 1
        assert not list(place.rglob("*.partial"))
    for process in processes:
        assert process.communicate()[1] == ""
    whole, run = start(None), start(place, resume=True)
    train(whole, 6)
    train(run, 6 - run.next_epoch)
    assert outcome(run) == outcome(whole)


def test_who_was_refused_holds_no_lock(tmp_path):
    """The error is kept, as a notebook does; and with it all that its frames refer to."""
    train(start(tmp_path), 1)
    gc.collect()
    with pytest.raises(RunExists) as exists:
        start(tmp_path)
    with pytest.raises(StoreError) as other:
        start(tmp_path, resume=True, seed=4)
    assert not is_locked(tmp_path)
    assert exists.value
    assert other.value


def test_a_cell_that_was_run_twice_goes_on_with_the_younger_run(tmp_path):
    old = start(tmp_path)
    train(old, 1)
    new = start(tmp_path, resume=True)
    with pytest.raises(StoreError, match="Another Pruner of this process"):
        train(old, 1)  # though the younger has not committed anything yet
    train(new, 5)
    whole = start(None)
    train(whole, 6)
    assert outcome(new) == outcome(whole)


def test_a_younger_run_that_is_gone_or_was_refused_takes_nothing_over(tmp_path):
    run = start(tmp_path)
    train(run, 1)
    assert start(tmp_path, resume=True).next_epoch == 1
    with pytest.raises(StoreError):
        start(tmp_path, resume=True, seed=4)
    with pytest.raises(RunExists):
        start(tmp_path)
    train(run, 1)
    assert inspect(tmp_path)["epoch"] == 2


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_a_forked_child_does_not_commit(tmp_path, place):
    run = start(tmp_path if place == "folder" else MemoryStore())
    train(run, 1)
    assert forked(run.commit)
    train(run, 1)


def test_a_forked_child_does_not_resume_beside_its_parent_nor_keep_the_lock(tmp_path):
    run = start(tmp_path)
    train(run, 1)
    assert forked(lambda: start(tmp_path, resume=True))
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)  # a worker that outlives its parent's run
        os._exit(0)
    del run
    gc.collect()
    assert not is_locked(tmp_path)
    os.close(write)
    os.close(read)
    os.waitpid(child, 0)


class TestGone:
    """The store is deleted, all of it or a part, while the run goes on."""

    @pytest.mark.parametrize("again", [False, True])
    def test_the_folder(self, tmp_path, again):
        place = tmp_path / "run.zarr"
        run = start(place)
        train(run, 2)
        shutil.rmtree(place)
        if again:
            place.mkdir()
        with pytest.raises(StoreError, match=r"run.zarr as this run left it. Got nothing"):
            train(run, 1)
        other = start(tmp_path / "other.zarr")
        other.load_state_dict(run.state_dict())  # as the error says
        train(other, 3)
        whole = start(None)
        train(whole, 6)
        assert outcome(start(tmp_path / "other.zarr", resume=True)) == outcome(whole)

    def test_the_metadata_of_the_arrays(self, tmp_path):
        """They are written once; a cleaner of scratch space takes what is old."""
        run = start(tmp_path)
        for _ in range(6):
            train(run, 1)
            for path in tmp_path.glob("*/zarr.json"):
                path.unlink()
        run.commit()
        whole = start(None)
        train(whole, 6)
        assert outcome(start(tmp_path, resume=True)) == outcome(whole)


def test_the_program_may_change_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = start("run.zarr")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(run, 2)
    assert inspect(tmp_path / "run.zarr")["epoch"] == 2
    assert not list((tmp_path / "elsewhere").iterdir())
