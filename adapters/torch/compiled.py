"""``observe`` for a step that ``torch.compile`` compiles: it runs outside the compiled code.

This module is imported only while such a step is traced: its import takes a second.
"""

from typing import Any

import torch

from prunedata.types import SomeIds

__all__ = ["observe"]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def observe(
    loader: Any,
    losses: torch.Tensor,
    ids: SomeIds | None,
    weights: torch.Tensor | None,
    logits: torch.Tensor | None,
    labels: torch.Tensor | None,
) -> torch.Tensor:
    """Record the losses of a batch."""
    return loader.observe(losses, ids, weights, logits, labels)  # type: ignore[no-any-return]
