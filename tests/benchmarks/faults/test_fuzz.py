"""The search of random loaders, and the recorded searches."""

import json
import random
import re
from fractions import Fraction

import pytest

from benchmarks.common.records import Runs
from benchmarks.faults import __main__ as program
from benchmarks.faults import results
from benchmarks.faults.attack import Attack, Attempt, Verdict, search, shown
from benchmarks.faults.attacks import loaders as searched
from benchmarks.faults.fuzz import setup as parts
from benchmarks.faults.fuzz.plain_epochs import PlainEpochs, Wrong, cut, expected, highest_left_out
from benchmarks.faults.fuzz.pool import Hangs, Pool
from benchmarks.faults.fuzz.setup import Loaded, Pass, Setup, draw, simpler
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.errors import PrunedataError


@pytest.fixture
def in_process(tmp_path):
    return searched.Loaders(tmp_path, 0)


@pytest.mark.parametrize(("attack", "tries"), [(searched.Loaders, 40), (searched.Ranks, 8)])
def test_random_trainings_are_what_a_plain_loop_makes_of_them(attack, tries):
    """Other ones each time: a failure names its seed."""
    found = search(attack, random.SystemRandom().randrange(1 << 31), tries=tries)
    assert (found.failures, found.tried) == ([], tries)


FOUND = [
    # Saved when nothing of the epoch was left, of ranks that had other numbers of batches: it hung when it ended.
    Setup(
        samples=79, prune=12, start=2, seed=33238, states="own", worlds=(2, 2),
        plan=((Pass(),), (Pass(),), (Pass(stop=3, then="save"), Pass())),
        loaders=(Loaded(order="shared stream", batch=16, drop_last=True, length=88),),
    ),
]  # fmt: skip


@pytest.mark.parametrize("setup", FOUND)
def test_what_was_found_once_is_not_found_again(tmp_path, setup):
    ranks = searched.Ranks(tmp_path, 0)
    try:
        assert ranks.judge(setup).verdict is Verdict.EXACT
    finally:
        ranks.close()


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_setup_is_shown_as_code_that_makes_it_again(ranks):
    for seed in range(50):
        drawn = draw(random.Random(seed), ranks)
        assert eval(shown(drawn), {name: getattr(parts, name) for name in parts.__all__}) == drawn
        assert draw(random.Random(seed), ranks) == drawn


def test_every_kind_of_order_mode_and_dtype_is_drawn():
    drawn = [draw(random.Random(seed), ranks) for seed in range(400) for ranks in (1, 4)]
    loaders = [one for each in drawn for one in each.loaders]
    assert {one.order for one in loaders} == {*parts.OWN, *parts.STREAMS, *parts.BY_RANK}
    assert {one.uneven for one in loaders} == {None, "weights", "drop", "pad"}
    assert {each.dtype for each in drawn} == {"float16", "bfloat16", "float32", "float64"}
    assert {ranks for each in drawn for ranks in each.worlds} == {1, 2, 3, 4}
    thens = {one.then for each in drawn for passes in each.plan for one in passes}
    assert thens == {"on", "again", "end", "save", "mark", "back", "next", "rest"}


def test_simpler_setups_are_others_and_come_to_an_end():
    drawn = draw(random.Random(3), 4)
    for steps in range(200):  # noqa: B007 (counted)
        following = next(simpler(drawn), None)
        if following is None:
            break
        assert following != drawn
        drawn = following
    assert steps < 199


def test_what_ranks_get_of_an_order_of_ours():
    left = set(range(19))
    for uneven, sizes, real in (("weights", [[4, 4, 2], [4, 4, 1]], 19), ("drop", [[4, 4, 1]] * 2, 18)):
        due = expected(Setup(samples=19), Loaded("distributed", uneven=uneven), left, 0, 2)
        assert (due.sizes, due.real) == (sizes, real)
    padded = expected(Setup(samples=19), Loaded("distributed", uneven="pad", drop_last=True), left, 0, 2)
    assert (padded.sizes, padded.real) == ([[4, 4]] * 2, 16)


def test_batches_are_cut_and_the_highest_are_left_out():
    assert cut([1, 2, 3, 4, 5], 2, drop_last=False) == [[1, 2], [3, 4], [5]]
    assert cut([1, 2, 3, 4, 5], 2, drop_last=True) == [[1, 2], [3, 4]]
    assert not highest_left_out([3, 1, 2], {1, 2}, 0)
    assert "kept sample 0" in highest_left_out([3, 1, 2], {0, 1}, 0)
    assert not highest_left_out([Fraction(2, 3)] * 2, {0}, 0.0)


def test_the_plain_run_counts_by_hand():
    known = PlainEpochs(Setup(samples=4, prune=1, window=2))
    known.begin({0, 1, 2, 3}, pruned=False)
    known.learn([0, 1], [1.0, 3.0], 0, exact=True)
    known.learn([2, 3], [5.0, 4.0], 0, exact=True)
    ended = {"visits": [1, 1, 1, 1], "hits": [0, 1, 1, 0], "counts": None, "observed": 4, "mean_loss": 3.25}
    known.finish()
    known.compare(ended | {"excess": None}, "here")
    with pytest.raises(Wrong, match="sample 2 has 0, expected 1"):
        known.compare(ended | {"excess": None, "hits": [0, 1, 0, 0]}, "here")
    known.close(ended)
    with pytest.raises(Wrong, match="left out sample 0 of score 0"):
        known.begin({1, 2, 3}, pruned=True)


def test_a_loop_that_is_left_has_to_be_told(in_process, monkeypatch):
    left = Setup(plan=((Pass(stop=2, then="end"), Pass()),))
    assert in_process.judge(left).verdict is Verdict.EXACT
    monkeypatch.setattr("prunedata.run.open.OpenEpoch.check_complete", lambda *_, **__: None)
    told = in_process.judge(left)
    assert (told.verdict, "without a word, where 16 were left" in told.seen) == (Verdict.WRONG, True)


def test_a_gradient_that_is_not_the_mean_is_found_and_made_simple(in_process, monkeypatch):
    observe = PrunedLoader.observe
    monkeypatch.setattr(PrunedLoader, "observe", lambda self, losses, ids=None: observe(self, losses, ids) * 2)
    (told,) = in_process.attempt(0, random.Random(0))
    assert told.verdict is Verdict.WRONG
    assert "has the weight" in told.seen
    assert len(told.seen) < 330
    assert "policy" not in told.seen


def test_an_error_that_is_not_the_librarys_is_unclear(in_process, monkeypatch):
    def broken(*_):
        raise IndexError("broken")

    monkeypatch.setattr(PrunedLoader, "observe", broken)
    told = in_process.judge(Setup())
    assert (told.verdict, "IndexError: broken" in told.seen) == (Verdict.UNCLEAR, True)


def test_refusals_are_told_without_their_numbers(in_process):
    chance = random.Random(0)
    refused = Setup(samples=20, prune=10, loaders=(Loaded(batch=16, drop_last=True),))
    assert in_process.judge(refused).verdict is Verdict.REFUSED
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(searched, "draw", lambda *_: refused)
        (told,) = in_process.attempt(0, chance)
    assert told.seen.startswith("Expected at least one batch of N samples in each epoch")


def test_a_rank_that_dies_is_told_and_others_take_its_place(tmp_path):
    pool, shared = Pool(2, tmp_path), Setup(loaders=(Loaded("distributed"),), worlds=(2,))
    for dead in (0, 1):
        assert [entries[-1]["kind"] for entries, _, _ in pool.play(shared, (0, 0), 2, [])] == ["ended"] * 2
        process = pool._ranks[dead][0]
        process.kill()
        process.join()
        with pytest.raises(Hangs, match=f"rank {dead} of 2 died"):
            pool.play(shared, (0, 0), 2, [])
    pool.close()


def test_a_refusal_without_a_need_is_unclear(in_process, monkeypatch):
    def refused(*_):
        raise PrunedataError("Expected something else. Got this.")

    monkeypatch.setattr(PrunedLoader, "observe", refused)
    (told,) = in_process.attempt(0, random.Random(0))
    assert (told.verdict, "refused: Expected something else" in told.seen) == (Verdict.UNCLEAR, True)


# The recorded searches, and the page that is made from them.


ATTACKS = program.ATTACKS


def test_every_attack_is_recorded_and_none_found_anything_that_stands():
    found = results.added_up(results.RESULTS.read())
    assert set(found) == {attack.name for attack in ATTACKS}
    for name, sums in found.items():
        assert sums["tried"] == sums["exact"] + sums["refused"], name


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
    recorded = Runs(tmp_path / "runs.jsonl.bz2")
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
