"""``prunedata top --live``: the report of a run that trains, on this machine, for who knows the address."""

import http.client
import subprocess
import sys
import threading
from urllib.request import urlopen

import numpy as np
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from prunedata import Pruner
from prunedata.cli.live import LivePage
from tests.cli.test_cli_terminal import train
from tests.common.programs import ROOT
from tests.watch.watched import environment


@pytest.fixture
def live():
    state = {"page": "<p>one</p>", "last": False}

    def page():
        if state["page"] is None:
            raise OSError("gone <b>")
        return state["page"], state["last"]

    with LivePage(page, 0.5) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server, state
        server.shutdown()


def ask(server, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=host is not None)
    for name in [host] if isinstance(host, str) else host or []:
        connection.putheader("Host", name)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_page_is_made_anew_and_loaded_again_until_the_run_is_finished(live):
    server, state = live
    assert server.address.startswith("http://127.0.0.1:")
    answer, text = ask(server, server.path)
    assert (answer.status, text, answer.headers["Refresh"]) == (200, "<p>one</p>", "0.5")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    state |= {"page": None}
    answer, text = ask(server, server.path)
    assert (answer.status, answer.headers["Refresh"]) == (503, "0.5")
    assert answer.headers.get_content_type() == "text/plain"
    state |= {"page": "<p>two</p>", "last": True}
    answer, text = ask(server, server.path)
    assert (answer.status, text, answer.headers["Refresh"]) == (200, "<p>two</p>", None)


@pytest.mark.parametrize(("path", "method", "host", "status"), [
    ("/", "GET", None, 403), ("/wrong", "GET", None, 403), ("", "GET", None, 403), ("{path}x", "GET", None, 403),
    ("{path}?a=1", "GET", None, 403), ("{path}", "GET", "example.org", 403), ("{path}", "GET", "localhost:{port}", 403),
    ("{path}", "GET", [], 403), ("{path}", "GET", ["127.0.0.1:{port}", "example.org"], 403),
    ("{path}", "POST", None, 501), ("{path}", "HEAD", None, 501), ("{path}", "OPTIONS", None, 501),
])  # fmt: skip
def test_all_else_is_refused(live, path, method, host, status):
    server, _ = live
    filled = {"path": server.path, "port": server.server_port}
    host = host.format(**filled) if isinstance(host, str) else host and [name.format(**filled) for name in host]
    answer, text = ask(server, path.format(**filled) or "*", method, host)
    assert answer.status == status
    assert server.path not in text
    assert "one" not in text


def test_two_servers_have_other_addresses(live):
    with LivePage(lambda: ("", True), 1) as other:
        assert other.path != live[0].path
        assert len(other.path) > 30


def test_the_command_serves_the_report(tmp_path):
    train(tmp_path, 1)
    opens = environment(BROWSER="true", PYTHONPATH=str(ROOT))  # true is a program that does nothing
    with subprocess.Popen(
        [sys.executable, "-m", "prunedata", "top", "run.zarr", "--live"],
        cwd=tmp_path, text=True, env=opens, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        try:
            address = program.stdout.readline().strip()
            with urlopen(address, timeout=60) as page:
                again, first = page.headers["Refresh"], page.read().decode()
            train(tmp_path, 2)
            with urlopen(address, timeout=60) as page:
                never, last = page.headers["Refresh"], page.read().decode()
        finally:
            program.terminate()
    assert (again, never) == ("2", None)
    assert "1 of 3 epochs are done" in first
    assert "default-src &#39;none&#39;" in first
    assert "Finished" in last


def test_guesses_of_a_watched_run_have_the_names_of_classes(tmp_path):
    from prunedata.reporting.kept import KeptPreviews, keep_previews
    from prunedata.store.run_store import read_run
    from tests.common.programs import run_module

    pruner = Pruner(20, epochs=2, leave_out="nothing", store=tmp_path / "run.zarr")
    logits, ids = np.tile([0.0, 1.0, 5.0], (20, 1)), np.arange(20)
    logits[3] = [9.0, 0.0, 1.0]
    for _ in pruner.epochs():
        pruner.observe(np.where(ids == 3, 9.0, 1.0), ids, logits=logits)

    class Dataset:
        classes = ("bird", "cat", "dog")

        def __len__(self):
            return 20

        def __getitem__(self, sample):
            return {"text": f"text {sample}", "label": 2}

    keep_previews(tmp_path / "run.zarr", pruner, Dataset(), most=5)
    kept = KeptPreviews(tmp_path / "run.zarr")
    table = kept.labeled(read_run(tmp_path / "run.zarr").state, 2)
    assert (table["id"][0], table["label"].tolist(), table["guess"].tolist()) == (3, ["dog", "dog"], ["bird", ""])
    lines = run_module("prunedata", "suspects", "run.zarr", "--top", "1", cwd=tmp_path).stdout.splitlines()
    assert lines[1].split("  ")[-2:] == ["labelled", "looks like"] or "looks like" in lines[1]
    assert lines[2].split()[-2:] == ["dog", "bird"]
    top = run_module("prunedata", "top", "run.zarr", "--top", "1", cwd=tmp_path).stdout
    assert "looks like" in top
    assert "bird" in top
