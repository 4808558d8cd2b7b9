"""Lightning: a callback for the Trainer, and ``observe(self, losses)`` in ``training_step``.

The callback makes Lightning read the length again before each epoch, and opens and ends the epochs of the run. It
serves ``lightning`` and ``pytorch_lightning``.
"""

from prunedata.adapters.lightning.callback import DataPruning, observe
from prunedata.adapters.torch import keys_in, samples_in, wrap

__all__ = ["DataPruning", "keys_in", "observe", "samples_in", "wrap"]
