"""Two hosts in network namespaces, with a link of limited rate between them: what a command sends over it.

    python -m benchmarks.distributed.link --rate 200mbit -- python -m benchmarks.distributed train --mode async ...
    python -m benchmarks.distributed.link --torchrun -- -m benchmarks.distributed train --mode sync --workers 2 ...

Each host is a node of one Ray cluster, and the command runs on the first; or a rank of what torchrun starts. Prints one
JSON object: the bytes that went over the link each way, and where the command printed how many updates it made, those
of the model: weights one way and gradients the other, in each update; the gradients both ways among ranks. It needs
Linux, root, and iproute2; without them it says so, with status 3.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmarks.common.arguments import program
from benchmarks.distributed.cluster import STUDY

__all__ = ["main", "unable"]

HOSTS = ("10.77.0.1", "10.77.0.2")
PORT = 6399
UNABLE = 3


class Link:
    """The two hosts, named after this process, and the link between them."""

    def __init__(self, rate: str) -> None:
        self.names = [f"prunedata-{os.getpid()}-{number}" for number in range(2)]
        self.ends = [f"pd{os.getpid()}{side}" for side in "ab"]
        self._rate = rate

    def make(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        _ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, address in zip(self.names, self.ends, HOSTS, strict=True):
            _ip("link", "set", end, "netns", name)
            inside = ("netns", "exec", name)
            _ip(*inside, "ip", "address", "add", f"{address}/24", "dev", end)
            for device in ("lo", end):
                _ip(*inside, "ip", "link", "set", device, "up")
            shape = ("rate", self._rate, "burst", "256kb", "latency", "200ms")
            _ip(*inside, "tc", "qdisc", "add", "dev", end, "root", "tbf", *shape)

    def remove(self) -> None:
        """End every process on the hosts, and take them down."""
        for name in self.names:
            for pid in _ip("netns", "pids", name, check=False).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "delete", name, check=False)

    def bytes(self) -> tuple[int, int]:
        """Bytes that the first host has sent over the link, and received."""
        counted = [
            _ip("netns", "exec", self.names[0], "cat", f"/sys/class/net/{self.ends[0]}/statistics/{way}_bytes")
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

    def torchrun(self, command: Sequence[str]) -> str:
        """Run a command by torchrun, as a rank on each host; return what the first one prints."""
        place = [f"--master-addr={HOSTS[0]}", f"--master-port={PORT}", "--nnodes=2", "--nproc-per-node=1"]
        launch = [[sys.executable, "-m", "torch.distributed.run", f"--node-rank={rank}", *place] for rank in range(2)]
        device = [{"GLOO_SOCKET_IFNAME": end, "OMP_NUM_THREADS": "1"} for end in self.ends]
        with self.start(1, [*launch[1], *command], **device[1]) as other:
            try:
                return self.run(0, [*launch[0], *command], **device[0])
            except BaseException:
                other.kill()  # it would wait for the first
                raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status."""
    parser = program("benchmarks.distributed.link", __doc__)
    parser.add_argument("--rate", default="200mbit", help="of the link, each way, as tc takes it; default: %(default)s")
    parser.add_argument("--torchrun", action="store_true", help="by it, a rank on each host; else on Ray")
    parser.add_argument("command", nargs="+", help="what to run, behind --")
    options = parser.parse_args(arguments)
    if why := unable():
        print(f"Expected to make network namespaces. Got: {why}", file=sys.stderr)
        return UNABLE
    with hosts(options.rate, ray=not options.torchrun) as link:
        before, began = link.bytes(), perf_counter()
        if options.torchrun:
            printed = link.torchrun(options.command)
        else:
            printed = link.run(0, options.command, RAY_ADDRESS=f"{HOSTS[0]}:{PORT}")
        seconds, after = perf_counter() - began, link.bytes()
    sent, received = (late - early for late, early in zip(after, before, strict=True))
    found = {"rate": options.rate, "seconds": round(seconds, 2), "sent": sent, "received": received}
    print(json.dumps(found | expected(printed, sent + received)))
    return 0


def expected(printed: str, seen: int) -> dict[str, Any]:
    """The model's bytes of what a training command has printed, and those seen over them; nothing if it was no such."""
    facts = json.loads(printed) if printed.lstrip().startswith("{") else {}
    if "updates" not in facts:
        return {}
    from benchmarks.common.networks import build  # noqa: PLC0415 (torch takes seconds)

    network = build(facts["network"], 1, facts.get("outputs") or 10)
    weights = 4 * sum(parameter.numel() for parameter in network.parameters())
    model = facts["updates"] * replace(STUDY, gradient_bytes=weights).step_bytes
    return {"updates": facts["updates"], "model": model, "seen_over_model": round(seen / model, 4)}


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
def hosts(rate: str, *, ray: bool = True) -> Iterator[Link]:
    """Two hosts with a link of a rate, each a node of one Ray cluster if asked."""
    link = Link(rate)
    home = tempfile.mkdtemp(prefix="ray-home-")
    try:
        link.make()
        if ray:
            _start_ray(link, home)
        yield link
    finally:
        link.remove()
        shutil.rmtree(home, ignore_errors=True)


def _start_ray(link: Link, home: str) -> None:
    """Make each host a node of one cluster."""
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--disable-usage-stats"]
    own = {"HOME": home, "OMP_NUM_THREADS": "1"}
    head = ["--head", f"--node-ip-address={HOSTS[0]}", f"--port={PORT}", "--include-dashboard=false"]
    link.run(0, [*start, *head], **own)
    link.run(1, [*start, f"--node-ip-address={HOSTS[1]}", f"--address={HOSTS[0]}:{PORT}"], **own)
    os.environ["HOME"] = home  # where the cluster's token is


def _ip(*words: str, check: bool = True) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check).stdout


if __name__ == "__main__":
    raise SystemExit(main())
