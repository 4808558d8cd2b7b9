"""A stand-in for InfoBatch's repository."""

from pathlib import Path

__all__ = ["INFOBATCH", "infobatch_checkout"]

INFOBATCH = """
from torch.utils.data.dataloader import _BaseDataLoaderIter

def hacked(self):
    raise RuntimeError("the patch is still there")

_BaseDataLoaderIter.__next__ = hacked

class InfoBatch:
    def __init__(self, dataset, num_epochs, prune_ratio=0.5, delta=0.875):
        self.scores = [3.0] * len(dataset)

    def set_active_indices(self, ids):
        self.ids = ids.tolist()

    def update(self, losses):
        for at, loss in zip(self.ids, losses.tolist(), strict=True):
            self.scores[at] = loss
        return losses.mean()
"""


def infobatch_checkout(folder: Path, more: str = "") -> Path:
    """Lay out a folder as a clone of InfoBatch, whose file patches DataLoader as InfoBatch's does."""
    (folder / "infobatch").mkdir()
    (folder / "infobatch" / "infobatch.py").write_text(INFOBATCH + more)
    return folder
