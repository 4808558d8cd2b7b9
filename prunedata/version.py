"""The version that is installed. A module of its own, as asking for it takes longer than the rest of the import."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("prunedata")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"
