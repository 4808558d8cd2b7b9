"""Every command that is named anywhere exists, and the list of them is made from the rooms themselves."""

import re
import shutil

import pytest

from benchmarks.__main__ import kinds
from tests.common.programs import ROOT, run_module

NAMED = re.compile(r"(?<![\w.])benchmarks(?:\.[a-z_]+)+")
ALONE = "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", ".ci/run"
FOLDERS = "benchmarks", "tests", "docs", "adapters", "prunedata"


def pages():
    yield from (ROOT / name for name in ALONE)
    for folder in FOLDERS:
        yield from (path for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind))


def file_of(module):
    """The file that ``python -m module`` runs."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def exists(name):
    """Whether it is a room, a module, or something in one."""
    places = ROOT.joinpath(*name.split(".")), ROOT.joinpath(*name.split(".")[:-1])
    return places[0].is_dir() or any(place.with_suffix(".py").is_file() for place in places)


@pytest.mark.docs
def test_every_module_that_is_named_exists():
    texts = {page: page.read_text("utf-8") for page in pages() if page.name != "test_commands.py"}
    found = {name: page for page, text in texts.items() for name in NAMED.findall(text)}
    assert len(found) > 30
    assert not {name: page for name, page in found.items() if not exists(name)}


def test_the_commands_of_the_docstring_are_commands():
    listed = re.findall(r"python -m (\S+)", (ROOT / "benchmarks" / "__init__.py").read_text("utf-8"))
    assert len(listed) == len(set(listed)) > 10
    for module in listed:
        assert 'if __name__ == "__main__":' in file_of(module).read_text("utf-8"), module


def test_each_room_with_a_command_is_of_one_kind():
    measures, reproduces = kinds().values()
    with_commands = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")} | {"study"}
    assert sorted([*measures, *reproduces]) == sorted(with_commands)
    assert {"overhead", "streams", "scale", "faults"} <= set(measures)
    assert {"study", "frontier", "distributed", "pages"} <= set(reproduces)


def test_a_room_says_what_its_commands_write(tmp_path):
    shown = run_module("benchmarks", cwd=tmp_path).stdout
    for room in (ROOT / "benchmarks").glob("*/__main__.py"):
        assert f"python -m benchmarks.{room.parent.name} " in shown


INIT = '"""Scratch.\n\n    python -m benchmarks.scratch     prints a table\n"""\n'
MAIN = "from benchmarks.common.markdown import markdown\nprint(markdown(['a'], [['b']]))\n"


def test_a_new_benchmark_is_a_new_folder_and_nothing_else(tmp_path):
    copy = tmp_path / "benchmarks"
    shutil.copytree(ROOT / "benchmarks", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "scratch").mkdir()
    (copy / "scratch" / "__init__.py").write_text(INIT)
    (copy / "scratch" / "__main__.py").write_text(MAIN)
    assert "python -m benchmarks.scratch     prints a table" in run_module("benchmarks", cwd=tmp_path).stdout
    assert run_module("benchmarks.scratch", cwd=tmp_path).stdout.splitlines()[-1] == "| b   |"


def test_no_folder_is_crowded():
    for folder in (path for path in (ROOT / "benchmarks").rglob("*") if path.is_dir()):
        if "__pycache__" not in folder.parts:
            modules = [each for each in folder.iterdir() if each.suffix == ".py" or any(each.glob("*.py"))]
            assert len(modules) <= 15, folder
