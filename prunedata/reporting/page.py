"""The pages as HTML, and the data of the one on which suspects are judged.

There is one template, in which every value is escaped, and what the pages forbid themselves to load.
"""

import json
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from prunedata.checks import duration, percent
from prunedata.errors import PrunedataError
from prunedata.findings.suspects import ClassShare
from prunedata.keys import key_text
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.kept import KeptPreviews
from prunedata.reporting.previews import Preview, Previews
from prunedata.types import Array

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


LONGEST_TEXT, LONGEST_NAME = 4_000, 80  # characters that are shown of a text, and of a name


def suspects_to_judge(
    run: RunFacts,
    top: int,
    shown: Previews | KeptPreviews,
    labels: Array | None,
    progress: Callable[[float, str], None],
) -> dict[str, Any]:
    """Return the `top` most suspect samples of a run as plain values, with the classes that there are.

    `labels`, of shape (samples,), are those to be corrected; by default those of the data set or the run. Raises
    :class:`PrunedataError` if nothing was observed: then nothing is suspect.
    """
    if not run.observed:
        raise PrunedataError("Expected a run that has observed losses. Got one without: nothing is suspect in it yet.")
    listed, names = shown.values()
    values = next((one for one in (labels, listed, run.state.labels) if one is not None), None)
    names = names if labels is None or labels.dtype.kind != "U" else ()
    rows, items, keys = run.suspects(top, values), [], run.state.keys
    places = shown.rows if isinstance(shown, KeptPreviews) else {}
    for at, row in enumerate(rows):
        progress(at / len(rows), "suspects")
        sample, guess = row["id"], row.get("guess", "")
        item = _item(sample, shown.of(sample), None if values is None else values[sample], names)
        guess = None if guess in (-1, "") or item["was"] in (None, str(guess)) else str(guess)
        key = {} if keys is None else {"key": key_text(int(keys[sample]))}
        place = {"place": str(places[sample])} if sample in places else {}
        items.append(item | {"guess": guess} | place | key)
    return {"key": _key(run, values, items), "classes": _classes(values, names, items), "items": items}


def _item(sample: int, seen: Preview, value: Any, names: Sequence[str]) -> dict[str, Any]:
    value = seen.value if value is None else str(value)
    known = bool(names) and value is not None and value.isdigit() and int(value) < len(names)
    label = names[int(value)] if known else seen.label if value == seen.value else value
    return {
        "id": sample,
        "image": seen.image,
        "text": None if seen.text is None else visible(seen.text[:LONGEST_TEXT]),
        "row": [[_name(name), visible(cell)] for name, cell in seen.row] or None,
        "label": None if label is None else _name(label),
        "was": value,
        "name": None if seen.key is None else _name(seen.key),
    }


def _name(text: str) -> str:
    return visible(shorten(text, LONGEST_NAME))


def _classes(values: Array | None, names: Sequence[str], items: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Value and name of each class that a sample may be of."""
    if names:
        return [[str(number), _name(name)] for number, name in enumerate(names)]
    if values is not None:
        return [[str(value), _name(str(value))] for value in np.unique(values).tolist()]
    found = {item["guess"]: _name(item["guess"]) for item in items if item["guess"] is not None}
    found |= {item["was"]: item["label"] for item in items if item["was"] is not None}
    return [[value, found[value]] for value in sorted(found)]


def _key(run: RunFacts, values: Array | None, items: Sequence[dict[str, Any]]) -> str:
    """Return the key of a review in the browser's storage, by run and labels, so that a longer page continues it."""
    mark = sha256(f"{run.name} {run.samples} {run.state.run.get('seed')} ".encode("utf-8", "surrogatepass"))
    if values is None:
        mark.update(json.dumps([(item["id"], item["was"]) for item in items]).encode("utf-8"))
    else:
        mark.update(np.ascontiguousarray(values).tobytes())
    return mark.hexdigest()[:32]
