"""A page as a browser without a script reads it, and the browser that tests of pages open."""

import re
import shutil
from base64 import b64decode
from html.parser import HTMLParser
from importlib.util import find_spec
from xml.etree import ElementTree

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.policies import LossRanked, Random, RunningLoss
from prunedata.run.group import Group

__all__ = ["HOSTILE", "KINDS", "UNSEEN", "Saved", "Sheet", "check", "in_a_browser", "launched", "read", "train"]

# A page as a browser without a script reads it: its elements, its text, and whether it is whole and closed.


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


SAMPLES = 90
WRONG = np.arange(0, SAMPLES, 9)
"""Whose losses stay high."""
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style><b>&lt;",
    "\u202etxt.exe\u2066 \u200f",
    "nul\x00esc\x1b[31m\x7f\x85",
    "lone \ud800 surrogate",
    "line\u2028and\u2029paragraph",
    "long " * 10_000,
    "W" * 5_000,
    "javascript:alert(1)",
    "{{7*7}} ${7*7}",
)
"""Names and texts as somebody's data may have them."""


LABELS = np.arange(SAMPLES) % 3


def logits(ids):
    """What the network says: the samples whose losses stay high look like the class after theirs."""
    return np.eye(3)[(LABELS[ids] + np.isin(ids, WRONG)) % 3]


def train(pruner, stop=None, observe=True, turn=None, says=lambda ids: None):
    """Train on losses that fall, but for those of every ninth sample. A validation figure falls from ``turn`` on."""
    for epoch in pruner.epochs():
        for ids in epoch.batches(32):
            epoch.apply_weights()
            if observe:
                high = np.isin(ids, WRONG)
                losses = np.where(high, 3.0, 2.0 / (1 + epoch.number) + 0.01 * np.cos(ids))
                pruner.observe(losses, ids, logits=says(ids))
        if not observe:
            pruner.skip(epoch.kept)
        if turn is not None:
            pruner.validated(0.5 + 0.02 * min(epoch.number, 2 * turn - epoch.number))
        if epoch.number + 1 == stop:
            break
    pruner.commit()
    return pruner


def steady(place, **options):
    return Pruner(SAMPLES, Schedule.steady(24), prune=0.2, store=place, **options)


def within_an_epoch(pruner, group=None):
    """Stopped after the first batch of its next epoch, of which each process has its own part."""
    if group is not None:
        pruner.join(group)
    pruner.observe(np.ones(8), next(pruner.begin_epoch().batches(8)))
    pruner.commit()
    return pruner


class Rank(Group):
    rank, processes = 0, 2


KINDS = {
    "never_begun": steady,
    "random_without_losses": lambda at: train(steady(at, policy=Random()), observe=False),
    "watches_only": lambda at: train(steady(at, leave_out="nothing", classes=10)),
    "guesses": lambda at: train(steady(at, leave_out="nothing", labels=LABELS), says=logits),
    "finished": lambda at: train(steady(at, policy=RunningLoss(), batch_size=16, classes=10)),
    "unfinished": lambda at: train(Pruner(SAMPLES, Schedule(30, 10, 3, 3, 2, 2), prune=0.2, store=at), stop=14),
    "within_an_epoch": lambda at: within_an_epoch(train(steady(at), stop=7)),
    "auto": lambda at: train(steady(at, policy="auto"), turn=8),
    "auto_before_advice": lambda at: train(steady(at, policy="auto"), stop=3, turn=8),
    "never_pruned": lambda at: train(steady(at), stop=3),
    "all_pruned_but_one": lambda at: train(Pruner(SAMPLES, Schedule(6, 6, 1, 1, 1), prune=0.5, store=at)),
    "one_epoch": lambda at: train(Pruner(SAMPLES, Schedule(1, 1, 1, 1, 1), prune=0.5, store=at, leave_out="nothing")),
    "stopped_in_its_first_epoch": lambda at: within_an_epoch(steady(at)),
    "one_of_two_ranks": lambda at: within_an_epoch(steady(at), Rank()),
    "by_weight": lambda at: train(steady(at, leave_out="weight", batch_size=16)),
    "left_out_for_good": lambda at: train(steady(at, without=WRONG[:5], batch_size=16)),
    "left_out_for_good_by_weight": lambda at: train(steady(at, without=WRONG[:5], leave_out="weight")),
    "held_out": lambda at: train(steady(at, policy="auto", holdout=0.2)),
    "held_out_and_left_out_for_good": lambda at: train(steady(at, holdout=0.2, without=WRONG[:5]), stop=20),
    "held_out_before_its_first_figure": lambda at: steady(at, policy="auto", holdout=0.2),
    "weighed": lambda at: train(steady(at, policy=LossRanked(), leave_out="weight")),
}
"""What makes a run of each kind, with its store at a path, or without one."""
UNSEEN = {
    "never_begun", "random_without_losses", "stopped_in_its_first_epoch", "one_of_two_ranks",
    "held_out_before_its_first_figure",
}  # fmt: skip
"""Kinds of runs whose finished epochs have observed nothing."""


class Saved:
    """A run that has only its state."""

    def __init__(self, state):
        self._state = state

    def state_dict(self):
        return self._state


class Sheet:
    """A data set of small images or of texts, with class names and keys that mean harm."""

    classes = HOSTILE

    def __init__(self, samples=SAMPLES, texts=False):
        self.targets = np.arange(samples) % len(HOSTILE)
        self.texts = texts

    def __len__(self):
        return self.targets.size

    def __getitem__(self, index):
        label = int(self.targets[index])
        image = np.random.default_rng(index).random((3, 40, 30), dtype=np.float32)
        return {"__key__": HOSTILE[label], "data": HOSTILE[-label] if self.texts else image, "label": label}
