"""Loops of the user's own in several processes make one run, and none of them waits for ever."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from prunedata.adapters.watched.gathered import Mail
from prunedata.errors import PrunedataError
from prunedata.store.run_store import read_run
from tests.watch.watched import rows_told, run_both

DATA = """
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

torch.manual_seed(0)
random = np.random.default_rng(0)
labels = random.integers(0, 3, 240)
points = (random.normal(size=(240, 3)) + 4 * np.eye(3)[labels]).astype("float32")
wrong = random.random(240) < 0.1
labels[wrong] = (labels[wrong] + 1) % 3
train = TensorDataset(torch.from_numpy(points), torch.from_numpy(labels))
net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer, loss_of, collate = torch.optim.Adam(net.parameters(), 0.02), nn.CrossEntropyLoss(), default_collate
"""
END = """
if not RANK:
    np.save("wrong.npy", np.flatnonzero(wrong))
    torch.save(torch.cat([each.detach().flatten() for each in net.parameters()]), "weights.pt")
"""
DDP = DATA + """
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
RANK = dist.get_rank()
net, sampler = nn.parallel.DistributedDataParallel(net), DistributedSampler(train)
# and here
for epoch in range(6):
    sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(train, batch_size=8, sampler=sampler, num_workers=RANK, collate_fn=collate):
        optimizer.zero_grad()
        loss_of(net(inputs), targets).backward()
        optimizer.step()
dist.destroy_process_group()
""" + END  # fmt: skip
FSDP = DDP.replace(
    "net, sampler = nn.parallel.DistributedDataParallel(net), ",
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh

for part in net[0], net[3], net:
    fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.Adam(net.parameters(), 0.02)
sampler = """,
).replace("dist.destroy", "net = nn.ParameterList([each.full_tensor() for each in net.parameters()])\ndist.destroy")
ACCELERATED = DATA + """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
RANK = accelerator.process_index
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(train, batch_size=8, shuffle=True))
for epoch in range(6):
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(loss_of(net(inputs), targets))
        optimizer.step()
accelerator.end_training()
""" + END  # fmt: skip
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py")
ACCELERATE = (
    str(Path(sys.executable).parent / "accelerate"), "launch", "--num_processes", "2", "--cpu", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "29534", "train.py",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("script", "command"), [(DDP, TORCHRUN), (FSDP, TORCHRUN), (ACCELERATED, ACCELERATE)],
                         ids=["ddp", "fsdp", "accelerate"])  # fmt: skip
def test_two_processes_make_one_run(script, command, tmp_path):
    done, same = run_both(tmp_path, script, command=command)
    assert same
    assert "watched" not in done.stderr
    assert [path.name for path in tmp_path.glob("*.zarr")] == ["train.zarr"]
    run = read_run(tmp_path / "train.zarr").state
    assert (run.visits == 6).all()
    assert len(run.history) == run.schedule["epochs"] == 6
    assert (run.arrays["guess"] >= 0).all()
    told = rows_told(done.stderr)
    assert len(told) == 20
    assert np.isin(told[:8], np.load(tmp_path / "wrong.npy")).sum() >= 7


SORTS = "collate = (lambda rows: default_collate(sorted(rows, key=lambda row: row[0][0].item()))) if RANK else collate"
SHARDS = "train = torch.utils.data.Subset(train, range(RANK, 240, 2)); sampler = DistributedSampler(train, 1, 0)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "why"),
    [(SORTS, "process 1: its collate function changes the order"), (SHARDS, "process 1 reads other data")],
    ids=["sorts", "shards"],
)
def test_one_that_cannot_be_watched_stops_all_and_they_train_on(line, why, tmp_path):
    done, same = run_both(tmp_path, DDP.replace("# and here", line), command=TORCHRUN)
    assert same
    assert f"prunedata: watched no longer: {why}" in done.stderr
    assert not (tmp_path / "train.zarr").exists()  # it would be empty


def test_the_first_process_waits_for_a_while():
    store = dist.HashStore()
    first, second = Mail(store, 0, 2, 0.05), Mail(store, 1, 2)
    second.send(0, [(np.arange(3.0), np.arange(3), None, 2)])
    ((losses, ids, nothing, classes),) = first.receive(0, 1)
    assert (losses.tolist(), ids.tolist(), nothing, classes) == ([0, 1, 2], [0, 1, 2], None, 2)
    with pytest.raises(PrunedataError, match="process 1 has not sent"):
        first.receive(0, 1)
    second.send(1, "no loss")
    with pytest.raises(PrunedataError, match="process 1: no loss"):
        first.receive(1, 1)
    first.stop()
    second.send(2, [])
    with pytest.raises(PrunedataError, match="process 1 has not sent"):
        first.receive(2, 1)
