"""The folders stay easy to find: few names in each, nothing private used from elsewhere, one meaning for a name."""

import ast
import json
import sys
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import prunedata
from tests import __main__ as program
from tests.common.programs import run_python

ROOT = Path(__file__).resolve().parents[2]
TOP = ("prunedata", "adapters", "benchmarks")
MOST_NAMES = 20
"""In a folder, its subfolders included."""
FOREIGN = {
    "_batch_size", "_impl", "_inputs", "_variant_tensor",  # of what a tf.data.Dataset is made
    "_fields",  # of a named tuple
    "_exit",  # os._exit: how a forked child ends
    "_compile_loss",  # Keras': one loss for each sample, from a compiled model
    "_on_before_batch_transfer",  # Lightning's: where a batch comes from the loader
    "_orig_mod",  # of a compiled module: the module
    "_indices",  # of a data set of Hugging Face's: the rows that were selected
    "_forward_hooks", "_forward_hooks_with_kwargs",  # of a module: what its forward passes call
    "_base",  # of a tensor: the one that it is a view of
    "_get_iterator",  # of a DataLoader: what makes its iterator
    "_data_fetcher", "_should_check_val_fx",  # Lightning's: whether a validation is due
    "_data_source",  # Lightning's: what gives the loader of a fit
    "_get_default_store",  # of torch.distributed: by which the ranks met
    "_do_one_batch",  # fastai's: the loss of a batch and the step
    "_should_eval",  # Keras': whether fit validates in an epoch
    "_asdict", "_replace",  # of namedtuples, and public in spite of their names
    "_fingerprint",  # of a data set of Hugging Face's: a hash of what it was made by
    "_batched", "_shuffle", "_unbatched", "_unlisted",  # WebDataset's own stages
}  # fmt: skip
"""Names of other libraries, which have no public ones for these."""


def python_files(top=TOP):
    for folder in top:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(part.is_symlink() for part in (path, *path.parents)):
                yield path


@cache
def trees():
    """Each module's syntax tree, made once for all tests here."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in python_files()}


def room(path):
    return path.relative_to(ROOT).parent


def folders():
    pages = {path.parent for path in (ROOT / "docs").rglob("*.md")} | {ROOT / "docs" / "pictures"}
    return {path.parent for path in python_files((*TOP, "tests", "docs"))} | pages


def names_in(folder):
    return {
        path.name
        for path in folder.iterdir()
        if path.name not in ("__init__.py", "__pycache__", "py.typed") and not path.is_symlink()
    }


def test_a_folder_has_few_names():
    crowded = {str(f.relative_to(ROOT)): len(names_in(f)) for f in folders() if len(names_in(f)) > MOST_NAMES}
    assert not crowded


def defined(tree):
    """The private names that a module gives a meaning to."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def used(tree):
    """Private names of objects other than ``self``, and private names that are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            if not own and not (isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super"):
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in TOP:
            yield from (
                (name.name, node.lineno)
                for name in node.names
                if name.name.startswith("_") and not name.name.startswith("__")
            )


@pytest.mark.docs
def test_nothing_private_is_used_outside_of_its_folder():
    every = trees()
    by_room = {}
    for path, tree in every.items():
        by_room.setdefault(room(path), set()).update(defined(tree))
    strays = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, tree in every.items()
        for name, line in used(tree)
        if name not in by_room[room(path)] and name not in FOREIGN
    ]
    assert strays == []


@pytest.mark.docs
@pytest.mark.parametrize("top", TOP)
def test_a_class_name_means_one_thing(top):
    found = Counter(
        node.name
        for path, tree in trees().items()
        if path.relative_to(ROOT).parts[0] == top
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in found.items() if times > 1] == []


def test_array_types_are_named_in_one_place():
    """A name of an array type, such as ``Ids``, means one thing."""
    aliases = {
        node.targets[0].id: path
        for path, tree in trees().items()
        if path.relative_to(ROOT).parts[0] != "benchmarks" and path.name != "types.py"
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if ast.unparse(node.value).startswith("npt.NDArray")
    }
    assert aliases == {}


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


def test_what_takes_long_is_listed(tests_of_two_rooms, monkeypatch, tmp_path):
    """A function by its slowest case; a file by its fixtures; and never every function of a file."""
    test = "import time\n\ndef test_quick(): pass\n\ndef test_long(): time.sleep(0.3)\n"
    Path(program.ROOT, "tests", "test_two.py").write_text(test)
    setup = "import pytest, time\n\n@pytest.fixture\ndef ready(): time.sleep(0.6)\n\ndef test_first(ready): pass\n"
    Path(program.ROOT, "tests", "own", "test_one.py").write_text(setup)
    only = "import pytest, time\n\n@pytest.mark.parametrize('s', [0, 0.4, 0.3])\ndef test_a(s): time.sleep(s)\n"
    Path(program.ROOT, "tests", "test_three.py").write_text(f"{only}\ndef test_b(): time.sleep(0.3)\n")
    for name, value in {"LIST": tmp_path / "slow.txt", "MOST": 0.2, "MOST_OF_A_FILE": 0.5}.items():
        monkeypatch.setattr(program, name, value)
    assert tests_of_two_rooms("--list-slow", "--jobs", "2") == 0
    listed = ["tests/own/test_one.py", "tests/test_three.py::test_a", "tests/test_two.py::test_long"]
    assert program.LIST.read_text().splitlines() == listed


def test_what_failed_can_be_run_again_alone(tests_of_two_rooms, capfd):
    again = ("--last-failed", "--last-failed-no-failures=none")
    assert tests_of_two_rooms() == 1
    Path(program.ROOT, "tests", "test_two.py").write_text("def test_second(): pass")
    capfd.readouterr()
    assert tests_of_two_rooms(*again) == 0
    assert "own: status" not in capfd.readouterr().out


IN_THE_BACKGROUND = """
import contextlib, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import tests.conftest
print(signal.signal(signal.SIGINT, signal.SIG_IGN) is signal.default_int_handler)
from benchmarks.faults.__main__ import main
with contextlib.suppress(SystemExit):
    main(["nothing of this name"])
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a_shell_that_lets_ctrl_c_be_ignored_does_not_change_what_is_tested(tmp_path):
    done = run_python(IN_THE_BACKGROUND, cwd=tmp_path)
    assert done.stdout.split() == ["True", "True"], done.stderr
