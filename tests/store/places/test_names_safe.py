"""What a killed process made, and did not see safe, is seen safe by the next one."""

import os

import numpy as np
import pytest

from prunedata import Pruner, Schedule


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs to know what a descriptor is of")
def test_who_goes_on_synchronises_every_folder_of_the_run(tmp_path, monkeypatch):
    def opened():
        return Pruner(50, Schedule(6, 6, 2, 1, 1), prune=10, store=tmp_path / "run.zarr", resume=True)

    first = opened()
    epoch = first.begin_epoch()
    first.observe(np.ones(epoch.kept), np.flatnonzero(epoch.keep))
    first.end_epoch()
    folders = {path for path in (tmp_path / "run.zarr").rglob("*") if path.is_dir()} | {tmp_path / "run.zarr"}
    del first
    synchronised, fsync = set(), os.fsync

    def noted(descriptor):
        synchronised.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    opened()
    assert len(folders) > 3
    assert {str(folder) for folder in folders} <= synchronised
