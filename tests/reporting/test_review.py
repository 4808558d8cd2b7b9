"""The page to look at suspects, as it is written: whole, closed to the network, and refused where it makes no sense."""

import json
import re

import numpy as np
import pytest

import prunedata
from prunedata.errors import PrunedataError
from prunedata.findings.table import suspect_table
from tests.reporting.reading import read
from tests.reporting.runs import HOSTILE, KINDS, Sheet, never_begun, watches_only


def known(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html)[1])


class Rows(list):
    feature_names = ("age", "height")
    targets = np.arange(90) % 3


ROWS = Rows((np.array([at, at / 2]), at % 3) for at in range(90))


@pytest.mark.parametrize("texts", [False, True])
def test_hostile_names_end_no_element(texts, tmp_path):
    html = prunedata.report(watches_only(tmp_path / "run.zarr"), dataset=Sheet(texts=texts), review=True, top=30).html
    page = read(html)
    assert [name for name, _ in page.elements].count("script") == 2
    assert html.count("</script>") == 2
    assert not [one for _, attributes in page.elements for one in attributes if one.startswith("on")]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\ud800]", html)
    found = known(html)
    assert [value for value, _ in found["classes"]] == [str(number) for number in range(len(HOSTILE))]
    assert len(found["items"]) == 30
    policy = page.all("meta")[1]["content"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_rows_have_their_names(tmp_path):
    found = known(prunedata.report(watches_only(tmp_path / "run.zarr"), dataset=ROWS, review=True, top=3).html)
    second = int(suspect_table(tmp_path / "run.zarr", top=3)["id"][1])
    assert found["items"][1]["row"] == [["age", str(second)], ["height", str(second / 2)]]
    assert found["items"][1]["was"] == str(second % 3)
    assert found["classes"] == [["0", "0"], ["1", "1"], ["2", "2"]]


def test_labels_that_are_given_are_those_that_will_be_corrected(tmp_path):
    names = np.array(["cat", "dog", "hen"])[(np.arange(90) + 1) % 3]
    run = watches_only(tmp_path / "run.zarr")
    found = known(prunedata.report(run, dataset=ROWS, review=True, labels=names).html)
    assert found["items"][0]["was"] == found["items"][0]["label"] == "dog"
    assert [value for value, _ in found["classes"]] == ["cat", "dog", "hen"]
    other = known(prunedata.report(run, dataset=ROWS, review=True).html)
    longer = known(prunedata.report(run, dataset=ROWS, review=True, labels=names, top=40).html)
    assert found["key"] == longer["key"] != other["key"]


def test_a_data_set_that_lists_no_labels(tmp_path):
    pairs = [(f"text {at}", "yes" if at % 2 else "no") for at in range(90)]
    found = known(prunedata.report(watches_only(tmp_path / "run.zarr"), dataset=pairs, review=True, top=6).html)
    assert found["classes"] == [["no", "no"], ["yes", "yes"]]
    assert found["items"][0]["text"].startswith("text ")


def test_in_a_notebook_its_script_may_run_and_nothing_else(tmp_path):
    found = prunedata.report(watches_only(tmp_path / "run.zarr"), dataset=Sheet(), review=True, top=2)
    assert read(found._repr_html_()).all("iframe")[0]["sandbox"] == "allow-scripts allow-downloads"


def test_what_is_refused(tmp_path):
    run = watches_only(tmp_path / "run.zarr")
    with pytest.raises(PrunedataError, match="Expected one run and its data set to be reviewed"):
        prunedata.report(run, review=True)
    with pytest.raises(PrunedataError, match="Got two runs"):
        prunedata.report(run, review=True, dataset=ROWS, compare=run)
    with pytest.raises(PrunedataError, match="nothing is suspect in it yet"):
        prunedata.report(never_begun(tmp_path / "new.zarr"), review=True, dataset=ROWS)


def test_the_command(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    KINDS["watches_only"]("run.zarr")
    (tmp_path / "rows_to_review.py").write_text("rows = [(f'text {at}', at % 2) for at in range(90)]", encoding="utf-8")
    status, out, err = say("report run.zarr --review --dataset rows_to_review.py:rows --top 5")
    assert (status, err) == (0, "")
    assert out.endswith("-> review.html\n")
    assert len(known((tmp_path / "review.html").read_text(encoding="utf-8"))["items"]) == 5
    assert "Expected --dataset beside --review" in say("report run.zarr --review")[2]
