"""``import prunedata`` loads what is used: each name comes when it is named, and zarr with the first store."""

import ast
import json
from importlib import import_module
from pathlib import Path

import pytest

import prunedata
from tests.common.programs import run_python

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
    for unused in ("zarr", "prunedata.run.pruner", "prunedata.store.reading", "prunedata.findings.inspection"):
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
