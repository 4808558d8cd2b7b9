"""InfoBatch, loaded from a checkout of its repository."""

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

__all__ = ["InfoBatch"]


class InfoBatch:
    """InfoBatch as its own file has it.

    Parameters
    ----------
    checkout : Path
        Folder of a clone of NUS-HPC-AI-Lab/InfoBatch.

    Raises
    ------
    FileNotFoundError
        If ``infobatch/infobatch.py`` is not there.
    """

    def __init__(self, checkout: Path) -> None:
        file = checkout / "infobatch" / "infobatch.py"
        if not file.is_file():
            raise FileNotFoundError(f"Expected a checkout of InfoBatch, with infobatch/infobatch.py. Got {checkout}.")
        self.version = _commit(checkout)
        self._class = _load(file).InfoBatch

    def wrap(self, samples: int, epochs: int = 200, prune_ratio: float = 0.5, delta: float = 0.875) -> Any:
        """An InfoBatch over a dataset of ``samples`` samples, all of weight 1; the defaults are its own."""
        return self._class(range(samples), num_epochs=epochs, prune_ratio=prune_ratio, delta=delta)


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("infobatch_peer", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # It replaces the __next__ of every DataLoader of the process when it is imported.
    original = _BaseDataLoaderIter.__next__
    try:
        spec.loader.exec_module(module)
    finally:
        _BaseDataLoaderIter.__next__ = original  # type: ignore[method-assign]
    return module


def _commit(checkout: Path) -> str:
    told = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"
