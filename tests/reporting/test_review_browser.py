"""Suspects looked at in a real browser, by keys alone: what is said, kept, saved, and applied to the labels."""

import html
import json
import re

import numpy as np
import pytest

import prunedata
from prunedata import Pruner, Schedule
from prunedata.findings.verdicts import apply_verdicts, judged_wrong, read_verdicts
from prunedata.keys import hash_keys, key_text
from prunedata.reporting.kept import keep_previews
from tests.reporting.reading import HOSTILE, SAMPLES, WRONG, Sheet, in_a_browser

pytestmark = in_a_browser

MANY = 2_000
CLASSES = ("cat", "dog", "horse", "hot dog", "deer")
STICKING_OUT = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"


class Texts(list):
    classes = CLASSES

    def __init__(self, samples, classes=5):
        super().__init__((f"text {at}", at % classes) for at in range(samples))
        self.targets = np.arange(samples) % classes


@pytest.fixture(scope="module")
def pages(made, tmp_path_factory):
    folder, few = tmp_path_factory.mktemp("review"), made("watches_only")[1]
    many = Pruner(MANY, Schedule.steady(12), prune=0.2, leave_out="nothing", classes=5, keys=range(MANY))
    for epoch in many.epochs():
        many.observe(np.linspace(4, 1, MANY), np.flatnonzero(epoch.keep))
    paths = {}
    for name, run, dataset in (
        ("texts", few, Texts(SAMPLES)),
        ("guesses", made("guesses")[1], Texts(SAMPLES, classes=3)),
        ("hostile images", few, Sheet()),
        ("hostile texts", few, Sheet(texts=True)),
        ("many", many, Texts(MANY)),
    ):
        paths[name] = folder / f"{name.replace(' ', '-')}.html"
        top = len(WRONG) if name == "guesses" else MANY
        prunedata.report(run, paths[name], dataset=dataset, review=True, top=top)
    return paths


@pytest.fixture
def context(browser):
    made = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    yield made
    made.close()


def opened(context, path):
    """The page, and all that it said, asked for, or opened."""
    page, heard = context.new_page(), []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: heard.append(dialog.message))
    page.on("request", lambda request: heard.append(request.url))
    page.goto(path.as_uri())
    heard[:] = [one for one in heard if one != path.as_uri() and not one.startswith("data:")]
    return page, heard


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def saved(page, folder):
    with page.expect_download() as download:
        press(page, "f")
    assert download.value.suggested_filename == "verdicts.csv"
    download.value.save_as(folder / "verdicts.csv")
    return folder / "verdicts.csv"


def test_by_keys_alone_from_the_first_to_corrected_labels(context, pages, tmp_path):
    page, heard = opened(context, pages["texts"])
    shown = page.evaluate("JSON.parse(document.getElementById('data').textContent).items.map(item => item.id)")
    press(page, "w", "r", "s", "c")
    page.keyboard.type("o")
    offered = [name for at, name in enumerate(CLASSES) if "o" in name and at != shown[3] % len(CLASSES)]  # not its own
    assert page.locator("#classes li").all_inner_texts() == offered
    press(page, "ArrowDown", "Enter")
    assert page.inner_text("#progress") == "4 of 90 seen: 2 wrong, 1 right, 1 skipped."
    assert page.inner_text("#share") == "Of the 3 judged, 67 % were wrong."
    found = read_verdicts(saved(page, tmp_path), SAMPLES)
    assert [(one.sample, one.verdict, one.label) for one in found] == [
        (shown[0], "wrong", ""),
        (shown[1], "right", ""),
        (shown[3], "wrong", str(CLASSES.index(offered[1]))),
    ]
    labels = Texts(SAMPLES).targets
    corrected, left = apply_verdicts(found, labels)
    assert np.flatnonzero(corrected != labels).tolist() == [shown[3]]
    assert [one.sample for one in left] == [shown[0]]
    assert heard == []
    page.screenshot(path=tmp_path / "review.png")


def test_a_run_with_keys_saves_verdicts_on_its_rows(context, pages, tmp_path):
    page, heard = opened(context, pages["many"])
    press(page, "w", "r", "w")
    path = saved(page, tmp_path)
    found = read_verdicts(path, MANY)
    assert path.read_text().splitlines()[0] == "sample,verdict,was,label,key"
    assert [one.key for one in found] == [key_text(int(hash_keys([one.sample])[0])) for one in found]
    wrong = [one.sample for one in found if one.verdict == "wrong"]
    rows = [*range(7, MANY), "other"]
    assert judged_wrong(path, len(rows), hash_keys(rows)).tolist() == sorted(row - 7 for row in wrong if row >= 7)
    assert heard == []


def test_verdicts_on_selected_rows_correct_the_labels_of_the_whole_data_set(context, tmp_path):
    labels = np.arange(40) % 5
    rows = np.random.default_rng(0).permutation(40)[:30]
    run = Pruner(30, epochs=2, leave_out="nothing", store=tmp_path / "run.zarr")
    for epoch in run.epochs():
        run.observe(np.linspace(1, 4, 30), np.flatnonzero(epoch.keep))
    keep_previews(tmp_path / "run.zarr", run, [(f"row {row}", int(labels[row])) for row in rows], rows)
    prunedata.report(tmp_path / "run.zarr", tmp_path / "page.html", review=True)
    page, heard = opened(context, tmp_path / "page.html")
    press(page, "w", "c")
    page.keyboard.press("Enter")
    found = read_verdicts(saved(page, tmp_path))
    assert [one.row for one in found] == [str(rows[one.sample]) for one in found]
    corrected, left = apply_verdicts(found, labels)
    assert np.flatnonzero(corrected != labels).tolist() == [rows[28]]
    assert [one.sample for one in left] == [29]
    assert heard == []


def test_undo_goes_back_to_what_was_judged(context, pages):
    page, _ = opened(context, pages["texts"])
    first = page.inner_text("#which")
    press(page, "w", "r")
    third = page.inner_text("#which")
    press(page, "u", "u")
    assert page.inner_text("#which") == first
    assert page.is_disabled("#undo")
    press(page, "u", "r", "r")
    assert page.inner_text("#which") == third
    assert page.inner_text("#progress") == "2 of 90 seen: 0 wrong, 2 right, 0 skipped."


def test_closed_and_opened_again_it_goes_on(context, pages, tmp_path):
    page, _ = opened(context, pages["texts"])
    press(page, "w", "r", "w")
    where = page.inner_text("#which")
    page.wait_for_timeout(1000)  # Chromium hands what is kept from the page's process to its own a little later
    page.close()
    page, _ = opened(context, pages["texts"])
    assert page.inner_text("#which") == where
    assert page.inner_text("#progress") == "3 of 90 seen: 2 wrong, 1 right, 0 skipped."
    assert len(judged_wrong(saved(page, tmp_path), SAMPLES)) == 2
    other, _ = opened(context, pages["hostile texts"])
    assert other.inner_text("#progress").startswith("0 of 90 seen")


def test_two_windows_do_not_write_over_each_other(context, pages):
    one, _ = opened(context, pages["texts"])
    two, _ = opened(context, pages["texts"])
    press(one, "w")
    # Not by a function in the page, whose policy lets no text become code.
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect(two.locator("#progress")).to_have_text(re.compile("^1 of"))
    press(two, "r")
    sync_api.expect(one.locator("#progress")).to_have_text(re.compile("^2 of"))


@pytest.mark.parametrize("damaged", ['{"a": 1}', "[", '[{"id": "x"}, null, {"id": 0, "said": "wrong"}]'])
def test_what_is_kept_may_be_damaged(context, pages, damaged):
    page, heard = opened(context, pages["texts"])
    key = page.evaluate("JSON.parse(document.getElementById('data').textContent).key")
    page.evaluate(f"localStorage.setItem('prunedata-review-{key}', {json.dumps(damaged)})")
    page.reload()
    assert page.inner_text("#progress").startswith("0 of 90 seen")
    press(page, "w")
    assert page.inner_text("#progress").startswith("1 of 90 seen")
    assert [one for one in heard if not one.startswith(("file:", "data:"))] == []


def test_where_the_browser_keeps_nothing_the_page_says_so(context, pages, tmp_path):
    frame = tmp_path / "frame.html"
    page, _ = opened(context, pages["texts"])
    source = html.escape(pages["texts"].read_text(encoding="utf-8"))
    frame.write_text(f'<iframe sandbox="allow-scripts" srcdoc="{source}" width=900 height=800></iframe>', "utf-8")
    page.goto(frame.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("#wrong").click()
    assert inside.locator("#progress").inner_text().startswith("1 of 90")
    assert "save a file before you close it" in inside.locator("#kept").inner_text()


def test_all_two_thousand_and_when_to_stop(context, pages, tmp_path):
    page, heard = opened(context, pages["many"])
    press(page, *(["w"] * 60))
    assert page.inner_text("#share") == "Of the last 50 judged, 100 % were wrong."
    press(page, *(["r"] * 47))
    assert (
        page.inner_text("#share") == "Of the last 50 judged, 6 % were wrong. Few are wrong from here on: you can stop."
    )
    press(page, *(["r", "s", "w"] * 631))
    assert page.is_visible("text=All are seen")
    assert page.inner_text("#progress").startswith("2000 of 2000 seen")
    press(page, "a")
    assert page.inner_text("#progress").startswith("1369 of 2000 seen")
    found = read_verdicts(saved(page, tmp_path), MANY)
    assert len(found) == 1369
    assert sum(one.verdict == "wrong" for one in found) == 691
    assert heard == []


@pytest.mark.parametrize(("kind", "width"), [("hostile images", 1280), ("hostile texts", 380)])
def test_hostile_texts_and_names_stay_text(context, pages, tmp_path, kind, width):
    page, heard = opened(context, pages[kind])
    page.set_viewport_size({"width": width, "height": 900})
    for number, name in enumerate(HOSTILE):
        press(page, "c")
        page.keyboard.type(str(number))
        assert not page.evaluate(STICKING_OUT), name
        press(page, "Escape", "w")
    press(page, "c")
    page.keyboard.type("<script>alert")
    press(page, "Enter")
    page.screenshot(path=tmp_path / "hostile.png")
    assert page.locator("main script, main b, #sample img[src=x]").count() == 0
    assert heard == []
    assert read_verdicts(saved(page, tmp_path), SAMPLES)[-1].label == "0"


@pytest.mark.parametrize("kind", ["hostile images", "hostile texts"])
def test_the_buttons_are_on_the_first_screen_of_a_phone(context, pages, kind):
    page, _ = opened(context, pages[kind])
    page.set_viewport_size({"width": 420, "height": 800})
    for _ in range(12):
        for name in ("wrong", "right", "another", "skip"):
            box = page.locator(f"#{name}").bounding_box()
            assert box["y"] + box["height"] <= 800, page.inner_text("#which")
        press(page, "r")


def test_a_key_with_control_or_held_down_says_nothing(context, pages):
    page, _ = opened(context, pages["texts"])
    press(page, "Control+u", "Alt+w", "Shift")
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'w', code: 'KeyW', repeat: true}))")
    assert page.inner_text("#progress").startswith("0 of 90 seen")
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ц', code: 'KeyW'}))")
    assert page.inner_text("#progress").startswith("1 of 90 seen: 1 wrong")


def test_by_tab_and_enter_and_told_to_a_screen_reader(context, pages, tmp_path):
    """Enter on a button presses that button alone: it takes no class that the sample looks like."""
    page, _ = opened(context, pages["guesses"])
    for _ in range(12):
        press(page, "Tab")
        if page.evaluate("document.activeElement.id") == "right":
            break
    press(page, "Enter")
    assert page.inner_text("#progress").startswith("1 of 10 seen: 0 wrong, 1 right")
    assert "labeled" in page.inner_text("#spoken")
    snapshot = page.locator("body").aria_snapshot()
    assert 'button "W wrong"' in snapshot
    assert 'progressbar "Seen so far"' in snapshot
    assert [one.verdict for one in read_verdicts(saved(page, tmp_path))] == ["right"]


def test_enter_takes_the_class_that_a_sample_looks_like(context, pages, tmp_path):
    page, heard = opened(context, pages["guesses"])
    for _ in range(len(WRONG)):
        label, guess = page.inner_text("#label"), page.inner_text("#guess")
        assert CLASSES.index(guess) == (CLASSES.index(label) + 1) % 3
        assert page.is_visible("#accept")
        press(page, "Enter")
    assert not page.is_visible("#accept")
    press(page, "Enter")  # which says nothing more
    verdicts = read_verdicts(saved(page, tmp_path))
    assert {one.sample for one in verdicts} == set(WRONG)
    labels = np.arange(SAMPLES) % 3
    corrected, left = apply_verdicts(verdicts, labels)
    assert not left
    assert np.array_equal(corrected[WRONG], (labels[WRONG] + 1) % 3)
    assert not heard
