"""bfloat16 where the machine computes in it, float32 where it would only be imitated, many times slower."""

import torch

__all__ = ["mixed_precision", "precision_of"]


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
