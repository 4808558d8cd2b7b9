"""Make the runs of the emulated cluster, each once, and record them."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.common.records import Runs
from benchmarks.distributed.emulated.runs import Emulated
from benchmarks.distributed.hosts import PORT, Hosts, address, hosts
from benchmarks.distributed.measured.results import Facts, add, name_of, read
from benchmarks.distributed.training.task import Training

__all__ = ["KIND", "as_arguments", "measure"]

KIND = "emulated"
STORE_BYTES = 256 << 20
"""Of each node's object store: there are many nodes on this machine."""
LONGEST = 600.0
"""Seconds in which a run has to be done."""


def measure(runs: Iterable[Emulated], recorded: Runs, data: Path | None) -> int:
    """Make those runs that are not recorded yet; return how many failed."""
    done = {run["name"] for run in read(recorded, KIND)}
    named = "digits" if data is None else data.resolve().name
    missing = [run for run in runs if name_of(_about(run) | {"data": named}) not in done]
    if not missing:
        return 0
    failed = 0
    nodes = max(max(2, run.training.workers + _own_nodes(run.training)) for run in missing)
    with hosts(nodes, missing[0].rate, store_bytes=STORE_BYTES) as made:
        for run in missing:
            made.limit(run.rate)
            try:
                facts = _one(run, made, data)
            except (subprocess.SubprocessError, json.JSONDecodeError) as error:
                failed += 1
                print(f"{run}: {error}", file=sys.stderr, flush=True)
                continue
            add(recorded, KIND, facts)
            rate = facts["images_per_second"] * run.training.stretch
            print(f"{name_of(facts)}: {rate:.1f} images/s, load {facts['load']}", file=sys.stderr, flush=True)
    return failed


def _own_nodes(training: Training) -> int:
    return training.servers if training.placement == "dedicated" else 0


def _one(run: Emulated, made: Hosts, data: Path | None) -> Facts:
    """Make a run on the hosts, and return its facts."""
    command = [sys.executable, "-m", "benchmarks.distributed", "train", *as_arguments(run.training)]
    command += ["--samples", str(run.samples), *([] if data is None else ["--data", str(data)])]
    before = [made.bytes(host) for host in range(len(made.names))]
    with made.start(0, command, RAY_ADDRESS=f"{address(0)}:{PORT}") as process:
        try:
            printed = process.communicate(timeout=LONGEST)[0]
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    after = [made.bytes(host) for host in range(len(made.names))]
    sent = [late[0] - early[0] for early, late in zip(before, after, strict=True)]
    facts: Facts = json.loads(printed) | _about(run) | {"sent": sent}
    return facts


def _about(run: Emulated) -> Facts:
    """What is emulated, and how: plain values."""
    training = run.training
    return {
        **json.loads(json.dumps(asdict(training))),
        "samples": run.samples,
        "group": run.group,
        "gigabytes": run.gigabytes,
        "shrink": round(run.shrink, 3),
        "emulated": f"devices sleep {1000 * training.device_time:g} ms an image, {training.stretch:g} times as long; "
        f"{training.parameters:,} weights for {round(run.shrink * (training.parameters or 0)):,}; nodes are network "
        f"namespaces, whose links tbf limits to {run.rate} for {run.gigabytes:g} GB/s",
    }


def as_arguments(training: Training) -> Sequence[str]:
    """What to give to the command ``train`` for a task: all that isn't as usual."""
    told = ["--mode", training.mode]
    for field in fields(Training):
        value = getattr(training, field.name)
        if field.name == "mode" or value == field.default:
            continue
        told.append("--" + field.name.replace("_", "-"))
        if not isinstance(value, bool):
            told.append(":".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return told
