"""How to cite: what CITATION.cff says, which is not installed with the library."""

from __future__ import annotations

__all__ = ["PAPER", "SOFTWARE", "bibtex", "reference"]

SOFTWARE = {"title": "prunedata", "author": "The prunedata authors"}
PAPER = {
    "author": "Li, Junyu and He, Ligang and Ren, Shenyuan and Mao, Rui",
    "title": "Data Fine-Pruning: A Simple Way to Accelerate Neural Network Training",
    "booktitle": "15th IFIP International Conference on Network and Parallel Computing (NPC)",
    "year": "2018",
    "pages": "114--125",
    "doi": "10.1007/978-3-030-05677-3_10",
}


def reference() -> str:
    """The paper in one line."""
    people = PAPER["author"].split(" and ")
    return (
        f"{', '.join(people[:-1])} and {people[-1]} ({PAPER['year']}). {PAPER['title']}. {PAPER['booktitle']}, "
        f"pages {PAPER['pages'].replace('--', ' to ')}."
    )


def bibtex(version: str) -> str:
    """Two BibTeX entries: the software in this version, and the paper whose method it implements."""
    entries = {
        "@software{prunedata": {**SOFTWARE, "author": f"{{{SOFTWARE['author']}}}", "version": version},
        "@inproceedings{finepruning2018": PAPER,
    }
    return "\n\n".join(
        "\n".join([f"{head},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"])
        for head, fields in entries.items()
    )
