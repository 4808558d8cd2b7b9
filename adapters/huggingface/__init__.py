"""Hugging Face's Trainer, and TRL's SFTTrainer, on the samples that the pruner keeps.

``wrap(trainer, pruner)`` takes a trainer that is already built, of any class. Your own class may have the mixin
instead.

The Trainer computes the number of batches of an epoch once, before it trains. The mixin sets it for each epoch, so that
steps, learning rate, evaluations and checkpoints are right.
"""

try:
    import accelerate  # noqa: F401 (only to say what is missing)
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "prunedata.adapters.huggingface needs transformers and accelerate: pip install transformers accelerate"
    ) from error

from prunedata.adapters.huggingface.checks import UntestedReleaseWarning
from prunedata.adapters.huggingface.ids import samples_in
from prunedata.adapters.huggingface.joining import keys_in, wrap
from prunedata.adapters.huggingface.losses import classes_in
from prunedata.adapters.huggingface.trainer import PruneTrainerMixin

__all__ = ["PruneTrainerMixin", "UntestedReleaseWarning", "classes_in", "keys_in", "samples_in", "wrap"]
