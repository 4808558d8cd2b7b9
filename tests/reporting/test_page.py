"""What a page says: text from data stands for itself, and whatever a record says has a page."""

import copy
import json
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prunedata
from prunedata.checks import percent
from prunedata.errors import PrunedataError
from prunedata.findings.inspection import advise_now
from prunedata.findings.table import suspect_table
from prunedata.reporting.page import render, shorten, visible
from prunedata.store.state import RunState
from tests.common.programs import FEWER
from tests.reporting.reading import HOSTILE, KINDS, WRONG, Saved, Sheet, check, read

# What comes from data stands for itself, and can neither hide nor turn round what is beside it.


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


# Numbers as a reader takes them in at once.


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.125, "12.5"), (1, "100"), (0.999, "99.9"), (0.9999, "100"), (0.0007, "0.07"), (9.58, "958"),
     (-0.054, "-5.4"), (12.5, "1,250")],
)  # fmt: skip
def test_percent(share, text):
    assert percent(share) == f"{text}\N{NO-BREAK SPACE}%"


# Whatever a record or an advice says that passes for one: a page, or an error of the library.


pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")

FORGED = ("watches_only", "finished", "auto", "by_weight", "held_out_and_left_out_for_good", "random_without_losses")
NUMBERS = st.sampled_from([0, -1, 0.0, 1e-320, 2.0**64, -(2.0**64), 1e100, 1e160, 1e308, -1e308, 10**30]) | st.floats()
RECORD = st.sampled_from(
    ["seconds", "overhead", "mean_loss", "validation", "agreement", "kept", "observed", "held_out"]
)
CHANGES = st.lists(st.tuples(st.integers(0, 23), RECORD, NUMBERS), max_size=4)
ADVICE = st.dictionaries(
    st.sampled_from(
        ["verdict", "prune", "schedule", "evidence", "lost", "onset", "shorter", "saving_percent", "doubted"]
    ),
    NUMBERS | st.sampled_from(["prune", None, [], {}, ["why"], "don't prune"]),
)


@pytest.fixture(scope="module")
def states():
    return {name: KINDS[name](None).state_dict() for name in FORGED}


@FEWER
@given(name=st.sampled_from(FORGED), changes=CHANGES, advice=ADVICE, without=st.booleans())
def test_a_run_that_is_read_has_a_page(states, name, changes, advice, without):
    packed = copy.deepcopy(states[name])
    for epoch, field, value in changes:
        packed["state"]["history"][min(epoch, len(packed["state"]["history"]) - 1)][field] = value
    if packed["state"].get("advice") is not None:
        packed["state"]["advice"] |= advice
        for field in advice if without else ():
            del packed["state"]["advice"][field]
    try:
        state = RunState.from_checkpoint(packed)
    except PrunedataError:
        return  # a store or a checkpoint that says so is refused
    try:
        check(prunedata.report(Saved(packed), compare=Saved(packed)).html)
        advise_now(state)
    except PrunedataError:
        pass


def test_a_live_run_with_losses_whose_sum_is_infinite_has_a_page():
    run = KINDS["auto"](None)
    run.history[3]["mean_loss"] = None
    assert "Run" in read(prunedata.report(run).html).text
    assert run.advice.verdict == "prune"


class Rows(list):
    feature_names = ("age", "height")
    targets = np.arange(90) % 3


ROWS = Rows((np.array([at, at / 2]), at % 3) for at in range(90))


def known(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html)[1])


@pytest.fixture
def review(made):
    """A review of a run that watched, as a report."""

    def make(dataset=ROWS, **options):
        return prunedata.report(made("watches_only")[0], dataset=dataset, review=True, **options)

    return make


@pytest.mark.parametrize("texts", [False, True])
def test_hostile_names_end_no_element(review, texts):
    html = review(Sheet(texts=texts), top=30).html
    page = read(html)
    assert [name for name, _ in page.elements].count("script") == html.count("</script>") == 2
    assert not [one for _, attributes in page.elements for one in attributes if one.startswith("on")]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\ud800]", html)
    found = known(html)
    assert [value for value, _ in found["classes"]] == [str(number) for number in range(len(HOSTILE))]
    assert len(found["items"]) == 30
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert re.match("default-src 'none'; style-src 'sha256-[^ ]+'; script-src 'sha256-[^ ]+'; img-src data:;", policy)
    assert "unsafe" not in policy


def test_it_says_what_samples_look_like(made, review):
    rows = known(prunedata.report(made("guesses")[0], dataset=ROWS, review=True, top=len(WRONG)).html)["items"]
    assert {row["id"] for row in rows} == set(WRONG)
    assert all(row["guess"] == str((int(row["was"]) + 1) % 3) for row in rows)
    named = Rows(ROWS)
    named.classes = ["cat", "dog", "horse"]
    found = known(prunedata.report(made("guesses")[0], dataset=named, review=True, top=3).html)
    assert found["classes"] == [["0", "cat"], ["1", "dog"], ["2", "horse"]]
    assert [row["guess"] for row in found["items"]] == [row["guess"] for row in rows[:3]]
    assert all(row["guess"] is None for row in known(review().html)["items"])


def test_rows_have_their_names(made, review):
    found = known(review(top=3).html)
    second = int(suspect_table(made("watches_only")[1], top=3)["id"][1])
    assert found["items"][1]["row"] == [["age", str(second)], ["height", str(second / 2)]]
    assert found["items"][1]["was"] == str(second % 3)
    assert found["classes"] == [["0", "0"], ["1", "1"], ["2", "2"]]


def test_labels_that_are_given_are_those_that_will_be_corrected(review):
    names = np.array(["cat", "dog", "hen"])[(np.arange(90) + 1) % 3]
    found, longer, other = (known(review(**one).html) for one in ({"labels": names}, {"labels": names, "top": 40}, {}))
    assert found["items"][0]["was"] == found["items"][0]["label"] == "dog"
    assert [value for value, _ in found["classes"]] == ["cat", "dog", "hen"]
    assert found["key"] == longer["key"] != other["key"]


def test_a_data_set_that_lists_no_labels(review):
    found = known(review([(f"text {at}", "yes" if at % 2 else "no") for at in range(90)], top=6).html)
    assert found["classes"] == [["no", "no"], ["yes", "yes"]]
    assert found["items"][0]["text"].startswith("text ")


def test_in_a_notebook_its_script_may_run_and_nothing_else(review):
    assert read(review(top=2)._repr_html_()).all("iframe")[0]["sandbox"] == "allow-scripts allow-downloads"


def test_what_is_refused(made, review):
    for refused in (
        lambda: review(None),
        lambda: review(compare=made("finished")[0]),
        lambda: prunedata.report(made("never_begun")[0], review=True, dataset=ROWS),
    ):
        with pytest.raises(PrunedataError):
            refused()
