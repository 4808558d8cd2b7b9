"""Mixup: what is recorded of it finds wrong labels, and whose loss it is matters where all batches are mixed."""

from pathlib import Path

import pytest

from benchmarks.frontier.questions.mixed import measure
from benchmarks.frontier.subjects import SUBJECTS


@pytest.mark.slow
def test_both_owners_find_more_than_the_first_alone(tmp_path):
    subject = SUBJECTS["conv-digits"]
    task = subject.load(Path(), None, tmp_path / "digits.npz").task("random40")
    both, first = (measure(task, subject.settings, 1.0, recorded, 0) for recorded in ("both", "first"))
    assert both[0] > 0.97 > first[0] > 0.9
    assert both[1] > first[1] + 5
    assert min(both[2], first[2]) > 85
