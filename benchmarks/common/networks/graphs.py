"""A function that launches many kernels, captured as one CUDA graph that the host launches at once."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["captured"]

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
