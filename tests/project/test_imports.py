"""What an import loads, and how all tests run: each name when it is named, each test once."""

import ast
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

import prunedata
from tests import __main__ as program
from tests.common.programs import run_python

# ``import prunedata`` loads what is used: each name comes when it is named, and zarr with the first store.


TRAINING = """
import json, sys
import numpy as np
before = set(sys.modules)
import prunedata
imported = set(sys.modules) - before
from prunedata import Pruner, Schedule
schedule = Schedule(4, window=4, start=2, block=2, pruned_per_block=1)
pruner = Pruner(100, schedule, prune=0.25{options})
for epoch in pruner.epochs():
    for ids in epoch.batches(32):
        pruner.observe(np.cos(ids), ids)
print(json.dumps([sorted(imported), sorted(set(sys.modules) - before)]))
"""

HELP = """
import json, sys
from prunedata.cli.main import main
for command in (["--help"], ["plan", "--help"]):
    try:
        main(command)
    except SystemExit:
        pass
assert main("plan --epochs 9 --steady --samples 100 --prune 0.2 --batch-size 8".split()) == 0
print(json.dumps(sorted(sys.modules)))
"""


def loaded(tmp_path, options=""):
    """Modules that the import loads, and those that a training has loaded by its end."""
    done = run_python(TRAINING.format(options=options), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return [set(names) for names in json.loads(done.stdout)]


def is_in(package, names):
    return {name for name in names if name == package or name.startswith(f"{package}.")}


def test_a_training_in_memory_loads_what_it_needs(tmp_path):
    imported, trained = loaded(tmp_path)
    assert not is_in("prunedata.run", imported)
    for unused in ("zarr", "prunedata.reporting", "prunedata.findings", "prunedata.dealing"):
        assert not is_in(unused, trained)


def test_zarr_comes_with_the_first_store(tmp_path):
    imported, trained = loaded(tmp_path, ', store="run.zarr"')
    assert "zarr" not in imported
    assert "zarr" in trained


def test_help_and_plan_load_nothing_that_reads_stores(tmp_path):
    done = run_python(HELP, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = set(json.loads(done.stdout.splitlines()[-1]))
    assert is_in("prunedata.cli", names)
    for unused in ("zarr", "prunedata.run.pruner", "prunedata.store.run_store", "prunedata.findings.inspection"):
        assert not is_in(unused, names)


def named_for_type_checkers():
    """The names of the block that type checkers read, each with its module."""
    tree = ast.parse(Path(prunedata.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}


def test_a_name_is_what_type_checkers_take_it_for():
    named = named_for_type_checkers()
    assert {*named, "__version__"} == set(prunedata.__all__) <= set(dir(prunedata))
    for name, module in named.items():
        assert getattr(prunedata, name) is getattr(import_module(module), name)
    assert sorted(prunedata.__all__) == sorted(set(prunedata.__all__))


def test_everything_can_be_imported_at_once(tmp_path):
    done = run_python(f"from prunedata import *; print({', '.join(prunedata.__all__)})", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_refused_as_python_does():
    with pytest.raises(AttributeError, match="module 'prunedata' has no attribute 'prune'"):
        prunedata.prune  # noqa: B018


# ``python -m tests`` runs every test once, in rooms, and fails where a room fails.


def takes(room, file):
    """Whether pytest finds a file by a room's arguments."""
    paths = program.paths_of(room)
    named = [path for path in paths if not path.startswith("--")]
    ignored = [path.removeprefix("--ignore=") for path in paths if path.startswith("--")]
    return any(map(file.is_relative_to, named)) and not any(map(file.is_relative_to, ignored))


def test_every_file_of_tests_is_in_one_room():
    files = [path.relative_to(program.ROOT) for path in (program.ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100
    assert {str(file): rooms for file in files if len(rooms := [r for r in program.ROOMS if takes(r, file)]) != 1} == {}
    assert all(any(takes(room, file) for file in files) for room in program.ROOMS)
    assert all((program.ROOT / "tests" / path).exists() for paths in program.ROOMS.values() for path in paths)


@pytest.fixture
def tests_of_two_rooms(tmp_path, monkeypatch):
    """A folder of tests, one room beside the rest: ``first`` and ``second``, of which the second fails."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each room is another start of pytest
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program, "ROOMS", {"own": ["own"], "rest": [""]})
    for place, body in (("own/test_one.py", "def test_first(): pass"), ("test_two.py", "def test_second(): assert 0")):
        file = tmp_path / "tests" / place
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(body)

    def call(*options):
        monkeypatch.setattr(sys, "argv", ["python -m tests", *options])
        return program.main()

    return call


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--jobs", "2"), 1, "Failed: rest."),
        (("-k", "first"), 0, "All passed."),
        (("-k", "third"), 1, "No test was chosen."),
    ],
)
def test_one_room_that_fails_is_enough_and_nothing_is_no_success(tests_of_two_rooms, capfd, options, status, says):
    assert tests_of_two_rooms(*options) == status
    printed = capfd.readouterr().out
    assert printed.splitlines()[-1] == says
    assert ("1 passed" in printed) is (says != "No test was chosen.")
    assert ("1 failed" in printed) is (status == 1 and "Failed" in says)


def test_what_failed_can_be_run_again_alone(tests_of_two_rooms, capfd):
    again = ("--last-failed", "--last-failed-no-failures=none")
    assert tests_of_two_rooms() == 1
    Path(program.ROOT, "tests", "test_two.py").write_text("def test_second(): pass")
    capfd.readouterr()
    assert tests_of_two_rooms(*again) == 0
    assert "own: status" not in capfd.readouterr().out
