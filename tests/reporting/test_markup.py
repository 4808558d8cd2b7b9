"""What comes from data stands for itself, and can neither hide nor turn round what is beside it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.reporting.drawing.markup import Markup, data, escape, join, shorten, tag
from tests.reporting.reading import read
from tests.reporting.runs import HOSTILE

TEXTS = st.text() | st.text(alphabet="<>&\"'/=;!-x \u202e\u2066\x00\x1b") | st.sampled_from(HOSTILE)


def shows(text):
    """Whether every character of a text is one that can be seen, or that separates."""
    return all(unicodedata.category(one) not in ("Cc", "Cs", "Cn") or one in "\n\t" for one in text)


@given(TEXTS, TEXTS)
def test_no_text_becomes_an_element(text, other):
    page = read(tag("p", text, title=other))
    assert [name for name, _ in page.elements] == ["p"]
    assert set(page.all("p")[0]) == {"title"}
    page = read(tag("p", data(text), data(other)))
    assert [name for name, _ in page.elements] == ["p", "bdi", "bdi"]
    assert shows(page.text)
    assert not set(page.text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    page.text.encode("utf-8")


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_plain_text_is_read_as_it_was_written(text):
    assert read(tag("p", text)).text == f"{text}\n"
    assert read(tag("p", "x", title=text)).all("p") == [{"title": text}]


@given(st.text(), st.integers(2, 50))
def test_what_is_shortened_is_short_and_says_so(text, longest):
    found, line = shorten(text, longest), " ".join(text.split())
    assert len(found) <= longest
    assert found == line or found.endswith("…")
    assert line.startswith(found.removesuffix("…"))


def test_controls_are_shown_by_their_codes():
    assert escape("a\u202eb\x1bc\ud800d\x00") == "a\\u202eb\\x1bc\\ud800d\\x00"


def test_markup_is_not_escaped_twice():
    assert tag("b", tag("i", "<"), class_="x", aria_label=None) == '<b class="x"><i>&lt;</i></b>'
    assert join(None, "&", Markup("&amp;")) == "&amp;&amp;"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_an_attribute(name):
    assert len(read(tag("img", alt=name).removesuffix("</img>")).elements) == 1
