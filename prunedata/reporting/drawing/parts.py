"""What sections are made of: panels side by side, figures, legends, tables, lists of facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prunedata.reporting.drawing.markup import Markup, join, tag
from prunedata.reporting.facts import RunFacts

__all__ = ["Section", "facts", "figure", "legend", "note", "panels", "paragraph", "section", "split", "table"]


@dataclass(frozen=True)
class Section:
    """A section of the page: its anchor, its heading, what stands under it, and whether paper may break it."""

    anchor: str
    heading: str
    body: Markup
    long: bool = False

    def html(self) -> Markup:
        """The section as an element that its heading names."""
        named = f"{self.anchor}-heading"
        heading = tag("h2", self.heading, id=named)
        return tag(
            "section", heading, self.body, id=self.anchor, aria_labelledby=named, class_="long" if self.long else None
        )


def panels(runs: Sequence[RunFacts], draw: Callable[[RunFacts], object]) -> Markup:
    """Return what is drawn of each run; of two, side by side under their names."""
    named = len(runs) > 1
    inside = [tag("div", tag("h3", run.name) if named else None, draw(run), class_="panel") for run in runs]
    return tag("div", *inside, class_="panels")


def section(
    anchor: str, heading: str, runs: Sequence[RunFacts], draw: Callable[[RunFacts], Markup | None]
) -> Section | None:
    """Return a section of what is drawn of each run, or None if there is nothing to draw of any."""
    drawn = {id(run): draw(run) for run in runs}
    if not any(drawn.values()):
        return None
    return Section(anchor, heading, panels(runs, lambda run: drawn[id(run)] or paragraph("Nothing to show.")))


def split(left: object, right: object) -> Markup:
    """Return two things, side by side where there is room."""
    return tag("div", tag("div", left), tag("div", right), class_="split")


def paragraph(text: object) -> Markup:
    """Return a paragraph."""
    return tag("p", text)


def note(text: object) -> Markup:
    """Return a paragraph that is less in the way."""
    return tag("p", text, class_="note")


def figure(drawn: Markup, *, wide: bool = False) -> Markup:
    """Return a picture in its frame; a wide one has nothing at its left side."""
    return tag("figure", drawn, class_="plot wide" if wide else "plot")


def legend(*entries: tuple[str, str]) -> Markup:
    """Return what the marks of a picture mean: (class of the mark, meaning) each."""
    said = [tag("span", tag("span", class_=f"key {mark}", aria_hidden="true"), meaning) for mark, meaning in entries]
    return tag("p", *said, class_="legend")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], text: Sequence[int] = (0,)) -> Markup:
    """Return a table whose first column names the rows; the columns in `text` are set from the left."""

    def of(at: int) -> str | None:
        return "text" if at in text else None

    named = [tag("th", name, scope="col", class_=of(at)) for at, name in enumerate(head)]
    lines = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=of(0)),
            *(tag("td", cell, class_=of(at)) for at, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    inside = tag("table", tag("caption", caption), tag("thead", tag("tr", *named)), tag("tbody", *lines))
    return tag("div", inside, class_="table", tabindex=0, role="region", aria_label=caption)


def facts(rows: Iterable[tuple[str, object]], class_: str = "facts") -> Markup:
    """Return names with what they stand for."""
    if class_ == "tiles":
        inside = [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows]
    else:
        inside = [join(tag("dt", name), tag("dd", value)) for name, value in rows]
    return tag("dl", *inside, class_=class_)
