"""The data of the page on which suspects are judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.keys import key_text
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.kept import KeptPreviews
from prunedata.reporting.page import shorten, visible
from prunedata.reporting.previews import Preview, Previews
from prunedata.types import Array

__all__ = ["suspects_to_judge"]

LONGEST_TEXT, LONGEST_NAME = 4_000, 80
"""Characters that are shown of a text, and of a name."""


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
    for at, row in enumerate(rows):
        progress(at / len(rows), "suspects")
        sample, guess = row["id"], row.get("guess", "")
        item = _item(sample, shown.of(sample), None if values is None else values[sample], names)
        guess = None if guess in (-1, "") or item["was"] in (None, str(guess)) else str(guess)
        key = {} if keys is None else {"key": key_text(int(keys[sample]))}
        items.append(item | {"guess": guess} | key)
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
