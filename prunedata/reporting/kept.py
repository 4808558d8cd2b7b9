"""Previews that are kept with a run, so that its suspects can be looked at without the data set."""

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import DamagedStore
from prunedata.findings.searched import Stateful, searched_visits, state_of
from prunedata.findings.suspects import most_suspect, scores_of
from prunedata.findings.table import table_of
from prunedata.reporting.previews import MOST_CHARACTERS, MOST_VALUES, Preview, Previews
from prunedata.store.state import RunState
from prunedata.types import Arrays

NAME = "previews.json"  # the file in the folder of the run's store
MOST, MOST_BYTES, LONGEST = 500, 16 << 20, 20.0  # samples and bytes that are kept, and seconds in which they are read
MOST_CLASSES, LONGEST_NAME = 1 << 15, 200  # names of classes that are kept, and characters of a name
IMAGE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
TEXTS = ("text", "label", "key", "value")


def keep_previews(
    place: Path, run: Stateful, dataset: Any, rows: npt.NDArray[np.int64] | None = None, most: int = MOST
) -> None:
    """Write what the most suspect samples of a run look like into the folder of its store.

    ``dataset`` is one as :class:`prunedata.reporting.previews.Previews` takes it; without one the rows alone are kept.
    ``rows``, of shape (samples,), is the row of each sample in the data set from which the user selected.
    """
    state = state_of(run)
    shown = None if dataset is None else Previews(dataset, state.samples, large=True)
    kept, size, until = [], 0, time.monotonic() + LONGEST
    for sample in most_suspect(scores_of(state), searched_visits(state), min(most, MOST)).tolist():
        seen = Preview() if shown is None else shown.of(sample)
        one = {"id": sample, "row": sample if rows is None else int(rows[sample])}
        one |= {name: value for name, value in _short(seen).items() if value}
        size += len(json.dumps(one))
        if size > MOST_BYTES or time.monotonic() > until:
            break
        kept.append(one)
    partial = place / f"{NAME}.partial"
    classes = () if shown is None or len(shown.classes) > MOST_CLASSES else shown.classes
    named = [name[:LONGEST_NAME] for name in classes]
    partial.write_text(json.dumps({"format": 1, "classes": named, "samples": kept}), encoding="utf-8")
    os.replace(partial, place / NAME)


def _short(seen: Preview) -> dict[str, Any]:
    plain = asdict(seen)
    plain |= {name: None if plain[name] is None else plain[name][:MOST_CHARACTERS] for name in TEXTS}
    return {("cells" if name == "row" else name): value for name, value in plain.items()}


class KeptPreviews:
    """Previews that were kept with a run; they stand in the place of the data set's own :class:`Previews`.

    Only a store in a local folder has some. Raises :class:`DamagedStore` if their file holds something else.
    ``classes`` has the names of the classes that are numbers from 0; () if they have none. ``rows`` has the row of each
    sample, by its id, in the data set from which the user selected; {} if these are the ids.
    """

    def __init__(self, place: Any) -> None:
        self._seen: dict[int, Preview] = {}
        self.rows: dict[int, int] = {}
        self.classes: tuple[str, ...] = ()
        from prunedata.store.location import local_folder  # noqa: PLC0415 (zarr takes longer to load than all else)

        folder = local_folder(place) if isinstance(place, str | os.PathLike) else None
        if folder is None or not (path := folder / NAME).is_file():
            return
        try:
            if path.stat().st_size > 2 * MOST_BYTES:
                raise ValueError("a larger file")
            read = json.loads(path.read_text(encoding="utf-8"))
            found = read["samples"][:MOST]
            self.classes = tuple(_text(name, LONGEST_NAME) for name in read.get("classes", ()))
            self._seen = {_number(one["id"]): _preview(one) for one in found}
            rows = {one["id"]: _number(one["row"]) for one in found}
            self.rows = rows if any(row != sample for sample, row in rows.items()) else {}
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedStore(
                f"Expected previews of samples in {path}, as prunedata watch keeps them. Got others ({error}): delete "
                "that file, or give --dataset."
            ) from error

    def __bool__(self) -> bool:
        return bool(self._seen)

    def __contains__(self, sample: int) -> bool:
        return sample in self._seen

    def of(self, sample: int) -> Preview:
        """Return the preview of the sample with this id; an empty one if none was kept."""
        seen, row = self._seen.get(sample, Preview(text="no preview was kept")), self.rows.get(sample, sample)
        return seen if seen.key is not None or row == sample else replace(seen, key=f"row {row}")

    def labeled(self, run: RunState, top: int | float) -> Arrays:
        """Return the table of a run's suspects with the labels that were kept, and guesses by the names of classes.

        And ``row``, the rows from which the user selected them, if these are not their ids; -1 if it was not kept.
        """
        table = table_of(run, top, names=self.classes)
        if self.rows:
            table["row"] = np.array([self.rows.get(sample, -1) for sample in table["id"].tolist()])
        if "label" in table or not self._seen:
            return table
        seen = [self.of(sample) for sample in table["id"].tolist()]
        guesses = table.get("guess")
        if guesses is not None:
            none = "" if guesses.dtype.kind == "U" else -1
            pairs = zip(guesses.tolist(), seen, strict=True)
            table["guess"] = np.array([none if str(guess) in (one.label, one.value) else guess for guess, one in pairs])
        return table | {"label": np.array([one.label or "" for one in seen], dtype=np.str_)}

    def values(self) -> tuple[None, tuple[str, ...]]:
        """No labels, as those of all samples are not kept, and the names of the classes."""
        return None, self.classes


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} in the place of a number")
    return value


def _preview(one: dict[str, Any]) -> Preview:
    texts = {name: _text(one[name]) for name in TEXTS if name in one}
    image = one.get("image")
    if image is not None and not IMAGE.fullmatch(_text(image, MOST_BYTES)):
        raise ValueError("an image that is none")
    cells: Sequence[Any] = one.get("cells", ())
    row = tuple((_text(name), _text(value)) for name, value in cells[:MOST_VALUES])
    return Preview(image=image, row=row, **texts)


def _text(value: object, most: int = MOST_CHARACTERS) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError("what is no text")
    return value
