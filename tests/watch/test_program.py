"""A watched program runs as Python runs it, alone or as several processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prunedata import Pruner
from prunedata.cli.watching.session import Session
from prunedata.store.run_store import read_run
from tests.watch.watched import TRAINER, TRAINS, environment, plain, rows_told, run_both, watched

# A watched program runs as Python runs it: arguments, folders, status, signals, tracebacks, children.


SAYS = """
import json, os, sys
print(json.dumps([sys.argv, sys.path, __name__, __file__, os.getcwd(), __spec__ and __spec__.name, sys.flags.optimize]))
"""


@pytest.mark.parametrize(
    "command", [("here.py", "--x", "-m", "1"), ("sub/there.py",), ("-m", "package.tool", "a"), ("zipped",)]
)
def test_it_sees_what_it_sees_without_us(command, tmp_path):
    for name in ("here.py", "sub/there.py", "package/tool.py", "zipped/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SAYS)
    (tmp_path / "package" / "__init__.py").touch()
    one, other = plain(*command, cwd=tmp_path), watched(*command, cwd=tmp_path)
    assert one.returncode == other.returncode == 0, other.stderr
    assert one.stdout == other.stdout
    assert not other.stderr
    assert json.loads(other.stdout)[2] == "__main__"


def test_nothing_is_imported_before_a_framework_is(tmp_path):
    (tmp_path / "here.py").write_text("import sys; print(*sorted(sys.modules))")
    new = set(watched("here.py", cwd=tmp_path).stdout.split()) - set(plain("here.py", cwd=tmp_path).stdout.split())
    assert {name.partition(".")[0] for name in new} <= {"prunedata", "sitecustomize", *sys.stdlib_module_names}


def test_a_console_script_runs_and_so_does_any_program(tmp_path):
    script = tmp_path / "trains"
    script.write_text(f"#!{sys.executable}\n{SAYS}")
    script.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    done = watched("trains", "--rate", "1", cwd=folder, **path)
    assert json.loads(done.stdout)[0] == [str(script), "--rate", "1"]
    done = watched("sh", "-c", f"{sys.executable} -c 'import sys; print(sys.meta_path[0])'", cwd=folder)
    assert "prunedata" in done.stdout
    done = watched(sys.executable, "-c", "import sys; print(sys.meta_path[0])", cwd=folder)
    assert "prunedata" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("program", "status"),
    [("raise SystemExit(7)", 7), ("import sys; sys.exit('no')", 1), ("import os; os._exit(3)", 3)],
)
def test_its_status_is_the_programs(program, status, tmp_path):
    (tmp_path / "here.py").write_text(program)
    assert watched("here.py", cwd=tmp_path).returncode == status


def test_a_traceback_is_pythons(tmp_path):
    (tmp_path / "here.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    one, other = plain("here.py", cwd=tmp_path), watched("here.py", cwd=tmp_path)
    assert one.stderr == other.stderr
    assert other.returncode == 1


@pytest.mark.parametrize("call", ["map(lambda row: row['no'])", "select(range(9))"])
def test_a_traceback_before_any_training_is_pythons(call, tmp_path):
    (tmp_path / "here.py").write_text(f"from datasets import Dataset\nDataset.from_dict({{'a': [1]}}).{call}\n")
    one, other = (run("here.py", cwd=tmp_path).stderr.splitlines() for run in (plain, watched))
    assert [line for line in other if "File " in line] == [line for line in one if "File " in line] != []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_it_ends_the_program(number, tmp_path):
    (tmp_path / "here.py").write_text("import time; print('on', flush=True); time.sleep(60)")
    ends = []
    for command in (["here.py"], ["-m", "prunedata", "watch", "here.py"]):
        # A traceback names a line, and not the call in it: the signal may come before the program sleeps.
        with subprocess.Popen([sys.executable, *command], cwd=tmp_path, env=environment(PYTHONNODEBUGRANGES="1"),
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:  # fmt: skip
            assert program.stdout.readline() == "on\n"
            program.send_signal(number)
            ends.append((program.communicate()[1], program.returncode))
    assert ends[0] == ends[1]
    assert ends[0][1] == -number


def test_processes_that_begin_at_the_same_moment_have_stores_of_their_own(tmp_path, monkeypatch):
    def made_after_another(*given, session="prunedata.cli.watching.session.Pruner", **options):
        monkeypatch.setattr(session, Pruner)
        Session.current().begin(4, 1)  # another process has looked for a place, too
        return Pruner(*given, **options)

    monkeypatch.setenv("PRUNEDATA_WATCH", str(tmp_path))
    monkeypatch.setattr("prunedata.cli.watching.session.Pruner", made_after_another)
    Session.current.cache_clear()
    Session.current().begin(4, 1)
    Session.current().runs.clear()  # or they are listed when the process ends
    Session.current.cache_clear()
    assert len(list(tmp_path.glob("*.zarr"))) == 2


def test_the_environments_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = 'mine'")
    (tmp_path / "here.py").write_text("import sys, sitecustomize; print(sys.own, sitecustomize.__file__)")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    assert (
        watched("here.py", cwd=tmp_path, PYTHONPATH=path).stdout
        == plain("here.py", cwd=tmp_path, PYTHONPATH=path).stdout
    )


IMPORTS = "import torch"
ASKS = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.utils.data.dataloader":
            found = (one.find_spec(name, path, target) for one in sys.meta_path if one is not self)
            return next((spec for spec in found if spec is not None), None)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("own", [IMPORTS, ASKS], ids=["imports", "asks"])
def test_it_is_watched_whatever_the_environments_own_sitecustomize_does(own, tmp_path):
    """It may have imported the framework before, or look for modules as we do."""
    (tmp_path / "sitecustomize.py").write_text(own)
    (tmp_path / "here.py").write_text("""
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for values, labels in DataLoader(TensorDataset(torch.rand(20, 2), torch.arange(20) % 2), batch_size=4):
    torch.nn.functional.cross_entropy(net(values), labels).backward()
    optimizer.step()
""")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = watched("here.py", cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "prunedata: 20 of 20 samples in 1 epoch" in done.stderr


def test_of_a_training_that_recorded_nothing_no_store_is_left(tmp_path):
    (tmp_path / "here.py").write_text("""
import torch
from lightning.pytorch import LightningModule, Trainer

class Net(LightningModule):
    def training_step(self, batch, place):
        raise KeyError("mine")

    def configure_optimizers(self):
        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(4, 1)))
Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Net(), loader)
""")
    done = watched("here.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr
    assert done.stderr.count("prunedata: nothing was recorded") == 1
    assert "samples in" not in done.stderr
    assert not list(tmp_path.glob("*.zarr"))


def test_one_that_fails_on_import_is_told_of_as_python_does(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import no_such_module")
    (tmp_path / "here.py").write_text("print(1)")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    assert "no_such_module" in watched("here.py", cwd=tmp_path, PYTHONPATH=path).stderr


def test_the_environment_alone_watches(tmp_path):
    (tmp_path / "here.py").write_text("import sys; print(type(sys.meta_path[0]).__module__)")
    site = watched("--site", cwd=tmp_path).stdout.strip()
    path = os.pathsep.join([site, environment()["PYTHONPATH"]])
    assert "prunedata" in plain("here.py", cwd=tmp_path, PYTHONPATH=path, PRUNEDATA_WATCH="runs").stdout
    assert "prunedata" not in plain("here.py", cwd=tmp_path, PYTHONPATH=path).stdout
    assert plain("here.py", cwd=tmp_path, python=("-I",), PYTHONPATH=path, PRUNEDATA_WATCH="runs").returncode == 0


@pytest.mark.parametrize(("command", "says"), [
    ((), "Expected a script to run"),
    (("nowhere.py",), "Got nowhere.py, which is no file"),
    (("no-such-program",), "no file and no program"),
    (("--top", "0", "here.py"), "Expected --top"),
])  # fmt: skip
def test_what_cannot_be_run_is_refused(command, says, tmp_path):
    done = watched(*command, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


# Several processes train one run, whoever starts them.


pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
BIN = Path(sys.executable).parent
TORCHRUN = ("--nproc-per-node", "2", "--standalone", "train.py")
ACCELERATE = ("launch", "--num_processes", "2", "--cpu", "--num_machines", "1", "--mixed_precision", "no",
              "--dynamo_backend", "no", "--main_process_port", "29533", "train.py")  # fmt: skip


@pytest.mark.parametrize("command", [
    ("-m", "torch.distributed.run", *TORCHRUN), (str(BIN / "accelerate"), *ACCELERATE),
])  # fmt: skip
def test_two_processes_make_one_run(command, tmp_path):
    trains = TRAINS.replace("torch.save(", "trainer.args.process_index or torch.save(")
    script = TRAINER.replace("num_train_epochs=2", "num_train_epochs=6") + trains
    done, same = run_both(tmp_path, script, command=command)
    assert same
    assert [path.name for path in tmp_path.glob("*.zarr")] == ["train.zarr"]
    run = read_run(tmp_path / "train.zarr").state
    assert (run.visits == 6).all()
    assert np.isin(rows_told(done.stderr)[:8], np.load(tmp_path / "wrong.npy")).sum() >= 6


def test_one_that_cannot_be_watched_stops_all(tmp_path):
    """Otherwise the others would wait for it when an epoch ends."""
    fails = """
class Kind(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if self.args.process_index and self.state.global_step == 3:
            inputs = {name: value[:4] for name, value in inputs.items()}  # and nothing says which these are
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

KIND = Kind
"""
    (tmp_path / "train.py").write_text(TRAINER + fails + TRAINS.replace("torch.save(", "0 and torch.save("))
    done = watched("-m", "torch.distributed.run", *TORCHRUN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("prunedata: watched no longer") == 2
