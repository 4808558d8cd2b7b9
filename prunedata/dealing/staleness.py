"""How old the weights were that made the losses: staleness in versions of the weights."""

from collections import Counter

from prunedata.checks import integer, shown
from prunedata.errors import PrunedataError

__all__ = ["Staleness"]


class Staleness:
    """Counts reports by their staleness: how many updates the weights had got since the version that made the losses.

    Attributes
    ----------
    counts : Counter
        Reports by staleness.
    newest : int
        The newest version that any report has named.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.newest = 0

    def measure(self, version: int | None, newest: int | None) -> tuple[int, int] | None:
        """Return (staleness, newest version known) for a report, or None if it names no version. Counts nothing yet."""
        if version is None:
            if newest is not None:
                raise PrunedataError(
                    f"Expected version beside newest, that of the weights that made the losses. Got newest={newest!r}."
                )
            return None
        made = integer("version", version, 0)
        latest = max(self.newest, made) if newest is None else integer("newest", newest, 0)
        if latest < made:
            raise PrunedataError(
                f"Expected newest, the version of the weights now, to be at least version={made}. Got {latest}."
            )
        return latest - made, max(self.newest, latest)

    def add(self, measured: tuple[int, int] | None) -> None:
        """Count a report that was measured."""
        if measured is not None:
            staleness, self.newest = measured
            self.counts[staleness] += 1

    def to_dict(self) -> dict[str, object]:
        """Plain values, from which :meth:`from_dict` goes on."""
        return {"counts": [list(pair) for pair in sorted(self.counts.items())], "newest": self.newest}

    @classmethod
    def from_dict(cls, plain: object) -> "Staleness":
        """Return what :meth:`to_dict` was called on. Raises :class:`PrunedataError` if it is nothing of the kind."""
        found = cls()
        try:
            pairs = [(staleness, reports) for staleness, reports in plain["counts"]]  # type: ignore[index]
            newest = plain["newest"]  # type: ignore[index]
        except (LookupError, TypeError, ValueError) as error:
            raise PrunedataError(f"Expected the staleness of a dealer's state. Got {shown(plain)}.") from error
        for staleness, reports in pairs:
            found.counts[integer("staleness", staleness, 0)] = integer("reports", reports, 1)
        found.newest = integer("the newest version", newest, 0)
        return found
