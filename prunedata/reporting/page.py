"""The pages as HTML: one template, in which every value is escaped, and what the pages forbid themselves to load."""

from __future__ import annotations

import json
import unicodedata
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from prunedata.checks import duration, percent
from prunedata.findings.suspects import ClassShare

__all__ = ["render", "shorten", "visible"]

BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the order in which the text around them is read."""


def render(names: Sequence[str], *, review: Mapping[str, Any] | None = None, **given: Any) -> str:
    """Return the page of the runs of these names, or the page on which suspects are judged.

    The template shows what is `given`, or its script what `review` holds, as plain values.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (only a report needs it)
    from markupsafe import Markup  # noqa: PLC0415 (Jinja's own)

    def data(value: object, longest: int) -> Markup:
        return Markup(f"<bdi>{escape(visible(shorten(str(value), longest)))}</bdi>")

    def shown(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    made = Environment(autoescape=True, finalize=shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"data": data, "short": shorten, "number": "{:,}".format, "percent": percent, "duration": duration}
    made.filters |= {"figure": _figure, "figures": lambda row: map(_figure, row.values()), "share": _share}
    assets = ("page.html", "page.css", "review.js")
    template, style, script = ((files("prunedata.reporting") / one).read_text("utf-8") for one in assets)
    allowed = f"default-src 'none'; style-src '{_digest(style)}'; "
    allowed += f"script-src '{_digest(script)}'; " if review is not None else ""
    called = " and ".join(shorten(name, 80) for name in names)
    written = json.dumps(review, ensure_ascii=True).replace("<", "\\u003c")  # nothing in it can end the element
    return made.from_string(template).render(
        names=names,
        review=review is not None,
        title=f"{'prunedata:' if review is None else 'Suspects of'} {called}",
        security=f"{allowed}img-src data:; base-uri 'none'; form-action 'none'",
        **{name: Markup(text) for name, text in {"style": style, "script": script, "known": written}.items()},
        **given,
    )


def _figure(value: float | str | None) -> str:
    if isinstance(value, str):
        return shorten(value, 60) or "-"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _share(one: ClassShare) -> tuple[str, ...]:
    """A row of the table of classes."""
    name = shorten(str(one.label), 60)
    return name, f"{one.suspects:,}", f"{one.samples:,}", percent(one.share), percent(one.expected)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def shorten(text: str, longest: int) -> str:
    """Return at most so many characters of a text, on one line."""
    read = text[: 4 * longest]
    line = " ".join(read.split())
    whole = len(line) <= longest and len(read) == len(text)
    return line if whole else f"{line[: longest - 1].rstrip()}…"


def visible(text: str) -> str:
    """Return the text with its control characters shown by their codes: none may hide or turn round what follows."""
    return "".join(one.encode("unicode_escape").decode("ascii") if _is_control(one) else one for one in text)


def _is_control(one: str) -> bool:
    return one in BIDI or (one not in "\n\t" and unicodedata.category(one) in ("Cc", "Cs", "Co", "Cn", "Zl", "Zp"))
