"""The table of arms: found by itself, and complete."""

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("torch")

from benchmarks.study import arms, matrix
from benchmarks.study.arm import Arm, Group
from benchmarks.study.arms import ARMS, columns, look_of
from benchmarks.study.recipe import Recipe
from tests.common.programs import ROOT, run_python

SCRATCH = '''
"""Twice as random."""

from benchmarks.study.arm import Arm
from benchmarks.study.choosers import prune_by
from prunedata.policies import Random

ARMS = (Arm(name="scratch", what="as random", choose=prune_by(Random()), groups=("paper",), column="scratch"),)
'''
ASKED = """
from benchmarks.pages.page_tables import COLUMNS
from benchmarks.study.arms import ARMS
from benchmarks.study.matrix import recipes
from benchmarks.study.recipe import Recipe
from benchmarks.study.train import Options, train

told = train(Recipe(arm="scratch", saving=0.1, samples=100, epochs=6), Options())
print(list(ARMS)[-1], list(COLUMNS)[-1], sum(recipe.arm == "scratch" for recipe in recipes(Recipe())), told["policy"])
"""


def test_every_file_of_the_folder_is_found():
    files = {path.stem for path in Path(arms.__file__).parent.glob("*.py")} - {"__init__"}
    assert {"controls", "policies"} < files
    assert set(ARMS) == {arm.name for file in files for arm in import_module(f"{arms.__name__}.{file}").ARMS}
    assert next(iter(ARMS)) == "regular"


@pytest.mark.slow
def test_an_arm_is_one_file(tmp_path):
    """It is in the list, in the tables and in the matrix, and it trains."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=ignored)
    (tmp_path / "benchmarks" / "study" / "arms" / "scratch.py").write_text(SCRATCH)
    done = run_python(ASKED, cwd=tmp_path)
    # 12 parts of the matrix run the group "paper", at three seeds.
    assert done.stdout.split() == ["scratch", "scratch", "36", "scratch"], done.stderr


def test_a_name_that_is_taken_is_told(monkeypatch):
    monkeypatch.setattr(arms, "import_module", lambda name: type("", (), {"ARMS": (ARMS["easy"],)}))
    with pytest.raises(ValueError, match="easy twice"):
        arms._found()


def test_every_group_has_arms_and_a_place_in_the_matrix():
    placed = {group for _, _, groups in (*matrix.PARTS, *matrix.DIGITS) for group in groups}
    assert placed == {group for arm in ARMS.values() for group in arm.groups} == set(get_args(Group))


def test_an_arm_without_a_look_gets_one_that_stays():
    one = replace(ARMS["easy"], name="new", colour="", marker="")
    assert (one.colour, one.marker) == look_of("new") == look_of("new")
    assert look_of("easy") == (ARMS["easy"].colour, ARMS["easy"].marker)
    some = [look_of(f"arm-{number}") for number in range(50)]
    assert len(set(some)) > 8
    taken = {arm.colour for arm in ARMS.values() if not arm.tried}
    assert not taken & {colour for colour, _ in some}


def test_columns_are_in_their_stated_order_and_can_be_shared():
    found = columns()
    assert next(iter(found)) == "paper's rule"
    assert [arm.name for arm in found["at random"]] == ["random", "random-run"]
    assert "" not in found


def test_a_saving_that_no_schedule_reaches_is_told():
    with pytest.raises(ValueError, match="Expected a saving below"):
        _ = Recipe(arm="random", saving=0.9).prune
    assert isinstance(ARMS["random"], Arm)
