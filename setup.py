"""What the package index shows, from README.md: its links lead to the project's address, or are plain text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def for_the_index(text: str, address: str, branch: str) -> str:
    """Return README's text with links to files of the project made absolute, or without an address left out."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if not address:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/{branch}/{target})"

    return LINK.sub(absolute, text)


if __name__ == "__main__":
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["prunedata"]
    address, branch = given["address"], given["branch"]
    own = {"Homepage": address, "Changelog": f"{address}/blob/{branch}/CHANGELOG.md"} if address else {}
    setup(
        long_description=for_the_index((ROOT / "README.md").read_text(encoding="utf-8"), address, branch),
        long_description_content_type="text/markdown",
        project_urls=own | given["urls"],
    )
