"""``observe`` for a step that ``torch.compile`` compiles: it runs outside the compiled code.

This module is imported only while such a step is traced: its import takes a second.
"""

from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def observe(loader: Any, *batch: Any) -> torch.Tensor:
    """Call ``loader.observe(*batch)``."""
    return loader.observe(*batch)  # type: ignore[no-any-return]
