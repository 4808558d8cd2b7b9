"""Numbers as a reader takes them in at once."""

from __future__ import annotations

import math

__all__ = ["duration", "few", "percent", "plural", "ticks"]

SMALLEST = 1e-300
"""Below it a difference counts as none: dividing it would come to 0."""


def percent(share: float) -> str:
    """Return a share from 0 to 1 as a percentage: 12.5 %, 100 %, 0.03 %. The space doesn't break."""
    value = 100 * share
    if value == 0:
        number = "0"
    elif abs(value) < 0.001:
        number = "below 0.001" if value > 0 else "-0"
    else:
        number = f"{value:,.{0 if abs(value) >= 99.95 else 1 if abs(value) >= 0.95 else 2}f}"
        number = number if float(number.replace(",", "")) else f"{value:.1g}"
    return f"{number}\N{NO-BREAK SPACE}%"


def few(value: float) -> str:
    """Return a number by three digits that matter, without an exponent where that is short."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(number: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun: 1 epoch, 2 epochs."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def duration(seconds: float) -> str:
    """Return seconds as people say them: 4.27 s, 20 min 51 s, 3 h 24 min, 2 d 5 h."""
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    sign, left = "-" if seconds < 0 else "", round(abs(seconds))
    for large, small, big_name, small_name in (
        (86400, 3600, "d", "h"),
        (3600, 60, "h", "min"),
        (60, 1, "min", "s"),
    ):
        if left >= large:
            return f"{sign}{left // large} {big_name} {left % large // small} {small_name}"
    return f"{sign}{left} s"


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers, rising, of which the first is at most `low` and the last at least `high`."""
    span = high - low
    if not math.isfinite(span) or span < SMALLEST:
        span = abs(high) if abs(high) > SMALLEST else 1.0
        low, high = (low, low + span) if low >= 0 else (low - span / 2, low + span / 2)
    rough = span / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((unit * power for unit in (1, 2, 2.5, 5) if unit * power >= rough * 0.999), 10 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * at for at in range(first, last + 1)]
