"""What the command lines share: what is read, and what ``--help`` says."""

from pathlib import Path

import pytest

from benchmarks.common.arguments import add_images, add_results, program
from benchmarks.common.markdown import aligned
from benchmarks.common.records import Runs
from tests.common.programs import ROOT


def test_a_program_is_described_by_the_first_line_of_its_docstring():
    said = program("benchmarks.scale", "First line.\n\nAnother.").format_help()
    assert "usage: python -m benchmarks.scale" in said
    assert "First line." in said
    assert "Another" not in said


def test_images_are_a_folder_and_results_a_file():
    parser = program("benchmarks.scale", None)
    add_images(parser, ", some of them")
    add_results(parser, Runs(ROOT / "benchmarks" / "scale" / "results.jsonl.gz"))
    said = " ".join(parser.format_help().split())
    assert "default: digits, some of them" in said
    assert "default: benchmarks/scale/results.jsonl.gz" in said
    assert parser.parse_args([]).data is None
    assert parser.parse_args(["--results", "there"]).results.file == Path("there")


@pytest.mark.parametrize(("left", "row"), [((0,), "a       10"), ((), "     a  10")])
def test_a_plain_table_has_a_rule_below_its_head(left, row):
    head, rule, first, last = aligned([("run", "n"), ("a", "10"), ("longer", "2")], left)
    assert (rule, first, last) == ("------  --", row, "longer   2")
    assert head.endswith("  n")
