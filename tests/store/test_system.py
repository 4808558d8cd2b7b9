"""What the system refuses, and when a program ends: told plainly, with the last commit as it was."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from zarr.storage import ZipStore

import prunedata.store.durable
from prunedata.errors import DeniedStore, ForeignStore, MissingPackage, StoreError, UnwritableStore
from prunedata.findings.inspection import inspect
from tests.common.programs import ROOT, run_python
from tests.store.stored_runs import build, observe, outcome, start

BEGIN = """
import os, resource, signal, sys, atexit, errno
import numpy as np, zarr
from pathlib import Path
from prunedata.errors import *
from prunedata.findings.inspection import inspect
from tests.store.stored_runs import start, observe, standing
place = Path(sys.argv[1])

def refused(call, *kinds):
    try:
        call()
    except StoreError as error:
        assert isinstance(error, kinds), error
        assert str(error).startswith("Expected "), error
        return error
    raise SystemExit("not refused")
"""
READ_ONLY = """
os.umask(0)
run = start(place)
observe(run); run.end_epoch()
os.chmod(place, 0o555)
for folder in place.rglob("*"):
    os.chmod(folder, 0o555 if folder.is_dir() else 0o444)
empty = place.with_name("empty")
empty.mkdir(0o555)
closed = place.with_name("closed")
closed.mkdir()
os.chmod(closed, 0)
if os.geteuid() == 0:  # who may do anything
    os.setuid(65534)
observe(run)
told = refused(run.end_epoch, DeniedStore, PermissionError)
assert "permission to write" in str(told) and "name another store" in str(told), told
assert told.errno == errno.EACCES
assert inspect(place)["epoch"] == 1
for name in ("empty", "empty/new", "closed/new"):
    refused(lambda: start(place.parent / name), PermissionError)
told = refused(lambda: inspect(closed), DeniedStore, PermissionError)
assert "permission to read" in str(told) and str(told).endswith("change the folder's permissions."), told
"""
READ_ONLY_RESUME = """
if os.geteuid() == 0:
    os.setuid(65534)
before = {path: path.stat().st_mtime_ns for path in [place, *place.rglob("*")]}
error = refused(lambda: start(place, resume=True), DeniedStore, PermissionError)
assert "permission to write" in str(error) and "read-only for this user" in str(error), error
assert error.errno == errno.EACCES
assert inspect(place)["epoch"] == 1
assert before == {path: path.stat().st_mtime_ns for path in [place, *place.rglob("*")]}
print("refused", flush=True)
sys.stdin.read()  # lives on, with the error
"""
FULL = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run = start(place, samples=3000, prune=900)
for _ in range(3):
    observe(run); run.end_epoch()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))  # as a quota: no file may be longer
observe(run)
told = refused(run.end_epoch, UnwritableStore, OSError)
assert told.errno == errno.EFBIG and "full disk" in str(told) and "commit again" in str(told), told
assert inspect(place)["epoch"] == 3
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run.commit()
assert inspect(place)["epoch"] == 4 and not list(place.rglob("*.partial"))
"""
AT_EXIT = """
run = start(place)
observe(run); run.end_epoch()
observe(run, 2)
atexit.register(run.commit)
"""


def program(code, place):
    done = run_python(f"import sys; sys.argv.append({str(place)!r})\n{BEGIN}{code}", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.fixture
def open_folder():
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs the permissions of POSIX")
def test_a_folder_that_may_not_be_written(open_folder):
    program(READ_ONLY, open_folder / "run.zarr")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs the permissions of POSIX")
@pytest.mark.parametrize("closed", ["all", "hits-0/c", "hits-1/c/0"])
def test_who_may_only_read_does_not_go_on_with_a_run_nor_take_its_lock(open_folder, closed):
    """Its owner, who was away for a while, goes on; all users are one where the tests do not run as root."""
    place = open_folder / "run.zarr"
    run = start(place)
    observe(run)
    run.end_epoch()
    run.commit()  # both slots are there
    del run
    gc.collect()
    for path in (place, *place.rglob("*")):
        path.chmod(0o777 if closed != "all" and path != place / closed else 0o555)
    code = f"import sys; sys.argv.append({str(place)!r})\n{BEGIN}{READ_ONLY_RESUME}"
    reader = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert reader.stdout.readline() == "refused\n", reader.communicate()[1]
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        owner = start(place, resume=True)
        observe(owner)
        owner.end_epoch()
        assert inspect(place)["epoch"] == 2
    finally:
        reader.communicate()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs the limits of POSIX")
def test_a_disk_that_is_full_and_then_is_not(tmp_path):
    program(FULL, tmp_path / "run.zarr")


def test_a_commit_when_the_program_ends(tmp_path):
    """No thread can be started any more."""
    program(AT_EXIT, tmp_path / "run.zarr")
    run = start(tmp_path / "run.zarr", resume=True)
    assert (run.next_epoch, run.state_dict()["state"]["observed"]) == (1, 100)
    assert inspect(tmp_path / "run.zarr")["open"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EPERM])
def test_errors_keep_their_number(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    run = start(tmp_path)
    observe(run)
    monkeypatch.setattr(prunedata.store.durable, "_replace_durably", refuse)
    with pytest.raises(UnwritableStore, match=r"^Expected .*Got .*The last commit is as it was.$") as caught:
        run.end_epoch()
    assert caught.value.errno == number
    assert isinstance(caught.value, DeniedStore) == (number in (errno.EROFS, errno.EPERM))
    monkeypatch.undo()
    run.commit()
    assert start(tmp_path, resume=True).next_epoch == 1


@pytest.mark.parametrize("call", range(12))
def test_a_commit_right_after_one_that_was_interrupted(tmp_path, monkeypatch, call):
    """Ctrl-C while a file is made safe, whichever; the next commit comes at once, in the same process."""
    run, told, left = start(tmp_path), start(None), [call]
    for each in (run, told):
        observe(each)
        each.end_epoch()
        observe(each, 3)

    def interrupt(descriptor, _fsync=os.fsync):
        left[0] -= 1
        if left[0] == -1:
            os.kill(os.getpid(), signal.SIGINT)
        _fsync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupt)
    monkeypatch.setattr(prunedata.store.durable, "_sync_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.commit()
    monkeypatch.undo()
    before = inspect(tmp_path)
    assert before["epoch"] == 1
    run.commit()
    assert inspect(tmp_path)["generation"] == before["generation"] + 1
    again = start(tmp_path, resume=True)
    assert outcome(again) == outcome(told)
    assert again.state_dict()["arrays"] == told.state_dict()["arrays"]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_zip_file_is_read_and_not_written(tmp_path):
    place = tmp_path / "run.zarr"
    build(place)
    packed = Path(shutil.make_archive(str(tmp_path / "run"), "zip", place))
    before = packed.read_bytes()
    for options in ({"mode": "a"}, {"mode": "r"}):
        with pytest.raises(StoreError, match=r"can be replaced. Got ZipStore|read-only"):
            start(ZipStore(packed, **options), resume=True)
    store = ZipStore(packed, mode="r")
    assert inspect(store)["epoch"] == 6
    store.close()
    assert packed.read_bytes() == before


def test_a_link_to_nowhere_is_no_place_for_a_run(tmp_path):
    """Its disk may not be mounted: nothing is made in its place."""
    (tmp_path / "run.zarr").symlink_to(tmp_path / "disk" / "run")
    for call in (lambda: start(tmp_path / "run.zarr"), lambda: inspect(tmp_path / "run.zarr")):
        with pytest.raises(ForeignStore, match=r"run\.zarr, a link to .*disk/run, which does not exist"):
            call()
    assert not (tmp_path / "disk").exists()
    (tmp_path / "disk" / "run").mkdir(parents=True)
    observe(run := start(tmp_path / "run.zarr"))
    run.end_epoch()
    run.commit()
    assert inspect(tmp_path / "disk" / "run")["epoch"] == 1
    assert (tmp_path / "run.zarr").is_symlink()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", r'Got an empty string, .* say store="\." if you mean that one'),
        ("file://", r'Got an empty string, .* say store="\." if you mean that one'),
        ("foo://bar", r"Expected a URL that fsspec can open .* Got foo://bar .*name another"),
    ],
)
def test_a_name_of_no_place_is_refused_and_nothing_made(tmp_path, monkeypatch, name, told):
    monkeypatch.chdir(tmp_path)
    for call in (lambda: start(name), lambda: start(name, resume=True), lambda: inspect(name)):
        with pytest.raises(StoreError, match=told):
            call()
    assert not list(tmp_path.iterdir())
    assert start(".").next_epoch == 0


def test_a_url_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # as where it is not installed
    with pytest.raises(MissingPackage, match=r"Expected the package that opens gs://runs/one\. .*gcsfs") as caught:
        start("gs://runs/one")
    assert isinstance(caught.value, StoreError)
    assert isinstance(caught.value, ImportError)
