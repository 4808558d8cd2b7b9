"""The results of runs that were recorded: where they are, and what their names say."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.records import Runs
from benchmarks.study.recipe import PEOPLE, LabelNoise, Recipe

__all__ = ["RESULTS", "RunName", "kind_of_labels", "parse", "recipe_of"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""By the names of the recipes."""
NAME = re.compile(
    r"(?P<network>[^-]+)-(?P<size>\w+x\d+)(?P<plain>-plain)?(?P<rates>-cosine[\d.]+)?-(?P<noise>clean|worse|aggre|(?:random|confusable)[\d.]+)"
    r"-(?P<arm>[a-z][a-z-]*?)(?:-(?P<saving>[\d.]+))?-seed(?P<seed>\d+)"
)


def recipe_of(facts: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run's facts hold."""
    held = facts["recipe"]
    return Recipe(**{**held, "noise": LabelNoise(**held["noise"])})


@dataclass(frozen=True)
class RunName:
    """What the name of a run says; ``saving`` in percent, as text, empty for regular training."""

    network: str
    size: str
    noise: str
    arm: str
    saving: str
    seed: int

    @property
    def kind(self) -> str:
        """Network, arm and saving: what two runs share that differ by their seed alone."""
        return f"{self.network} {self.arm}{f' {self.saving}%' if self.saving else ''}"


def parse(name: str) -> RunName:
    """Read a name that :attr:`benchmarks.study.recipe.Recipe.name` made."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"Expected the name of a run, as lenet-10000x120-clean-regular-seed0. Got {name!r}.")
    size = found["size"] + (found["plain"] or "") + (found["rates"] or "")
    return RunName(found["network"], size, found["noise"], found["arm"], found["saving"] or "", int(found["seed"]))


def kind_of_labels(noise: str) -> str:
    """Say what ``random20`` and the like mean."""
    if noise in PEOPLE:
        return f"people's labels, the {'worst' if noise == 'worse' else 'majority'} of three answers"
    found = re.fullmatch(r"(random|confusable)([\d.]+)", noise)
    if found is None:
        return f"{noise} labels"
    return f"{found[2]}% of the labels wrong{' at random' if found[1] == 'random' else ', confusable'}"
