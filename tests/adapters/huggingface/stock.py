"""Twelve stock models, tiny and of random weights, with dropout, and rows for each."""

import torch
import transformers
from torch.utils.data import Dataset

__all__ = ["SAMPLES", "STOCK", "StockRows", "stock_model"]

SAMPLES = 18
WORDS, CLASSES, LENGTH = 13, 3, 6
SIZES = {"vocab_size": WORDS, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
ENCODER = SIZES | {"intermediate_size": 8, "max_position_embeddings": 16, "num_labels": CLASSES, "pad_token_id": 0}
DISTIL = {"vocab_size": WORDS, "dim": 8, "hidden_dim": 8, "n_layers": 1, "n_heads": 2, "num_labels": CLASSES}
MODERN = ENCODER | {"bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 1, "sep_token_id": 1}
LLAMA = ENCODER | {"num_key_value_heads": 2, "attention_dropout": 0.1}
T5 = {"vocab_size": WORDS, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_layers": 1, "num_heads": 2}
VIT = {"image_size": 4, "patch_size": 2, "hidden_dropout_prob": 0.1, "num_labels": CLASSES}
GPT2 = {"vocab_size": WORDS, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
STOCK = {
    "BertForSequenceClassification": ("BertConfig", ENCODER, "classes"),
    "RobertaForSequenceClassification": ("RobertaConfig", ENCODER, "classes"),
    "DistilBertForSequenceClassification": ("DistilBertConfig", DISTIL, "classes"),
    "DebertaV2ForSequenceClassification": ("DebertaV2Config", ENCODER, "classes"),
    "ElectraForSequenceClassification": ("ElectraConfig", ENCODER | {"embedding_size": 8}, "classes"),
    "ModernBertForSequenceClassification": ("ModernBertConfig", MODERN, "classes"),
    "LlamaForSequenceClassification": ("LlamaConfig", LLAMA, "classes"),
    "BertForTokenClassification": ("BertConfig", ENCODER, "tags"),
    "BertForMaskedLM": ("BertConfig", ENCODER, "words"),
    "T5ForConditionalGeneration": ("T5Config", T5 | {"decoder_start_token_id": 0}, "words"),
    "ViTForImageClassification": ("ViTConfig", SIZES | {"intermediate_size": 8} | VIT, "images"),
    "GPT2LMHeadModel": ("GPT2Config", GPT2 | {"bos_token_id": 1, "eos_token_id": 1}, "words"),
}
"""Of each model its configuration, its sizes, and what its rows are."""


def stock_model(name):
    config, sizes, _ = STOCK[name]
    sizes = {size: value for size, value in sizes.items() if size != "vocab_size" or config != "ViTConfig"}
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**sizes))


class StockRows(Dataset):
    """Sentences of different lengths, or images; labels are classes, tags, or the words themselves."""

    def __init__(self, kind):
        self.kind = kind
        generator = torch.Generator().manual_seed(0)
        self.words = torch.randint(2, WORDS, (SAMPLES, LENGTH), generator=generator)
        self.images = torch.randn(SAMPLES, 3, 4, 4, generator=generator)
        self.lengths = torch.randint(2, LENGTH + 1, (SAMPLES,), generator=generator)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        words, real = self.words[number], torch.arange(LENGTH) < self.lengths[number]
        if self.kind == "images":
            return {"pixel_values": self.images[number], "labels": words[0] % CLASSES}
        labels = {"classes": words[0] % CLASSES, "tags": words % CLASSES, "words": words}[self.kind]
        if labels.ndim:
            labels = torch.where(real, labels, -100)
        return {"input_ids": torch.where(real, words, 0), "attention_mask": real.long(), "labels": labels}
