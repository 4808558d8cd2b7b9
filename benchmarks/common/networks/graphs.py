"""How networks compute on a device: in bfloat16 where it does, and a step captured as one CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["captured", "mixed_precision", "precision_of"]

WARM_UP = 3
"""Calls before the capture: libraries choose their algorithms, and the optimizer makes its state."""


def captured(function: Callable[[], Tensor], generator: torch.Generator) -> Callable[[], Tensor]:
    """Call a function a few times, capture it, and return what launches it.

    Parameters
    ----------
    function : callable
        Works on tensors that stay where they are, and never waits for the device.
    generator : torch.Generator
        Which it draws from. Each launch goes on from the generator's state.

    Returns
    -------
    callable
        Returns the tensor that the function returned when it was captured, with new numbers. If ``generator`` is on a
        CPU, where there is nothing to capture, the function itself.
    """
    if generator.device.type != "cuda":
        for _ in range(WARM_UP):
            function()
        return function
    side = torch.cuda.Stream(generator.device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        result = function()

    def launch() -> Tensor:
        graph.replay()
        return result

    return launch


def precision_of(device: str) -> torch.dtype:
    """Return what networks compute in on ``"cpu"`` or ``"cuda"``.

    A processor with AVX2 alone took 13 times as long in bfloat16 as in float32; one with AVX-512, half as long.
    """
    imitated = device == "cpu" and "AVX512" not in torch.backends.cpu.get_cpu_capability()
    return torch.float32 if imitated else torch.bfloat16


def mixed_precision(device: str) -> torch.autocast:
    """Return a context in which layers compute in what :func:`precision_of` says.

    It keeps no cast weights: a step that is captured as a graph has to cast those that it finds.
    """
    return torch.autocast(device, torch.bfloat16, enabled=precision_of(device) == torch.bfloat16, cache_enabled=False)
