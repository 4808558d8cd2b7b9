"""A zarr store on the local disk that holds what it was given, even after a power cut."""

import asyncio
import os
from pathlib import Path

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

__all__ = ["DurableStore"]


class DurableStore(LocalStore):
    """A local store whose writes have reached the disk when they return.

    zarr replaces a file in one step but leaves it to the system when its bytes are written, so that after a power
    cut a new name can stand for an empty file.
    """

    async def set(self, key: str, value: Buffer) -> None:
        """Write one file, see it safe on the disk, then put it in the place of the old one."""
        self._check_writable()
        await asyncio.to_thread(_replace_durably, self.root / key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """As :meth:`set`, for callers outside an event loop."""
        self._check_writable()
        _replace_durably(self.root / key, value)


def _replace_durably(path: Path, value: Buffer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # One fixed name for each file: what a killed run leaves behind is overwritten by the next.
    part = path.with_name(path.name + ".partial")
    with part.open("wb") as file:
        file.write(value.as_buffer_like())
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
