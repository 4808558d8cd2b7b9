"""WebDataset: ``wrap(dataset, pruner, index)`` drops pruned samples before they are decoded.

Every sample passes through the following stages in a pair with its id, so that ids survive ``to_tuple`` and any
``map``, and the pipeline yields ``(id, sample)``.
"""

try:
    import webdataset  # noqa: F401 (only to say what is missing)
except ImportError as error:
    raise ImportError("prunedata.adapters.webdataset needs WebDataset: pip install webdataset") from error

from prunedata.adapters.webdataset.wrap import keys_in, samples_in, wrap
from prunedata.streams.shards import ShardIndex

__all__ = ["ShardIndex", "keys_in", "samples_in", "wrap"]
