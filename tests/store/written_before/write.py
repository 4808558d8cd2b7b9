"""Writes the stores, checkpoints and expected arrays of this folder, by the commit that is imported.

PYTHONPATH=<a checkout of that commit> python tests/store/written_before/write.py <a folder>
"""

import base64
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from runs import RUNS, STOPS, make, outcome, train


def as_json(value):
    return {"base64": base64.b64encode(value).decode()}


def write(name, folder):
    """One zip: the stores between two epochs and within one, a checkpoint of each, and what the whole run does."""
    places = {where: folder / f"{name}-{where}.zarr" for where in ("between", "within")}
    runs = {where: make(name, store=place) for where, place in places.items()}
    for where, run in runs.items():
        train(run, name, STOPS[name])
        if where == "within":
            train(run, name, 1, batches=2)
            run.commit()
    whole = make(name)
    seen = train(whole, name, whole.schedule.epochs)
    np.savez_compressed(
        folder / "expected.npz",
        keep=np.packbits([keep for _, keep, _ in seen], axis=1),
        weights=np.array([0.0 if weights is None else weights.sum() for *_, weights in seen]),
        **outcome(whole),
    )
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(folder / "expected.npz", "expected.npz")
        for where, place in places.items():
            packed.writestr(f"{where}.json", json.dumps(runs[where].state_dict(), default=as_json))
            for path in sorted(place.rglob("*")):
                packed.write(path, Path(f"{where}.zarr") / path.relative_to(place))


if __name__ == "__main__":
    for name in RUNS:
        write(name, Path(sys.argv[1]))
