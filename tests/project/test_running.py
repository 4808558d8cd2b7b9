"""``python -m tests`` runs every test once, in rooms, and fails where a room fails."""

import sys
from pathlib import Path

import pytest

from tests import __main__ as program


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
