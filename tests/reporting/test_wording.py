"""Numbers as a reader takes them in at once."""

import pytest

from prunedata.reporting.wording import percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.125, "12.5"), (1, "100"), (0.999, "99.9"), (0.9999, "100"), (0.0007, "0.07"), (9.58, "958"),
     (-0.054, "-5.4"), (12.5, "1,250")],
)  # fmt: skip
def test_percent(share, text):
    assert percent(share) == f"{text}\N{NO-BREAK SPACE}%"
