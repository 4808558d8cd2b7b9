"""HTML and SVG as strings: everything that comes from data is escaped here, and shows what it hides."""

from __future__ import annotations

import html
import unicodedata

__all__ = ["Markup", "data", "escape", "join", "shorten", "tag", "visible"]

LONGEST = 200
"""Characters that are shown of a name or a text."""
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the order in which the text around them is read."""


class Markup(str):
    """Text that is HTML already. Whatever is not of this type is escaped."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Return a value as text that stands for itself, in elements and in attributes."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(str(value))))


def data(value: object, longest: int = LONGEST) -> Markup:
    """Return what came from somebody's data: shortened, escaped, and kept from turning round the text beside it."""
    return Markup(f"<bdi>{escape(shorten(str(value), longest))}</bdi>")


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return at most so many characters of a text, on one line."""
    read = text[: 4 * longest]
    line = " ".join(read.split())
    whole = len(line) <= longest and len(read) == len(text)
    return line if whole else f"{line[: longest - 1].rstrip()}…"


def tag(_name: str, *inside: object, **attributes: object) -> Markup:
    """Return an element. An attribute's ``_`` stands for ``-``, at its end for nothing; None leaves it out."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{_name}{said}>{join(*inside)}</{_name}>")


def join(*parts: object) -> Markup:
    """Return parts one after the other; None is nothing."""
    return Markup("".join(escape(part) for part in parts if part is not None))


def visible(text: str) -> str:
    """Return the text with its control characters shown by their codes: none may hide or turn round what follows."""
    return "".join(_named(one) if _is_control(one) else one for one in text)


def _is_control(one: str) -> bool:
    return one in BIDI or (one not in "\n\t" and unicodedata.category(one) in ("Cc", "Cs", "Co", "Cn", "Zl", "Zp"))


def _named(one: str) -> str:
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
