"""Names of shards written short: ``{000..099}``, ``{a,b}`` and both in one another, as a shell expands them."""

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase

from prunedata.errors import PrunedataError

__all__ = ["expand"]

_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?")
_ESCAPED = re.compile(r"\\(.)")


def expand(pattern: str) -> list[str]:
    r"""Expand all braces of ``pattern``; a backslash takes the meaning from the character after it.

    >>> expand("{train,val}-{08..10}.tar")[2:5]
    ['train-10.tar', 'val-08.tar', 'val-09.tar']
    """
    return [_ESCAPED.sub(r"\1", name) for name in _expand(pattern)]


def _expand(text: str) -> list[str]:
    begin = end = -1
    for place, character, depth in _walk(text):
        if character == "{" and depth == 1 and begin < 0:
            begin = place
        elif character == "}" and depth == 0 and end < 0:
            end = place
    if begin < 0:
        return [text]
    rest = _expand(text[end + 1 :])
    return [text[:begin] + chosen + after for chosen in _choices(text[begin + 1 : end]) for after in rest]


def _choices(inside: str) -> list[str]:
    """What stands for one pair of braces."""
    if found := _NUMBERS.fullmatch(inside):
        return _numbers(found[1], found[2], int(found[3] or 1) or 1)
    if found := _LETTERS.fullmatch(inside):
        return _letters(found[1], found[2], int(found[3] or 1) or 1)
    commas = [place for place, character, depth in _walk(inside) if character == "," and depth == 0]
    if not commas:
        return [f"{{{name}}}" for name in _expand(inside)]
    cuts = zip([-1, *commas], [*commas, len(inside)], strict=True)
    return [name for low, high in cuts for name in _expand(inside[low + 1 : high])]


def _numbers(low: str, high: str, step: int) -> list[str]:
    padded = any(end.startswith(("0", "-0")) and end not in ("0", "-0") for end in (low, high))
    width, first, last = max(len(low), len(high)) if padded else 0, int(low), int(high)
    places = range(first, last + 1, step) if first < last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" if width else str(number) for number in places]


def _letters(low: str, high: str, step: int) -> list[str]:
    letters = ascii_uppercase + ascii_lowercase
    first, last = letters.index(low), letters.index(high)
    places = range(first, last + 1, step) if first < last else range(first, last - 1, -step)
    return [letters[place] for place in places]


def _walk(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield place, character and how many braces are open after it, without what is escaped."""
    depth, place = 0, 0
    while place < len(text):
        character = text[place]
        if character == "\\":
            place += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth < 0:
            break
        yield place, character, depth
        place += 1
    if depth:
        raise PrunedataError(f"Expected a brace closed for every brace opened. Got {text!r}.")
