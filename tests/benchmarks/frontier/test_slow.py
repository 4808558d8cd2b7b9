"""Networks that learn too slowly: a run of each arm, and the page's table."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.common.commands import fill
from benchmarks.common.records import Runs
from benchmarks.frontier.late import subjects
from benchmarks.frontier.questions import slow

ROOT = Path(__file__).parents[3]


def made(_):
    """Three classes that lie apart."""
    random, truth = np.random.default_rng(0), np.arange(900) % 3
    features = random.normal(size=(900, 8)) + 2 * np.eye(3, 8)[truth]
    return {
        "features": features[:700], "truth": truth[:700],
        "test_features": features[700:], "test_labels": truth[700:].astype(np.int64),
    }  # fmt: skip


def test_every_arm_is_measured_at_its_rate_and_in_the_table(tmp_path, monkeypatch):
    small = subjects.LateSubject("made", "tables", made, subjects.ADAM, epochs=9)
    monkeypatch.setitem(subjects.SUBJECTS, "letter", small)
    subjects._made.cache_clear()
    runs = Runs(tmp_path / "slow.jsonl.bz2")
    slow.run(runs, tmp_path, [("letter", slower, "clean", arm) for slower in (10, 1000) for arm in slow.ARMS])
    subjects._made.cache_clear()
    found = {(one["slower"], one["arm"]): one for one in runs.read()}
    assert set(found) == {(slower, arm) for slower in (10, 1000) for arm in slow.ARMS}
    assert found[10, "regular"]["curve"][-1] > found[1000, "regular"]["curve"][-1] + 5
    assert found[1000, "before-blind"]["left_out"][0] >= found[1000, "onset-blind"]["left_out"][0]
    assert "| a 1000th | `clean`" in slow.table(runs)


@pytest.mark.docs
def test_the_page_has_what_was_recorded():
    page = ROOT / "docs/evidence/late.md"
    assert fill(page, slow.BEGIN, slow.table()) == page.read_text("utf-8")
