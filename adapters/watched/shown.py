"""What tokenized samples look like, for the previews of a watched training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.counting.guess import IGNORED

__all__ = ["Shown"]


class Shown(Sequence[Any]):
    """Samples of tokens as people see them: their texts, and the names of their classes, if these are known.

    ``tokenizer`` is the one of the texts, or a processor that has it; without one the tokens are no text. ``starts``,
    shape (rows + 1,), is where the samples of each row of a packed data set begin; None if a row is a sample.
    """

    def __init__(
        self, dataset: Any, tokenizer: Any, starts: npt.NDArray[np.int64] | None = None, named: Sequence[str] = ()
    ) -> None:
        self._dataset, self._starts = dataset, starts
        self._decode: Any = getattr(getattr(tokenizer, "tokenizer", tokenizer), "decode", None)
        self.classes = named or getattr(dataset, "classes", ())
        self.features = getattr(dataset, "features", None)

    def __len__(self) -> int:
        return len(self._dataset) if self._starts is None else int(self._starts[-1])

    def __getitem__(self, sample: Any) -> Any:
        at = sample if self._starts is None else int(np.searchsorted(self._starts, sample, "right")) - 1
        plain = getattr(self._dataset, "with_format", None)
        item = (plain(None) if plain is not None and self.features is not None else self._dataset)[at]
        if not hasattr(item, "keys") or "input_ids" not in item:
            return item
        tokens, answers = _flat(item["input_ids"]), self._answers(item)
        if self._starts is not None:
            lengths = _flat(item["seq_lengths"])
            which = sample - int(self._starts[at])
            part = slice(sum(lengths[:which]), sum(lengths[: which + 1]))
            tokens, answers = tokens[part], answers and answers[part]
        single = ((name, value.item() if getattr(value, "ndim", None) == 0 else value) for name, value in item.items())
        others = {name: value for name, value in single if isinstance(value, (str, int, float))}
        if any(isinstance(value, str) for value in others.values()) or self._decode is None:
            return others
        if not answers or all(answers):
            return others | {"text": self._text(tokens)}
        told = {False: "prompt", True: "answer"}
        return others | {
            name: self._text([token for token, mine in zip(tokens, answers, strict=True) if mine == own])
            for own, name in told.items()
        }

    def _text(self, tokens: list[Any]) -> str:
        if tokens and isinstance(tokens[0], list):  # one text for each choice
            return " / ".join(map(self._text, tokens))
        return str(self._decode(tokens, skip_special_tokens=True))

    @staticmethod
    def _answers(item: Any) -> list[bool]:
        """Return which tokens are trained on, if not all are."""
        if "completion_mask" in item:
            return [bool(one) for one in _flat(item["completion_mask"])]
        tokens, labels = _flat(item["input_ids"]), _flat(item.get("labels"))
        alike = len(labels) == len(tokens) and all(
            label in (IGNORED, token) for token, label in zip(tokens, labels, strict=True)
        )  # else they are of tokens, and no answer
        return [label != IGNORED for label in labels] if alike else []


def _flat(values: Any) -> list[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values
    return values if isinstance(values, list) else []
