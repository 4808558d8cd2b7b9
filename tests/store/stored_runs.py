"""A run of which everything is in its store, and what has to be true of one that is refused."""

import json
import os
import warnings
import zlib
from copy import deepcopy

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.findings.inspection import inspect

SAMPLES = 300
SCHEDULE = Schedule(8, window=4, start=1, block=2, pruned_per_block=1)
ARRAYS = ("counts", "hits", "visits", "mean_excess", "tally", "open-mean_excess", "keys")


def start(store, **changes):
    arguments = {"samples": SAMPLES, "schedule": SCHEDULE, "prune": 0.3, "seed": 3, "store": store, **changes}
    arguments.setdefault("keys", range(arguments["samples"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)  # some other runs never prune
        return Pruner(arguments.pop("samples"), arguments.pop("schedule"), **arguments)


def observe(pruner, batches=None):
    epoch = pruner.begin_epoch()
    for ids in list(epoch.batches(50))[:batches]:
        pruner.observe(np.abs(np.sin(ids * 12.9 + epoch.number * 7.3)), ids)


def build(place):
    """A run that stands within its seventh epoch; slot 0 and 1 both hold arrays, the pointer names one of them."""
    run = start(place)
    for _ in range(6):
        observe(run)
        run.end_epoch()
    observe(run, 1)
    run.commit()
    observe(run, 2)
    run.commit()
    return run


def slot(place):
    """The number of the slot that the pointer names."""
    return pointer(place)["generation"] % 2


def pointer(place):
    return json.loads((place / "zarr.json").read_bytes())["attributes"]["prunedata"]


def contents(place):
    """Every file and folder below a place, or the file there, with its bytes."""
    if not place.is_dir():
        return place.read_bytes() if place.exists() else None
    paths = sorted(place.rglob("*"))
    return {path.relative_to(place): path.read_bytes() if path.is_file() else None for path in paths}


def outcome(pruner):
    """All of where a run stands but its seconds."""
    timeless = [{k: v for k, v in r.items() if k not in ("seconds", "overhead")} for r in pruner.history]
    return (
        pruner.next_epoch,
        timeless,
        pruner.schedule,
        *(getattr(pruner, n).tolist() for n in ("counts", "hits", "visits")),
    )


def standing(pruner):
    return {name: getattr(pruner, name).tolist() for name in ("counts", "hits", "visits")} | pruner.state_dict()[
        "state"
    ]


def assert_refused(place, error=PrunedataError, **changes):
    """Resuming, beginning anew and (where the run is to blame) inspecting all raise, and change nothing."""
    before = contents(place)
    with pytest.raises(error, match=r"(?s)^Expected .*Got |is missing") as caught:
        start(place, resume=True, **changes)
    with pytest.raises(PrunedataError):
        start(place, **changes)
    if not changes:
        with pytest.raises(error):
            inspect(place)
    assert contents(place) == before
    return caught.value


REMOVED, EXTRA = object(), object()
"""In the place of a value: take it away, or put another beside it."""


def changed(document, path, value):
    """A copy of a document with the value at a path changed, removed, or with something beside it."""
    if not path:
        return document if value is REMOVED or value is EXTRA else value
    copy = deepcopy(document)
    field = copy
    for key in path[:-1]:
        field = field[key]
    if value is REMOVED:
        del field[path[-1]]
    elif value is not EXTRA:
        field[path[-1]] = value
    elif isinstance(field, dict):
        field["besides"] = 1
    else:
        field.append(1)
    return copy


def signed(found):
    """The file of a pointer as a stranger would write it, its digest right."""
    found = {key: value for key, value in found.items() if key != "digest"}
    found["digest"] = zlib.crc32(json.dumps(found).encode())
    node = {"zarr_format": 3, "node_type": "group", "attributes": {"prunedata": found}}
    return json.dumps(node).encode()


def sign(place, found):
    """Put another pointer into a store, its digest right."""
    (place / "zarr.json").write_bytes(signed(found))


def is_locked(folder):
    """Whether another process would find a folder locked; a descriptor of its own is to the system as another one."""
    import fcntl  # not on Windows

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
