"""Each attack a little, with a seed of its own each time: nothing is lost, and nothing silently wrong."""

import json

import pytest

from benchmarks.faults.__main__ import ATTACKS, BY_NAME
from benchmarks.faults.calls import can_watch
from tests.common.programs import run_module, run_python

# Each attack a little, with a seed of its own each time: nothing is lost, and nothing silently wrong.
#
# The programs run in a process of their own, as they fork, and this one has threads.


WATCHES = can_watch()


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_lost_and_nothing_silently_wrong(attack, tmp_path):
    if attack.needs_calls and not WATCHES:
        pytest.skip("needs Linux 5.5 or newer, and to be allowed seccomp's notifications")
    if attack.name in ("kills-torch", "loaders", "ranks"):
        pytest.importorskip("torch")
    done = run_module("benchmarks.faults", attack.name, "--json", cwd=tmp_path)
    print(done.stderr)  # the seed, and how to repeat what failed
    (found,) = json.loads(done.stdout)
    assert found["tried"] >= min(attack.few, found["of"] or attack.few)
    assert found["tried"] == found["exact"] + found["refused"]
    assert (found["failures"], done.returncode) == ([], 0)


# What is broken on purpose, and the attack that has to find it.
FSYNC = """
import os
os.fsync = os.fdatasync = lambda descriptor: None
import prunedata.store.durable as durable
durable._sync_bytes = os.fsync
"""
POINTER_FIRST = """
from prunedata.store import run_store
def write(self, state, arrays, _write=run_store.RunStore.write):
    about = {name: {"shape": list(a.shape), "dtype": a.dtype.str, "crc32": zlib.crc32(a.tobytes())}
             for name, a in arrays.items()}
    self._point(self._pointer["generation"] + 1, state, about)
    self._slots.write(self._pointer["generation"], arrays)
import zlib
run_store.RunStore.write = write
"""
ONE_SLOT = """
from prunedata.store import slots
write, read = slots.Slots.write, slots.Slots.read
slots.Slots.write = lambda self, generation, arrays: write(self, 0, arrays)
slots.Slots.read = lambda self, name, generation, about: read(self, name, 0, about)
"""
NO_LOCK = """
from prunedata.store import lock, run_store
lock.fcntl = None
run_store.RunStore._check_alone = lambda self: None
"""
NOT_PUT_OFF = """
from prunedata.uninterrupted import Uninterrupted
Uninterrupted._defer = lambda self: None
"""
ERRORS_SWALLOWED = """
from prunedata.store import durable
def overwrite(path, value, _overwrite=durable._overwrite_durably):
    try:
        _overwrite(path, value)
    except OSError:
        pass
durable._overwrite_durably = overwrite
"""
TALLY_FORGOTTEN = """
from prunedata.run.open import OpenEpoch
def restore(self, state, _restore=OpenEpoch.restore):
    _restore(self, state)
    self.tally = type(self.tally)(self.tally.packed.size)
OpenEpoch.restore = restore
"""
NO_DIGEST = """
import types
from prunedata.store import slots
slots.zlib = types.SimpleNamespace(crc32=lambda *_: 0)
"""
NO_INDEX_DIGEST = """
from prunedata.streams import shards
shards._digest = lambda _: 1
"""
ON_OTHER_SAMPLES = """
from prunedata.adapters.torch.loader import PrunedLoader
observe = PrunedLoader.observe
PrunedLoader.observe = lambda self, losses, ids=None: observe(self, losses.flip(0), ids)
"""
NOT_WEIGHED = """
from prunedata.adapters.torch.loader import PrunedLoader
observe = PrunedLoader.observe
PrunedLoader.observe = lambda self, losses, ids=None: (observe(self, losses, ids), losses.mean())[1]
"""
BROKEN = [
    ("kills", ONE_SLOT, 100),  # at instants that are left to chance: so many that one of them hits
    ("kills-at-calls", POINTER_FIRST, 25),
    ("pairs", NO_LOCK, 12),
    ("interrupts", NOT_PUT_OFF, 100),
    ("handlers", NOT_PUT_OFF, 60),
    ("power-cuts", FSYNC, 100),
    ("power-cuts-after-kills", FSYNC, 4),
    ("failing-calls", ERRORS_SWALLOWED, 50),
    ("sequences", TALLY_FORGOTTEN, 80),
    ("loaders", ON_OTHER_SAMPLES, 10),
    ("ranks", NOT_WEIGHED, 15),
    ("damaged-stores", NO_DIGEST, 400),
    ("damaged-indexes", NO_INDEX_DIGEST, 100),
]
BEGIN = """
import sys
from benchmarks.faults import story
from benchmarks.faults.__main__ import main
from benchmarks.faults.fuzz.pool import Pool
Pool.start = "fork"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "broken", "cases"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_library_that_is_broken_is_found_out(attack, broken, cases, tmp_path):
    if not WATCHES and BY_NAME[attack].needs_calls:
        pytest.skip("needs Linux 5.5 or newer, and to be allowed seccomp's notifications")
    code = f"{BEGIN}{broken}\nsys.exit(main(['{attack}', '--cases', '{cases}', '--seed', '1', '--json']))"
    done = run_python(code, cwd=tmp_path)
    (found,) = json.loads(done.stdout)
    assert found["lost"] + found["wrong"] > 0, done.stderr
    assert done.returncode == 1
    assert f"To repeat: python -m benchmarks.faults {attack} --seed 1 --case" in found["failures"][0]


# Workers and dealers that are killed for real.


@pytest.mark.slow
def test_workers_and_dealers_that_are_killed(tmp_path):
    pytest.importorskip("ray")
    command = ["--workers", "2", "--dealers", "1", "--json"]
    told = run_module("benchmarks.faults.training.dealt", *command, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["workers"], found["dealers"], found["different"], found["unclear"]) == (2, 1, 0, 0)
