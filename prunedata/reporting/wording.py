"""Numbers in words."""

__all__ = ["duration", "percent"]


def percent(share: float) -> str:
    """Return a share from 0 to 1 as a percentage: 12.5 %, 100 %, 0.03 %. The space doesn't break."""
    value = 100 * share
    digits = 0 if not value or abs(value) >= 99.95 else 1 if abs(value) >= 0.95 else 2
    return f"{value:,.{digits}f}\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """Return seconds in units of time: 4.27 s, 20 min 51 s, 3 h 24 min, 2 d 5 h."""
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    sign, left = "-" if seconds < 0 else "", round(abs(seconds))
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    large, name, small, rest = next(unit for unit in units if left >= unit[0])
    return f"{sign}{left // large} {name} {left % large // small} {rest}"
