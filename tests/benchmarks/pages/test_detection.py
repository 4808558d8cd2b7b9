"""How well scores find wrong samples: against scikit-learn, and that a good score is called good."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from benchmarks.common.data import with_wrong_labels
from benchmarks.pages.detection import auc, by_cleanlab, by_counts, found, precision_at
from prunedata import Pruner, Schedule

JUDGED = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=50)


def split(judged):
    return np.array([score for score, _ in judged]), np.array([bad for _, bad in judged])


@given(JUDGED)
def test_auc_is_that_of_scikit_learn(judged):
    scores, wrong = split(judged)
    if wrong.all() or not wrong.any():
        assert auc(scores, wrong) is None
    else:
        assert auc(scores, wrong) == pytest.approx(roc_auc_score(wrong, scores))
        assert auc(-scores, wrong) == pytest.approx(1 - auc(scores, wrong))


@given(JUDGED, st.randoms(), st.data())
def test_the_order_of_the_samples_does_not_matter(judged, random, data):
    top, shuffled = data.draw(st.integers(1, len(judged))), list(judged)
    random.shuffle(shuffled)
    assert precision_at(*split(shuffled), top) == pytest.approx(precision_at(*split(judged), top))
    assert auc(*split(shuffled)) == pytest.approx(auc(*split(judged)))


@given(JUDGED, st.data())
def test_precision_lies_between_the_best_and_the_worst_way_to_break_ties(judged, data):
    scores, wrong = split(judged)
    top = data.draw(st.integers(1, len(judged)))
    ways = [wrong[np.lexsort((tie, -scores))[:top]].mean() for tie in (wrong, ~wrong)]
    assert ways[0] - 1e-9 <= precision_at(scores, wrong, top) <= ways[1] + 1e-9


@given(st.lists(st.booleans(), min_size=10, max_size=40))
def test_the_perfect_score_is_perfect_and_knowing_nothing_is_the_base_rate(wrong):
    wrong = np.array(wrong)
    if wrong.any() and not wrong.all():
        best = found(wrong.astype(float), wrong)
        assert (best.auc, best.precision_at_wrong) == (1, 1)
    blind = found(np.zeros(wrong.size), wrong)
    assert blind.auc in (None, 0.5)
    assert blind.precision_at_tenth == pytest.approx(wrong.mean())
    assert blind.to_dict().keys() == {"auc", "precision_at_100", "precision_at_tenth", "precision_at_wrong"}


def watched(pixels, labels, epochs=12):
    """Train softmax regression while a pruner watches: the pruner, and the probabilities in the end."""
    weights = np.zeros((pixels.shape[1], 10))
    pruner = Pruner(len(labels), Schedule(epochs, epochs, 4, 5, 4), prune=0.2, leave_out="nothing", classes=10)

    def likely(ids):
        scores = pixels[ids] @ weights
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    for epoch in pruner.epochs():
        for ids in epoch.batches(64):
            shares, right = likely(ids), (np.arange(len(ids)), labels[ids])
            pruner.observe(-np.log(shares[right]), ids)
            shares[right] -= 1
            weights -= 0.1 / len(ids) * pixels[ids].T @ shares
    return pruner, likely(np.arange(len(labels)))


def test_every_way_to_score_finds_planted_wrong_labels():
    digits = load_digits()
    labels = with_wrong_labels(digits.target.astype(np.int64), 10, 0.2)
    wrong = labels != digits.target
    pruner, likely = watched(digits.data / 16, labels)
    ways = {
        "hits": by_counts(pruner.hits, pruner.visits),
        "hits and high": by_counts(pruner.hits, pruner.visits, pruner.arrays["high"]),
        "cleanlab": by_cleanlab(labels, likely),
    }
    judged = {name: found(scores, wrong) for name, scores in ways.items()}
    assert all(one.auc > 0.9 and one.precision_at_tenth > 0.7 for one in judged.values()), judged
    assert judged["hits and high"].precision_at_tenth > judged["hits"].precision_at_tenth


@pytest.mark.parametrize(
    ("scores", "wrong", "top", "message"),
    [
        ([1.0, 2.0], [True], 1, "one shape"),
        ([1.0, 2.0], [1, 0], 1, "mask"),
        ([1.0, np.nan], [True, False], 1, "NaN"),
        ([1.0, 2.0], [True, False], 3, "top from 1 to the 2 samples"),
        ([1.0, 2.0], [True, False], 0, "top from 1"),
    ],
)
def test_scores_that_cannot_be_judged_are_refused(scores, wrong, top, message):
    with pytest.raises(ValueError, match=message):
        precision_at(np.array(scores), np.array(wrong), top)
