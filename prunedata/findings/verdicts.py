"""Verdicts on suspects: read them from a file, apply them to labels, leave the wrong samples out."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import lines_of, shown
from prunedata.errors import PrunedataError
from prunedata.keys import key_from, places_of
from prunedata.types import Ids, Keys

COLUMNS = ("sample", "verdict", "was", "label")
KEY = "key"  # an extra column for runs with keys: then a verdict belongs to the row, wherever it lies
ROW = "row"
"""An extra column for watched runs whose script selected rows: the row in the data set that it selected from."""
VERDICTS = ("wrong", "right")
LONGEST_ID = 18  # digits that an int64 has room for


@dataclass(frozen=True)
class Verdict:
    """A person's verdict, ``"wrong"`` or ``"right"``, on the label of the sample with an id.

    ``was``: the label that was judged; ``label``: the correct class; ``row``: the row in the data set from which the
    script selected its samples; ``key``: the hash of the row's key, 16 hexadecimal digits. Each is empty if it is
    unknown.
    """

    sample: int
    verdict: str
    was: str = ""
    label: str = ""
    row: str = ""
    key: str = ""

    @property
    def place(self) -> int:
        """Where the sample's label is among those of the whole data set."""
        return int(self.row) if self.row else self.sample


def read_verdicts(
    path: str | PathLike[str], samples: int | None = None, keys: Keys | None = None
) -> tuple[Verdict, ...]:
    """Return the verdicts in a file that the page of ``prunedata report --review`` saved.

    It is a CSV file with the columns ``sample`` and ``verdict``, and perhaps ``was``, ``label``, ``row`` and ``key``.
    With ``keys``, the hashes of the samples' keys, a verdict with a key applies to the sample with that key, and is
    ignored if there is none. Raises :class:`PrunedataError` if the file holds something else, judges a sample twice, or
    one that is not below ``samples``, their number if it is known.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(lines_of(file, path))
            names = rows.fieldnames or ()
            if not {"sample", "verdict"} <= set(names):
                raise PrunedataError(
                    f"Expected a first line with sample and verdict in {path}, as prunedata report --review saves it. "
                    f"Got {shown(', '.join(names)) if names else 'nothing'}."
                )
            found = tuple(_verdict(row, path, rows.line_num, samples, keyed=keys is not None) for row in rows)
    except FileNotFoundError:
        raise PrunedataError(f"Expected a file of verdicts at {path}. Got none there.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise PrunedataError(f"Expected verdicts in {path}, as text. Got {shown(error)}.") from error
    if keys is not None:
        found = tuple(_of_rows(found, keys))
    twice = next((sample for sample, number in Counter(one.sample for one in found).items() if number > 1), None)
    if twice is not None:
        raise PrunedataError(f"Expected one verdict for each sample in {path}. Got two for sample {twice}.")
    return found


def _of_rows(found: tuple[Verdict, ...], keys: Keys) -> Iterator[Verdict]:
    """Yield the verdicts on rows that are in the data, each with the present id of its row."""
    named = np.array([int(one.key, 16) for one in found if one.key], dtype=np.uint64)
    places = iter(places_of(named, keys).tolist())
    for one in found:
        at = next(places) if one.key else one.sample
        if at >= 0:
            yield replace(one, sample=at, row="" if one.key else one.row)


def _verdict(row: dict[Any, Any], path: object, line: int, samples: int | None, *, keyed: bool) -> Verdict:
    where = f"in line {line} of {path}"
    name, verdict, place, key = (str(row.get(column) or "").strip() for column in ("sample", "verdict", ROW, KEY))
    if key and key_from(key) is None:
        raise PrunedataError(f"Expected a key of 16 hexadecimal digits {where}. Got {shown(key)}.")
    if keyed and key:  # the place of the row when it was judged does not matter
        samples, name = None, name or "0"
    if key and not name:
        raise PrunedataError(
            f"Expected a run with keys, as verdicts in {path} name rows by key alone. Got one without: pass keys=..., "
            "those of the runs that the verdicts are on."
        )
    if not _is_number(name):
        raise PrunedataError(f"Expected the id of a sample {where}. Got {shown(name)}.")
    if place and not _is_number(place):
        raise PrunedataError(f"Expected the number of a row {where}. Got {shown(place)}.")
    if samples is not None and int(name) >= samples:
        raise PrunedataError(f"Expected ids from 0 to {samples - 1} {where}. Got {name}: is it of other data?")
    if verdict not in VERDICTS:
        raise PrunedataError(f"Expected wrong or right {where}. Got {shown(verdict)}.")
    label = row.get("label") or ""
    if label and verdict == "right":
        raise PrunedataError(f"Expected no other label for one that is right {where}. Got {shown(label)}.")
    return Verdict(int(name), verdict, row.get("was") or "", label, place, key)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_ID


def write_verdicts(verdicts: Iterable[Verdict], path: str | PathLike[str], line_end: str = "\r\n") -> None:
    """Write verdicts into a file that :func:`read_verdicts` reads."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer, given = csv.writer(file, lineterminator=line_end), tuple(verdicts)
        columns = (*COLUMNS, *(name for name in (ROW, KEY) if any(getattr(one, name) for one in given)))
        writer.writerow(columns)
        writer.writerows([getattr(one, name) for name in columns] for one in given)


def judged_wrong(path: str | PathLike[str], samples: int, keys: Keys | None = None) -> Ids:
    """Return the ids of the wrong samples in a file, shape (n,), ascending; by key, if file and run have keys.

    The file has verdicts, or one id a line, as ``prunedata suspects --out ids.txt`` writes them.
    """
    if (ids := _ids(path)) is not None:
        beyond = [one for one in ids if one >= samples]
        if beyond:
            raise PrunedataError(
                f"Expected ids from 0 to {samples - 1} in {path}. Got {beyond[0]}: is it of other data?"
            )
        return np.unique(np.array(ids, dtype=np.int64))
    wrong = [one.sample for one in read_verdicts(path, samples, keys) if one.verdict == "wrong"]
    return np.array(sorted(wrong), dtype=np.int64)


def named_in(path: str | PathLike[str]) -> tuple[Ids, Keys]:
    """Return ids and keys of the verdicts in a file that have keys, each of shape (n,)."""
    found = [one for one in (() if _ids(path) is not None else read_verdicts(path)) if one.key]
    ids = np.array([one.sample for one in found], dtype=np.int64)
    return ids, np.array([int(one.key, 16) for one in found], dtype=np.uint64)


def _ids(path: str | PathLike[str]) -> list[int] | None:
    """Return the ids in a file with one id a line; None for any other file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            words = [line.strip() for line in lines_of(file, path)]
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    words = [word for word in words if word]
    return [int(word) for word in words] if words and all(map(_is_number, words)) else None


def apply_verdicts(
    verdicts: Iterable[Verdict], labels: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], tuple[Verdict, ...]]:
    """Return corrected labels, and the verdicts that call a label wrong without naming the right one.

    ``labels``, of shape (samples,) and int or str, are those that were judged; where verdicts have a ``row``, those of
    the data set from which the script selected. They are not changed. The corrected ones have the same dtype; text
    becomes wide enough for the longest label. Raises :class:`PrunedataError` if there is no such label or it is another
    one than was judged, if two verdicts correct a label differently, or if a new label does not fit the dtype.
    """
    given = tuple(verdicts)
    named: dict[int, Any] = {}
    text, selected = labels.dtype.kind == "U", any(one.row for one in given)
    spelt = {valid_text(str(name)): str(name) for name in np.unique(labels)} if text else {}
    for one in given:
        if one.place >= labels.size:
            raise PrunedataError(
                f"Expected ids and rows from 0 to {labels.size - 1}, as there are {labels.size} labels. Got "
                f"{one.place}: is it of other data?"
            )
        now = valid_text(str(labels[one.place]))
        if one.was and one.was != now:
            where = f"row {one.row}" if one.row else f"sample {one.sample}"
            raise PrunedataError(
                f"Expected label {shown(one.was)} for {where}, which was judged. Got {shown(now)}: the "
                "verdicts are about other labels, or were applied to these before."
            )
        if one.label:
            if selected and not one.row:
                raise PrunedataError(
                    f"Expected the row of sample {one.sample}, as other verdicts have one. Got none: its label may be "
                    "anywhere, as the run was not trained on all rows; leave it out of the file."
                )
            new = spelt.get(one.label, one.label) if text else _number(one, labels.dtype)
            if named.setdefault(one.place, new) != new:
                both = f"{shown(str(named[one.place]))} and {shown(str(new))}"
                raise PrunedataError(
                    f"Expected one label for row {one.place}. Got {both}, for two samples that the script made of it: "
                    "remove one of the two verdicts."
                )
    longest = max(map(len, named.values()), default=0) if text else 0
    corrected = labels.astype(np.promote_types(labels.dtype, f"<U{longest}") if text else labels.dtype)
    for place, label in named.items():
        corrected[place] = label
    return corrected, tuple(one for one in given if one.verdict == "wrong" and not one.label)


def valid_text(text: str) -> str:
    """Return a label as a browser saves it, in valid UTF-8: half a surrogate pair is replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(one: Verdict, dtype: np.dtype[Any]) -> int:
    limits = np.iinfo(dtype)
    try:
        number = int(one.label)
        if limits.min <= number <= limits.max:
            return number
    except ValueError:
        pass
    raise PrunedataError(
        f"Expected a label of {dtype} for sample {one.sample}, like all others. Got {shown(one.label)}."
    )
