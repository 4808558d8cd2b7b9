"""prunedata report: the page it writes, of real stores, and what it refuses."""

import sys
import webbrowser
import zlib

import numpy as np
import pytest

from prunedata.findings.table import suspect_table
from prunedata.reporting import report
from tests.reporting.reading import KINDS, SAMPLES, read

DATA = """
import numpy as np

class Texts(list):
    classes = ("<b>good", "bad")
    targets = np.arange({samples}) % 2

def train_set():
    return Texts((f"text {{i}} <script>", i % 2) for i in range({samples}))

ready = train_set()

def broken():
    raise RuntimeError("no such disk")

number = 7
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    KINDS["watches_only"](tmp_path / "run.zarr")
    yield "run.zarr"
    for name in [one for one in sys.modules if one.startswith("texts_of_")]:
        del sys.modules[name]


@pytest.fixture
def module(store, tmp_path, request):
    """A module of the user's in the current folder; each test has its own name for it."""
    name = f"texts_of_{zlib.crc32(request.node.name.encode())}"
    (tmp_path / f"{name}.py").write_text(DATA.format(samples=SAMPLES), encoding="utf-8")
    return name


def test_the_page_is_written(prints, store, tmp_path):
    out = prints(f"report {store}")
    size = (tmp_path / "report.html").stat().st_size
    assert out == f"{size / 1000:,.0f} kB -> report.html\n"
    assert "Run run.zarr" in read((tmp_path / "report.html").read_text(encoding="utf-8")).text


@pytest.mark.parametrize("name", ["train_set", "ready"])
def test_with_a_data_set(prints, store, module, name, tmp_path):
    prints(f"report {store} -o page.html --dataset {module}:{name} --top 3")
    page = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"text {suspect_table(store, top=1)['id'][0]} <script>" in page.text
    assert "label <b>good" in page.text
    assert "Classes in which suspects gather" in page.text


def test_with_labels_from_a_file(prints, store, tmp_path):
    np.save("labels.npy", np.arange(SAMPLES) % 3)
    prints(f"report {store} --labels labels.npy")
    assert "Classes in which suspects gather" in read((tmp_path / "report.html").read_text(encoding="utf-8")).text


def test_beside_another_run(prints, store, tmp_path):
    KINDS["unfinished"](tmp_path / "other.zarr")
    prints(f"report {store} --compare other.zarr")
    assert "Runs run.zarr and other.zarr" in read((tmp_path / "report.html").read_text(encoding="utf-8")).text


def test_as_json(prints, prints_json, store, tmp_path):
    found = prints_json(f"report {store} --top 3")
    assert (found["output"], found["bytes"]) == ("report.html", (tmp_path / "report.html").stat().st_size)
    assert [one["id"] for one in found["runs"][0]["suspects"]] == suspect_table(store, top=3)["id"].tolist()
    assert found["runs"][0]["outcome"] in prints(f"advise {store}")


def test_without_its_packages(refuses, store, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    assert "pip install jinja2 matplotlib" in refuses(f"report {store}")


def test_it_is_opened(prints, store, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(webbrowser, "open", asked.append)
    prints(f"report {store} --open")
    assert asked == [(tmp_path / "report.html").as_uri()]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--dataset train_set", "Expected a name such as module:train_set or script.py:train_set. Got train_set."),
        ("--dataset texts_of_nobody:train_set", "Got ModuleNotFoundError: No module named 'texts_of_nobody'"),
        ("--label-column x", "Expected --labels with --label-column"),
        ("--top 0", "Expected top to be at least 1. Got 0."),
        ("--compare nothing.zarr", "nothing.zarr. Got nothing."),
        (
            "--review",
            "of one run to be reviewed (--dataset, or dataset=), or previews that a run of prunedata",
        ),
        ("-o no/such/folder/report.html", "No such file or directory"),
    ],
)
def test_what_is_refused(refuses, store, options, told):
    assert told in refuses(f"report {store} {options}")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("broken", "Got RuntimeError: no such disk."),
        ("nothing", "has no attribute 'nothing'"),
        ("number", "Expected a data set with dataset[id] and len(dataset), to show samples. Got int."),
    ],
)
def test_a_data_set_that_is_none(refuses, store, module, name, told):
    assert told in refuses(f"report {store} --dataset {module}:{name}")


def test_progress_on_a_terminal_only(say, store, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    _, out, err = say(f"report {store}")
    assert "suspects" in err
    assert err.endswith("\r\x1b[K")
    assert "\x1b" not in out
