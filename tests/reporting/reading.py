"""A page as a browser without a script reads it, and the browser that tests of pages open."""

import re
import shutil
from base64 import b64decode
from html.parser import HTMLParser
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest

# A page as a browser without a script reads it: its elements, its text, and whether it is whole and closed.


__all__ = ["BROWSER", "check", "in_a_browser", "launched", "read"]

VOID = {"meta", "link", "img", "input", "br"}
BLOCKS = {"p", "td", "th", "h1", "h2", "h3", "li", "dt", "dd", "div", "caption", "q", "small", "figcaption"}
BOUND = 300_000
"""Bytes of a page without images."""
SVG = "data:image/svg+xml;base64,"


class Reader(HTMLParser):
    """Reads a page, and raises if an element is not closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        if tag in BLOCKS:
            self.words.append("\n")

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def all(self, tag):
        """The attributes of each element of a kind."""
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        """What stands on the page, with plain spaces."""
        return re.sub(r"[ \N{NO-BREAK SPACE}]+", " ", "".join(self.words).replace("\n", " "))

    @property
    def sections(self):
        """The sections, by their ids."""
        return [one["id"] for one in self.all("section")]

    @property
    def curves(self):
        """The curves of the page, as trees of their SVG."""
        sources = [one["src"] for one in self.all("img") if one["src"].startswith(SVG)]
        return [ElementTree.fromstring(b64decode(one.removeprefix(SVG))) for one in sources]


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def check(html):
    """A report is whole, loads nothing, runs nothing, and says what its pictures are. Returns its reader."""
    page = read(html)
    tags = {name for name, _ in page.elements}
    assert {"header", "main", "footer", "title"} <= tags
    assert not tags & {"script", "iframe", "object", "embed", "form", "base", "audio", "video", "svg"}
    for name, attributes in page.elements:
        assert not [one for one in attributes if one.startswith("on") or one == "style"], (name, attributes)
        for where in ("href", "src", "srcset", "action", "data"):
            assert attributes.get(where, "data:,").startswith((SVG, "data:image/png;base64,", "data:,"))
    assert "url(" not in html
    assert "@import" not in html
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules.keys() == {"default-src", "style-src", "img-src", "base-uri", "form-action"}
    assert "unsafe" not in policy
    anchors = [one["id"] for _, one in page.elements if "id" in one]
    assert len(anchors) == len(set(anchors))
    assert all("scope" in one for one in page.all("th"))
    assert all(one["alt"] for one in page.all("img"))
    for curve in page.curves:
        drawn = [value for one in curve.iter() for name, value in one.attrib.items() if name in ("d", "x", "y")]
        assert drawn
        assert not [one for one in drawn if "nan" in one.lower() or "inf" in one.lower()]
    assert len(html.encode("utf-8")) - sum(len(one["src"]) for one in page.all("img") if SVG not in one["src"]) < BOUND
    return page


# The browser that tests of pages open, and why they skip where there is none.


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

in_a_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome is on the path"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]


def launched(playwright):
    """Chromium without a window. CI runs as root, where its own sandbox does not."""
    return playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
