"""The page as a whole: what it shows, what it knows of each suspect, and what it forbids itself to load."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.reporting.drawing.markup import Markup, data, join, shorten, tag, visible
from prunedata.reporting.drawing.style import PAGE
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.previews import Preview, Previews
from prunedata.reporting.review.script import SCRIPT
from prunedata.reporting.review.style import REVIEW
from prunedata.types import Array

__all__ = ["review_page"]

LONGEST_TEXT = 4_000
"""Characters that are shown of a text."""
LONGEST_NAME = 80

Progress = Callable[[float, str], None]


def review_page(
    run: RunFacts, top: int, shown: Previews, labels: Array | None, progress: Progress | None = None
) -> str:
    """Return the page to look at the `top` most suspect samples of a run, as HTML.

    Parameters
    ----------
    run : RunFacts
    top : int
        How many samples.
    shown : Previews
        What they look like.
    labels : array of int or str, shape (samples,), optional
        The labels that will be corrected; otherwise those that the data set has.
    progress : callable, optional
        Told how much is done, from 0 to 1.

    Raises
    ------
    PrunedataError
        If nothing was observed: then nothing is suspect.
    """
    if not run.observed:
        raise PrunedataError("Expected a run that has observed losses. Got one without: nothing is suspect in it yet.")
    listed, names = shown.values()
    values = listed if labels is None else np.asarray(labels)
    if labels is not None and labels.dtype.kind == "U":
        names = ()
    ids = run.suspects(top).tolist()
    items = []
    for at, sample in enumerate(ids):
        if progress is not None and not at % 50:
            progress(at / len(ids), "samples")
        items.append(_item(sample, shown.of(sample), None if values is None else values[sample], names))
    classes = _classes(values, names, items)
    known: dict[str, Any] = {"key": _key(run, values, items), "classes": classes, "items": items}
    return _document(run, known)


def _item(sample: int, seen: Preview, value: Any, names: Sequence[str]) -> dict[str, Any]:
    was = seen.value if value is None else str(value)
    label = seen.label if value is None else _called(str(value), names)
    return {
        "id": sample,
        "image": seen.image,
        "text": None if seen.text is None else visible(seen.text[:LONGEST_TEXT]),
        "row": [[_name(name), visible(cell)] for name, cell in seen.row] if len(seen.row) > 1 else None,
        "label": None if label is None else _name(label),
        "was": was,
        "name": None if seen.key is None else _name(seen.key),
    }


def _called(value: str, names: Sequence[str]) -> str:
    return names[int(value)] if value.isdigit() and int(value) < len(names) else value


def _name(text: str) -> str:
    return visible(shorten(text, LONGEST_NAME))


def _classes(values: Array | None, names: Sequence[str], items: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Value and name of each class that a sample may be of."""
    if names:
        return [[str(number), _name(name)] for number, name in enumerate(names)]
    if values is not None:
        return [[str(value), _name(str(value))] for value in np.unique(values).tolist()]
    found = {item["was"]: item["label"] for item in items if item["was"] is not None}
    return [[value, found[value]] for value in sorted(found)]


def _key(run: RunFacts, values: Array | None, items: Sequence[dict[str, Any]]) -> str:
    """What tells one review from another in a browser: the run's name and labels, so that a longer page goes on."""
    mark = sha256(f"{run.name} {run.samples} {run.state.run.get('seed')} ".encode("utf-8", "surrogatepass"))
    if values is None:
        mark.update(json.dumps([(item["id"], item["was"]) for item in items]).encode("utf-8"))
    else:
        mark.update(np.ascontiguousarray(values).tobytes())
    return mark.hexdigest()[:32]


def _document(run: RunFacts, known: dict[str, Any]) -> str:
    style = PAGE + REVIEW
    written = json.dumps(known, ensure_ascii=True).replace("<", "\\u003c")  # nothing in it can end the element
    head = join(
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_policy(style)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="referrer" content="no-referrer">'),
        Markup('<link rel="icon" href="data:,">'),
        tag("title", f"Suspects of {shorten(run.name, LONGEST_NAME)}"),
        Markup(f"<style>{style}</style>"),
    )
    told = (
        "The most suspect first. Say of each whether its label is wrong, and stop when few are. You get clean data; "
        "expect less accuracy than you hope for, as training that stops in time ignores most of these labels."
    )
    body = join(
        tag("header", tag("h1", "Suspects of ", data(run.name, LONGEST_NAME)), tag("p", told, class_="state")),
        tag("main", _progress(), _sample(), _end(), id="main", tabindex=-1),
        tag("footer", tag("p", "Made by prunedata report --review. This page loads nothing.")),
        tag("noscript", tag("p", "This page needs its script to be run.")),
        Markup(f'<script type="application/json" id="data">{written}</script><script>{SCRIPT}</script>'),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{tag("body", body)}</html>\n'


def _progress() -> Markup:
    return tag(
        "section",
        tag("progress", id="bar", value=0, aria_label="Seen so far"),
        tag("div", tag("strong", id="progress"), " ", tag("span", id="share")),
        tag("div", tag("span", id="kept"), class_="note"),
        tag("div", id="spoken", role="status", aria_live="polite"),
        tag("div", _button("undo", "U", "undo"), _button("file", "F", "save as a file"), class_="buttons"),
        aria_label="Progress",
    )


def _sample() -> Markup:
    keys = join(
        _button("wrong", "W", "wrong"),
        _button("right", "R", "right"),
        _button("another", "C", "another class"),
        _button("skip", "S", "skip"),
    )
    field = tag(
        "input", id="find", type="text", autocomplete="off", role="combobox", aria_expanded="true",
        aria_controls="classes", aria_label="Find the class by its name",
    )  # fmt: skip
    search = tag(
        "div",
        tag("p", "Type to find the class, choose by the arrows, take it by Enter; Esc goes back.", class_="note"),
        Markup(field.removesuffix("</input>")),
        tag("ul", id="classes", role="listbox", aria_label="Classes"),
        tag("p", id="more", class_="note"),
        id="search",
        hidden="",
    )
    beside = tag(
        "div",
        tag("div", "labelled", class_="note"),
        tag("div", id="label"),
        tag("div", id="which", class_="note"),
        tag("div", keys, class_="buttons"),
        search,
    )
    return tag("section", tag("div", id="sample"), beside, id="one", aria_label="The sample")


def _end() -> Markup:
    return tag(
        "section",
        tag("h2", "All are seen"),
        tag("p", "Save the file, then correct the labels with ", tag("code", "prunedata apply"), " or leave those "
            "that are wrong out with ", tag("code", 'Pruner(without="verdicts.csv")'), "."),
        tag("div", _button("again", "A", "those that were skipped again"), class_="buttons"),
        id="end",
        hidden="",
    )  # fmt: skip


def _button(id_: str, key: str, told: str) -> Markup:
    return tag("button", tag("kbd", key), " ", told, id=id_, type="button", aria_keyshortcuts=key)


def _policy(style: str) -> str:
    """What a browser may do for the page: its own style and script, and pictures that are in it. Nothing else."""
    allowed = {
        name: b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
        for name, text in {"style": style, "script": SCRIPT}.items()
    }
    rules = " ".join(f"{name}-src 'sha256-{mark}';" for name, mark in allowed.items())
    return f"default-src 'none'; {rules} img-src data:; base-uri 'none'; form-action 'none'"
