"""Every command that is named exists, and the sizes of a checkout."""

import os
import re
import shutil
import subprocess

import pytest

from benchmarks import size
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
MAIN = "from benchmarks.common.commands import markdown\nprint(markdown(['a'], [['b']]))\n"


def test_a_new_benchmark_is_a_new_folder_and_nothing_else(tmp_path):
    copy = tmp_path / "benchmarks"
    shutil.copytree(ROOT / "benchmarks", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "scratch").mkdir()
    (copy / "scratch" / "__init__.py").write_text(INIT)
    (copy / "scratch" / "__main__.py").write_text(MAIN)
    assert "python -m benchmarks.scratch     prints a table" in run_module("benchmarks", cwd=tmp_path).stdout
    assert run_module("benchmarks.scratch", cwd=tmp_path).stdout.splitlines()[-1] == "| b   |"


# The size of a checkout: lines by room, tracked files, and the bytes of a clone; what is above its limit is told.


@pytest.fixture
def checkout(tmp_path):
    """Lines: core 3, adapters 2, tests 1; a link, a file that git doesn't track, and an image of random bytes."""
    for name, text in (
        ("prunedata/run/pruner.py", "1\n2\n3\n"),
        ("adapters/torch.py", "1\n2\n"),
        ("tests/test_one.py", "1\n"),
        ("README.md", "1\n" * 50),
        ("prunedata/scratch.py", "1\n" * 100),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "picture.png").write_bytes(os.urandom(300_000))
    (tmp_path / "prunedata" / "adapters").symlink_to("../adapters")
    (tmp_path / ".gitignore").write_text("scratch.py\n")
    person = ["-c", "user.name=n", "-c", "user.email=e@e", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*person, "commit", "-qm", "m"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_a_room_has_the_lines_of_its_tracked_files(checkout):
    found = {one.part: one for one in size.sizes(checkout)}
    assert {part: (one.value, one.files) for part, one in found.items() if one.unit == "lines"} == {
        "core": (3, 1), "adapters": (2, 1), "tests": (1, 1), "benchmarks": (0, 0),
    }  # fmt: skip
    assert found["tracked files"].value == 7, "the link is one"
    assert 0.6 < found["clone without history"].value < 0.8, "the picture twice: in the work tree, and as git keeps it"


@pytest.mark.parametrize("part", size.LIMITS)
def test_what_is_above_its_limit_is_told(part, checkout, monkeypatch, capsys):
    assert size.main([], checkout) == 0
    assert "above" not in capsys.readouterr().out
    is_now = next(one.value for one in size.sizes(checkout) if one.part == part)
    monkeypatch.setitem(size.LIMITS, part, is_now)
    assert size.main([], checkout) == 0
    monkeypatch.setitem(size.LIMITS, part, is_now * 0.99)
    capsys.readouterr()
    assert size.main([], checkout) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "above" in line)
    assert line.split("|")[1].strip() == part
