"""The page of every kind of run: whole, self-contained, small, and true to the run."""

import json
import re
import tracemalloc

import matplotlib
import numpy as np
import pytest
import zarr

import prunedata
from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.findings import searched
from prunedata.findings.inspection import inspect
from prunedata.findings.table import suspect_table
from prunedata.policies import Random
from prunedata.reporting import report as reporting
from prunedata.reporting.facts import facts_of
from prunedata.store.run_store import read_run
from tests.reporting.reading import HOSTILE, KINDS, SAMPLES, UNSEEN, Saved, Sheet, check, read, train
from tests.store.stored_runs import contents

OTHER_ACTIONS = {
    "unfinished": "Watch on.", "within_an_epoch": "Watch on.", "auto_before_advice": "Watch on.",
    "never_pruned": "Watch on.", "held_out_and_left_out_for_good": "Prune.",
    **dict.fromkeys(UNSEEN, "Observe losses first."),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_page(made, kind):
    run, place = made(kind)
    before = contents(place)
    found = prunedata.report(place)
    assert contents(place) == before
    page = check(found.html)
    assert page.sections == ["verdict", *([] if kind in UNSEEN else ["suspects"]), "saved"]
    assert len(page.curves) == (kind not in UNSEEN)
    assert "Run run.zarr" in page.text
    assert str(place.parent) not in found.html, "a page that is passed on names no folder of this machine"
    (said,), (live,) = found.runs, prunedata.report(run).runs
    assert json.loads(json.dumps(said)) == live
    assert said["outcome"] in page.text
    assert said["action"] == OTHER_ACTIONS.get(kind, "Look at the samples below.")
    about = inspect(place)
    for name in ("samples", "held_out", "without", "saved", "would_save_percent"):
        assert said[name] == about[name]
    assert (f"{said['held_out']} of them held out" in page.text) == (said["held_out"] > 0)
    table = {} if kind in UNSEEN else suspect_table(place, top=12)
    assert [one["id"] for one in said["suspects"]] == list(table.get("id", ()))


def test_the_first_line_says_how_many_labels_look_wrong_and_where_the_figure_went(made):
    run, place = made("auto")
    (said,) = prunedata.report(place).runs
    figures = [record["validation"] for record in run.history]
    advice = run.advice
    assert said["outcome"].startswith(f"{advice.doubted} of {SAMPLES} labels look wrong.")
    assert advice.prune == min(advice.doubted, 18)
    assert f"is {figures[-1]:.4g} in epoch 23" in said["outcome"]
    best = int(re.search(r"highest around epoch (\d+), at", said["outcome"])[1])
    assert f"at {figures[best]:.4g}" in said["outcome"]
    assert abs(best - int(np.argmax(figures))) <= 1


def test_of_losses_as_figures_the_lowest_is_the_best():
    run = Pruner(SAMPLES, Schedule.steady(24), prune=0.2)
    for epoch in run.epochs():
        run.observe(np.cos(np.flatnonzero(epoch.keep)), np.flatnonzero(epoch.keep))
        run.validated(abs(epoch.number - 8) / 8 + 0.5, lower_is_better=True)
    (said,) = prunedata.report(run).runs
    assert "is 2.375 in epoch 23; it was lowest around epoch 9, at 0.625." in said["outcome"]


def test_epochs_are_whole_numbers_on_a_curve(made):
    (curve,) = check(prunedata.report(made("one_epoch")[0]).html).curves
    (axis,) = (one for one in curve.iter() if one.get("id") == "matplotlib.axis_1")
    assert [one.text for one in axis.iter() if one.tag.endswith("text")] == ["0", "epoch"]


def test_a_curve_is_of_the_figure_or_else_of_the_losses(made):
    for kind, title in (("watches_only", "Mean loss of each epoch"), ("auto", "Validation figure of each epoch")):
        assert title in check(prunedata.report(made(kind)[0]).html).text


def test_the_suspects_are_shown_with_their_classes(made):
    run, place = made("watches_only")
    sheet = Sheet()
    sheet.classes = [f"class {number}" for number in range(len(HOSTILE))]
    page = check(prunedata.report(run, dataset=sheet, top=5).html)
    assert [one["alt"] for one in page.all("img")][1:] == [
        f"Sample {i}, labeled class {i % 11}" for i in suspect_table(place, top=5)["id"]
    ]
    assert "Classes in which suspects gather" in page.text
    assert "class 10" in page.text
    of_the_run = check(prunedata.report(made("guesses")[0]).html)  # whose labels it has been given
    assert "Classes in which suspects gather" in of_the_run.text


def test_rows_have_the_names_of_their_columns(made):
    class Rows(list):
        columns = ("x age", "label", "x height")

    rows = Rows((np.array([at, at / 2]), at % 3) for at in range(SAMPLES))
    page = check(prunedata.report(made("watches_only")[0], dataset=rows, top=5).html)
    assert page.text.count("x age") == page.text.count("x height") == 5


@pytest.mark.parametrize("texts", [False, True])
def test_hostile_names_stay_text(made, stored, texts):
    place = stored("watches_only", "<script>alert(1)<")
    html = prunedata.report(place, dataset=Sheet(texts=texts), compare=made("watches_only")[0], top=30).html
    assert "alert(1)" in check(html).text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\ud800]", html)


def test_hostile_labels_from_a_file(made):
    labels = np.array(HOSTILE[:-1] * 9)[:SAMPLES]
    assert HOSTILE[0] in check(prunedata.report(made("watches_only")[0], labels=labels).html).text


def test_two_runs_side_by_side(made, stored):
    place, other = made("finished")[1], stored("unfinished", "two.zarr")
    page = check(prunedata.report(place, compare=other).html)
    assert len(page.curves) == 2
    assert page.text.count("two.zarr") == page.text.count("run.zarr") > 2
    assert "most suspect samples of each" in page.text
    assert "run.zarr (first)" in check(prunedata.report(place, compare=place).html).text


def test_two_runs_are_compared_by_their_keys(tmp_path):
    places = [tmp_path / name for name in ("one.zarr", "other.zarr")]
    losses = np.random.default_rng(0).random(50)
    for place, order in zip(places, (slice(None), slice(None, None, -1)), strict=True):
        keys = [f"row {number}" for number in range(50)][order]
        run = Pruner(50, Schedule.steady(4), leave_out="nothing", keys=keys, store=place)
        for _ in run.epochs():
            run.observe(losses[order], np.arange(50))
    page = check(prunedata.report(places[0], compare=places[1]).html)
    assert "Of the 5 most suspect samples of each, 100 % of those in either are in both" in page.text


def test_two_runs_on_other_data(made, tmp_path):
    place = made("finished")[1]
    train(Pruner(40, Schedule.steady(12), prune=0.2, store=tmp_path / "small.zarr"))
    page = check(prunedata.report(place, compare=tmp_path / "small.zarr").html)
    assert "Whether they suspect the same samples is not known" in page.text
    with pytest.raises(PrunedataError, match=r"90 and 40 samples"):
        prunedata.report(place, compare=tmp_path / "small.zarr", dataset=Sheet())


def test_thousands_of_epochs_make_no_heavy_page():
    schedule = Schedule(5000, 5000, 1, 2, 1)
    state = Pruner(20, schedule, prune=0.3, policy=Random()).state_dict()
    state["state"]["epoch"] = 5000
    record = {"observed": 20, "seconds": 1.5, "overhead": 0.01}
    state["state"]["history"] = [
        record | {"number": number, "pruned": prunes, "kept": 14 if prunes else 20, "mean_loss": 2 / (number + 1)}
        for number, prunes in enumerate(map(schedule.prunes, range(5000)))
    ]
    html = prunedata.report(Saved(state)).html
    check(html)
    assert len(html) < 80_000


def test_a_million_samples_take_little_memory():
    """Its time is in benchmarks: a test judges none."""
    pruner = Pruner(1_000_000, Schedule.steady(6), prune=0.2, classes=10)
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(np.cos(ids).astype(np.float32) + 2, ids)
    tracemalloc.start()
    check(prunedata.report(pruner, labels=np.arange(1_000_000) % 1000).html)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # losses of 0
@pytest.mark.parametrize("scale", [1e-30, 1e30, 0.0])
def test_losses_of_any_size(scale):
    pruner = Pruner(20, Schedule(4, 4, 2, 1, 1), prune=0.3)
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(scale * (1 + np.cos(ids)), ids)
    check(prunedata.report(pruner).html)


def test_a_run_that_only_watches_is_not_called_by_a_policy(made):
    assert "DroppingCount" not in prunedata.report(made("watches_only")[1]).html
    assert "Policy: RunningLoss" in read(prunedata.report(made("finished")[1]).html).text


def test_it_is_written_and_shows_itself(made, tmp_path):
    found = prunedata.report(made("watches_only")[0], tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == found.html
    assert found.save(tmp_path / "again.html").read_bytes() == found.html.encode("utf-8")
    (frame,) = read(found._repr_html_()).all("iframe")
    assert (frame["srcdoc"], frame["sandbox"]) == (found.html, "")
    assert repr(found).endswith("report.save('report.html') writes it")


def test_no_style_of_the_users_pictures_comes_in_or_is_changed(made):
    page = prunedata.report(made("auto")[0]).html
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30, "axes.facecolor": "black"}):
        before = dict(matplotlib.rcParams)
        assert prunedata.report(made("auto")[0]).html == page
        assert dict(matplotlib.rcParams) == before


def test_what_is_not_installed_is_named(made, monkeypatch):
    monkeypatch.setattr(reporting, "find_spec", lambda name: None if name == "jinja2" else name)
    with pytest.raises(ImportError, match=r"needs jinja2\. .*pip install jinja2 matplotlib"):
        prunedata.report(made("watches_only")[0])


def test_progress_is_told(made):
    told = []
    prunedata.report(made("watches_only")[0], progress=lambda share, what: told.append((share, what)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert told[0] == (0, "reading")
    assert shares[-1] < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": 7}, "Got int"),
        ({"dataset": Sheet(4)}, r"90 samples\. Got 4"),
        ({"labels": [1, 2]}, r"Got shape \(2,\)"),
        ({"labels": np.zeros(SAMPLES)}, "float64"),
        ({"top": 0}, "Got 0"),
    ],
)
def test_what_is_refused(made, options, message):
    with pytest.raises(PrunedataError, match=message):
        prunedata.report(made("watches_only")[0], **options)


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://key:word@bucket/run.zarr?secret=1", "run.zarr"),
        ("/home/somebody/run.zarr/", "run.zarr"),
        (r"C:\somebody\run.zarr", "run.zarr"),
        ("/", "run"),
    ],
)
def test_a_page_tells_no_more_of_an_address_than_its_end(made, location, name, monkeypatch):
    found = read_run(made("watches_only")[1])
    monkeypatch.setattr(searched, "read_run", lambda _: found)
    assert facts_of(location).name == name


def test_a_zarr_store_has_no_name():
    store = zarr.storage.MemoryStore()
    KINDS["watches_only"](store)
    assert "Run run" not in check(prunedata.report(store).html).text


@pytest.mark.parametrize("run", [7, None, []])
def test_what_is_no_run(run):
    with pytest.raises((TypeError, ValueError), match="Expected"):
        prunedata.report(run)


def test_the_report_says_what_suspects_look_like(made):
    dataset = [(f"text {at}", at % 3) for at in range(SAMPLES)]
    found = prunedata.report(made("guesses")[0], dataset=dataset, top=3)
    first = found.runs[0]["suspects"][0]
    assert first["guess"] == (first["label"] + 1) % 3
    assert f"label {first['label']}, looks like {first['guess']}" in " ".join(read(found.html).text.split())
