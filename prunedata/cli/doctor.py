"""The command ``prunedata doctor``: check the installation, a store, or a loader."""

import argparse
import inspect
import json
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple

from prunedata import __version__
from prunedata.cli.arguments import named_object
from prunedata.cli.text import table, working
from prunedata.errors import DamagedStore, PrunedataError
from prunedata.run.frameworks import ADAPTERS, adapter_of, samples_in

LOADER = re.compile(r".+\.py:\w+")
EPOCHS, PRUNE, SOME = 12, 0.25, 1000
"""The run with which a loader is tried; ``SOME`` samples if their number is unknown."""

TOLD_FROM = 10.0  # seconds of training from which the overhead is worth a note


class Fact(NamedTuple):
    """One finding; ``state`` is "ok", "note" or "wrong"."""

    state: str
    what: str
    told: str


def check(args: argparse.Namespace) -> int:
    """Print what was found; return 1 if anything is wrong, otherwise 0."""
    if args.what is None:
        facts = list(_versions())
    elif LOADER.fullmatch(args.what):
        facts = list(_loader(named_object(args.what)))
    elif args.what.endswith(".py"):
        raise PrunedataError(f"Expected script.py:name, a loader in a script. Got {args.what}: add :name.")
    else:
        facts = list(_store(args.what))
    if args.json:
        print(json.dumps({"facts": [fact._asdict() for fact in facts]}))
    else:
        print("\n".join(table(facts, left=(0, 1, 2))))
    return int(any(fact.state == "wrong" for fact in facts))


# -- what is installed


def _versions() -> Iterator[Fact]:
    yield Fact("ok", "prunedata", __version__)
    yield Fact("ok", "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in ("numpy", "zarr"):
        yield Fact("ok", name, metadata.version(name))
    try:
        wanted = metadata.requires("prunedata") or []
    except metadata.PackageNotFoundError:
        yield Fact("note", "extras", "prunedata isn't installed here, so its extras are not known")
        return
    for extra in sorted(metadata.metadata("prunedata").get_all("Provides-Extra") or []):
        own = [one.partition(";")[0].strip() for one in wanted if re.search(f"extra == ['\"]{extra}['\"]", one)]
        names = [re.match(r"[\w.-]+", one)[0] for one in own]  # type: ignore[index]
        if "prunedata" in names or not names:
            continue  # a collection of other extras
        found = {name: _version(name) for name in names}
        told = ", ".join(f"{name} {version or 'missing'}" for name, version in found.items())
        lacks = " ".join(name for name, version in found.items() if version is None)
        yield Fact("note" if lacks else "ok", extra, f"{told}; pip install {lacks}" if lacks else told)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        # Another package may give the same modules, as tensorflow-cpu does those of tensorflow.
        others = metadata.packages_distributions().get(name.replace("-", "_"), [])
        return f"{metadata.version(others[0])} ({others[0]})" if others else None


# -- a store


def _store(place: str) -> Iterator[Fact]:
    # Not above: an installation is checked without zarr.
    from prunedata.findings.searched import num_searched, searched_visits, told_unsearched
    from prunedata.plan.savings import savings
    from prunedata.store.run_store import read_run

    try:
        with working(f"reading {place}"):
            found = read_run(place)  # it compares every array with its digest
    except DamagedStore as error:
        yield Fact("wrong", "store", str(error))
        return
    run = found.state
    epochs = run.schedule["epochs"]
    yield Fact(
        "ok", "store", f"whole: {len(run.arrays)} arrays and {len(run.history)} records agree with their digests"
    )
    yield Fact("ok", "run", f"{run.samples:,} samples, {epochs} epochs, {found.generation:,} commits")
    if run.epoch >= epochs:
        yield Fact("ok", "next", "nothing: finished. With more epochs in its schedule it can resume")
    else:
        part = ", in its middle" if run.open else ""
        yield Fact("ok", "next", f"epoch {run.epoch} of {epochs}{part}; resume=True continues there")
    if run.open and run.processes > 1:
        yield Fact("note", "processes", f"{run.processes} trained the open epoch: resume with as many")
    rest = told_unsearched(run)
    if rest is not None:
        yield Fact("ok", "samples", rest)
    never = num_searched(run) - int((searched_visits(run) > 0).sum()) if run.history else 0
    if never:
        yield Fact("note", "visits", f"{never:,} samples were never observed")
    saved = savings(run.history, run.samples, run.run.get("batch_size"))
    means_to = run.run.get("leave_out", "delivery") == "delivery" and run.run["policy"]["name"] != "auto"
    if run.history and not saved["visits_saved"] and run.epoch >= epochs // 2 and means_to:
        yield Fact("note", "saved", "nothing so far: see prunedata plan")
    if saved["seconds"] > TOLD_FROM and saved["overhead_seconds"] > 0.05 * saved["seconds"]:
        share = saved["overhead_seconds"] / saved["seconds"]
        yield Fact("note", "overhead", f"{share:.0%} of the training time: epochs are short, or batches tiny")


# -- a loader


def _loader(given: Any) -> Iterator[Fact]:
    name, adapter = adapter_of(given)
    yield Fact("ok", "loader", f"{type(given).__module__}.{type(given).__qualname__}; wrapped by {ADAPTERS}.{name}")
    try:
        samples = samples_in(given)
    except PrunedataError:
        samples = None  # to prune it, below, raises the same
    if samples is not None:
        yield Fact("ok", "samples", f"{samples:,}: build the Pruner with as many")
    facts = adapter.facts(given) if hasattr(adapter, "facts") else {}
    for what, told in facts.items():
        state, sentence = told if isinstance(told, tuple) else ("ok", str(told))
        yield Fact(state, what, sentence)
    needed = [
        one.name
        for one in list(inspect.signature(adapter.wrap).parameters.values())[2:]
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    if needed:
        yield Fact("note", "prune", f"not tried: it needs {', '.join(needed)} as well")
    else:
        yield from _tried(adapter, given, samples)


def _length(given: Any) -> int | None:
    try:
        return len(given)
    except (TypeError, NotImplementedError):
        return None


def _tried(adapter: Any, given: Any, samples: int | None) -> Iterator[Fact]:
    """Prune a loader by a run of its own, and fetch its first batch."""
    from prunedata.plan.schedule import Schedule
    from prunedata.run.pruner import Pruner

    try:
        pruner = Pruner(samples or SOME, Schedule.steady(EPOCHS), prune=PRUNE)
        pruned = adapter.wrap(given, pruner)
        whole = _length(pruned)
    except PrunedataError as error:
        yield Fact("wrong", "prune", f"refused: {error}")
        return
    if samples is None:
        yield Fact("note", "prune", "works, if you pass the Pruner the number of samples, which isn't known here")
        return
    kept = pruner.kept_in(EPOCHS - 1)
    told = f"works; with prune={PRUNE:.0%} a pruned epoch trains on {kept:,} of {samples:,} samples"
    yield Fact("ok", "prune", told if whole is None else f"{told}, a whole one has {whole:,} batches")
    pruner.begin_epoch()
    try:
        with working("fetching a batch"):
            next(iter(pruned))
    except Exception as error:  # of the user's data, of a worker, of ours
        yield Fact("wrong", "first batch", f"{type(error).__name__}: {error}".strip().splitlines()[0])
    else:
        yield Fact("ok", "first batch", "fetched, with its ids")
