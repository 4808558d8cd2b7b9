"""What is advised by other networks' curves: what is recorded, the curves in the library, and the table."""

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.common.records import add, read
from benchmarks.frontier import __main__ as program
from benchmarks.frontier.data.material import Material
from benchmarks.frontier.report.advice import BEGIN, advice, curve_of
from benchmarks.frontier.report.table import fill
from benchmarks.frontier.signs import WATCHED, tasks, watch
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.training.train import Settings
from prunedata.findings.wrong_labels import LIKELY_CURVES, WRONG
from tests.common.programs import ROOT

SETTINGS = Settings(hidden=(64,), batch_size=50, rate=0.004)
PAGE = ROOT / "docs" / "evidence" / "advice.md"
RECORDED = {subject: of for subject in SUBJECTS if (of := read(program.RESULTS / "signs" / subject))}


def test_a_run_shows_about_as_many_as_are_wrong_until_it_learns_them_by_heart(task):
    facts = watch(task, SETTINGS, seed=1)
    assert 0.2 < facts["signs"]["certain"] < facts["signs"]["likely"] < facts["signs"]["hit"] < 0.5
    above = facts["above_guess"]
    assert len(above) == facts["epochs"] == 30
    assert abs(above[2] - task.wrong.mean()) < 0.1
    assert above[-1] < above[2] / 2
    begun = watch(task, SETTINGS, seed=1, last=WATCHED)
    assert (begun["signs"], begun["early"], begun["above_guess"]) == (facts["signs"], facts["early"], above[:WATCHED])
    assert facts["early"].keys() == facts["signs"].keys()
    assert facts["early"] != facts["signs"]


def test_each_kind_is_watched_and_each_share_of_random_errors_once(task):
    labels = {"random40": task.train.labels, "clean": task.train.labels}
    material = Material(task.train.features, task.train.labels, labels, task.test, 100)
    found = {one.kind: one for one in tasks(material, ("random40", "clean"))}
    assert list(found) == ["random40", "clean", "random5", "random10", "random30", "random60"]
    for share in (5, 10, 30, 60):
        one = found[f"random{share}"]
        assert torch.equal(one.train.features, material.features[:400])
        assert one.wrong.mean() == pytest.approx(share / 100, abs=0.03)


@pytest.mark.parametrize("subject", sorted(LIKELY_CURVES.keys() & SUBJECTS.keys()))
def test_the_curves_in_the_library_are_those_that_were_recorded(subject):
    assert LIKELY_CURVES[subject] == curve_of(RECORDED[subject])


def test_every_subject_that_was_watched_has_a_curve_that_rises_but_those_of_other_numbers_of_classes():
    assert RECORDED.keys() - LIKELY_CURVES.keys() <= {"mlp-2-classes", "mlp-676-classes"}
    for curve in LIKELY_CURVES.values():
        assert len(curve) == len(WRONG)
        assert list(curve) == sorted(curve)


def run(kind, wrong, likely, above, seed=0):
    signs = {"likely": likely, "certain": likely / 2, "hit": 0.3, "hard": 0.35}
    facts = {"kind": kind, "seed": seed, "samples": 10_000, "wrong_percent": wrong}
    return facts | {
        "name": f"{kind}-seed{seed}",
        "early": signs,
        "signs": signs | {"likely": 0.0, "hard": 0.2},
        "above_guess": above,
    }


def test_a_row_says_what_is_true_and_what_is_advised(tmp_path, capsys):
    folder = tmp_path / "signs" / "head"
    for seed, likely in enumerate((0.25, 0.27)):
        add(folder, run("random40", 40.0, likely, [0.4, 0.35, 0.33, 0.3, 0.25, 0.2], seed))
    add(folder, run("pairs20", 20.0, 0.005, [0.3, 0.1, 0.05]))
    assert program.main(["advice", "--results", str(tmp_path)]) == 0
    _, _, first, second, *_, counted = [line for line in capsys.readouterr().out.splitlines() if line]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (first, second)]
    assert cells[0][:4] == ["`head`", "`random40`", "2", "40%"]
    assert cells[0][4].endswith(" to 60%")
    assert cells[0][5::2][:2] == ["yes", "yes"]
    assert cells[0][8:] == ["prune", "", "5 epochs", ""]
    assert cells[1][:6] == ["`head`", "`pairs20`", "1", "20%", "0% to 50%", "yes"]
    assert cells[1][7:] == ["no", "don't", "", "", ""]
    assert "holds the truth in 2 of 2 rows, and after 10 epochs in 1." in counted
    assert "or its range holds the truth, in 1, and after 10 epochs in 0." in counted


def test_its_own_curve_is_left_out():
    own = dict(zip(WRONG, LIKELY_CURVES["head"], strict=True))
    table = advice({"head": [run("random60", 60.0, own[0.6], [0.5])]}, {})
    wrong, *_, said = table.splitlines()[2].split("|")[4:8]
    assert wrong.strip() == "60%"
    assert not said.strip().startswith("60%")  # by its own curve it would


@pytest.mark.docs
def test_the_page_shows_what_was_recorded():
    runs = {subject: read(program.RESULTS / subject) for subject in SUBJECTS}
    assert fill(PAGE, BEGIN, advice(RECORDED, runs)) == PAGE.read_text(encoding="utf-8")
