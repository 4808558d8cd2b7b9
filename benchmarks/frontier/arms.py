"""What a run is made of: labels, an arm, a length, a seed; and what each arm does."""

from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["ARMS", "KINDS", "SEEDS", "SHARES", "USUAL", "HeadArm", "Lengths", "Plan"]

USUAL = 30
"""Epochs that somebody would choose who doesn't know of wrong labels: the network then knows most labels by heart."""
SEEDS = (0, 1, 2)
SHARES = {
    "worse": 0.4, "random40": 0.4, "clean": 0.2, "aggre": 0.09, "confusable20": 0.2, "random20": 0.2, "pairs20": 0.2,
}  # fmt: skip
"""Share of the samples that a pruned epoch leaves out: as many as are wrong, and of clean labels a fifth."""
AUTO_PRUNES = 0.45
"""Share of the samples that a pruned epoch leaves out at most where nobody says how many labels are wrong."""
KINDS = tuple(SHARES)
"""All kinds of labels, what decides most first."""


@dataclass(frozen=True)
class HeadArm:
    """A way to train.

    Parameters
    ----------
    title : str
        What it does, in a few words.
    policy : str
        How samples are chosen, by a name of :func:`benchmarks.frontier.training.policies.policy_of`; "auto" for what
        the library does when given nothing; "counts" for what it did before 0.1.0, of which runs are recorded; "seta"
        for :class:`benchmarks.frontier.training.train.SlidingWindow`; "" for all samples.
    dropout : float
        Share of the hidden units that a step leaves out.
    smoothing : float
        Share of each label that is spread over all classes.
    objective : str
        What a step makes small, by a name of :func:`benchmarks.frontier.training.policies.objective_of`; "" for
        cross-entropy.
    decay : float
        Times the usual weight decay.
    signal : str
        What the policy goes by, by a name of :data:`benchmarks.frontier.training.policies.SIGNALS`.
    times : float
        How many samples it leaves out, times those whose labels are wrong.
    rates : str
        How the learning rate falls, by a name of :data:`benchmarks.frontier.training.train.RATES`.
    figure : {"trust", "accuracy", ""}
        What is said of the labels held out: how far they are trusted, the mean fourth root of their probability, or
        how many percent are right; "" for nothing.
    figure_of : int
        As many of the labels held out say how validation goes; 0 for all.
    holdout : float
        Share of the samples that is never trained on and says it instead.
    labels : bool
        Whether the policy is given the labels.
    delivered : bool
        Whether all samples come in the order in which a Pruner delivers them, for arms without a policy.
    """

    title: str
    policy: str = ""
    dropout: float = 0.0
    smoothing: float = 0.0
    objective: str = ""
    decay: float = 1.0
    signal: str = "loss"
    times: float = 1.0
    rates: str = "cosine"
    figure: Literal["trust", "accuracy", ""] = "trust"
    figure_of: int = 0
    holdout: float = 0.0
    labels: bool = False
    delivered: bool = False

    def __post_init__(self) -> None:
        for name, share in (("dropout", self.dropout), ("smoothing", self.smoothing), ("holdout", self.holdout)):
            if not 0 <= share < 1:
                raise ValueError(f"Expected {name} from 0 to 1. Got {share}.")
        if self.times <= 0:
            raise ValueError(f"Expected times above 0. Got {self.times}.")

    @property
    def untuned(self) -> "HeadArm":
        """The same without dropout or smoothing, with the usual weight decay, and without a title."""
        return replace(self, title="", dropout=0.0, smoothing=0.0, decay=1.0)


ARMS = {
    "regular": HeadArm("all samples in every epoch"),
    "random": HeadArm("samples left out at random", "random"),
    "running-loss": HeadArm("`RunningLoss`: the averaged excess over the batch's mean", "running-loss"),
    "bounded": HeadArm("`BoundedLoss`: the average of 1 - exp(-loss)", "bounded"),
    "auto-alone": HeadArm('`policy="auto"`, given nothing', "auto", figure=""),
    "auto-told": HeadArm('`policy="auto"`, its figure the trust in held-out labels', "auto"),
    "auto-labels": HeadArm('`policy="auto"`, given the labels of the samples', "auto", figure="", labels=True),
    "turn": HeadArm('`policy="auto"` of before: leaves out high losses from the memorization onset on', "auto"),
    "turn-decay": HeadArm('`policy="auto"`, ten times the weight decay', "auto", decay=10),
    "turn-elr": HeadArm('`policy="auto"`, early-learning regularization', "auto", objective="elr"),
    "turn-elr-decay": HeadArm(
        '`policy="auto"`, early-learning, ten times the decay', "auto", objective="elr", decay=10
    ),
    "turn-accuracy": HeadArm('`policy="auto"`, its figure the accuracy on held-out labels', "auto", figure="accuracy"),
    "turn-100": HeadArm('`policy="auto"`, its figure on 100 held-out labels', "auto", figure_of=100),
    "turn-500": HeadArm('`policy="auto"`, its figure on 500 held-out labels', "auto", figure_of=500),
    "turn-holdout": HeadArm(
        '`policy="auto"`, its figure on a twentieth of its samples, held out', "auto", holdout=0.05
    ),
    "regular-delivered": HeadArm("all samples, in the order in which `turn` delivers them", delivered=True),
    "regular-step": HeadArm("all samples, rate cut to a tenth at one half and at three quarters", rates="step"),
    "turn-step": HeadArm('`policy="auto"`, rate cut at one half and at three quarters', "auto", rates="step"),
    "regular-constant": HeadArm("all samples, constant rate", rates="constant"),
    "turn-constant": HeadArm('`policy="auto"`, constant rate', "auto", rates="constant"),
    "regular-warm": HeadArm("all samples, rate rises over a tenth of the run to three times the usual", rates="warm"),
    "turn-warm": HeadArm('`policy="auto"`, rate rises to three times the usual', "auto", rates="warm"),
    "auto": HeadArm('`policy="auto"` before 0.1.0, which went by counts', "counts"),
    "known-wrong": HeadArm("the oracle: leaves out exactly the wrong labels", "known-wrong"),
    "regular-dropout": HeadArm("all samples, dropout 0.5", dropout=0.5),
    "bounded-dropout": HeadArm("the average of 1 - exp(-loss), dropout 0.5", "bounded", dropout=0.5),
    "known-wrong-dropout": HeadArm("the oracle, dropout 0.5", "known-wrong", dropout=0.5),
    "regular-smoothing": HeadArm("all samples, labels smoothed by 0.2", smoothing=0.2),
    "regular-decay": HeadArm("all samples, ten times the weight decay", decay=10),
    "regular-dropout-less": HeadArm("all samples, dropout 0.25", dropout=0.25),
    "regular-dropout-more": HeadArm("all samples, dropout 0.75", dropout=0.75),
    "regular-smoothing-less": HeadArm("all samples, labels smoothed by 0.1", smoothing=0.1),
    "regular-smoothing-more": HeadArm("all samples, labels smoothed by 0.4", smoothing=0.4),
    "regular-decay-less": HeadArm("all samples, three times the weight decay", decay=3),
    "regular-decay-more": HeadArm("all samples, thirty times the weight decay", decay=30),
    "regular-decay-most": HeadArm("all samples, a hundred times the weight decay", decay=100),
    "bounded-decay": HeadArm("the average of 1 - exp(-loss), ten times the weight decay", "bounded", decay=10),
    "bounded-decay-more": HeadArm("the average of 1 - exp(-loss), thirty times the weight decay", "bounded", decay=30),
    "known-wrong-decay": HeadArm("the oracle, ten times the weight decay", "known-wrong", decay=10),
    "known-wrong-decay-more": HeadArm("the oracle, thirty times the weight decay", "known-wrong", decay=30),
    "bounded-dropout-more": HeadArm("the average of 1 - exp(-loss), dropout 0.75", "bounded", dropout=0.75),
    "regular-elr": HeadArm("all samples, early-learning regularization", objective="elr"),
    "regular-elr-decay": HeadArm("all samples, early-learning, ten times the decay", objective="elr", decay=10),
    "bounded-elr": HeadArm("the average of 1 - exp(-loss), early-learning regularization", "bounded", objective="elr"),
    "small-loss": HeadArm("all samples are looked at, the smallest losses of each batch count", objective="small-loss"),
    "margin": HeadArm("the averaged margin: the best other score less the label's", "running-loss", signal="margin"),
    "bounded-margin": HeadArm("the averaged margin of probabilities", "averaged", signal="bounded-margin"),
    "seta": HeadArm("SeTa: groups of like losses, in a window that slides from easy to hard", "seta"),
    "running-loss-half": HeadArm("`RunningLoss`, half as many left out as are wrong", "running-loss", times=0.5),
    "running-loss-more": HeadArm("`RunningLoss`, half as many again left out as are wrong", "running-loss", times=1.5),
    "bounded-mean": HeadArm("the mean of 1 - exp(-loss) over all visits", "bounded-mean"),
}
"""Every way to train, by name."""


@dataclass(frozen=True)
class Lengths:
    """Epochs of a subject's runs.

    Parameters
    ----------
    regular : tuple of int
        On all samples: a tenth of the usual to one and a half of it.
    pruned : tuple of int
        Of those that leave samples out.
    """

    regular: tuple[int, ...] = (3, 5, 7, 9, 12, 15, 20, 30, 45)
    pruned: tuple[int, ...] = (5, 10, 15, 20, 25, 30)

    def __post_init__(self) -> None:
        for lengths in (self.regular, self.pruned):
            if not lengths or min(lengths) < 2 or sorted(set(lengths)) != list(lengths):
                raise ValueError(f"Expected rising lengths of at least 2 epochs. Got {lengths}.")
        if USUAL not in self.regular:
            raise ValueError(f"Expected {USUAL} epochs among the regular lengths. Got {self.regular}.")

    def of(self, arm: str) -> tuple[int, ...]:
        """Those of an arm."""
        return self.pruned if ARMS[arm].policy else self.regular


@dataclass(frozen=True)
class Plan:
    """One run.

    Parameters
    ----------
    kind : str
        A kind of labels, of :data:`SHARES`.
    arm : str
        A name of :data:`ARMS`.
    epochs : int
        Its length; the learning rate falls to nothing over it, so each length has a schedule of its own.
    seed : int
        Decides weights, orders and ties.
    """

    kind: str
    arm: str
    epochs: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in SHARES:
            raise ValueError(f"Expected one of the kinds of labels {', '.join(SHARES)}. Got {self.kind!r}.")
        if self.arm not in ARMS:
            raise ValueError(f"Expected one of the arms {', '.join(ARMS)}. Got {self.arm!r}.")
        if self.epochs < 2:
            raise ValueError(f"Expected at least 2 epochs. Got {self.epochs}.")
        if ARMS[self.arm].policy == "counts":
            return  # it is recorded, and no longer there to be run
        if self.kind == "clean" and ARMS[self.arm].policy == "known-wrong":
            raise ValueError(f"Expected wrong labels for {self.arm}. Got clean ones.")

    @property
    def start(self) -> int:
        """The first pruned epoch, from 0: after a fifth of the run."""
        return max(1, round(self.epochs / 5))

    @property
    def prune(self) -> float:
        """Share of the samples that a pruned epoch leaves out, or with ``auto`` leaves out at most."""
        arm = ARMS[self.arm]
        return AUTO_PRUNES if arm.policy == "auto" else arm.times * SHARES[self.kind] if arm.policy else 0.0

    @property
    def name(self) -> str:
        """What tells this run from every other."""
        return f"{self.kind}-{self.arm}-{self.epochs}-seed{self.seed}"
