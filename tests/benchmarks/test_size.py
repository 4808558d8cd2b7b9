"""The size of a checkout: lines by room, tracked files, and the bytes of a clone; what is above its limit is told."""

import os
import subprocess

import pytest

from benchmarks import size


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
