"""The page in a real browser: nothing is loaded, nothing complains, every picture is drawn, and nothing sticks out."""

import pytest

import prunedata
from tests.reporting.reading import Sheet, in_a_browser

pytestmark = in_a_browser

LIGHT, DARK = "light", "dark"
WHOLE = ("images", "two")
"""Pages that are photographed from top to bottom, which takes a while."""
SHOWN = ("never_begun", "watches_only", "unfinished", "held_out", "auto")
UNDRAWN = """() => [...document.querySelectorAll('main img')].filter(one => !one.closest('details:not([open])')
  && !(one.complete && one.naturalWidth > 0 && one.getBoundingClientRect().width > 0)).map(one => one.alt)"""
STICKING_OUT = """() => {
  const wide = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll('h1, h2, h3, p, li, dd, img')].filter(one => {
    if (one.closest('.table, details:not([open])')) return false;
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.left < -0.5 || box.right > wide + 0.5);
  }).map(one => one.textContent.slice(0, 60));
  return document.documentElement.scrollWidth > wide ? ['the page itself', ...out] : out;
}"""
BROKEN = """() => [...document.querySelectorAll('.table th, .table td')].flatMap(one => {
  const text = one.firstChild, range = document.createRange();
  return [...(text ? text.textContent : '').matchAll(/[^\\s-]+/g)].filter(word => {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    return new Set([...range.getClientRects()].map(box => box.top)).size > 1;
  }).map(word => word[0]);
})"""
CONTRAST = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = {};
  const every = 'h1, h2, p, td, th, dt, dd, small, summary, li, strong, span, code';
  for (const one of document.querySelectorAll(every)) {
    const style = getComputedStyle(one);
    const pair = [light(parts(style.color)), light(behind(one))];
    const [a, b] = pair.sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found[one.tagName + '.' + one.getAttribute('class')] = ratio;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def pages(made, tmp_path_factory):
    """A page of each kind of run, with pictures where it makes sense, and one of two runs."""
    folder, auto = tmp_path_factory.mktemp("pages"), made("auto")[1]
    wanted = {kind: (made(kind)[1], {}) for kind in SHOWN} | {
        "images": (auto, {"dataset": Sheet()}),
        "texts": (auto, {"dataset": Sheet(texts=True)}),
        "two": (auto, {"compare": made("unfinished")[0]}),
    }
    for name, (place, options) in wanted.items():
        prunedata.report(place, folder / f"{name}.html", **options)
    return {name: folder / f"{name}.html" for name in wanted}


def opened(browser, address, width, scheme, scripts=True):
    """The page in a new window, and all that it said or asked for."""
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, java_script_enabled=scripts)
    page, heard = context.new_page(), []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: heard.append(request.url))
    page.goto(address)
    asked = [one for one in heard if one != address and not one.startswith("data:")]
    return page, asked


class TestInABrowser:
    """A class, so that one worker opens the browser and makes the pages once."""

    @pytest.mark.parametrize("width", [380, 1280])
    @pytest.mark.parametrize("scheme", [LIGHT, DARK])
    def test_every_page_is_drawn_and_nothing_is_asked_for(self, browser, pages, width, scheme, tmp_path):
        backgrounds = set()
        for name, path in pages.items():
            page, heard = opened(browser, path.as_uri(), width, scheme)
            assert heard == [], name
            assert page.evaluate(UNDRAWN) == [], name
            assert page.evaluate(STICKING_OUT) == [], name
            assert page.evaluate(BROKEN) == [], name
            assert page.evaluate(CONTRAST) == {}, name
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            picture = tmp_path / f"{name}-{width}-{scheme}.png"
            page.screenshot(path=picture, full_page=name in WHOLE)
            assert picture.stat().st_size > 5_000
            page.context.close()
        assert backgrounds == {"rgb(245, 246, 249)" if scheme == LIGHT else "rgb(15, 18, 26)"}

    def test_it_is_read_without_a_script(self, browser, pages):
        page, heard = opened(browser, pages["auto"].as_uri(), 1280, LIGHT, scripts=False)
        assert heard == []
        assert "sample visits saved" in page.inner_text("main")
        page.click("text=Why")
        assert page.is_visible("text=validation figure has fallen")

    def test_a_page_that_loads_something_is_noticed(self, browser, pages, tmp_path):
        """The check can fail: the page's own rule keeps the browser from loading it, and the console says so."""
        bad = tmp_path / "bad.html"
        text = pages["auto"].read_text(encoding="utf-8")
        added = '<img src="https://example.org/x.png"><script>document.title = "ran"</script>'
        bad.write_text(text.replace("<main", f"{added}<main", 1), encoding="utf-8")
        page, heard = opened(browser, bad.as_uri(), 1280, LIGHT)
        assert any("Content Security Policy" in one for one in heard)
        assert page.title() != "ran"
        assert page.evaluate(UNDRAWN.replace("main img", "img")) != []

    def test_headings_and_pictures_have_names_for_a_screen_reader(self, browser, pages):
        page, _ = opened(browser, pages["two"].as_uri(), 1280, LIGHT)
        snapshot = page.locator("body").aria_snapshot()
        for told in ("banner:", "main:", "contentinfo:", 'region "Most suspect samples":', 'heading "Runs'):
            assert told in snapshot, snapshot
        assert 'img "Mean loss of each epoch' in snapshot
        assert "- img\n" not in snapshot

    def test_on_paper_it_keeps_its_pictures(self, browser, pages, tmp_path):
        page, _ = opened(browser, pages["auto"].as_uri(), 1280, DARK)
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(UNDRAWN) == []
        page.pdf(path=tmp_path / "report.pdf")
        assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")

    def test_in_a_notebook_it_stands_in_a_frame(self, browser, made, tmp_path):
        found = prunedata.report(made("auto")[1])
        frame = tmp_path / "frame.html"
        frame.write_text(f"<!doctype html><body>{found._repr_html_()}", encoding="utf-8")
        page, heard = opened(browser, frame.as_uri(), 1280, LIGHT)
        assert [one for one in heard if one != "about:srcdoc"] == []
        assert page.frame_locator("iframe").locator("h1").inner_text() == "Run run.zarr"

    def test_the_first_screen_of_a_phone_says_what_to_do(self, browser, pages):
        for name, path in pages.items():
            page, _ = opened(browser, path.as_uri(), 420, LIGHT)
            box = page.locator(".advice").first.bounding_box()
            assert box["y"] + box["height"] < 800, name
            page.context.close()
