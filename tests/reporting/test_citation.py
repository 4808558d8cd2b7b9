"""The page cites what CITATION.cff says."""

from pathlib import Path

import yaml

from prunedata.reporting.citation import PAPER, SOFTWARE, bibtex, reference

CITATION = yaml.safe_load((Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8"))


def test_it_is_that_of_the_repository():
    (paper,) = CITATION["references"]
    people = [f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]]
    assert {
        "author": " and ".join(people),
        "title": paper["title"],
        "booktitle": paper["collection-title"],
        "year": str(paper["year"]),
        "pages": f"{paper['start']}--{paper['end']}",
        "doi": paper["doi"],
    } == PAPER
    assert {"title": CITATION["title"], "author": CITATION["authors"][0]["name"]} == SOFTWARE


def test_bibtex_has_both():
    text = bibtex("1.2.3")
    assert text.count("{") == text.count("}")
    assert "version = {1.2.3}" in text
    assert all(value in text for value in PAPER.values())
    assert PAPER["title"] in reference()
