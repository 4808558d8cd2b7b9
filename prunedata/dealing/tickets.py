"""Tickets: each names one deal of one life of a dealer, so that no report is taken for that of another deal."""

from collections.abc import Collection
from secrets import token_hex

from prunedata.dealing.deal import Deal, Receipt
from prunedata.errors import PrunedataError

__all__ = ["Tickets"]


class Tickets:
    """Numbers deals, and says of a ticket which deal it names.

    A dealer that is restored begins a new life. Its numbers begin again, and workers may still report deals that were
    made after the state was saved: their tickets name another life.
    """

    def __init__(self) -> None:
        self._life, self._deals = token_hex(6), 0
        self._withdrawn: set[int] = set()

    def new(self) -> tuple[int, str]:
        """Number the next deal, and name it."""
        self._deals += 1
        return self._deals - 1, f"{self._life}-{self._deals - 1}"

    def withdraw(self, deals: Collection[int]) -> None:
        """Note that what these deals had is dealt again."""
        self._withdrawn.update(deals)

    def read(self, deal: Deal | str) -> int:
        """The number of a deal; -1 for one of another life. Raises :class:`PrunedataError` for what is no ticket."""
        ticket = deal.ticket if isinstance(deal, Deal) else deal
        life, _, number = ticket.partition("-") if isinstance(ticket, str) else ("", "", "")
        if not (number.isascii() and number.isdigit()) or (life == self._life and int(number) >= self._deals):
            raise PrunedataError(f"Expected what deal() returned, or its ticket. Got {deal!r}.")
        return int(number) if life == self._life else -1

    def refuse(self, deal: int) -> Receipt:
        """Say why the report of a deal that is not out does not count."""
        if deal < 0:
            return Receipt(False, "it was dealt before the dealer was restored, or by another one: it is dealt again")
        if deal in self._withdrawn:
            return Receipt(False, "it was taken back, as its worker was lost or took too long: it is dealt again")
        return Receipt(False, "it was reported before")
