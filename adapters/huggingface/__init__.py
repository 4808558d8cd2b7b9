"""Hugging Face's Trainer, and TRL's SFTTrainer, on the samples that the pruner keeps.

``wrap(trainer, pruner)`` takes a trainer that is already built, of whatever class. A class of one's own may have the
mixin instead.

The Trainer computes once, before it trains, how many batches an epoch has. The mixin says it anew for each epoch, so
that steps, learning rate, evaluations and checkpoints come where they should.
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
