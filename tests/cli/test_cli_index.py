import json
import os
import pty
import subprocess
import sys

import pytest

from prunedata.cli.main import main
from prunedata.streams.shards import ShardIndex
from tests.adapters.helpers.shards import write_shards


def test_shards_are_indexed(tmp_path, capsys):
    urls = write_shards(tmp_path, [3, 0, 1200])
    output = tmp_path / "my index.json"
    assert main(["index", f"{tmp_path}/00{{0..1}}.tar", urls[2], "--output", str(output)]) == 0
    out, err = capsys.readouterr()
    assert out == f"1,203 samples in 3 shards -> {output}\n"
    assert err == ""  # no terminal, no progress
    assert ShardIndex.load(output) == ShardIndex.scan(urls)


def test_json_and_the_default_name(tmp_path, capsys, monkeypatch):
    write_shards(tmp_path, [2])
    monkeypatch.chdir(tmp_path)
    assert main(["index", "000.tar", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shards": 1, "samples": 2, "output": "index.json"}
    assert ShardIndex.load("index.json").urls == ["000.tar"]


@pytest.mark.parametrize("shards", [["missing.tar"], ["{0..1.tar"], ["000.tar", "000.tar"]])
def test_errors_are_told_and_nothing_is_written(tmp_path, capsys, monkeypatch, shards):
    write_shards(tmp_path, [2])
    monkeypatch.chdir(tmp_path)
    assert main(["index", *shards]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("prunedata: error: Expected ")
    assert os.listdir() == ["000.tar"]


@pytest.mark.parametrize("good", [True, False])
def test_progress_on_a_terminal_is_one_line_that_is_gone_in_the_end(tmp_path, good):
    urls = write_shards(tmp_path, [1, 1])
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "prunedata", "index", *urls, *([] if good else ["none.tar"]), "--output", "index.json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == (0 if good else 2)
    line, _, after = said.partition("\r\x1b[K")
    assert "\n" not in line
    assert line.split("\r")[1:3] == (
        [f"{'.' * 30} 0 of 2 shards", f"{'#' * 15}{'.' * 15} 1 of 2 shards"]
        if good
        else [f"{'.' * 30} 0 of 3 shards", f"{'#' * 10}{'.' * 20} 1 of 3 shards"]
    )
    assert after.startswith("" if good else "prunedata: error: Expected a whole tar file at none.tar")
