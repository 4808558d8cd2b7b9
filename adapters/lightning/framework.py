"""Lightning by either of its names: ``lightning``, or else ``pytorch_lightning``."""

from typing import Any

BaseCallback: Any
"""What a callback is derived from. The Trainer of the other name takes it, too: it calls methods by their names."""

try:
    from lightning.pytorch import Callback

    BaseCallback = Callback
except ImportError:
    try:
        from pytorch_lightning import Callback as OtherCallback

        BaseCallback = OtherCallback
    except ImportError as error:
        raise ImportError("prunedata.adapters.lightning needs Lightning: pip install lightning") from error
