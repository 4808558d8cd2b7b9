"""prunedata doctor and completion, and what commands show on a terminal."""

import json
import sys
from importlib import metadata

import numpy as np
import pytest

from prunedata import Pruner, Schedule

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


@pytest.fixture
def doctor(say):
    """``doctor(what)`` is the exit status, and the facts of what was looked at: state and words of each."""

    def call(what=""):
        status, out, err = say(f"doctor {what} --json")
        assert err == ""
        return status, {fact["what"]: (fact["state"], fact["told"]) for fact in json.loads(out)["facts"]}

    return call


def test_versions_and_extras(prints, doctor):
    status, found = doctor()
    assert status == 0
    assert found["numpy"] == ("ok", np.__version__)
    assert found["torch"][1].startswith("torch ")
    assert {"prunedata", "Python", "zarr", "webdataset"} <= found.keys()
    out = prints("doctor")
    assert ["ok", "numpy", np.__version__] in [line.split() for line in out.splitlines()]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"webdataset": ["webdataset-fork"]}, ("ok", "webdataset 1.2 (webdataset-fork)")),
        ({}, ("note", "webdataset missing; pip install webdataset")),
    ],
)
def test_an_extra_may_be_missing_or_be_given_by_another_package(doctor, monkeypatch, given, told):
    def version(name, real=metadata.version):
        if name == "webdataset":
            raise metadata.PackageNotFoundError(name)
        return "1.2" if name == "webdataset-fork" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: given)
    assert doctor()[1]["webdataset"] == told


def test_a_loader_that_can_be_pruned(doctor, script):
    pytest.importorskip("torch")
    status, found = doctor(f"{script}:loader")
    assert status == 0
    assert found["samples"][1] == "1,000: build the Pruner with as many"
    assert found["prune"] == (
        "ok",
        "works; with prune=25% a pruned epoch trains on 750 of 1,000 samples, a whole one has 32 batches",
    )
    assert found["first batch"][0] == "ok"
    assert found["order"][1].startswith("the order that follows from the run's seed")
    assert (found["workers"][1], found["batches"][1], found["ranks"][1]) == ("0", "32", "1")


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on one core
def test_workers_and_an_order_without_shuffling(doctor, script):
    pytest.importorskip("torch")
    _, found = doctor(f"{script}:in_order")
    assert found["workers"][1] == "2, started anew in each epoch unless persistent_workers=True"
    assert found["order"][1] == "ascending ids, as nothing shuffles"
    assert found["first batch"][0] == "ok"


@pytest.mark.parametrize(
    ("name", "what", "told"),
    [
        ("dropped", "prune", "refused: Expected at least one batch of 2000 samples"),
        ("stream", "prune", "wrap it first, by pruner.wrap"),
        ("broken", "first batch", "KeyError: 'no image there'"),
        ("data", "prune", "wrap the loader, not its dataset"),
    ],
)
def test_what_would_be_refused_is_said_and_the_status_is_1(say, doctor, script, name, what, told):
    pytest.importorskip("torch")
    status, found = doctor(f"{script}:{name}")
    state, why = found[what]
    assert (status, state) == (1, "wrong")
    assert told in why
    status, out, _ = say(f"doctor {script}:{name}")
    assert status == 1
    assert f"wrong  {what}" in out


def test_any_iterable_is_told_what_it_needs(doctor, script):
    pytest.importorskip("torch")
    status, found = doctor(f"{script}:plain")
    assert (status, found["prune"]) == (0, ("note", "not tried: it needs id as well"))


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("x = 1", "y", "Expected 'y' in"),
        ("raise SystemExit('no data')", "x", "Expected {} to run, and to make x without training. Got SystemExit: no"),
        ("from prunedata.errors import *; raise NotInEpoch('it trains.')", "x", "Got NotInEpoch: it trains."),
        ("import nothing_of_the_kind", "x", "No module named 'nothing_of_the_kind'"),
        (None, "x", "Expected a script that makes x. Got {}, which does not exist."),
    ],
)
def test_a_script_that_cannot_be_looked_at_is_an_error(refuses, tmp_path, text, name, told):
    path = tmp_path / "some_script.py"
    if text is not None:
        path.write_text(text)
    assert told.format(path) in refuses(f"doctor {path}:{name}")


def test_a_script_without_the_name_of_a_loader_is_told_how_to_name_one(refuses, script):
    assert f"Expected script.py:name, a loader in a script. Got {script}: add :name." in refuses(f"doctor {script}")


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


def test_a_store_that_is_whole(doctor, store):
    status, found = doctor(store)
    assert status == 0
    assert found["store"] == ("ok", "whole: 4 arrays and 4 records agree with their digests")
    assert found["next"][1] == "epoch 4 of 6; resume=True continues there"


def test_a_damaged_store_is_wrong_and_none_is_an_error(doctor, refuses, store, tmp_path):
    for chunk in store.glob("hits-*/c/0"):
        raw = bytearray(chunk.read_bytes())
        raw[-1] ^= 1
        chunk.write_bytes(raw)
    status, found = doctor(store)
    assert (status, found["store"][0]) == (1, "wrong")
    assert "Got nothing" in refuses(f"doctor {tmp_path / 'none.zarr'}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_command(prints, shell):
    pytest.importorskip("shtab")
    out = prints(f"completion {shell}")
    for word in ("plan", "inspect", "suspects", "doctor", "completion", "label-column"):
        assert word in out


def test_completion_without_shtab_says_what_to_install(refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install shtab" in refuses("completion bash")


def test_on_a_terminal_it_says_what_it_does_and_takes_it_away(say, store, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    status, out, err = say(f"suspects {store} --top 3")
    assert (status, err) == (0, f"reading {store}\r\x1b[K")
    assert out.startswith("most suspect of 50 samples")
