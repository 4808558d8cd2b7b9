"""The recorded searches, and the page that is made from them."""

import json
import re

import pytest

from benchmarks.common.records import Runs
from benchmarks.faults import __main__ as program
from benchmarks.faults import results
from benchmarks.faults.attack import Attack, Attempt, Outcome, Verdict, search

ATTACKS = program.ATTACKS


@pytest.mark.docs
def test_the_page_has_the_recorded_searches():
    page = results.PAGE.read_text(encoding="utf-8")
    assert page == results.fill(page, results.RESULTS.read(), ATTACKS), "run: python -m benchmarks.faults table --page"


def test_every_attack_is_recorded_and_none_found_anything_that_stands():
    found = results.added_up(results.RESULTS.read())
    assert set(found) == {attack.name for attack in ATTACKS}
    for name, sums in found.items():
        assert sums["tried"] == sums["exact"] + sums["refused"], name


@pytest.mark.docs
def test_the_page_names_every_attack():
    names = set(re.findall(r"`([a-z-]+)`", results.PAGE.read_text(encoding="utf-8")))
    assert {attack.name for attack in ATTACKS} <= names


class Coins(Attack):
    """Cases that end well but for each fourth."""

    name, about, many, few = "coins", "coins are tossed", 0, 4
    seen: list[int] = []  # noqa: RUF012 (for this test alone)

    @property
    def total(self):
        return 12

    def attempt(self, case, chance):
        self.place(case)
        self.seen.append(case)
        yield Attempt(Verdict.LOST if case % 4 == 0 else Verdict.EXACT, f"coin {case}")


@pytest.fixture
def coins(monkeypatch):
    monkeypatch.setattr(Coins, "seen", [])
    monkeypatch.setattr(program, "ATTACKS", (Coins,))
    monkeypatch.setattr(program, "BY_NAME", {"coins": Coins})
    return Coins


def test_a_search_tries_each_case_once_and_says_how_to_repeat_what_failed(coins):
    found = search(coins, 7, tries=None)
    assert sorted(coins.seen) == list(range(12))
    assert (found.tried, found.exact, found.lost, found.good) == (12, 9, 3, False)
    case = int(re.search(r"--case (\d+)", found.failures[0])[1])
    coins.seen.clear()
    assert search(coins, 7, tries=None, case=case).lost == 1
    assert coins.seen == [case]


def test_another_seed_is_another_order_and_the_same_is_the_same(coins):
    orders = []
    for seed in (1, 2, 1):
        coins.seen.clear()
        search(coins, seed, tries=5)
        orders.append(list(coins.seen))
    assert orders[0] == orders[2] != orders[1]


def test_a_recorded_search_goes_on_where_it_was(coins, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "PORTION", 5)
    recorded = Runs(tmp_path / "runs.jsonl.gz")
    arguments = ["coins", "--record", "--seed", "3", "--results", str(recorded.file)]
    assert program.main([*arguments, "--cases", "7"]) == 1
    assert len(coins.seen) == 7
    program.main([*arguments, "--all"])
    assert sorted(coins.seen) == list(range(12))
    assert [(facts["first"], facts["tried"]) for facts in recorded.read()] == [(0, 5), (5, 2), (7, 5)]
    later = recorded.read()[1:]
    recorded.file.unlink()
    for facts in later:
        (recorded / "coins").append(facts)
    coins.seen.clear()
    program.main([*arguments, "--all"])
    assert len(coins.seen) == 5  # those that are missing
    assert capsys.readouterr().err.count("--case") > 3
    program.main(["table", "--results", str(recorded.file)])
    assert "| 12 of 12 | 9        |" in capsys.readouterr().out
    assert program.main(["table", "--json", "--results", str(recorded.file)]) == 0
    assert json.loads(capsys.readouterr().out)["coins"]["lost"] == 3


def test_a_page_keeps_what_is_around_its_table():
    page = f"before\n\n{results.BEGIN}\nold\n{results.END}\n\nafter\n"
    facts = Outcome("kills", 1, tried=1200, exact=1200).to_dict() | {
        "hardware": "a core", "versions": {"python": "3"}, "commit": "abc",
    }  # fmt: skip
    filled = results.fill(page, [facts], ATTACKS)
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert "1,200" in filled
    assert "old" not in filled


def test_one_case_needs_one_attack(capsys):
    with pytest.raises(SystemExit):
        program.main(["--case", "3"])
    assert "Expected one attack beside --case" in capsys.readouterr().err


def test_an_attack_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit):
        program.main(["kills", "hope"])
    assert "Expected attacks from kills," in capsys.readouterr().err
