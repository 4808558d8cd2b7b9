"""Commands in terminals and pipes: progress, Ctrl-C, readers that leave, full disks; and prunedata top and index."""

import http.client
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from prunedata import Pruner
from prunedata.cli.live import LivePage
from prunedata.reporting.kept import KeptPreviews, keep_previews
from prunedata.store.run_store import read_run
from prunedata.streams.shards import ShardIndex
from tests.adapters.helpers.shards import write_shards
from tests.common.programs import ROOT
from tests.store.stored_runs import build
from tests.watch.watched import environment

PROGRAM = [sys.executable, "-m", "prunedata"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", "TERM": "xterm"}


def test_shards_are_indexed(prints, tmp_path):
    urls = write_shards(tmp_path, [3, 0, 1200])
    output = tmp_path / "my index.json"
    out = prints(f"index {tmp_path}/00{{0..1}}.tar {urls[2]} --output '{output}'")
    assert out == f"1,203 samples in 3 shards -> {output}\n"
    assert ShardIndex.load(output) == ShardIndex.scan(urls)


def test_json_and_the_default_name(prints_json, tmp_path, monkeypatch):
    write_shards(tmp_path, [2])
    monkeypatch.chdir(tmp_path)
    assert prints_json("index 000.tar") == {"shards": 1, "samples": 2, "output": "index.json"}
    assert ShardIndex.load("index.json").urls == ["000.tar"]


@pytest.mark.parametrize("shards", ["missing.tar", "{0..1.tar", "000.tar 000.tar"])
def test_errors_are_told_and_nothing_is_written(refuses, tmp_path, monkeypatch, shards):
    write_shards(tmp_path, [2])
    monkeypatch.chdir(tmp_path)
    assert refuses(f"index {shards}").startswith("prunedata: error: Expected ")
    assert os.listdir() == ["000.tar"]


@pytest.mark.parametrize("good", [True, False])
def test_progress_on_a_terminal_is_one_line_that_is_gone_in_the_end(tmp_path, good):
    urls = [*write_shards(tmp_path, [1, 1]), *([] if good else ["none.tar"])]
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, "index", *urls], stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == (0 if good else 2)
    *lines, after = said.split("\r\x1b[K")
    assert "\n" not in "".join(lines)
    parts = [30 * done // len(urls) for done in range(len(urls))]
    shown = [f"{'#' * part}{'.' * (30 - part)} {done} of {len(urls)} shards" for done, part in enumerate(parts)]
    assert lines == ["", *shown]
    assert after.startswith("" if good else "prunedata: error: Expected a whole tar file at none.tar")


def test_a_dumb_terminal_gets_no_commands(place):
    """As a shell in an editor, which would show them."""
    for command in (f"report {place} -o {place}.html", f"top {place}"):
        ours, theirs = pty.openpty()
        environment = ENVIRONMENT | {"TERM": "dumb"}
        with subprocess.Popen([*PROGRAM, *command.split()], stdout=theirs, stderr=theirs, env=environment) as running:
            os.close(theirs)
            said = os.read(ours, 100_000)
            assert running.wait(60) == 0
        os.close(ours)
        assert b"\x1b" not in said
        assert said


# The program is stopped, or whoever reads it goes away, or its disk is full: a plain line, and no traceback.


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("stored") / "run.zarr"
    build(place)
    return place


@pytest.fixture
def ctrl_c():
    """Let programs that are started be told of Ctrl-C, though whoever runs the tests in the background is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_is_told_in_a_line(tmp_path, ctrl_c):
    begun = tmp_path / "begun"
    command = [*PROGRAM, "index", f"pipe:touch {begun}; sleep 60", "--output", str(tmp_path / "index.json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=ENVIRONMENT
    ) as running:
        while not begun.exists():
            assert running.poll() is None
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        out, err = running.communicate()
    assert (running.returncode, out, err) == (130, "", "prunedata: stopped\n")
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize("command", ["inspect {} --json", "--help"])
def test_a_reader_that_leaves_before_or_in_the_middle(place, command):
    arguments = [*PROGRAM, *command.format(place).split()]
    for lines in (0, 1):
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as running:
            for _ in range(lines):
                running.stdout.readline()
            running.stdout.close()
            assert running.stderr.read() == ""
        assert running.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["inspect {}", "plan --samples 9 --help"])
def test_what_cannot_be_written_is_told(place, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, *command.format(place).split()],
            stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "prunedata: error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ids.txt", "suspects {} --top 2000 -o"),
        ("suspects.csv", "suspects {} --top 2000 -o"),
        ("report.html", "report {} -o"),
        ("fixed.csv", "apply verdicts.csv --labels labels.csv -o"),
    ],
)
def test_a_file_that_there_is_no_room_for_stays_as_it_was(place, tmp_path, name, command):
    resource = pytest.importorskip("resource")
    (tmp_path / "labels.csv").write_text("label\n" + 300 * "0\n")
    (tmp_path / "verdicts.csv").write_text("sample,verdict,was,label\n7,wrong,0,1\n")
    (tmp_path / name).write_text("as before")
    before = set(tmp_path.iterdir())
    done = subprocess.run(
        [*PROGRAM, *command.format(place).split(), name],
        capture_output=True, text=True, env=ENVIRONMENT, check=False, cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"prunedata: error: Expected to write {name}. Got File too large: ")
    assert set(tmp_path.iterdir()) == before
    assert (tmp_path / name).read_text() == "as before"


def test_files_go_to_standard_output_and_through_links_too(place, tmp_path):
    (tmp_path / "link.txt").symlink_to("ids.txt")
    for file in ("/dev/stdout", "link.txt"):
        done = subprocess.run(
            [*PROGRAM, "suspects", place, "--top", "1", "-o", file],
            capture_output=True, text=True, env=ENVIRONMENT, check=True, cwd=tmp_path,
        )  # fmt: skip
    assert done.stdout.endswith("\n1 samples -> link.txt\n")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "ids.txt").read_text().strip().isdigit()


def test_a_terminal_that_cannot_show_a_label_gets_it_as_an_escape(place, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("Küche\n" * 300, encoding="utf-8")
    done = subprocess.run(
        [*PROGRAM, "suspects", place, "--labels", names],
        capture_output=True, text=True, env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "K\\xfcche" in done.stdout


@pytest.mark.parametrize(("closed", "status"), [(">&-", 0), ("2>&-", 2)])
def test_a_program_without_output_has_its_status_all_the_same(place, closed, status):
    command = [*PROGRAM, "inspect", place if status == 0 else f"{place}.none"]
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_an_index_that_cannot_be_written_is_refused_before_shards_are_read(refuses, tmp_path):
    for output in (tmp_path, tmp_path / "none" / "index.json"):
        assert "Expected --output to be a file in a folder" in refuses(f"index none.tar --output {output}")


# The command ``prunedata top``, once into a pipe, and again and again in a terminal.


def train(folder, epochs):
    pruner = Pruner(50, epochs=3, leave_out="nothing", store=folder / "run.zarr", resume=True)
    for _ in range(epochs):
        pruner.begin_epoch()
        pruner.observe(np.where(np.arange(50) == 7, 9.0, 1.0), np.arange(50))
        pruner.end_epoch()


def test_into_a_pipe_it_prints_once(prints, tmp_path):
    train(tmp_path, 1)
    lines = prints(f"top {tmp_path / 'run.zarr'} --top 2").splitlines()
    assert lines[0] == "run.zarr: 1 of 3 epochs are done."
    assert lines[1].startswith("epoch 0: mean loss 1.16")
    assert lines[2].split() == ["row", "excess", "label"]
    assert lines[3].split() == ["7", "7.84"]
    assert len(lines) == 5


def test_in_a_terminal_it_goes_on_until_the_run_is_finished(tmp_path):
    train(tmp_path, 1)
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "top", "run.zarr", "--every", "0.1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=theirs, env=ENVIRONMENT) as program:
        os.close(theirs)
        seen = b""
        while seen.count(b"1 of 3 epochs") < 2:
            seen += os.read(ours, 4096)
        train(tmp_path, 2)
        while b"Finished: 3 of 3" not in seen:
            seen += os.read(ours, 4096)
    os.close(ours)
    assert program.returncode == 0
    assert seen.startswith(b"\x1b[H\x1b[2J")


@pytest.mark.parametrize("option", ["--every 0", "--top 0"])
def test_what_makes_no_sense_is_refused(refuses, option):
    assert "above 0" in refuses(f"top run.zarr {option}")


pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


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
    command = [*PROGRAM, "top", "run.zarr", "--live"]
    with subprocess.Popen(command, cwd=tmp_path, text=True, env=opens, stdout=subprocess.PIPE) as program:
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


def test_guesses_of_a_watched_run_have_the_names_of_classes(prints, tmp_path):
    pruner = Pruner(20, epochs=2, leave_out="nothing", store=tmp_path / "run.zarr")
    logits, ids = np.tile([0.0, 1.0, 5.0], (20, 1)), np.arange(20)
    logits[3] = [9.0, 0.0, 1.0]
    for _ in pruner.epochs():
        pruner.observe(np.where(ids == 3, 9.0, 1.0), ids, logits=logits)

    class Texts(list):
        classes = ("bird", "cat", "dog")

    texts = Texts({"text": f"text {sample}", "label": 2} for sample in range(20))
    keep_previews(tmp_path / "run.zarr", pruner, texts, most=5)
    kept = KeptPreviews(tmp_path / "run.zarr")
    table = kept.labeled(read_run(tmp_path / "run.zarr").state, 2)
    assert (table["id"][0], table["label"].tolist(), table["guess"].tolist()) == (3, ["dog", "dog"], ["bird", ""])
    for command in ("suspects", "top"):
        *_, head, line = prints(f"{command} {tmp_path / 'run.zarr'} --top 1").splitlines()
        assert "looks like" in head
        assert "dog  " in line
        assert "bird" in line
