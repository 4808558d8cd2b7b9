"""What comes from data stands for itself, and can neither hide nor turn round what is beside it."""

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from prunedata.reporting.page import render, shorten, visible
from tests.common.marks import FEWER
from tests.reporting.reading import read
from tests.reporting.runs import HOSTILE

TEXTS = st.text() | st.text(alphabet="<>&\"'/=;!-x{}% \u202e\u2066\x00\x1b") | st.sampled_from(HOSTILE)
PLAIN = read(render(["name"], views=[], overlap=None))


@FEWER
@given(TEXTS, TEXTS)
def test_no_text_becomes_an_element(name, overlap):
    html = render([name, name], views=[], overlap=f"x{overlap}")
    page = read(html)
    assert [one for one, _ in page.elements if one != "bdi"] == [one for one, _ in PLAIN.elements if one != "bdi"]
    assert all(unicodedata.category(one) not in ("Cc", "Cs", "Cn") or one == "\n" for one in html)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]", html)
    html.encode("utf-8")


@FEWER
@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"]), max_size=60))
def test_plain_text_is_read_as_it_was_written(name):
    page = read(render([name], views=[], overlap=None))
    assert f"Run {name}" in page.text


@given(st.text(), st.integers(2, 50))
def test_what_is_shortened_is_short_and_says_so(text, longest):
    found, line = shorten(text, longest), " ".join(text.split())
    assert len(found) <= longest
    assert found == line or found.endswith("…")
    assert line.startswith(found.removesuffix("…"))


def test_controls_are_shown_by_their_codes():
    assert visible("a\u202eb\x1bc\ud800d\x00") == "a\\u202eb\\x1bc\\ud800d\\x00"
