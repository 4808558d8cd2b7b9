"""prunedata doctor and completion, and what commands show on a terminal."""

import json
import os
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from tests.common.programs import ROOT

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

data = TensorDataset(torch.zeros(1000, 3), torch.arange(1000))
loader = DataLoader(data, batch_size=32, shuffle=True)
in_order = DataLoader(data, batch_size=32, num_workers=2)

def dropped():
    return DataLoader(data, batch_size=2000, drop_last=True)

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))

class Broken(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, place):
        raise KeyError("no image there")

stream, broken = DataLoader(Stream()), DataLoader(Broken(), batch_size=4)
plain = [1, 2, 3]
if __name__ == "__main__":
    raise SystemExit("it was run as a program")
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train_script.py").write_text(SCRIPT)
    yield tmp_path / "train_script.py"
    sys.modules.pop("train_script", None)
    sys.path.remove(str(tmp_path)) if str(tmp_path) in sys.path else None


def facts_of(out):
    return {fact["what"]: (fact["state"], fact["told"]) for fact in json.loads(out)}


def test_versions_and_extras(say):
    status, out, err = say("doctor --json")
    found = facts_of(out)
    assert (status, err) == (0, "")
    assert found["numpy"] == ("ok", np.__version__)
    assert found["torch"][1].startswith("torch ")
    assert {"prunedata", "Python", "zarr", "webdataset"} <= found.keys()
    _, out, _ = say("doctor")
    assert ["ok", "numpy", np.__version__] in [line.split() for line in out.splitlines()]


@pytest.fixture
def without_webdataset(monkeypatch):
    """The package webdataset isn't there; its modules may be."""

    def version(name, real=metadata.version):
        if name == "webdataset":
            raise metadata.PackageNotFoundError(name)
        return "1.2" if name == "webdataset-fork" else real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_an_extra_that_another_package_gives_is_there(say, monkeypatch, without_webdataset):
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"webdataset": ["webdataset-fork"]})
    _, out, _ = say("doctor --json")
    assert facts_of(out)["webdataset"] == ("ok", "webdataset 1.2 (webdataset-fork)")


def test_a_missing_extra_names_its_install(say, monkeypatch, without_webdataset):
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    _, out, _ = say("doctor --json")
    assert facts_of(out)["webdataset"] == ("note", "webdataset missing; pip install webdataset")


def test_a_loader_that_can_be_pruned(say, script):
    pytest.importorskip("torch")
    status, out, err = say(f"doctor {script}:loader --json")
    found = facts_of(out)
    assert (status, err) == (0, "")
    assert found["samples"][1] == "1,000: build the Pruner with as many"
    assert found["prune"] == (
        "ok",
        "works; with prune=25% a pruned epoch trains on 750 of 1,000 samples, a whole one has 32 batches",
    )
    assert found["first batch"][0] == "ok"
    assert found["order"][1].startswith("the order that follows from the run's seed")
    assert (found["workers"][1], found["batches"][1], found["ranks"][1]) == ("0", "32", "1")


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on one core
def test_workers_and_an_order_without_shuffling(say, script):
    pytest.importorskip("torch")
    _, out, _ = say(f"doctor {script}:in_order --json")
    found = facts_of(out)
    assert found["workers"][1] == "2, started anew in each epoch unless persistent_workers=True"
    assert found["order"][1] == "ascending ids, as nothing shuffles"
    assert found["first batch"][0] == "ok"


@pytest.mark.parametrize(
    ("name", "what", "told"),
    [
        ("dropped", "prune", "refused: Expected at least one batch of 2000 samples"),
        ("stream", "prune", "wrap it by prunedata.adapters.iterable.wrap"),
        ("broken", "first batch", "KeyError: 'no image there'"),
        ("data", "prune", "wrap the loader, not its dataset"),
    ],
)
def test_what_would_be_refused_is_said_and_the_status_is_1(say, script, name, what, told):
    pytest.importorskip("torch")
    status, out, err = say(f"doctor {script}:{name} --json")
    assert (status, err) == (1, "")
    state, why = facts_of(out)[what]
    assert state == "wrong"
    assert told in why
    status, out, _ = say(f"doctor {script}:{name}")
    assert status == 1
    assert f"wrong  {what}" in out


def test_any_iterable_is_told_what_it_needs(say, script):
    pytest.importorskip("torch")
    status, out, _ = say(f"doctor {script}:plain --json")
    assert status == 0
    assert facts_of(out)["prune"] == ("note", "not tried: it needs id as well")


def test_a_dataset_of_grain(say, tmp_path):
    pytest.importorskip("grain")
    (tmp_path / "grain_script.py").write_text(
        "import grain\nright = grain.MapDataset.range(100)\nwrong = right.shuffle(3)\n"
    )
    status, out, _ = say(f"doctor {tmp_path / 'grain_script.py'}:right --json")
    assert (status, facts_of(out)["first batch"][0]) == (0, "ok")
    status, out, _ = say(f"doctor {tmp_path / 'grain_script.py'}:wrong --json")
    assert (status, "ShuffleMapDataset" in facts_of(out)["prune"][1]) == (1, True)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("x = 1", "y", "Expected 'y' in"),
        (
            "raise SystemExit('no data')",
            "x",
            "Expected {} to run, and to make x without training. Got SystemExit: no data.",
        ),
        (
            "from prunedata.errors import *; raise NotInEpoch('it trains.')",
            "x",
            "without training. Got NotInEpoch: it trains.",
        ),
        ("import nothing_of_the_kind", "x", "No module named 'nothing_of_the_kind'"),
        (None, "x", "Expected a file of yours that makes x. Got {}, where there is none."),
    ],
)
def test_a_script_that_cannot_be_looked_at_is_an_error(say, tmp_path, text, name, told):
    path = tmp_path / "some_script.py"
    if text is not None:
        path.write_text(text)
    status, out, err = say(f"doctor {path}:{name}")
    assert (status, out) == (2, "")
    assert told.format(path) in err


def test_a_script_without_the_name_of_a_loader_is_told_how_to_name_one(say, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("loader = None")
    status, out, err = say(f"doctor {path}")
    assert (status, out) == (2, "")
    assert f"Expected script.py:name, a loader in a script. Got {path}: add :name." in err


@pytest.fixture
def store(tmp_path):
    pruner = Pruner(50, Schedule(6, 6, 2, 1, 1), prune=10, store=tmp_path / "run.zarr")
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(np.cos(ids), ids)
        if epoch.number == 3:
            pruner.end_epoch()
            break
    return tmp_path / "run.zarr"


def test_a_store_that_is_whole(say, store):
    status, out, err = say(f"doctor {store} --json")
    found = facts_of(out)
    assert (status, err) == (0, "")
    assert found["store"] == ("ok", "whole: 4 arrays and 4 records agree with their digests")
    assert found["next"][1] == "epoch 4 of 6; resume=True goes on there"


def test_a_damaged_store_is_wrong_and_none_is_an_error(say, store, tmp_path):
    for chunk in store.glob("hits-*/c/0"):
        raw = bytearray(chunk.read_bytes())
        raw[-1] ^= 1
        chunk.write_bytes(raw)
    status, out, err = say(f"doctor {store} --json")
    assert (status, err) == (1, "")
    assert facts_of(out)["store"][0] == "wrong"
    status, out, err = say(f"doctor {tmp_path / 'none.zarr'}")
    assert (status, out) == (2, "")
    assert "Got nothing" in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_command(say, shell):
    pytest.importorskip("shtab")
    status, out, err = say(f"completion {shell}")
    assert (status, err) == (0, "")
    for command in ("plan", "inspect", "suspects", "doctor", "completion"):
        assert command in out
    assert "--label-column" in out or "label-column" in out


def test_completion_without_shtab_says_what_to_install(say, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    status, out, err = say("completion bash")
    assert (status, out) == (2, "")
    assert "pip install shtab" in err


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals")
def test_on_a_terminal_it_says_what_it_does_and_takes_it_away(store):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "prunedata", "suspects", str(store), "--top", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert shown == f"reading {store}\r\x1b[K"
    assert done.stdout.startswith(b"most suspect of 50 samples")
