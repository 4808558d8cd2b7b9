"""One step of all ranks: which samples are real, what is learned of their losses, and what they weigh."""

from typing import Any

from benchmarks.faults.fuzz.plain import Expected, mode
from benchmarks.faults.fuzz.plain_epochs import PlainEpochs, check
from benchmarks.faults.fuzz.setup import STREAMS, Loaded, Setup

__all__ = ["Entry", "Step"]

Entry = dict[str, Any]
TOLERANCES = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


class Step:
    """One step.

    Parameters
    ----------
    setup : Setup
    loader : Loaded
    due : Expected
    parts : list of dict or None
        The batch of each rank, None where it has none.
    where : str
        For messages.
    """

    def __init__(self, setup: Setup, loader: Loaded, due: Expected, parts: list[Entry | None], where: str) -> None:
        self.setup, self.parts, self.where = setup, parts, where
        self.shares = due.shares
        self.weighs = loader.order in STREAMS or mode(loader) == "weights"
        """Whether each sample of a global batch counts alike, and stand-ins not at all."""
        self.known_order = due.batches is not None
        self.real: list[list[bool]] = []
        """Of each rank's samples, whether they stand for themselves and not in for none."""

    def look(self, remaining: set[int], seen: set[int]) -> None:
        """Find the real samples, which have neither come before nor been observed in an earlier pass."""
        for part in self.parts:
            flags = []
            for at, each in enumerate([] if part is None else part["ids"]):
                new = each not in seen and each in remaining and not self._weightless(part, at)
                flags.append(new or not self.shares)
                if flags[-1]:
                    seen.add(each)
            self.real.append(flags)
        if not self.known_order and self.weighs:
            strange = sorted({each for part in self.parts if part for each in part["ids"]} - remaining)
            check(not strange, f"{self.where}: {strange} came again after they were observed")

    def _weightless(self, part: Entry | None, at: int) -> bool:
        """Whether it stands in for none, beside another rank that has the sample itself."""
        if part is None or not (self.shares and self.weighs and part["observed"]) or part["weights"][at] != 0:
            return False
        return any(other is not None and other is not part and part["ids"][at] in other["ids"] for other in self.parts)

    def learn(self, known: PlainEpochs) -> None:
        """Record what was observed, batch by batch, global ones where ranks share them."""
        ranks = range(len(self.parts))
        for group in [list(ranks)] if self.shares else [[rank] for rank in ranks]:
            parts = {rank: part for rank in group if (part := self.parts[rank]) is not None and part["observed"]}
            ids = [each for rank, part in parts.items() for each in self._real_of(rank, part["ids"])]
            losses = [loss for rank, part in parts.items() for loss in self._real_of(rank, part["losses"])]
            if ids:
                known.learn(ids, losses, group[0], exact=len(group) == 1)
            for rank, part in parts.items():
                self._check_gradient(part, rank, len(group), len(ids))
            if ids and len(parts) == len(group):
                self._check_value(list(parts.values()), losses)
        for part in self.parts:
            if part is not None and part.get("skipped"):
                known.skipped += len(part["ids"])

    def _real_of(self, rank: int, values: list[Any]) -> list[Any]:
        return [value for value, real in zip(values, self.real[rank], strict=True) if real]

    def _check_gradient(self, part: Entry, rank: int, ranks: int, total: int) -> None:
        """The mean over the ranks gives each sample of a global batch the same weight."""
        for each, weight, real in zip(part["ids"], part["weights"], self.real[rank], strict=True):
            right = 1 / len(part["ids"])
            if self.weighs and ranks > 1:
                right = ranks / total if real else 0.0
            near = abs(weight - right) <= TOLERANCES[self.setup.dtype] * max(right, 0.01)
            told = f"sample {each} has the weight {weight}, expected {right}, of {total} in all"
            check(near, f"{self.where}, rank {rank}: {told}")

    def _check_value(self, parts: list[Entry], losses: list[float]) -> None:
        """So does the mean over the ranks of what was returned."""
        values = losses if self.weighs else [loss for part in parts for loss in part["losses"]]
        mean, got = sum(values) / len(values), sum(part["total"] for part in parts) / len(parts)
        near = abs(got - mean) <= TOLERANCES[self.setup.dtype] * max(1e-3, *map(abs, values))
        check(near, f"{self.where}: the ranks' mean loss is {got}, expected {mean}")
