"""LLaMA-Factory's command with a configuration file, in an environment of its own: it wants an older transformers."""

import os
from pathlib import Path

import numpy as np
import pytest

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, python_of, rows_told, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
PYTHON = python_of("llama")
COMMAND = os.fspath(Path(PYTHON).with_name("llamafactory-cli"))
MAKES = """
import json
import numpy as np, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

random = np.random.default_rng(0)
answers = {"sky": "blue", "grass": "green", "snow": "white", "night": "black"}
names = list(answers)
rows = []
for at in range(80):
    thing = names[random.integers(4)]
    said = answers[thing if at % 10 else names[(names.index(thing) + 1) % 4]]
    rows.append({"instruction": f"{thing} {random.integers(9)} is?", "input": "", "output": said})
json.dump(rows, open("colors.json", "w"))
json.dump({"colors": {"file_name": "colors.json"}}, open("dataset_info.json", "w"))
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
)
tokenizer.save_pretrained("tiny")
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=tokenizer.bos_token_id,
    eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
)).save_pretrained("tiny")
"""
CONFIGURATION = """
### model
model_name_or_path: tiny
trust_remote_code: true

### method
stage: sft
do_train: true
{method}

### dataset
dataset: colors
dataset_dir: .
template: default
cutoff_len: 128
preprocessing_num_workers: 1

### output
output_dir: out
logging_steps: 10
save_strategy: "no"
overwrite_output_dir: true
report_to: none

### train
per_device_train_batch_size: 2
use_cpu: true
{train}
"""
LORA = "finetuning_type: lora\nlora_rank: 8\nlora_target: all"
FULL = "finetuning_type: full"
IN_ORDER = """disable_shuffling: true
gradient_accumulation_steps: 1
learning_rate: 0.05
lr_scheduler_type: constant
max_grad_norm: 0.0
optim: sgd
num_train_epochs: 1.0"""
BY_HAND = """
import json
import numpy as np, torch
from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer
from transformers import LlamaForCausalLM

model_args, data_args, training_args, finetuning_args, _ = get_train_args()
module = load_tokenizer(model_args)
template = get_template_and_fix_tokenizer(module["tokenizer"], data_args)
rows = get_dataset(template, model_args, data_args, training_args, stage="sft", **module)["train_dataset"]
network = LlamaForCausalLM.from_pretrained("tiny").train()
optimizer, expected = torch.optim.SGD(network.parameters(), 0.05), []
for at in range(0, len(rows), 2):
    both = [(torch.tensor(rows[n]["input_ids"]), torch.tensor(rows[n]["labels"])) for n in (at, at + 1)]
    longest = max(len(tokens) for tokens, _ in both)
    tokens, labels, seen = (torch.full((2, longest), value) for value in (module["tokenizer"].pad_token_id, -100, 0))
    for row, (given, wanted) in enumerate(both):
        tokens[row, : len(given)], labels[row, : len(wanted)], seen[row, : len(given)] = given, wanted, 1
    likely = network(input_ids=tokens, attention_mask=seen).logits[:, :-1].log_softmax(2)
    wanted, counts = labels[:, 1:], labels[:, 1:] != -100
    each = -likely.gather(2, wanted.clamp(min=0)[..., None])[..., 0] * counts
    losses = each.sum(1) / counts.sum(1)
    expected += (losses - losses.mean()).tolist()
    optimizer.zero_grad()
    (each.sum() / counts.sum()).backward()
    optimizer.step()
np.save("expected.npy", expected)
"""


def trained(folder, method, train):
    """Train with a configuration, by the command alone and watched; return what came of it, and both weights."""
    assert plain("-c", MAKES, cwd=folder, by=PYTHON).returncode == 0
    (folder / "x.yaml").write_text(CONFIGURATION.format(method=method, train=train))
    path, weights = os.pathsep.join([os.path.dirname(COMMAND), os.environ["PATH"]]), []
    for run in (plain, watched):
        given, by = (
            (("train", "x.yaml"), COMMAND) if run is plain else (("llamafactory-cli", "train", "x.yaml"), PYTHON)
        )
        done = run(*given, cwd=folder, by=by, PATH=path)
        assert done.returncode == 0, done.stderr
        kept = next((folder / "out").glob("*model.safetensors"))
        weights.append(kept.read_bytes())
        kept.unlink()
    return done, *weights


def test_losses_are_those_of_a_loop_written_by_hand(tmp_path):
    done, before, after = trained(tmp_path, FULL, IN_ORDER)
    assert before == after
    assert "watched no longer" not in done.stderr
    hand = plain("-c", BY_HAND, "x.yaml", cwd=tmp_path, by=PYTHON)
    assert hand.returncode == 0, hand.stderr
    run = read_run(tmp_path / "llamafactory-cli.zarr").state
    assert (run.visits == 1).all()
    np.testing.assert_allclose(run.mean_excess, np.load(tmp_path / "expected.npy"), atol=1e-6)


def test_low_rank_weights_are_the_unwatched_ones(tmp_path):
    train = "gradient_accumulation_steps: 4\nlearning_rate: 0.01\nnum_train_epochs: 2.0\nwarmup_ratio: 0.1"
    done, before, after = trained(tmp_path, LORA, train)
    assert before == after
    assert "watched no longer" not in done.stderr
    assert (read_run(tmp_path / "llamafactory-cli.zarr").state.visits == 2).all()


def test_wrong_answers_are_listed_with_their_prompts(tmp_path):
    train = "gradient_accumulation_steps: 2\nlearning_rate: 0.01\nnum_train_epochs: 12.0"
    done, before, after = trained(tmp_path, FULL, train)
    assert before == after
    assert np.isin(rows_told(done.stderr)[:8], np.arange(0, 80, 10)).sum() >= 6
    assert "prompt: " in done.stderr
