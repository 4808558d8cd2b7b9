"""The paper's run in plain Python: counts, hits, visits, which samples are left out, and whether an epoch may end."""

from collections import Counter
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from benchmarks.faults.fuzz.setup import OWN, STREAMS, Loaded, Setup
from benchmarks.faults.fuzz.sources import LARGE, given

__all__ = ["Expected", "PlainEpochs", "Wrong", "check", "cut", "expected", "highest_left_out", "mode"]


def cut(ids: list[int], size: int, drop_last: bool) -> list[list[int]]:
    """Batches of a size; the last one may be smaller, or is dropped."""
    batches = [ids[at : at + size] for at in range(0, len(ids), size)]
    return batches[:-1] if drop_last and batches and len(batches[-1]) < size else batches


class Expected:
    """What a pass has to deliver.

    Attributes
    ----------
    sizes : list of list of int
        For each rank, the samples in each of its batches; None where stand-ins make it of no matter.
    batches : list of list of list of int, or None
        For each rank its batches, where the order is known.
    real : int
        How many samples come on all ranks, those left out that stand in for none.
    shares : bool
        Whether what all ranks have for a step is one global batch.
    """

    def __init__(
        self, sizes: list[list[int]], batches: list[list[list[int]]] | None, real: int, *, shares: bool
    ) -> None:
        self.sizes, self.batches, self.real, self.shares = sizes, batches, real, shares

    @property
    def steps(self) -> int:
        return max(map(len, self.sizes), default=0)


def expected(setup: Setup, loader: Loaded, remaining: set[int], number: int, ranks: int) -> Expected:
    """What a pass of this number over a loader has to deliver of what remains."""
    if loader.order in OWN:
        return _own(loader, len(remaining), ranks)
    if loader.order in STREAMS:
        return _stream(setup, loader, remaining, ranks)
    batches = []
    for rank in range(ranks):
        order = given(loader, setup.samples, number, rank, ranks)
        if order and isinstance(order[0], list):
            left = [[each for each in batch if each in remaining] for batch in order]
            batches.append([batch for batch in left if batch])
        else:
            batches.append(cut([each for each in order if each in remaining], loader.batch, loader.drop_last))
    sizes = [[len(batch) for batch in own] for own in batches]
    return Expected(sizes, batches, sum(map(sum, sizes)), shares=False)


def mode(loader: Loaded) -> str:
    """What becomes of an end that cannot be shared evenly."""
    if loader.uneven is not None:
        return loader.uneven
    return "drop" if loader.sampler_drops else "weights"


def _own(loader: Loaded, left: int, ranks: int) -> Expected:
    how, size = mode(loader), loader.batch
    if how == "weights" or ranks == 1:
        full, rest = divmod(left, size * ranks)
        tail = rest and not loader.drop_last
        sizes = [[size] * full + ([max(1, -(-(rest - rank) // ranks))] if tail else []) for rank in range(ranks)]
        return Expected(sizes, None, left - (0 if tail else rest), shares=True)
    each = left // ranks if how == "drop" else -(-left // ranks)
    own = [len(batch) for batch in cut(list(range(each)), size, loader.drop_last)]
    return Expected([own] * ranks, None, min(left, sum(own) * ranks), shares=True)


def _stream(setup: Setup, loader: Loaded, remaining: set[int], ranks: int) -> Expected:
    batches = []
    for rank in range(ranks):
        order = [each for each in range(setup.samples) if each in remaining]
        if loader.order == "shared stream":
            order = [each for each in order if each % ranks == rank]
        else:
            order = order[rank::ranks]
        batches.append(cut(order, loader.batch, loader.drop_last))
    if loader.uneven == "drop":
        batches = [own[: min(map(len, batches))] for own in batches]
    real = sum(len(batch) for own in batches for batch in own)
    steps = list(zip_longest(*batches, fillvalue=[]))
    sizes = [[len(step[rank]) for step in steps] for rank in range(ranks)]
    return Expected(sizes, [[step[rank] for step in steps] for rank in range(ranks)], real, shares=True)


def highest_left_out(scores: list[Any], keep: set[int], slack: float) -> str:
    """Say what is wrong with a choice that is to leave out the highest scores; nothing if nothing is."""
    kept = max((scores[each], each) for each in keep)
    left = [(score, each) for each, score in enumerate(scores) if each not in keep]
    if left and kept[0] - min(left)[0] > slack:  # a difference of fractions is exact
        return f"kept sample {kept[1]} of score {kept[0]}, and left out sample {min(left)[1]} of score {min(left)[0]}"
    return ""


class Wrong(AssertionError):
    """Something is not as in the plain loop."""


def check(good: bool, told: str) -> None:
    """Raise :class:`Wrong` unless it is as it should be."""
    if not good:
        raise Wrong(told)


class PlainEpochs:
    """What is known after all that was observed so far."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.counts, self.hits, self.visits = ([0] * setup.samples for _ in range(3))
        self.excess: list[float] | None = [0.0] * setup.samples
        self.number, self.open = 0, False
        self.new_hits, self.unsure, self.new_visits = Counter[int](), Counter[int](), Counter[int]()
        self.maybe_seen = Counter[int]()
        self.keep: set[int] = set()
        self.size = LARGE if setup.losses == "large" else 1.0
        """About how large losses are."""

    def begin(self, keep: set[int], pruned: bool) -> None:
        """Begin an epoch with these kept samples, or go on with it."""
        if self.open:
            check(keep == self.keep, f"epoch {self.number} goes on with other kept samples")
            before = self.new_visits, self.new_hits
            self._unite()
            # Whether these count once depends on whether a rank gets a sample twice later in the epoch.
            self.maybe_seen += before[0] - self.new_visits
            self.unsure += before[1] - self.new_hits
        else:
            self._check_choice(keep, pruned)
            self.keep, self.open = keep, True
            self.observed: set[int] = set()
            self.new_hits, self.unsure, self.new_visits = Counter[int](), Counter[int](), Counter[int]()
            self.maybe_seen = Counter[int]()
            self.losses: list[float] = []
            self.by_rank: dict[int, Counter[int]] = {}
            """Visits of each rank, by its number."""
        self.remaining = keep - self.observed
        self.skipped, self.unfinished = 0, False
        self.promised = self.came = 0
        """Samples that loaders with an order of the library's own have, and those of them that were trained on."""
        self.would, self.delivered = set[int](), set[int]()
        """Samples that other loaders have, and those that were delivered."""

    def _check_choice(self, keep: set[int], pruned: bool) -> None:
        """Algorithm 2: whether the epoch is pruned, how many are left out, and that these are the highest."""
        setup, at, number = self.setup, self.number % self.setup.window, self.number
        due = at >= setup.start and (at - setup.start) % setup.block < setup.per_block
        check(pruned == due, f"epoch {number} is pruned: {pruned}, expected {due}")
        kept = setup.samples - (setup.prune if due else 0)
        if setup.whole is not None:
            kept = min(setup.samples, -(-kept // setup.whole) * setup.whole)
        check(len(keep) == kept, f"epoch {number} keeps {len(keep)} of {setup.samples}, expected {kept}")
        slack = 1e-4 * self.size if setup.policy == "running" else 0.0
        if (scores := self._scores()) is not None:
            told = highest_left_out(scores, keep, slack)
            check(not told, f"epoch {number}: {told}")

    def _scores(self) -> list[Any] | None:
        """What decides; None if chance does, or nobody knows."""
        if self.setup.policy == "rate":
            return [Fraction(hit, max(1, seen)) for hit, seen in zip(self.hits, self.visits, strict=True)]
        return {"count": self.counts, "running": self.excess}.get(self.setup.policy)

    def learn(self, ids: list[int], losses: list[float], rank: int, *, exact: bool) -> None:
        """Algorithm 1, lines 4 to 8, of a rank's batch; ``exact`` says that its sum is taken in this order."""
        self.by_rank.setdefault(rank, Counter()).update(ids)
        total = 0.0
        for loss in losses:
            total = total + loss
        mean = total / len(losses)
        limit = mean + self.setup.tolerance * abs(mean)
        near = 0.0 if exact else 1e-9 * max(map(abs, losses))
        for each, loss in zip(ids, losses, strict=True):
            self.new_visits[each] += 1
            self.new_hits[each] += loss > limit + near
            self.unsure[each] += limit - near < loss <= limit + near
        self.observed |= set(ids)
        self.losses += losses
        if any(self.new_visits[each] > 1 for each in ids):
            self.excess = None  # nobody says which visit of an epoch comes last
        if len(ids) == 1:  # held against the mean of the epoch so far, of which several ranks each know a part
            mean = sum(self.losses) / len(self.losses)
            self.excess = self.excess if max(self.setup.worlds) == 1 else None
        if self.excess is not None:
            for each, loss in zip(ids, losses, strict=True):
                self.excess[each] = 0.8 * self.excess[each] + 0.2 * (loss - mean)

    def walked(self, due: Expected, seen: set[int], batches: list[int]) -> None:
        """A pass that was to deliver so much was left, or came to its end, after so many batches on each rank."""
        if due.batches is None:
            self.promised += due.real
            self.came += len(seen & self.observed) if self.setup.observes else len(seen)
            return
        self.would |= {each for own in due.batches for batch in own for each in batch}
        self.delivered |= seen
        # The batches that were left may have had nothing but what had come before.
        self.unfinished |= any(had < len(own) for had, own in zip(batches, due.batches, strict=True))

    def _unite(self) -> None:
        """Count once what came on several ranks, as padding does, unless a rank had a sample more than once."""
        if all(visits == 1 for own in self.by_rank.values() for visits in own.values()):
            self.new_visits = Counter(dict.fromkeys(self.new_visits, 1))
            self.new_hits = Counter({each: min(1, hits) for each, hits in self.new_hits.items()})
            self.unsure = Counter({each: min(more, 1 - self.new_hits[each]) for each, more in self.unsure.items()})

    # -- the end of an epoch

    def _missed(self) -> int:
        """Samples that loaders had since the epoch was begun or gone on with, and that were not trained on."""
        done = self.observed if self.setup.observes else self.delivered
        return self.promised - self.came + len(self.would - done)

    def refused(self, message: str) -> None:
        """The epoch did not end."""
        missed = self._missed()
        told = f"where {missed} were left and {self.skipped} skipped"
        nothing = not (self.observed or self.promised or self.would)  # an epoch that would train on nothing
        good = missed > self.skipped or self.unfinished or nothing
        check(good, f"epoch {self.number} refused to end ({message}), {told}")

    def finish(self) -> None:
        """The epoch has ended: compare next."""
        missed = self._missed()
        check(missed <= self.skipped, f"epoch {self.number} ended without a word, where {missed} were left")
        self._unite()
        if self.number % self.setup.window == 0:
            self.counts = [0] * self.setup.samples

    def compare(self, seen: dict[str, Any], where: str) -> None:
        """Compare what a rank knows of the epoch that has ended."""
        self._compare("visits", seen["visits"], self.visits, self.new_visits, self.maybe_seen, where)
        self._compare("hits", seen["hits"], self.hits, self.new_hits, self.unsure, where)
        if seen["counts"] is not None:
            self._compare("counts", seen["counts"], self.counts, self.new_hits, self.unsure, where)
        total = sum(self.new_visits.values())
        near = total <= seen["observed"] <= total + sum(self.maybe_seen.values())
        check(near, f"{where}: {seen['observed']} visits recorded, expected {total}")
        if self.losses and seen["mean_loss"] is not None:
            due = sum(self.losses) / len(self.losses)
            near = abs(seen["mean_loss"] - due) <= 1e-6 * self.size
            check(near, f"{where}: mean loss {seen['mean_loss']}, expected {due}")
        if self.excess is not None and seen["excess"] is not None:
            worst = max(abs(one - other) for one, other in zip(seen["excess"], self.excess, strict=True))
            check(worst <= 1e-4 * self.size, f"{where}: running losses differ by {worst}")

    def _compare(
        self, name: str, seen: list[int], before: list[int], new: Counter[int], unsure: Counter[int], where: str
    ) -> None:
        least = [before[each] + new[each] for each in range(self.setup.samples)]
        wrong = [each for each, low in enumerate(least) if not low <= seen[each] <= low + unsure[each]]
        told = ", ".join(f"sample {each} has {seen[each]}, expected {least[each]}" for each in wrong[:4])
        check(not wrong, f"{where}: {name} of {len(wrong)} samples differ: {told}")

    def close(self, seen: dict[str, Any]) -> None:
        """Go on from what the ranks know, where rounding has decided."""
        gained = [now - before for now, before in zip(seen["hits"], self.hits, strict=True)]
        self.counts = [count + more for count, more in zip(self.counts, gained, strict=True)]
        self.hits, self.visits = list(seen["hits"]), list(seen["visits"])
        self.number, self.open = self.number + 1, False
