"""What is read off the frontier's runs: curves, distances, tables, the page and the picture."""

import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.common.commands import END, fill
from benchmarks.common.records import Runs
from benchmarks.frontier import __main__ as program
from benchmarks.frontier.arms import ARMS, Lengths
from benchmarks.frontier.curves import Apart, Curve, best_rival, curves, equal_visits, tops_apart
from benchmarks.frontier.report.auto import auto, short
from benchmarks.frontier.report.table import BEGIN, all_tables, share_of_known, tables


def facts(arm, epochs, seed, accuracy, validation=(40.0, 41.0), kind="worse"):
    """A hand-made run; ``accuracy`` is that of its end or of each epoch."""
    ends = list(accuracy) if isinstance(accuracy, tuple) else [accuracy] * len(validation)
    share = 0.68 if ARMS[arm].policy else 1.0
    visits = [round(share * 100)] * epochs
    return {
        "name": f"{kind}-{arm}-{epochs}-seed{seed}", "kind": kind, "arm": arm, "epochs": epochs, "seed": seed,
        "samples": 100, "visits": sum(visits), "accuracy": ends[-1], "wrong_percent": 40.0, "hardware": "a core",
        "versions": {"torch": "2"},
        "curves": {"visits": visits, "accuracy": ends, "validation": list(validation)},
    }  # fmt: skip


REGULAR = (50.0, 56.0, 60.0, 59.0, 58.0, 57.0, 55.0, 53.0, 50.0)


BOUNDED = (52.0, 58.0, 61.0, 62.0, 61.0, 60.0)


KNOWN = (58.0, 62.0, 64.0, 65.0, 65.5, 66.0)


@pytest.fixture
def recorded():
    """Two seeds of three arms; the second is a point better throughout, and half a point more with ``bounded``."""
    return [
        facts(arm, length, seed, points[at] + seed * (1.5 if arm == "bounded" else 1))
        for arm, points in (("regular", REGULAR), ("bounded", BOUNDED), ("known-wrong", KNOWN))
        for at, length in enumerate(Lengths().of(arm))
        for seed in (0, 1)
    ]


def test_the_highest_points_and_what_lies_between_them(recorded):
    arms = curves(recorded)["worse"]
    assert set(arms) == {"regular", "early-stop", "bounded", "known-wrong"}
    assert (arms["regular"].top, arms["regular"].epochs[arms["regular"].top]) == (2, 7)
    assert arms["bounded"].visits.tolist() == [3.4, 6.8, 10.2, 13.6, 17.0, 20.4]
    assert arms["regular"].spread[0] == pytest.approx(np.std([50, 51], ddof=1))
    assert tops_apart(arms, "bounded", "regular").points == (2.0, 2.5)
    assert tops_apart(arms, "known-wrong", "regular").points == (6.0, 6.0)
    assert share_of_known(arms, "bounded") == pytest.approx(2.25 / 6)
    assert share_of_known(arms, "regular") is None
    assert tops_apart(arms, "bounded", "random") is None
    assert best_rival(arms) == "regular"


def test_equal_visits_are_between_lengths_or_fewer_where_that_is_better(recorded):
    apart = equal_visits(curves(recorded)["worse"], "bounded", "regular")
    between = 56 + 4 * np.log(6.8 / 5) / np.log(7 / 5)  # 6.8 visits, between 5 and 7 epochs
    assert apart[10].points == pytest.approx((58 - between, 58.5 - between), abs=0.006)
    # From 7 epochs on regular training grows worse, and would stop there.
    assert apart[15].points == (1.0, 1.5)
    assert apart[30].points == (0.0, 0.5)


def test_a_seed_counts_once_all_its_lengths_are_there(recorded):
    part = [run for run in recorded if run["name"] != "worse-bounded-30-seed1"]
    arms = curves(part)["worse"]
    assert arms["bounded"].seeds == (0,)
    assert arms["regular"].seeds == (0, 1)
    assert tops_apart(arms, "bounded", "regular").points == (2.0,)
    assert tops_apart(arms, "regular", "bounded").points == (-2.0,)
    assert "+2.0 (1 seed)" in tables(part)
    assert "| 62.0" in tables(part)
    assert "±0.0" not in tables(part)
    assert "bounded" not in curves([run for run in part if run["name"] != "worse-bounded-30-seed0"])["worse"]


def test_a_run_stops_where_the_labels_held_out_say(recorded):
    noisy = (40.0, 44.0, 43.0, 44.0, 43.0, 60.0, 61.0, 61.0, 61.0)  # no better in epochs 3 to 5: never sees the 60
    right = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)
    changed = [facts("regular", 9, run["seed"], right, noisy) if run["epochs"] == 9 else run for run in recorded]
    stopped = curves(changed)["worse"]["early-stop"]
    at = stopped.epochs.index(9)
    assert stopped.accuracy[:, at].tolist() == [20.0, 20.0]
    assert stopped.visits[at] == 5.0


def test_labels_held_out_choose_a_length_for_each_seed():
    accuracy, validation = (
        np.array([[50.0, 60.0, 55.0], [51.0, 58.0, 59.0]]),
        np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]),
    )
    curve = Curve((0, 1), (3, 5, 7), np.array([3.0, 5.0, 7.0]), accuracy, validation)
    assert curve.chosen.tolist() == [55.0, 51.0]
    with pytest.raises(ValueError, match="Expected accuracies of shape"):
        Curve((0,), (3, 5, 7), np.array([3.0, 5.0, 7.0]), accuracy, validation)
    with pytest.raises(ValueError, match="Expected a seed"):
        Apart(())


def add(results, run):
    results.add(f"{run['kind']}/{run['name']}", run)


def test_a_page_is_changed_between_its_markers_alone(recorded, tmp_path):
    results = Runs(tmp_path / "runs.jsonl.bz2")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for each in recorded:
        add(results / "head", each)
    given = ["--results", str(results.file)]
    assert program.main(["table", *given, "--page", str(page)]) == 0
    text = page.read_text()
    written = all_tables({"head": results.read("head")})
    assert text == f"before\n{BEGIN}\n\n{written}\n{END}\nafter\n"
    assert fill(page, BEGIN, written) == text
    (tmp_path / "plain.md").write_text("no markers")
    with pytest.raises(ValueError, match="Expected the lines"):
        fill(tmp_path / "plain.md", BEGIN, written)


def test_the_picture_has_a_panel_for_each_kind_of_labels(recorded, tmp_path):
    results = Runs(tmp_path / "runs.jsonl.bz2")
    for each in recorded:
        add(results / "head", each)
        add(results / "head", each | {"kind": "aggre", "name": each["name"].replace("worse", "aggre")})
    for name, kinds in (("one.png", ["worse"]), ("two.png", ["worse", "aggre"])):
        out = ["picture", "--results", str(results.file), "-o", str(tmp_path / name), "--kinds", *kinds]
        assert program.main(out) == 0
    one, two = imread(tmp_path / "one.png"), imread(tmp_path / "two.png")
    assert two.shape[1] > one.shape[1] > 300
    assert one.std() > 0.01


def of_today(arm, accuracy, *, epochs=30, kind="worse", seed=0, found=(None, 80.0)):
    """A run by today's rule, which leaves 32 of 100 samples out if it is of a policy."""
    told = facts(arm, epochs, seed, accuracy, kind=kind)
    return told | {"worst_class": accuracy - 20, "curves": told["curves"] | {"found": list(found)}}


def test_todays_rule_stands_beside_regular_training_in_its_order(recorded):
    runs = [*recorded, of_today("regular-delivered", 51.0), of_today("auto-alone", 60.0), of_today("auto-told", 54.0)]
    told = auto({"head": runs})
    cells = [cell.strip() for cell in told.splitlines()[2].split("|")[1:-1]]
    assert cells[:5] == ["`head`", "`worse`", "1", "51.0 (31)", "60.5 at 7"]
    assert cells[5:] == ["", "", "60.0 (40)", "54.0 (34)", "", "66.0"]
    assert "on 1 of 1 kinds, and 9 of 15 points" in told
    assert "on 0 of 1 kinds, and 3 of 15 points" in told
    with pytest.raises(ValueError, match="auto-alone"):
        auto({"head": recorded})


def test_short_runs_stand_beside_the_same_orders_on_all_samples():
    runs = [
        of_today(arm, 50.0 + (arm == "auto-alone") * (epochs - 3), epochs=epochs, seed=seed)
        for arm in ("regular-delivered", "auto-alone")
        for epochs in (2, 3, 5)
        for seed in (0, 1)
    ]
    told = short({"head": runs, "conv-digits": []})
    assert "on 3 kinds and lengths they end -1.0 to +2.0 from it" in told
    cells = [cell.strip() for cell in told.splitlines()[-1].split("|")[1:-1]]
    assert cells[:5] == ["`head`", "`worse`", "2", "50.0", "-1.0"]
    assert cells[9:11] == ["50.0", "+2.0"]
