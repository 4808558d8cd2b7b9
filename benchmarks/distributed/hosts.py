"""Hosts in network namespaces of this machine, on one switch, each with a link whose rate ``tbf`` limits.

It needs Linux, root, and iproute2; :func:`unable` says what is missing.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

__all__ = ["PORT", "Hosts", "address", "hosts", "unable"]

PORT = 6399
WITH_THE_CALL = {"RAY_max_direct_call_object_size": str(1 << 25), "RAY_task_rpc_inlined_bytes_limit": str(1 << 28)}
"""Gradients and weights of up to 32 MB travel within Ray's calls, and not by the object stores of both nodes: that
halves what an exchange costs beside its bytes."""
LATENCY = "200ms"
"""How long a packet may wait for its turn; then it is dropped."""


def address(host: int) -> str:
    """Of a host of this process, counted from 0. Ray takes two clusters of one address for one, also in namespaces."""
    return f"10.77.{os.getpid() % 250}.{host + 1}"


class Hosts:
    """So many hosts, named after this process, and the switch between them.

    Parameters
    ----------
    count : int
    rate : str
        Of each host's link, each way, as ``tc`` takes it.
    """

    def __init__(self, count: int, rate: str) -> None:
        self.names = [f"prunedata-{os.getpid()}-{number}" for number in range(count)]
        self.ends = [f"pd{os.getpid()}h{number}" for number in range(count)]
        self._ports = [f"pd{os.getpid()}p{number}" for number in range(count)]
        self._switch, self._rate = f"prunedata-{os.getpid()}-switch", rate

    def make(self) -> None:
        """Make them."""
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for number, (name, end, port) in enumerate(zip(self.names, self.ends, self._ports, strict=True)):
            _ip("netns", "add", name)
            _ip("link", "add", end, "type", "veth", "peer", "name", port)
            _ip("link", "set", end, "netns", name)
            _ip("link", "set", port, "netns", self._switch)
            _ip("-n", name, "address", "add", f"{address(number)}/24", "dev", end)
            for device in ("lo", end):
                _ip("-n", name, "link", "set", device, "up")
            _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
        self.limit(self._rate)

    def limit(self, rate: str) -> None:
        """Give every link a rate, each way."""
        shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", LATENCY)
        for name, end, port in zip(self.names, self.ends, self._ports, strict=True):
            for place, device in ((name, end), (self._switch, port)):
                _ip("netns", "exec", place, "tc", "qdisc", "replace", "dev", device, *shape)

    def remove(self) -> None:
        """End every process on the hosts, and take them down."""
        for name in self.names:
            for pid in _ip("netns", "pids", name, check=False).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "delete", name, check=False)
        _ip("netns", "delete", self._switch, check=False)

    def bytes(self, host: int = 0) -> tuple[int, int]:
        """Bytes that a host has sent over its link, and received."""
        counted = [
            _ip("netns", "exec", self.names[host], "cat", f"/sys/class/net/{self.ends[host]}/statistics/{way}_bytes")
            for way in ("tx", "rx")
        ]
        return int(counted[0]), int(counted[1])

    def run(self, host: int, command: Sequence[str], **more: str) -> str:
        """Run a command on a host; return what it prints."""
        with self.start(host, command, **more) as process:
            printed = process.communicate()[0]
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, list(command))
        return printed

    def start(self, host: int, command: Sequence[str], **more: str) -> subprocess.Popen[str]:
        """Start a command on a host."""
        inside = ["ip", "netns", "exec", self.names[host], *command]
        return subprocess.Popen(inside, stdout=subprocess.PIPE, text=True, env=os.environ | more)


def unable() -> str:
    """Why no namespaces can be made here; empty if they can."""
    if missing := [name for name in ("ip", "tc") if not shutil.which(name)]:
        return f"no {' and no '.join(missing)}: install iproute2"
    trial = f"prunedata-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip()
    _ip("netns", "delete", trial)
    return ""


@contextmanager
def hosts(count: int, rate: str, *, ray: bool = True, store_bytes: int | None = None) -> Iterator[Hosts]:
    """Hosts with links of a rate, each a node of one Ray cluster if asked.

    ``store_bytes`` is how much memory each node's object store may take; by default Ray's share of the machine's.
    """
    made = Hosts(count, rate)
    home = tempfile.mkdtemp(prefix="ray-home-")
    before = os.environ.get("HOME")
    try:
        made.make()
        if ray:
            _start_ray(made, home, store_bytes)
        yield made
    finally:
        made.remove()
        shutil.rmtree(home, ignore_errors=True)
        if before is not None:
            os.environ["HOME"] = before


def _start_ray(made: Hosts, home: str, store_bytes: int | None) -> None:
    """Make each host a node of one cluster."""
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--disable-usage-stats"]
    if store_bytes is not None:
        start.append(f"--object-store-memory={store_bytes}")
    # By default all other processes go before Ray's workers, and times mean nothing.
    own = {"HOME": home, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0", **WITH_THE_CALL}
    place = f"{address(0)}:{PORT}"
    head = ["--head", f"--node-ip-address={address(0)}", f"--port={PORT}", "--include-dashboard=false"]
    made.run(0, [*start, *head], **own)
    for host in range(1, len(made.names)):
        made.run(host, [*start, f"--node-ip-address={address(host)}", f"--address={place}"], **own)
    os.environ["HOME"] = home  # where the cluster's token is


def _ip(*words: str, check: bool = True) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check).stdout
