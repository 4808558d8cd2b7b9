"""Every page shows what was recorded: its tables, made anew from the recorded runs, are those that stand there."""

from functools import partial

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from benchmarks.common.commands import fill
from benchmarks.distributed.measured import measured_tables as measured
from benchmarks.distributed.staleness import RESULTS as STALE
from benchmarks.distributed.staleness import markdown_staleness
from benchmarks.distributed.tables import markdown_savings, markdown_tables
from benchmarks.faults import __main__ as faults
from benchmarks.faults import results as searches
from benchmarks.frontier import by_weight, corrected, suspects
from benchmarks.frontier.__main__ import BY_WEIGHT, CORRECTED, LIMITS, SHORT, TODAY
from benchmarks.frontier.__main__ import RESULTS as FRONTIER
from benchmarks.frontier.late.__main__ import DEEP, heads
from benchmarks.frontier.late.__main__ import RESULTS as LATE
from benchmarks.frontier.late.first_page import BEGIN_ALL, BEGIN_FIRST_PAGE, first_page
from benchmarks.frontier.late.report import BEGIN as BEGIN_LATE
from benchmarks.frontier.late.report import report
from benchmarks.frontier.questions import early, limits, slow, targets
from benchmarks.frontier.report import auto, table, turn
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.gpu.__main__ import RESULTS as ON_GPU
from benchmarks.gpu.tables import BEGIN as BEGIN_PART
from benchmarks.gpu.tables import parts
from benchmarks.mutants.__main__ import recorded as mutants
from benchmarks.mutants.rooms import table as table_of_mutants
from benchmarks.overhead import callers
from benchmarks.pages import __main__ as pages
from benchmarks.pages.page_tables import study
from benchmarks.scale.__main__ import RESULTS as SCALE
from benchmarks.scale.table import markdown_scale
from benchmarks.study.results import RESULTS as STUDY
from tests.common.programs import ROOT

pytestmark = pytest.mark.docs


def of_subjects(runs):
    return {subject: of for subject in SUBJECTS if (of := (runs / subject).read())}


def of_frontier(write, runs=FRONTIER):
    return lambda: write(of_subjects(runs))


def with_todays_rule():
    today = of_subjects(FRONTIER / TODAY)
    return {subject: [*of, *today.get(subject, ())] for subject, of in of_subjects(FRONTIER).items()}


def part_of_gpu(name):
    return f"{parts(ON_GPU.read())[name]}\n"


EVIDENCE = "docs/evidence"
FILLED = [
    ("README.md", BEGIN_FIRST_PAGE, lambda: first_page(DEEP.read(), heads(), LATE.read(), short=True) + "\n"),
    ("docs/will-it-help.md", BEGIN_ALL, lambda: first_page(DEEP.read(), heads(), LATE.read()) + "\n"),
    (f"{EVIDENCE}/frontier.md", auto.BEGIN, lambda: auto.auto(with_todays_rule())),
    (f"{EVIDENCE}/frontier.md", auto.BEGIN_SHORT, of_frontier(auto.short, FRONTIER / SHORT)),
    (f"{EVIDENCE}/frontier.md", table.BEGIN_SUMMARY, of_frontier(table.summary)),
    (f"{EVIDENCE}/frontier.md", by_weight.BEGIN, of_frontier(by_weight.table, FRONTIER / BY_WEIGHT)),
    (f"{EVIDENCE}/frontier-tables.md", table.BEGIN, of_frontier(table.all_tables)),
    (f"{EVIDENCE}/turn.md", turn.BEGIN, of_frontier(turn.turn)),
    (f"{EVIDENCE}/turn.md", turn.BEGIN_VARIED, of_frontier(turn.varied)),
    (f"{EVIDENCE}/turn.md", turn.BEGIN_REPLAY, of_frontier(turn.replay)),
    (f"{EVIDENCE}/turn.md", corrected.BEGIN, of_frontier(corrected.table, FRONTIER / CORRECTED)),
    (f"{EVIDENCE}/turn.md", limits.BEGIN, of_frontier(limits.table, FRONTIER / LIMITS)),
    (f"{EVIDENCE}/suspects.md", suspects.BEGIN, of_frontier(suspects.table, FRONTIER / "suspects")),
    (f"{EVIDENCE}/late.md", BEGIN_LATE, lambda: report(LATE.read())),
    (f"{EVIDENCE}/late.md", slow.BEGIN, slow.table),
    (f"{EVIDENCE}/late.md", targets.BEGIN, targets.table),
    ("docs/bad-data.md", early.BEGIN.format("texts"), lambda: early.texts(early.RESULTS)),
    ("docs/tools/watch.md", early.BEGIN.format("table"), lambda: early.table(early.RESULTS)),
    *(
        (f"{EVIDENCE}/deep.md", BEGIN_PART.format(name), partial(part_of_gpu, name))
        for name in ("arms", "paper", "networks", "pace", "steps", "exact")
    ),
]  # fmt: skip
"""A page, the line that its table follows, and what writes the table."""
SHOWN = [
    ("docs/frameworks/scale.md", lambda: markdown_scale(SCALE.read())),
    ("docs/frameworks/scale.md", lambda: callers.table(callers.RESULTS.read())),
    ("docs/frameworks/scale.md", markdown_tables),
    ("docs/frameworks/scale.md", markdown_savings),
    (f"{EVIDENCE}/staleness.md", lambda: markdown_staleness(STALE.read("staleness"))),
    ("docs/reliability.md", lambda: table_of_mutants(mutants())),
]
"""A page, and what writes a part of it."""


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "begin", "write"), FILLED, ids=[f"{page} {begin}" for page, begin, _ in FILLED])
def test_a_table_between_its_lines_is_that_of_the_recorded_runs(page, begin, write):
    assert fill(ROOT / page, begin, write()) == text_of(page)


@pytest.mark.parametrize(("page", "write"), SHOWN, ids=[page for page, _ in SHOWN])
def test_a_page_has_the_table_of_the_recorded_runs(page, write):
    assert write() in text_of(page)


@pytest.mark.parametrize("name", pages.PAGES)
def test_the_tables_of_the_study(name):
    assert "<!-- table: " in text_of(name)
    assert pages.fill(text_of(name), STUDY.read()) == text_of(name), "python -m benchmarks.pages"


def test_whole_pages_of_recorded_runs():
    assert text_of(f"{EVIDENCE}/study.md") == study(STUDY.read()), "python -m benchmarks.pages"
    page = measured.PAGE.read_text(encoding="utf-8")
    assert measured.fill(page) == page, "python -m benchmarks.distributed tables --write"
    page = searches.PAGE.read_text(encoding="utf-8")
    found = searches.fill(page, searches.RESULTS.read(), faults.ATTACKS)
    assert page == found, "python -m benchmarks.faults table --page"
    assert all(f"`{attack.name}`" in page for attack in faults.ATTACKS)
