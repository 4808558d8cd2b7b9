"""Kill a training run at random instants; see that nothing is torn or lost.

    python -m benchmarks.kill --kills 200             a run in numpy, resumed from its store
    python -m benchmarks.kill --way state --kills 50  a run in PyTorch, resumed within an epoch from its checkpoint

The run is killed with SIGKILL, started again and killed again until it is done; then its weights, counts, masks and
orders must be those of a run that was never killed. Runs begin anew until there were as many kills as asked for.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time

from tqdm import tqdm

from benchmarks.kill.worker_numpy import result

__all__ = ["Outcome", "kill_runs", "main"]

WAYS = {"store": "benchmarks.kill.worker_numpy", "state": "benchmarks.kill.worker_torch"}
LIVES = 5
"""About how many lives a run takes: few enough to get on, enough that most begin by going on."""


@dataclass
class Outcome:
    """What the kills came to.

    ``while_opening`` and ``while_saving`` say how many of the ``kills`` fell while the run was opening its store,
    or saving. ``torn``: runs that could not go on. ``lost``: lives that began before what was already safe.
    ``different``: runs that ended with another result than the one that was never killed.
    """

    way: str
    kills: int = 0
    while_opening: int = 0
    while_saving: int = 0
    runs: int = 0
    torn: int = 0
    lost: int = 0
    different: int = 0

    @property
    def good(self) -> bool:
        return not (self.torn or self.lost or self.different)


@dataclass
class Life:
    """One life of a run, from its start to its end or to its death."""

    lines: list[str]
    killed: bool
    failed: str
    ready: float
    """When it had imported all it needs, in seconds of the system's clock."""

    def epochs(self, word: str) -> int:
        """The last epoch that it said to have ``resumed`` or ``saved``; 0 if none."""
        said = [int(line.split()[1]) for line in self.lines if line.startswith(word)]
        return said[-1] if said else 0


def live(way: str, folder: Path, seconds: float | None) -> Life:
    """Let the run in ``folder`` go on, and kill it so many seconds after it got ready; None lets it end."""
    # Imported from the checkout, wherever this program was started.
    command = [sys.executable, "-W", "error", "-m", WAYS[way], str(folder)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        ready = time()
        killed = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            killed = process.wait() < 0
        rest, errors = process.communicate()
    failed = "" if killed or process.returncode == 0 else errors or f"exit status {process.returncode}"
    lines = (first + rest).splitlines()
    # A kill after the run had written its result does not count.
    return Life(lines, killed and not (folder / "result.json").exists(), failed, ready)


def kill_runs(way: str, folder: Path, kills: int, seed: int, tick: Callable[[], object]) -> Outcome:
    """Kill runs in ``folder`` so many times; ``tick`` is called at each.

    Raises
    ------
    RuntimeError
        If the run fails though nobody kills it.
    """
    choose = random.Random(seed)
    whole = folder / "never-killed"
    whole.mkdir(parents=True)
    undisturbed = live(way, whole, None)
    if undisturbed.failed:
        raise RuntimeError(f"Expected a run that ends. Got {undisturbed.failed}")
    expected, outcome = result(whole), Outcome(way)
    # Not until it has exited, which can take longer than the training.
    longest = 2 * ((whole / "result.json").stat().st_mtime - undisturbed.ready) / LIVES
    while outcome.kills < kills:
        place = folder / f"run-{outcome.runs}"
        place.mkdir()
        outcome.runs += 1
        safe = 0
        while not (place / "result.json").exists():
            life = live(way, place, choose.uniform(0, longest) if outcome.kills < kills else None)
            if life.failed:
                outcome.torn += 1
                print(life.failed, file=sys.stderr)
                break
            if any(line.startswith("resumed") for line in life.lines):
                outcome.lost += life.epochs("resumed") < safe
            safe = max(safe, life.epochs("saved"))
            if life.killed:
                outcome.kills += 1
                outcome.while_opening += life.lines[-1] == "ready"
                outcome.while_saving += life.lines[-1] == "saving"
                tick()
        else:
            outcome.different += result(place) != expected
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status, 1 if anything was torn or lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many (200)")
    parser.add_argument("--way", choices=tuple(WAYS), default="store", help="what the run is resumed from (store)")
    parser.add_argument("--seed", type=int, default=0, help="decides the instants (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="prunedata-kill-") as folder,
        tqdm(total=options.kills, desc="killing", unit=" kills") as bar,
    ):
        outcome = kill_runs(options.way, Path(folder), options.kills, options.seed, bar.update)
    print(json.dumps(asdict(outcome), indent=2) if options.json else _told(outcome))
    return 0 if outcome.good else 1


def _told(outcome: Outcome) -> str:
    return (
        f"{outcome.kills} kills, {outcome.while_saving} of them while saving and {outcome.while_opening} while "
        f"opening, over {outcome.runs} runs resumed by {outcome.way}:\n"
        f"{outcome.torn} torn, {outcome.lost} lost, "
        f"{outcome.different} ended otherwise than the run that was never killed"
    )


if __name__ == "__main__":
    sys.exit(main())
