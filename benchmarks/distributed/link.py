"""Two hosts in network namespaces, with a link of limited rate between them: what a command sends over it.

    python -m benchmarks.distributed.link --rate 200mbit -- python -m benchmarks.distributed train --mode async ...
    python -m benchmarks.distributed.link --torchrun -- -m benchmarks.distributed train --mode sync --workers 2 ...

Each host is a node of one Ray cluster, and the command runs on the first; or a rank of what torchrun starts. Prints one
JSON object: the bytes that went over the link each way, and where the command printed how many updates it made, those
of the model: weights one way and gradients the other, in each update; the gradients both ways among ranks. It needs
Linux, root, and iproute2; without them it says so, with status 3.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmarks.common.commands import program
from benchmarks.distributed.cluster import STUDY
from benchmarks.distributed.hosts import PORT, Hosts, address, hosts, unable

__all__ = ["UNABLE", "expected", "main", "torchrun"]

UNABLE = 3


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
    with hosts(2, options.rate, ray=not options.torchrun) as pair:
        before, began = pair.bytes(), perf_counter()
        if options.torchrun:
            printed = torchrun(pair, options.command)
        else:
            printed = pair.run(0, options.command, RAY_ADDRESS=f"{address(0)}:{PORT}")
        seconds, after = perf_counter() - began, pair.bytes()
    sent, received = (late - early for late, early in zip(after, before, strict=True))
    found = {"rate": options.rate, "seconds": round(seconds, 2), "sent": sent, "received": received}
    print(json.dumps(found | expected(printed, sent + received)))
    return 0


def torchrun(pair: Hosts, command: Sequence[str]) -> str:
    """Run a command by torchrun, as a rank on each of two hosts; return what the first one prints."""
    place = [f"--master-addr={address(0)}", f"--master-port={PORT}", "--nnodes=2", "--nproc-per-node=1"]
    launch = [[sys.executable, "-m", "torch.distributed.run", f"--node-rank={rank}", *place] for rank in range(2)]
    device = [{"GLOO_SOCKET_IFNAME": end, "OMP_NUM_THREADS": "1"} for end in pair.ends]
    with pair.start(1, [*launch[1], *command], **device[1]) as other:
        try:
            return pair.run(0, [*launch[0], *command], **device[0])
        except BaseException:
            other.kill()  # it would wait for the first
            raise


def expected(printed: str, seen: int) -> dict[str, Any]:
    """The model's bytes of what a training command has printed, and those seen over them; nothing if it was no such."""
    facts = json.loads(printed) if printed.lstrip().startswith("{") else {}
    if "updates" not in facts:
        return {}
    model = facts["updates"] * replace(STUDY, gradient_bytes=4 * _parameters(facts)).step_bytes
    return {"updates": facts["updates"], "model": model, "seen_over_model": round(seen / model, 4)}


def _parameters(facts: dict[str, Any]) -> int:
    if facts.get("parameters"):
        return int(facts["parameters"])
    from benchmarks.common.networks import build  # noqa: PLC0415 (torch takes seconds)

    network = build(facts["network"], 1, facts.get("outputs") or 10)
    return sum(parameter.numel() for parameter in network.parameters())


if __name__ == "__main__":
    raise SystemExit(main())
