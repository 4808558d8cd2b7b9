"""Numbers as a reader takes them in at once."""

__all__ = ["duration", "percent"]


def percent(share: float) -> str:
    """Return a share from 0 to 1 as a percentage: 12.5 %, 100 %, 0.03 %. The space doesn't break."""
    value = 100 * share
    digits = 0 if not value or abs(value) >= 99.95 else 1 if abs(value) >= 0.95 else 2
    return f"{value:,.{digits}f}\N{NO-BREAK SPACE}%"


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
