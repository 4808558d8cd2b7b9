"""Compare what ranks have seen of a training with what a plain loop says."""

import copy

from benchmarks.faults.fuzz.plain_epochs import Expected, PlainEpochs, check, expected
from benchmarks.faults.fuzz.play import Entry, Step
from benchmarks.faults.fuzz.setup import OWN, STREAMS, Loaded, Setup

__all__ = ["Judge"]


class Judge:
    """A run in plain Python, which is led by what was seen and says where that is wrong.

    The kept samples, and in which batch a shuffled order has a sample, are taken from what was seen, and held
    against the rules that they must follow. All else is worked out.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.ranks = setup, 1
        self.known = PlainEpochs(setup)
        self._marked = self.known

    def hear(self, everything: list[list[Entry]]) -> None:
        """Follow what each rank saw, up to where new objects go on, or to an error."""
        self.ranks = len(everything)
        seen = [[entry for entry in own if not _broken_off(entry)] for own in everything]
        kinds = [[entry["kind"] for entry in entries] for entries in seen]
        for at, entries in enumerate(zip(*seen, strict=False)):
            same = {entry["kind"] for entry in entries}
            check(len(same) == 1, f"the ranks go apart: {[own[at] for own in kinds]}")
            getattr(self, f"_{entries[0]['kind']}")(entries)
        if seen == everything:
            check(len(set(map(len, kinds))) == 1, f"a rank ended alone: {[own[-1:] for own in kinds]}")

    def _mark(self, _: tuple[Entry, ...]) -> None:
        self._marked = copy.deepcopy(self.known)

    def _back(self, _: tuple[Entry, ...]) -> None:
        self.known = copy.deepcopy(self._marked)

    def _begin(self, entries: tuple[Entry, ...]) -> None:
        first, number = entries[0], self.known.number
        check(first["epoch"] == number, f"epoch {first['epoch']} began in the place of {number}")
        for rank, entry in enumerate(entries):
            check(entry["keep"] == first["keep"], f"rank {rank} keeps other samples in epoch {number}")
        self.known.begin(set(first["keep"]), first["pruned"])

    def _told(self, entries: tuple[Entry, ...]) -> None:
        self.known.refused(entries[0]["message"])

    def _stuck(self, _: tuple[Entry, ...]) -> None:
        """Nothing came, and the epoch cannot end: that has been looked at when it was told."""

    def _ended(self, entries: tuple[Entry, ...]) -> None:
        self.known.finish()
        for rank, entry in enumerate(entries):
            self.known.compare(entry, f"after epoch {self.known.number} on rank {rank} of {self.ranks}")
        self.known.close(entries[0])

    # -- passes

    def _pass(self, entries: tuple[Entry, ...]) -> None:
        known, first = self.known, entries[0]
        loader, number = self.setup.loaders[first["loader"]], known.number * 10 + first["place"]
        due = expected(self.setup, loader, known.remaining, number, self.ranks)
        where = f"epoch {known.number}, pass {first['place']} over a loader of {loader.order}"
        for rank, entry in enumerate(entries):
            self._compare_lengths(entry, len(due.sizes[rank]), loader, where)
            self._compare_batches(entry, rank, due, loader, where)
        seen: set[int] = set()
        for at in range(max(len(entry["batches"]) for entry in entries)):
            parts = [entry["batches"][at] if at < len(entry["batches"]) else None for entry in entries]
            step = Step(self.setup, loader, due, parts, f"{where}, step {at}")
            step.look(known.remaining, seen)
            step.learn(known)
        known.walked(due, seen, [len(entry["batches"]) for entry in entries])
        # Nobody knows how long a stream is before it has come to its end.
        drops = loader.order in STREAMS and (loader.drop_last or loader.uneven == "drop")
        known.unfinished |= drops and not all(one["whole"] for one in entries)

    def _compare_lengths(self, entry: Entry, steps: int, loader: Loaded, where: str) -> None:
        if entry["lengths"] is not None:
            good = all(said == steps if loader.order in OWN else said >= steps for said in entry["lengths"])
            check(good, f"{where}: {steps} batches, len() and lengths() say {entry['lengths']}")

    def _compare_batches(self, entry: Entry, rank: int, due: Expected, loader: Loaded, where: str) -> None:
        stop = self.setup.plan[self.known.number][entry["place"]].stop
        steps = len(due.sizes[rank]) if stop is None else min(stop, len(due.sizes[rank]))
        batches = entry["batches"]
        check(len(batches) == steps, f"{where}: {len(batches)} batches on rank {rank}, expected {steps}")
        for at, batch in enumerate(batches):
            got, told, size = batch["ids"], batch["given"], due.sizes[rank][at]
            stands_in = self.ranks > 1 and loader.order in STREAMS
            check(told in (None, got) or stands_in, f"{where}: ids {told} with {got}")
            if due.batches is not None and size:
                right = due.batches[rank][at]
                check(got == right, f"{where}, step {at} on rank {rank}: {got}, expected {right}")
            elif size:
                check(len(got) == size, f"{where}, step {at} on rank {rank}: {len(got)} samples, expected {size}")
            strange = sorted(set(got) - self.known.keep)
            check(not strange, f"{where}: pruned samples {strange} were delivered")


def _broken_off(entry: Entry) -> bool:
    """Whether it is an error, or a pass that one ended."""
    return entry["kind"] in ("refused", "raised") or (entry["kind"] == "pass" and "done" not in entry)
