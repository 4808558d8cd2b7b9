"""The command for a GPU, every part of it on a CPU at a tiny size; and the tables of what was recorded on one."""

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.common.records import Runs
from benchmarks.gpu import __main__ as program
from benchmarks.gpu import deep, exact
from benchmarks.gpu.__main__ import PARTS, RESULTS, files, main
from benchmarks.gpu.costs import Piece, Place, go_through
from benchmarks.gpu.tables import parts
from prunedata.adapters.torch.losses import DeviceBuffer
from prunedata.errors import SkippedSamples

CPU = Place(torch.device("cpu"))


@pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")  # tiny runs
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch.compile itself
@pytest.mark.slow  # below, one piece goes through the command, and what is not right is found
@pytest.mark.parametrize("part", PARTS)
def test_every_part_runs_here_and_comes_out_right(part, tmp_path, capsys):
    results = Runs(tmp_path / "results.jsonl.bz2")
    assert main(["--device", "cpu", "--seconds", "3000", "--parts", part, "--results", str(results.file)]) == 0
    recorded = {facts["name"]: facts for facts in results.read()}
    assert set(recorded) == {piece.name for piece in PARTS[part](CPU)}
    assert all(facts.get("right", True) for facts in recorded.values())
    assert "error" not in capsys.readouterr().out
    assert set(parts(recorded.values())) == {"arms", "paper", "networks", "pace", "steps", "watched", "exact"}


def test_without_a_file_for_results_a_cpu_keeps_nothing(monkeypatch):
    before = RESULTS.file.read_bytes()
    monkeypatch.setattr(program, "PARTS", {"exact": lambda place: exact.pieces(place)[:1]})
    assert main(["--device", "cpu", "--parts", "exact"]) == 0
    assert RESULTS.file.read_bytes() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there_is_said(capsys):
    with pytest.raises(SystemExit):
        main(["--device", "cuda"])
    assert "Expected a GPU" in capsys.readouterr().err


class TestThePieces:
    def go(self, pieces, tmp_path, seconds=60.0):
        results = Runs(tmp_path / "results.jsonl.bz2")
        return go_through(pieces, results, time.monotonic() + seconds), {one["name"]: one for one in results.read()}

    def test_what_is_right_is_not_run_again_and_what_failed_is(self, tmp_path):
        ran = []

        def failing():
            ran.append("failing")
            raise ValueError("no luck")

        pieces = [Piece("a/fails", 1, failing), Piece("a/works", 1, lambda: ran.append("works") or {})]
        well, recorded = self.go(pieces, tmp_path)
        assert not well
        assert recorded["a/fails"]["error"] == "ValueError: no luck"
        assert self.go(pieces, tmp_path)[0] is False
        assert ran == ["failing", "works", "failing"]

    def test_none_begins_that_would_not_end_in_time(self, tmp_path):
        pieces = [Piece("a/long", 100, dict), Piece("a/short", 1, dict)]
        assert set(self.go(pieces, tmp_path, seconds=50)[1]) == {"a/short"}


class TestExact:
    def compared(self, name):
        with exact.through_a_buffer(70):
            return exact.compare(exact._cases(CPU)[name](), CPU.device)

    def test_a_loss_that_changes_on_the_way_is_found(self, monkeypatch):
        plain = DeviceBuffer._receive

        def landed(buffer):
            return [(ids, np.where(np.arange(len(held)) == 3, 9.0, held).astype(np.float32), sizes)
                    for ids, held, sizes in plain(buffer)]  # fmt: skip

        monkeypatch.setattr(DeviceBuffer, "_receive", landed)
        found = self.compared("float32")
        assert not found["right"]
        assert found["differ"]

    def test_a_batch_that_goes_lost_on_the_way_ends_the_run(self, monkeypatch):
        plain = DeviceBuffer._receive
        monkeypatch.setattr(DeviceBuffer, "_receive", lambda buffer: plain(buffer)[1:])
        with pytest.raises(SkippedSamples):
            self.compared("float32")

    def test_another_mean_is_found(self, monkeypatch):
        monkeypatch.setattr("prunedata.adapters.torch.means._weighed", lambda losses, *_, **__: losses.mean())
        assert not self.compared("by-weight")["right"]


def test_every_arm_has_a_name_of_its_own_and_what_decides_most_comes_first():
    names = [piece.name for piece in deep.arms(Place(torch.device("cuda"), Path("data"), Path("labels")))]
    assert len(set(names)) == len(names) > 30
    assert [name.rpartition("0.1-")[2] for name in names[3:6]] == [
        "worse-watched-seed0", "worse-auto-seed0", "clean-auto-seed0"
    ]  # fmt: skip


def test_tests_that_need_a_gpu_are_found():
    assert "tests/adapters/torch/test_losses.py" in files()
