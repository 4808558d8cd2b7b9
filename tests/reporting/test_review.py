"""The page to look at suspects, as it is written: whole, closed to the network, and refused where it makes no sense."""

import json
import re

import numpy as np
import pytest

import prunedata
from prunedata.errors import PrunedataError
from prunedata.findings.table import suspect_table
from tests.reporting.reading import read
from tests.reporting.runs import HOSTILE, WRONG, Sheet


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


def test_it_says_what_samples_look_like(made):
    rows = known(prunedata.report(made("guesses")[0], dataset=ROWS, review=True, top=len(WRONG)).html)["items"]
    assert {row["id"] for row in rows} == set(WRONG)
    assert all(row["guess"] == str((int(row["was"]) + 1) % 3) for row in rows)
    named = Rows(ROWS)
    named.classes = ["cat", "dog", "horse"]
    found = known(prunedata.report(made("guesses")[0], dataset=named, review=True, top=3).html)
    assert found["classes"] == [["0", "cat"], ["1", "dog"], ["2", "horse"]]
    assert [row["guess"] for row in found["items"]] == [row["guess"] for row in rows[:3]]
    assert all(row["guess"] is None for row in known(review_of_watching(made).html)["items"])


def review_of_watching(made):
    return prunedata.report(made("watches_only")[0], dataset=ROWS, review=True)


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


def test_the_command(say, stored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored("watches_only")
    (tmp_path / "rows_to_review.py").write_text("rows = [(f'text {at}', at % 2) for at in range(90)]", encoding="utf-8")
    status, out, err = say("report run.zarr --review --dataset rows_to_review.py:rows --top 5")
    assert (status, err) == (0, "")
    assert out.endswith("-> review.html\n")
    assert len(known((tmp_path / "review.html").read_text(encoding="utf-8"))["items"]) == 5
    assert say("report run.zarr --review")[0] == 2
