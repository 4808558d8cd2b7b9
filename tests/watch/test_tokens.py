"""Trainers of tokens, unchanged: labels of tokens, a language model, TRL's SFTTrainer. Each loss is the one by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from prunedata.reporting.kept import KeptPreviews
from prunedata.store.run_store import read_run
from tests.watch.watched import BY_HAND, STEADY, rows_told, run_both, same_by_hand, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
NO_DROPOUT = "hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0"
BEGIN = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForTokenClassification, DataCollatorForLanguageModeling
from transformers import DataCollatorForTokenClassification, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers import Trainer, TrainingArguments

words = ["<pad>", "<eos>", "<unk>", "what", "colour", "has"]
words += [f"{kind}{number}" for kind in ("thing", "colour") for number in range(6)]
vocabulary = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
vocabulary.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>")
random = np.random.default_rng(0)
things, wrong = random.integers(0, 6, 96), random.random(96) < 0.15
answers = np.where(wrong, (things + random.integers(1, 6, 96)) % 6, things)
prompts = [f"what colour has thing{thing}" for thing in things]
torch.manual_seed(0)
small = dict(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
common = dict(report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=0.02)
"""
END = """
torch.save(model.state_dict(), "begin.pt")
trainer.train()
torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), "weights.pt")
np.save("wrong.npy", np.flatnonzero(wrong))
"""
TAGS = (
    BEGIN
    + """
model = BertForTokenClassification(BertConfig(**small, num_labels=3))
inner = [tokenizer(text)["input_ids"] for text in prompts]
rows = [{"input_ids": ids, "labels": [thing % 3 if n == 3 else -100 if n == 0 else 0 for n in range(4)]}
        for ids, thing in zip(inner, np.where(wrong, things + 1, things).tolist())]
trainer = Trainer(model, TrainingArguments("out", num_train_epochs=6, **common), train_dataset=rows,
                  processing_class=tokenizer, data_collator=DataCollatorForTokenClassification(tokenizer))
"""
    + END
)
LANGUAGE = (
    BEGIN
    + """
model = LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None))
texts = [f"{prompt} colour{answer} <eos>" for prompt, answer in zip(prompts, answers)]
rows = Dataset.from_dict({"text": texts}).map(lambda row: tokenizer(row["text"]), remove_columns="text")
trainer = Trainer(model, TrainingArguments("out", num_train_epochs=4, gradient_accumulation_steps=2, **common),
                  train_dataset=rows, data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))
"""
    + END
)
INSTRUCTIONS = (
    BEGIN
    + """
from trl import SFTConfig, SFTTrainer
model = LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None))
rows = Dataset.from_dict({"prompt": prompts, "completion": [f" colour{answer}" for answer in answers]})
arguments = SFTConfig("out", bf16=False, completion_only_loss=True, OPTIONS, **common)
trainer = SFTTrainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer)
torch.save([dict(row) for row in trainer.train_dataset], "rows.pt")
"""
    + END
)
ONE_BY_ONE = "num_train_epochs=8, per_device_train_batch_size=1, gradient_accumulation_steps=16"


@pytest.mark.parametrize(("script", "shifted"), [(TAGS, "False"), (LANGUAGE, "True")])
def test_losses_are_those_of_a_loop_written_by_hand(script, shifted, tmp_path):
    """Of the language model each step is two batches."""
    script = script.replace("learning_rate=0.02", STEADY).replace("num_labels=3", f"num_labels=3, {NO_DROPOUT}")
    script = script.replace(END, "\nbegin = {name: value.clone() for name, value in model.state_dict().items()}" + END)
    done = same_by_hand(tmp_path, script, BY_HAND.replace("SHIFTED", shifted))
    assert "what colour has thing" in done.stderr


def test_instructions_with_accumulation_at_batches_of_one(tmp_path):
    done, same = run_both(tmp_path, INSTRUCTIONS.replace("OPTIONS", ONE_BY_ONE))
    assert same
    told = rows_told(done.stderr)
    assert np.isin(told[:8], np.load(tmp_path / "wrong.npy")).sum() >= 7
    row = dict(KeptPreviews(tmp_path / "train.zarr").of(told[0]).row)
    assert row["prompt"].startswith("what colour has thing")
    assert row["answer" if "answer" in row else "completion"].strip().startswith("colour")


def test_packed_instructions(tmp_path):
    done, same = run_both(tmp_path, INSTRUCTIONS.replace(
        "OPTIONS", "num_train_epochs=12, packing=True, max_length=32, per_device_train_batch_size=2"))  # fmt: skip
    assert same, done.stderr
    assert "watched no longer" not in done.stderr
    assert read_run(tmp_path / "train.zarr").state.samples == 96
    assert "answer: colour" in done.stderr


def test_losses_of_instructions_are_those_of_a_loop_written_by_hand(tmp_path):
    """One step on all samples, so that the excess is over one mean."""
    whole = "max_steps=1, per_device_train_batch_size=1, gradient_accumulation_steps=96"
    (tmp_path / "train.py").write_text(INSTRUCTIONS.replace("OPTIONS", whole))
    assert watched("train.py", cwd=tmp_path).returncode == 0
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=18, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ))  # fmt: skip
    model.load_state_dict(torch.load(tmp_path / "begin.pt"))
    losses = []
    for row in torch.load(tmp_path / "rows.pt"):
        ids, answer = torch.tensor(row["input_ids"]), torch.tensor(row["labels"]) != -100
        with torch.no_grad():
            logits = model(ids[None]).logits[0]
        losses.append(float(F.cross_entropy(logits[:-1], ids[1:], reduction="none")[answer[1:]].mean()))
    excess = np.array(losses) - np.mean(losses)
    np.testing.assert_allclose(read_run(tmp_path / "train.zarr").state.mean_excess, excess, rtol=1e-6, atol=1e-6)
