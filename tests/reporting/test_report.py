"""The page of every kind of run: whole, self-contained, small, and true to the run."""

import re
import threading
import tracemalloc

import numpy as np
import pytest
import zarr

import prunedata
from prunedata import NeverPrunesWarning, PrunedataError, Pruner, Random, Schedule
from prunedata.findings import searched
from prunedata.findings.table import suspect_table
from prunedata.reporting.facts import facts_of
from prunedata.store.reading import read_run
from tests.reporting.reading import read
from tests.reporting.runs import HOSTILE, KINDS, SAMPLES, Sheet, finished, observe_only, train, unfinished
from tests.store.stored_runs import contents

ANCHORS = ["verdict", "suspects", "overview", "schedule", "time", "counts", "agreement", "left-out", "epochs", "cite"]
NOTHING_PRUNED = {"agreement", "left-out"}
LEFT_OUT = {
    "never_begun": {"suspects", "time", "counts", "epochs"} | NOTHING_PRUNED,
    "random_without_losses": {"suspects", "counts"},
    "observe_only": {"schedule"} | NOTHING_PRUNED,
    "one_epoch": {"schedule"} | NOTHING_PRUNED,
    "stopped_in_its_first_epoch": {"suspects", "time", "counts", "epochs"} | NOTHING_PRUNED,
    "left_out_for_good_by_weight_and_watched": {"schedule"} | NOTHING_PRUNED,
    "held_out_before_its_first_figure": {"suspects", "time", "counts", "epochs"} | NOTHING_PRUNED,
    "one_of_two_ranks": {"suspects", "time", "counts", "epochs"} | NOTHING_PRUNED,
    "auto_before_advice": NOTHING_PRUNED,
    "never_pruned": NOTHING_PRUNED,
    "all_pruned_but_one": set(),
}
"""Sections that have nothing to say of a kind of run."""
BOUND = 300_000
"""Bytes of a page without images."""

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.NeverPrunesWarning")


def check(html):
    """A page is whole, loads nothing, runs nothing, and says what its pictures are. Returns its reader."""
    page = read(html)
    tags = {name for name, _ in page.elements}
    assert {"header", "main", "nav", "footer", "title"} <= tags
    assert not tags & {"script", "iframe", "object", "embed", "form", "base", "audio", "video", "foreignObject"}
    for name, attributes in page.elements:
        assert not [one for one in attributes if one.startswith("on") or one == "style"], (name, attributes)
        for where in ("href", "src", "srcset", "action", "data"):
            address = attributes.get(where, "")
            assert address.startswith(("#", "data:image/png;base64,", "data:,", "https://doi.org/10.")) or not address
    assert "url(" not in html
    assert "@import" not in html
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    anchors = [one["id"] for _, one in page.elements if "id" in one]
    assert len(anchors) == len(set(anchors))
    assert {one["href"][1:] for one in page.all("a") if one["href"].startswith("#")} <= set(anchors)
    assert all(set(one) >= {"scope"} for one in page.all("th"))
    assert all("alt" in one for one in page.all("img"))
    pictures = [one for one in page.all("svg") if "role" in one]
    assert len(pictures) == html.count('role="img"')
    assert len(re.findall(r"<svg[^>]*role=\"img\"[^>]*><title>[^<]+</title><desc>[^<]+</desc>", html)) == len(pictures)
    numbers = re.findall(r' (?:d|x|y|x1|x2|y1|y2|width|height|opacity)="([^"]*)"', html)
    assert not [one for one in numbers if "nan" in one or "inf" in one or "e" in one.replace("device", "")]
    assert len(html.encode("utf-8")) - sum(len(one["src"]) for one in page.all("img")) < BOUND
    return page


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_page(kind, tmp_path):
    place = tmp_path / "run.zarr"
    pruner = KINDS[kind](place)
    before = contents(place)
    stored = prunedata.report(place)
    assert contents(place) == before
    page = check(stored.html)
    assert [one["id"] for one in page.all("section")] == [one for one in ANCHORS if one not in LEFT_OUT.get(kind, ())]
    assert "Run run.zarr" in page.text
    assert str(tmp_path) not in stored.html, "a page that is passed on names no folder of this machine"
    live = prunedata.report(pruner)
    assert live.html.replace("Run <bdi>run<", "").split("<main")[1] == stored.html.split("<main")[1].replace(
        "of run.zarr<", "of run<"
    )


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("never_begun", ["Not begun: none of 24 epochs is done."]),
        (
            "random_without_losses",
            ["Finished", "No losses were observed, so which samples were left out is not recorded"],
        ),
        ("observe_only", ["90 samples, nothing pruned.", "visits it would save\n16.7 %", "report RUN --review"]),
        ("finished", ["20 epochs of 24 are pruned.", "By the batches left out, pruning should save", "agreement with"]),
        ("unfinished", ["14 of 30 epochs are done.", "Pale: still ahead", "planned in all"]),
        ("within_an_epoch", ["Epoch 7 of 24 is open; 7 are done."]),
        ("auto", ["policy auto", "What this run was advised, and does:", "It turned in epoch 1", "the turn"]),
        ("auto_before_advice", ["This run watches first", "Watch on."]),
        ("never_pruned", ["3 of 24 epochs are done.", "all of it on all samples"]),
    ],
)
def test_what_the_page_says(kind, told, tmp_path):
    KINDS[kind](tmp_path / "run.zarr")
    text = read(prunedata.report(tmp_path / "run.zarr").html).text
    for sentence in told:
        assert sentence in text


def test_its_figures_are_those_of_the_run(tmp_path):
    pruner = finished(tmp_path / "run.zarr")
    found, saved = facts_of(tmp_path / "run.zarr"), pruner.saved
    assert found.done == found.total == 24
    assert [int(kept) for kept in found.kept] == [record["kept"] for record in pruner.history]
    whole = np.median([record["seconds"] for record in pruner.history[1:] if not record["pruned"]])
    batches = [-(-record["kept"] // 16) for record in pruner.history]
    assert found.predicted.tolist() == pytest.approx([whole * number / 6 for number in batches])
    assert sum(found.counts.values()) == sum(found.times_left_out.values()) == SAMPLES
    assert sum(times * samples for times, samples in found.times_left_out.items()) == saved["visits_saved"]
    assert found.visits_saved_in_all == pytest.approx(saved["visits_saved_percent"] / 100)
    text = read(prunedata.report(pruner).html).text
    assert f"{saved['visits_saved_percent']:.1f} %{saved['visits_saved']:,} visits" in text
    chance = 1 - found.kept[-1] / SAMPLES
    assert f"By chance it would be {100 * chance:.1f} %." in text


def test_what_is_still_ahead_is_planned(tmp_path):
    pruner = unfinished(tmp_path / "run.zarr")
    found = facts_of(pruner)
    left = sum(SAMPLES - pruner.kept_in(epoch) for epoch in range(30))
    assert found.visits_saved_in_all == pytest.approx(left / (30 * SAMPLES))
    assert found.planned == tuple(pruner.schedule.prunes(epoch) for epoch in range(30))


def test_the_suspects_are_shown_with_their_classes(tmp_path):
    pruner = observe_only(tmp_path / "run.zarr")
    sheet = Sheet()
    sheet.classes = [f"class {number}" for number in range(len(HOSTILE))]
    page = check(prunedata.report(pruner, dataset=sheet, top=5).html)
    assert [one["alt"] for one in page.all("img")] == [
        f"Sample {i}, labelled class {i % 11}" for i in suspect_table(tmp_path / "run.zarr", top=5)["id"]
    ]
    assert "Where they gather" in page.text
    assert "class 10" in page.text


@pytest.mark.parametrize("texts", [False, True])
def test_hostile_names_stay_text(texts, tmp_path):
    pruner = observe_only(tmp_path / "<script>alert(1)</script>.zarr")
    html = prunedata.report(
        tmp_path / "<script>alert(1)</script>.zarr", dataset=Sheet(texts=texts), compare=pruner, top=30
    ).html
    page = check(html)
    assert "alert(1)" in page.text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\ud800]", html)


def test_hostile_labels_from_a_file(tmp_path):
    labels = np.array(HOSTILE[:-1] * 9)[:SAMPLES]
    page = check(prunedata.report(observe_only(tmp_path / "run.zarr"), labels=labels).html)
    assert HOSTILE[0] in page.text


def test_two_runs_side_by_side(tmp_path):
    finished(tmp_path / "one.zarr")
    unfinished(tmp_path / "two.zarr")
    page = check(prunedata.report(tmp_path / "one.zarr", compare=tmp_path / "two.zarr").html)
    assert [one["id"] for one in page.all("section")] == [ANCHORS[0], "comparison", *ANCHORS[1:]]
    assert page.text.count("one.zarr") == page.text.count("two.zarr")
    assert "most suspect samples of each" in page.text
    same = check(prunedata.report(tmp_path / "one.zarr", compare=tmp_path / "one.zarr").html)
    assert "one.zarr (first)" in same.text


def test_two_runs_on_other_data(tmp_path):
    train(Pruner(40, Schedule.steady(12), prune=0.2, store=tmp_path / "small.zarr"))
    finished(tmp_path / "one.zarr")
    page = check(prunedata.report(tmp_path / "one.zarr", compare=tmp_path / "small.zarr").html)
    assert "Whether they suspect the same samples cannot be said" in page.text
    with pytest.raises(PrunedataError, match="Expected two runs on the data set that is to be shown"):
        prunedata.report(tmp_path / "one.zarr", compare=tmp_path / "small.zarr", dataset=Sheet())


class Saved:
    """A run that has only its state."""

    def __init__(self, state):
        self._state = state

    def state_dict(self):
        return self._state


@pytest.mark.parametrize(
    ("epochs", "windows"), [(5000, 5000), (5000, 7), (4001, 2), (3000, (1000, 2000))], ids=["one", "7", "2", "two"]
)
def test_thousands_of_epochs_make_no_heavy_page(epochs, windows):
    schedule = Schedule(epochs, windows, 1, 2 if windows != 2 else 1, 1)
    state = Pruner(20, schedule, prune=0.3, policy=Random()).state_dict()
    state["state"]["epoch"] = epochs
    state["state"]["history"] = [
        {
            "number": number,
            "pruned": schedule.prunes(number),
            "kept": 14 if schedule.prunes(number) else 20,
            "observed": 20,
            "seconds": 1 + 1 / (number + 1),
            "mean_loss": 2 / (number + 1) + number % 7 / 100,
            "overhead": 0.01,
            **({"agreement": number % 10 / 10} if schedule.prunes(number) else {}),
        }
        for number in range(epochs)
    ]
    html = prunedata.report(Saved(state)).html
    check(html)
    assert len(html) < 120_000
    check(prunedata.report(Saved(state), compare=Saved(state)).html)


def test_a_million_samples_take_little_memory():
    """Its time is in benchmarks: a test judges none."""
    pruner = Pruner(1_000_000, Schedule.steady(6), prune=0.2, classes=10)
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(ids, np.cos(ids).astype(np.float32) + 2)
    tracemalloc.start()
    check(prunedata.report(pruner, labels=np.arange(1_000_000) % 1000).html)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6


def test_losses_of_any_size():
    for scale in (1e-30, 1e30, -5.0):
        pruner = Pruner(20, Schedule(4, 4, 2, 1, 1), prune=0.3)
        for epoch in pruner.epochs():
            ids = np.flatnonzero(epoch.keep)
            pruner.observe(ids, scale * (1 + np.cos(ids)))
        check(prunedata.report(pruner).html)


def test_a_history_of_an_earlier_version(tmp_path):
    pruner = finished(tmp_path / "run.zarr")
    state = pruner.state_dict()
    for record in state["state"]["history"]:
        record.pop("agreement", None)
        record.pop("sketch", None)
    anchors = [one["id"] for one in check(prunedata.report(Saved(state)).html).all("section")]
    assert anchors == [one for one in ANCHORS if one != "agreement"]


def test_a_run_that_only_watches_is_not_called_by_a_policy(tmp_path):
    observe_only(tmp_path / "run.zarr")
    finished(tmp_path / "other.zarr")
    assert "DroppingCount" not in read(prunedata.report(tmp_path / "run.zarr").html).text
    both = read(prunedata.report(tmp_path / "run.zarr", compare=tmp_path / "other.zarr").html).text
    assert "none: it only watches" in both
    assert "DroppingCount" not in both


def test_it_is_written_and_shows_itself(tmp_path):
    found = prunedata.report(observe_only(tmp_path / "run.zarr"), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == found.html
    assert found.save(tmp_path / "again.html").read_bytes() == found.html.encode("utf-8")
    framed = read(found._repr_html_())
    assert framed.all("iframe")[0]["srcdoc"] == found.html
    assert framed.all("iframe")[0]["sandbox"] == ""
    assert repr(found).endswith("report.save('report.html') writes it")


def test_progress_is_told(tmp_path):
    told = []
    prunedata.report(observe_only(tmp_path / "run.zarr"), progress=lambda share, what: told.append((share, what)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] < 1
    assert told[0][1] == "reading"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": 7}, "Expected a data set with dataset"),
        ({"dataset": Sheet(4)}, "of 90 samples. Got 4"),
        ({"labels": [1, 2]}, r"Expected labels of shape \(90,\)"),
        ({"labels": np.zeros(SAMPLES)}, "integers or text"),
        ({"top": 0}, "Expected top"),
    ],
)
def test_what_is_refused(options, message, tmp_path):
    with pytest.raises(PrunedataError, match=message):
        prunedata.report(observe_only(tmp_path / "run.zarr"), **options)


def test_no_run_there(tmp_path):
    with pytest.raises(PrunedataError, match="Expected a run at"):
        prunedata.report(tmp_path / "nothing.zarr")


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://key:word@bucket/run.zarr?secret=1", "run.zarr"),
        ("/home/somebody/run.zarr/", "run.zarr"),
        (r"C:\somebody\run.zarr", "run.zarr"),
        ("/", "run"),
    ],
)
def test_a_page_tells_no_more_of_an_address_than_its_end(location, name, monkeypatch, tmp_path):
    observe_only(tmp_path / "run.zarr")
    found = read_run(tmp_path / "run.zarr")
    monkeypatch.setattr(searched, "read_run", lambda _: found)
    assert facts_of(location).name == name


def test_a_zarr_store_has_no_name():
    store = zarr.storage.MemoryStore()
    observe_only(store)
    assert "Run\nFinished" in check(prunedata.report(store).html).text


@pytest.mark.parametrize("run", [7, None, 1.5, []])
def test_what_is_no_run(run):
    with pytest.raises((TypeError, ValueError), match="Expected"):
        prunedata.report(run)


def test_a_run_in_a_notebook(tmp_path):
    pruner = unfinished(tmp_path / "run.zarr")
    page = read(pruner._repr_html_())
    assert "14 of 30 epochs are done." in page.text
    assert len([one for one in page.all("svg") if "role" in one]) == 2
    assert not [one for _, one in page.elements if "id" in one], "several runs may be shown on one page"
    with pytest.warns(NeverPrunesWarning):
        idle = Pruner(10, Schedule(3, 3, 3, 1, 0), prune=0.2)
    assert "Not begun" in read(idle._repr_html_()).text


def test_a_run_that_another_thread_trains_shows_its_plain_text():
    pruner = Pruner(10, Schedule.steady(12), prune=0.2)
    epoch = pruner.begin_epoch()
    pruner.observe(np.flatnonzero(epoch.keep), np.ones(10))
    found = []
    thread = threading.Thread(target=lambda: found.append(pruner._repr_html_()))
    thread.start()
    thread.join()
    assert found == [None]
