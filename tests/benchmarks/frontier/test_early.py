"""What losses show after few epochs: how samples are ranked, and the tables of the recorded runs."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cleanlab")

import torch

from benchmarks.common.commands import fill
from benchmarks.frontier.data.material import HeadTask, Part
from benchmarks.frontier.questions.early import LENGTHS, RANKED, RESULTS, Watching, measure, of_trace, table, texts
from benchmarks.frontier.training.train import Settings

ROOT = Path(__file__).parents[3]


def test_excess_is_over_the_mean_of_each_batch():
    watching = Watching(0, 2, 10, 4)
    for batches in watching.epochs():
        for ids in batches:
            watching.observe(ids, ids.astype(np.float32))
    assert len(watching.excess) == 2
    for batches, excess in zip(Watching(0, 2, 10, 4).epochs(), watching.excess, strict=True):
        for ids in batches:
            np.testing.assert_allclose(excess[ids], ids - ids.mean())


def test_every_way_ranks_after_every_epoch():
    torch.manual_seed(0)
    truth = torch.randint(0, 2, (400,))
    features, wrong = torch.randn(400, 4) + 4 * truth[:, None], np.arange(400) < 80
    labels = torch.where(torch.from_numpy(wrong), 1 - truth, truth)
    part = Part(features, labels)
    task = HeadTask("random20", part, part, part, wrong, truth.numpy(), 2)
    facts = measure(task, Settings(hidden=(8,), batch_size=20, rate=0.05), 0, 3)
    assert [set(found) for found in facts["found"]] == [set(RANKED)] * 3
    assert facts["found"][-1]["mean excess"]["auc"] > 0.9
    assert facts["found"][-1]["mean excess"]["first"] > 0.9


def test_of_a_trace_too():
    wrong = np.arange(100) < 20
    found = of_trace(np.stack([wrong * 1.0, wrong * 2.0]), wrong)
    assert [one["mean excess"]["auc"] for one in found] == [1.0, 1.0]
    assert len(found[0]) == len(RANKED) - 1, "no network that could look once more"


@pytest.mark.docs
@pytest.mark.parametrize(("name", "text_of", "page"), [
    ("texts", texts, "docs/bad-data.md"), ("table", table, "docs/tools/watch.md"),
])  # fmt: skip
def test_the_pages_have_what_was_recorded(name, text_of, page):
    assert all(len(run["found"]) <= max(LENGTHS) for run in RESULTS.read())
    begin = f"<!-- python -m benchmarks.frontier.questions.early {name} -->"
    assert fill(ROOT / page, begin, text_of(RESULTS)) == (ROOT / page).read_text("utf-8")
