"""The tests of the core notice small changes: what is recorded says so, and what records it can tell the difference."""

import pytest

from benchmarks.mutants.__main__ import recorded
from benchmarks.mutants.changes import mutants
from benchmarks.mutants.rooms import ROOMS, read_equivalent
from tests.common.programs import ROOT, run_python

GOAL = 0.95

SOURCE = '''
"""A page."""
from math import pi
Some = TypeVar("Some", bound=int)
__all__ = ["Kind", "grown"]
LIMIT = 3


class Kind:
    size: int = 1

    def grown(self, by: "list[int]") -> int:
        if self.size > LIMIT:
            raise ValueError(f"Expected {LIMIT + 1}.")
        return self.size + by[0]
'''


def test_what_is_changed_and_what_is_left_alone(tmp_path):
    path = tmp_path / "kind.py"
    path.write_text(SOURCE)
    found = {(mutant.where, mutant.after, mutant.inner) for mutant in mutants(path)}
    assert found == {
        ("", "LIMIT = None", False),
        ("", "LIMIT = 4", False),
        ("Kind", "size: int = None", False),
        ("Kind", "size: int = 2", False),
        ("Kind.grown", "if self.size >= LIMIT:", True),
        ("Kind.grown", "return self.size - by[0]", True),
        ("Kind.grown", "return self.size + by[1]", True),
    }


TRY = """
import tempfile
from dataclasses import replace
from pathlib import Path
from benchmarks.mutants.changes import Mutant
from benchmarks.mutants.changes import ROOT
from benchmarks.mutants.trial import Trials, warm_up

warm_up()
path = ROOT / "prunedata" / "run" / "order.py"
text = path.read_text()

def changed(where, before, after, inner):
    assert text.count(before) == 1
    return Mutant(where, before, after, text.replace(before, after), inner)

tried = [
    changed("cut_batches", "ids.size % size", "ids.size % size", True),
    changed("cut_batches", "ids.size % size", "ids.size / size", True),
    changed("cut_batches", "for piece in pieces:", "while pieces:", True),
    changed("", "NEIGHBOURS = 256", "NEIGHBOURS = 256", False),
    changed("", "NEIGHBOURS = 256", "NEIGHBOURS = None", False),
]
with tempfile.TemporaryDirectory() as folder:
    trials = Trials(path, ["tests/run/test_order.py"], 2, 0.3, Path(folder), Path(folder))
    for mutant, verdict in trials.verdicts(tried):
        print(verdict)
"""


@pytest.mark.slow
def test_a_change_that_matters_is_killed_and_none_survives(tmp_path):
    done = run_python(TRY, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.split() == ["survived", "killed", "killed", "survived", "killed"]


@pytest.fixture(scope="module")
def results():
    return recorded()


def test_what_is_recorded_is_of_whole_rooms(results):
    assert len(results) >= 3
    for found in results:
        assert list(found["files"]) == [file for tested in ROOMS[found["room"]] for file in tested.files]
    files = [file for tests in ROOMS.values() for tested in tests for file in tested.files]
    assert all((ROOT / file).is_file() for file in files)


def test_nearly_all_are_killed_and_each_survivor_is_explained(results):
    for found in results:
        files = found["files"].values()
        mutants = sum(facts["mutants"] for facts in files)
        lived = sum(len(facts["equivalent"]) + len(facts["survived"]) for facts in files)
        assert sum(facts["killed"] + facts["timeouts"] for facts in files) == mutants - lived
        assert 1 - lived / mutants >= GOAL, found["room"]
        assert not any(facts["survived"] for facts in files)


def test_every_explanation_is_of_a_mutant_that_was_tried(results):
    tried = {
        (file, one["where"], one["before"], one["after"]): one["why"]
        for found in results
        for file, facts in found["files"].items()
        for one in facts["equivalent"]
    }
    files = {file for found in results for file in found["files"]}
    assert {mutant: why for mutant, why in read_equivalent().items() if mutant[0] in files} == tried
