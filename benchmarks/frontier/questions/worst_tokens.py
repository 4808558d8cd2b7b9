"""Whether a sample of text is better judged by its worst tokens than by the mean over all of them.

    python -m benchmarks.frontier.questions.worst_tokens               a minute; prints a table

A GRU learns answers of eight tokens that count on from a question. Three of the eight are drawn at random, as names and
numbers in a text are that nobody can foresee. In a quarter of the answers one of the others is wrong, or all are.
AUC is that of the mean excess of 20 epochs, with the loss of a sample made in three ways.
"""

from collections.abc import Sequence
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.commands import markdown, program

__all__ = ["answers", "main", "measure"]

SAMPLES, LENGTH, WORDS, STEPS, EPOCHS = 1500, 8, 31, 9, 20
FREE, RULED = [1, 4, 6], np.array([0, 2, 3, 5, 7])
"""Places in an answer: those that nobody can foresee, and those that follow from the question."""
WAYS = ("mean", "worst two", "worst")


class Reader(nn.Module):
    """Predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.read = nn.Embedding(WORDS + STEPS, 48), nn.GRU(48, 96, batch_first=True)
        self.say = nn.Linear(96, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of each word, shape (n, tokens, words)."""
        scores: Tensor = self.say(self.read(self.words(tokens))[0])
        return scores


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.frontier.questions.worst_tokens", __doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for wrong in (1, len(RULED)):
        found = [measure(wrong, seed) for seed in options.seeds]
        of_way = zip(*(each.values() for each in found), strict=True)
        rows.append([str(wrong), *(f"{mean(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in of_way)])
    print(markdown(["wrong tokens", *WAYS], rows))
    return 0


def answers(wrong: int, seed: int) -> tuple[Tensor, NDArray[np.bool_]]:
    """Return questions of two tokens with their answers, and which answers have so many wrong tokens."""
    random = np.random.default_rng(seed)
    begin, step = random.integers(0, WORDS, SAMPLES), random.integers(1, STEPS, SAMPLES)
    answer = (begin[:, None] + step[:, None] * np.arange(1, LENGTH + 1)) % WORDS
    answer[:, FREE] = random.integers(0, WORDS, (SAMPLES, len(FREE)))
    bad = random.random(SAMPLES) < 0.25
    for row in np.flatnonzero(bad):
        places = random.permutation(RULED)[:wrong]
        answer[row, places] = (answer[row, places] + random.integers(1, WORDS, wrong)) % WORDS
    return torch.from_numpy(np.column_stack([begin, WORDS + step, answer])), bad


def measure(wrong: int, seed: int, epochs: int = EPOCHS) -> dict[str, float]:
    """Train once, and return the AUC of each way."""
    tokens, bad = answers(wrong, seed)
    torch.manual_seed(seed)
    reader = Reader()
    step = torch.optim.AdamW(reader.parameters(), 3e-3)
    sums = {way: np.zeros(SAMPLES) for way in WAYS}
    for _ in range(epochs):
        for ids in torch.randperm(SAMPLES).split(32):
            scores = reader(tokens[ids, :-1])[:, 1:]
            losses = F.cross_entropy(scores.transpose(1, 2), tokens[ids, 2:], reduction="none")
            step.zero_grad()
            losses.mean().backward()
            step.step()
            highest = losses.detach().sort(1, descending=True).values
            for way, most in zip(WAYS, (LENGTH, 2, 1), strict=True):
                of_samples = highest[:, :most].mean(1)
                sums[way][ids.numpy()] += (of_samples - of_samples.mean()).numpy()
    return {way: float(roc_auc_score(bad, total)) for way, total in sums.items()}


if __name__ == "__main__":
    raise SystemExit(main())
