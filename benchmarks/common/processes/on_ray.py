"""Ray on this machine alone, for as long as it is needed."""

import atexit
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

__all__ = ["on_ray"]

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def on_ray() -> Iterator[str]:
    """Start Ray, give its version, and stop it. It has a HOME of its own, where it writes a token.

    With RAY_ADDRESS set it joins that cluster instead, whose token is in the HOME that is set.

    What is printed meanwhile goes to standard error, as Ray prints there too.
    """
    import ray  # noqa: PLC0415 (takes seconds, and --help needs it not)

    before = os.environ.get("HOME")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default all other processes go first, and times mean nothing
    joined = "RAY_ADDRESS" in os.environ
    if not joined:
        os.environ["HOME"] = _home()
    with redirect_stdout(sys.stderr):  # Ray tells of dead workers on standard output
        try:
            # By default Ray would join what somebody else has started on this machine.
            alone: dict[str, Any] = {
                "address": "local",
                "num_cpus": 2,
                "include_dashboard": False,
                "object_store_memory": 80 << 20,
            }
            ray.init(
                **({} if joined else alone),
                log_to_driver=False,
                runtime_env={"env_vars": {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}},
            )
            yield str(ray.__version__)
        finally:
            ray.shutdown()
            if before is not None:
                os.environ["HOME"] = before


@cache
def _home() -> str:
    """One for the whole process: Ray remembers its token, and does not write it into a second HOME."""
    folder = mkdtemp(prefix="ray-home-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
