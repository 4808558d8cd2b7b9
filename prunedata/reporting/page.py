"""The page as a whole: its sections in order, its head, and what it forbids itself to load."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from prunedata.reporting import chosen, closing, overview, training
from prunedata.reporting.drawing.markup import Markup, data, join, shorten, tag
from prunedata.reporting.drawing.parts import Section
from prunedata.reporting.drawing.style import PAGE
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.previews import Previews
from prunedata.types import Array

__all__ = ["page"]

Progress = Callable[[float, str], None]
"""Told how much is done, from 0 to 1, and what comes next."""


def page(
    runs: Sequence[RunFacts],
    *,
    version: str,
    top: int,
    shown: Previews | None = None,
    labels: Array | None = None,
    progress: Progress | None = None,
) -> str:
    """Return the page of one run, or of two side by side, as HTML.

    Parameters
    ----------
    runs : sequence of RunFacts
    version : str
        Of the library, for the citation.
    top : int
        How many samples to list.
    shown : Previews, optional
        What samples look like.
    labels : array of int or str, shape (samples,), optional
        To see in which classes suspects gather.
    progress : callable, optional
        Called before each section.
    """
    steps = list(_steps(runs, version, top, shown, labels))
    sections = []
    for at, (name, make) in enumerate(steps):
        if progress is not None:
            progress(at / len(steps), name)
        sections.append(make())
    return _document(runs, [one for one in sections if one is not None])


def _steps(
    runs: Sequence[RunFacts], version: str, top: int, shown: Previews | None, labels: Array | None
) -> Iterator[tuple[str, Callable[[], Section | None]]]:
    """What matters first: what to do, and the samples to look at; a section that has nothing to say is None."""
    yield "verdict", lambda: closing.verdict(runs)
    if len(runs) == 2:
        yield "comparison", lambda: overview.comparison(runs)
    yield "suspects", lambda: chosen.suspects(runs, top, shown, labels)
    yield "overview", lambda: overview.overview(runs)
    yield "schedule", lambda: training.schedule(runs)
    yield "times", lambda: training.times(runs)
    yield "counts", lambda: chosen.counts(runs)
    yield "agreement", lambda: chosen.agreement(runs)
    yield "left out", lambda: chosen.left_out(runs, top)
    yield "epochs", lambda: closing.epochs(runs)
    yield "citation", lambda: closing.citing(version)


def _document(runs: Sequence[RunFacts], sections: Sequence[Section]) -> str:
    names = [shorten(run.name, 80) for run in runs]
    title = f"prunedata: {' and '.join(names)}"
    head = join(
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="referrer" content="no-referrer">'),
        Markup('<link rel="icon" href="data:,">'),
        tag("title", title),
        Markup(f"<style>{PAGE}</style>"),
    )
    links = [tag("li", tag("a", one.heading, href=f"#{one.anchor}")) for one in sections]
    states = [tag("p", _state(run, len(runs)), class_="state") for run in runs]
    body = join(
        tag("a", "Skip to the figures", href="#main", class_="skip"),
        tag(
            "header",
            tag("h1", *_heading(runs)),
            *states,
            tag("nav", tag("ol", *links), aria_label="Sections"),
        ),
        tag("main", *(section.html() for section in sections), id="main"),
        tag("footer", tag("p", "Made by prunedata report. This page loads nothing and runs nothing.")),
    )
    two = "two" if len(runs) == 2 else None
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{tag("body", body, class_=two)}</html>\n'


def _heading(runs: Sequence[RunFacts]) -> list[object]:
    if len(runs) == 1:
        return ["Run"] if runs[0].name == "run" else ["Run ", data(runs[0].name, 80)]
    return ["Runs ", data(runs[0].name, 80), " and ", data(runs[1].name, 80)]


def _state(run: RunFacts, number: int) -> Markup:
    by = "nothing pruned" if run.watches_only else f"policy {run.policy}"
    told = f"{overview.progress(run)} {run.samples:,} samples, {by}."
    return join(data(run.name, 80), ": ", data(told, 300)) if number > 1 else data(told, 300)


def _policy() -> str:
    """What a browser may load for the page: its own style, and pictures that are in it. Nothing else."""
    style = b64encode(sha256(PAGE.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'"
