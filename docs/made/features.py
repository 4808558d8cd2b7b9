"""What works with which framework, in docs/frameworks/features.md: ``python docs/made/features.py --write``.

Each cell is a test, by which it is known to work or to be refused, or a reason why there is nothing to try.
"""

import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "frameworks" / "features.md"
MARK, END = "<!-- features: python docs/made/features.py --write -->\n", "<!-- end of the features -->\n"
TESTS = "tests/adapters/"
FEATURES = ("untouched", "leave out", "by weight", "ranks", "within an epoch", "validation figure")
"""The columns."""


class Cell(NamedTuple):
    """What a cell says, and the tests that say so, by their place below tests/adapters."""

    says: str
    tests: tuple[str, ...] = ()


def tried(*tests: str, says: str = "yes") -> Cell:
    """A cell of which there are tests."""
    return Cell(says, tests)


def reason(says: str) -> Cell:
    """A cell of which there is none."""
    return Cell(says)


WATCHED = {feature: reason("no: it is only watched") for feature in FEATURES}
TABLE: dict[str, dict[str, Cell]] = {
    "[PyTorch](pytorch.md)": {
        "untouched": tried("torch/test_untouched.py::test_a_plain_loop", "torch/test_untouched.py::test_other_loaders"),
        "leave out": tried("torch/test_loader.py::test_each_epoch_has_its_kept_samples_once_in_the_order_of_the_core"),
        "by weight": tried("torch/by_weight/test_loader.py::test_it_trains_as_a_plain_weighted_loop"),
        "ranks": reason("the next row"),
        "within an epoch": tried(
            "torch/test_resume.py::test_at_every_batch_alike",
            "torch/by_weight/test_loader.py::test_it_goes_on_within_an_epoch",
        ),
        "validation figure": tried(
            "torch/figures/test_stopped.py::test_the_loader_follows_the_advice", says="`validated`"
        ),
    },
    "[DDP, FSDP2](pytorch.md#several-processes)": {
        "untouched": tried("torch/test_untouched.py::test_two_ranks"),
        "leave out": tried(
            "torch/ranks/test_ranks_alike.py::test_several_processes_are_one",
            "torch/ranks/test_ranks_alike.py::test_fsdp2_works_as_ddp_does",
        ),
        "by weight": tried("torch/by_weight/test_ranks.py::test_they_train_as_one_process_does"),
        "ranks": tried("torch/ranks/test_ranks.py::test_filtered_then_padded_or_dropped_then_dealt"),
        "within an epoch": tried(
            "torch/ranks/test_ranks_alike.py::test_an_epoch_is_gone_on_with_by_any_number_of_processes",
            "torch/by_weight/test_ranks.py::test_another_number_of_ranks_goes_on_within_an_epoch",
        ),
        "validation figure": tried(
            "torch/figures/test_ranks.py::test_the_figure_is_the_mean_over_the_ranks_that_gave_one",
            says="`validated`: the mean over ranks",
        ),
    },
    "[accelerate](pytorch.md#accelerate)": {
        "untouched": tried(
            "torch/test_untouched.py::test_a_loop_by_accelerate",
            "torch/test_untouched.py::test_two_processes_of_accelerate",
        ),
        "leave out": tried("torch/test_accelerate.py::test_a_prepared_loader_delivers_ids_with_their_batches"),
        "by weight": tried("torch/test_accelerate.py::test_a_run_goes_on_within_an_epoch"),
        "ranks": tried(
            "torch/test_accelerate.py::test_two_processes_train_on_what_is_kept",
            "torch/by_weight/test_ranks.py::test_where_no_rank_knows_what_counts_of_the_others_it_is_refused",
            says="yes; by weight refused",
        ),
        "within an epoch": tried("torch/test_accelerate.py::test_a_run_goes_on_within_an_epoch"),
        "validation figure": reason("the loop is yours: `validated`"),
    },
    "[WebDataset](streams.md#webdataset)": {
        "untouched": reason("the loop is yours"),
        "leave out": tried("webdataset/test_pipeline.py::test_exactly_the_kept_samples_once_each"),
        "by weight": tried(
            "test_poison.py::test_nothing_is_learnt_of_what_does_not_count"
        ),
        "ranks": tried(
            "webdataset/test_pipeline.py::test_nodes_split_the_shards",
            "torch/ranks/test_ranks_alike.py::test_streams_that_split_themselves_are_one_process_that_takes_the_same_steps",
        ),
        "within an epoch": tried(
            "webdataset/test_pipeline.py::test_a_run_goes_on_with_what_remains_even_if_its_shuffle_has_no_seed",
            "test_poison.py::test_nothing_is_learnt_in_any_mode",
        ),
        "validation figure": reason("the loop is yours: `validated`"),
    },
    "[any iterable, Hugging Face datasets](streams.md)": {
        "untouched": reason("the loop is yours"),
        "leave out": tried(
            "test_iterable.py::test_a_data_loader_gives_the_kept_samples_once_each",
            "torch/test_huggingface.py::test_only_what_is_kept_is_decoded",
        ),
        "by weight": tried("torch/test_poison.py::test_what_must_not_be_learnt_moves_no_weight"),
        "ranks": tried(
            "torch/ranks/test_ranks_alike.py::test_streams_that_are_dealt_to_ranks_are_one_processs",
            "torch/by_weight/test_ranks.py::test_a_stream_on_ranks",
        ),
        "within an epoch": tried(
            "test_iterable.py::test_a_plain_loop_or_loader_goes_on_with_what_remains",
            "torch/ranks/test_ranks_alike.py::test_an_epoch_of_a_stream_is_gone_on_with_by_any_number_of_processes",
        ),
        "validation figure": reason("the loop is yours: `validated`"),
    },
    "[anything that yields batches: `watch`](pytorch.md#leave-out-by-weight)": {
        "untouched": reason("the loop is yours"),
        "leave out": tried("torch/by_weight/test_watch.py::test_what_is_refused", says="refused"),
        "by weight": tried("torch/by_weight/test_watch.py::test_it_trains_as_a_plain_weighted_loop"),
        "ranks": tried(
            "torch/by_weight/test_ranks.py::test_where_no_rank_knows_what_counts_of_the_others_it_is_refused",
            says="refused",
        ),
        "within an epoch": tried("torch/by_weight/test_watch.py::test_an_epoch_that_goes_on_counts_what_is_new"),
        "validation figure": reason("the loop is yours: `validated`"),
    },
    "[Lightning](lightning.md)": {
        "untouched": tried(
            "lightning/test_untouched.py::test_a_fit", "lightning/test_untouched.py::test_two_processes",
        ),
        "leave out": tried("lightning/test_fit.py::test_epochs_have_the_samples_that_are_kept"),
        "by weight": tried("lightning/test_by_weight.py::test_it_trains_as_a_plain_weighted_loop"),
        "ranks": tried(
            "lightning/test_ranks.py::test_each_has_as_many_batches_and_together_what_is_kept",
            "lightning/test_by_weight.py::test_two_processes_train_as_one_does",
        ),
        "within an epoch": tried(
            "lightning/test_resume.py::test_a_run_goes_on_as_if_it_had_never_stopped",
            "lightning/test_by_weight.py::test_it_goes_on_from_any_batch_of_an_epoch",
        ),
        "validation figure": tried(
            "lightning/test_resume.py::test_each_epoch_has_the_figure_of_its_own_validation", says="`monitor`"
        ),
    },
    "[Hugging Face Trainer](huggingface.md)": {
        "untouched": tried(
            "huggingface/test_stock.py::test_a_stock_model_is_trained_as_without_the_mixin",
            "huggingface/by_weight/test_joined.py::"
            "test_where_nothing_is_left_out_the_weights_are_those_of_the_plain_trainer",
        ),
        "leave out": tried(
            "huggingface/test_trainer.py::test_each_epoch_has_its_own_length",
            "huggingface/by_weight/test_joined.py::test_it_joins_by_leaving_out_as_the_mixin_does",
        ),
        "by weight": tried("huggingface/by_weight/test_joined.py::test_a_step_is_the_mean_over_what_counts_in_it"),
        "ranks": tried(
            "huggingface/test_ranks.py::test_two_processes_train_the_union_of_what_is_kept",
            "huggingface/by_weight/test_ranks.py::test_they_train_as_one_process_does",
        ),
        "within an epoch": tried(
            "huggingface/test_trainer.py::test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped",
            "huggingface/by_weight/test_joined.py::test_it_goes_on_where_it_was_saved",
        ),
        "validation figure": tried(
            "huggingface/test_steps.py::test_an_evaluation_in_each_epoch_makes_its_figure",
            says="`metric_for_best_model`",
        ),
    },
    "[TRL's `SFTTrainer`](huggingface.md#sfttrainer)": {
        "untouched": tried(
            "huggingface/by_weight/test_sft.py::"
            "test_packed_runs_without_a_sample_left_out_are_those_of_the_plain_trainer",
        ),
        "leave out": tried("huggingface/test_sft.py::test_wrong_answers_are_pruned_more_often_than_right_ones"),
        "by weight": tried(
            "huggingface/by_weight/test_sft.py::test_a_step_is_the_mean_over_the_tokens_that_count",
            "huggingface/by_weight/test_sft.py::test_each_packed_sample_has_the_loss_that_it_has_alone",
        ),
        "ranks": tried(
            "huggingface/by_weight/test_ranks.py::test_they_train_as_one_process_does", says="yes; tested by weight"
        ),
        "within an epoch": tried(
            "huggingface/test_sft.py::test_a_run_goes_on_within_an_epoch",
            "huggingface/by_weight/test_sft.py::test_a_packed_run_goes_on_where_it_was_saved",
        ),
        "validation figure": reason("as the Trainer's"),
    },
    "[Keras](tensorflow.md#keras)": {
        "untouched": tried("keras/test_untouched.py::test_a_fit"),
        "leave out": tried("keras/test_fit.py::test_a_fit_is_the_run_that_a_loop_by_hand_is"),
        "by weight": tried("keras/test_fit.py::test_a_fit_is_the_run_that_a_loop_by_hand_is"),
        "ranks": tried("keras/test_refused.py::test_several_devices_are_refused", says="refused"),
        "within an epoch": tried("keras/test_fit.py::test_a_run_goes_on_in_the_middle_of_an_epoch"),
        "validation figure": tried(
            "keras/test_fit.py::test_the_monitored_figure_is_handed_over_in_each_epoch_that_is_validated",
            says="`monitor`",
        ),
    },
    "[`tf.data`](tensorflow.md)": {
        "untouched": reason("the loop is yours"),
        "leave out": tried(
            "tensorflow/test_dataset.py::test_each_epoch_delivers_its_samples_once_each_beside_their_ids"
        ),
        "by weight": tried(
            "tensorflow/test_poison.py::test_nothing_is_learnt_of_what_does_not_count"
        ),
        "ranks": reason("no: one process trains"),
        "within an epoch": tried(
            "tensorflow/test_dataset.py::test_a_run_goes_on_in_the_middle_of_an_epoch",
            "tensorflow/test_poison.py::test_nothing_is_learnt_in_any_mode",
        ),
        "validation figure": reason("the loop is yours: `validated`"),
    },
    "[Grain](grain.md)": {
        "untouched": reason("the loop is yours"),
        "leave out": tried("test_grain.py::test_the_order_is_the_pruners"),
        "by weight": tried(
            "test_poison.py::test_nothing_is_learnt_of_what_does_not_count",
        ),
        "ranks": reason("no: one process trains"),
        "within an epoch": tried(
            "test_grain.py::test_two_processes_give_what_threads_give_and_a_stopped_run_goes_on",
            "test_poison.py::test_nothing_is_learnt_in_any_mode",
        ),
        "validation figure": reason("the loop is yours: `validated`"),
    },
    "[Ray](distributed.md#ray)": {
        "untouched": reason("the loop is yours"),
        "leave out": tried("ray/test_ray.py::test_one_worker_is_dealt_what_a_plain_loop_gets"),
        "by weight": tried("ray/test_ray.py::test_by_weight_all_samples_are_dealt"),
        "ranks": tried("ray/test_ray.py::test_workers_in_tasks_share_an_epoch"),
        "within an epoch": tried("ray/test_ray.py::test_state_goes_into_a_checkpoint_and_back"),
        "validation figure": tried(
            "ray/test_ray.py::test_one_worker_is_dealt_what_a_plain_loop_gets",
            says="`dealer.ask(lambda run: run.validated(...))`",
        ),
    },
    "[Ultralytics](../tools/watch.md#what-it-watches)": WATCHED | {
        "untouched": tried(
            "../watch/test_ultralytics.py::test_losses_and_weights_are_those_of_a_loop_written_by_hand"
        ),
    },
    "[fastai](../tools/watch.md#what-it-watches)": WATCHED | {
        "untouched": tried("../watch/test_fastai.py::test_losses_and_weights_are_those_of_a_loop_written_by_hand"),
    },
}  # fmt: skip

UNKNOWN = "torch/by_weight/test_ranks.py::test_where_no_rank_knows_what_counts_of_the_others_it_is_refused"
REFUSED = (
    ("by weight or with samples held out, where accelerate deals with `even_batches=False`",
     "a process may have one batch more than the others, which then cannot exchange how many of their samples count",
     "`even_batches=True`, the default", UNKNOWN),
    ("own samplers on several ranks, by weight or with samples held out, with different numbers of batches",
     "before each step the ranks exchange how many of their samples count", "a `DistributedSampler`",
     "torch/test_poison.py::test_a_rank_that_has_no_batch_left_is_an_error_on_all_and_no_hang"),
    ("`watch` on several ranks", "no rank knows how many samples of the others count",
     "`wrap` on a DataLoader with a `DistributedSampler`", UNKNOWN),
    ("Keras on several devices", "each device has a part of the batch, and their losses are not gathered",
     "one device, or PyTorch", "keras/test_refused.py::test_several_devices_are_refused"),
)  # fmt: skip
"""What is refused, why, what to do instead, and the test."""


def _table(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [columns, ["---"] * len(columns), *rows])


def tables() -> str:
    """What works, and by which tests that is known."""
    short = [[name, *(row[feature].says for feature in FEATURES)] for name, row in TABLE.items()]
    long = [
        [name.partition("](")[0].lstrip("["), feature, "<br>".join(f"`{test}`" for test in row[feature].tests)]
        for name, row in TABLE.items() for feature in FEATURES if row[feature].tests
    ]  # fmt: skip
    refused = _table(["refused", "reason", "use instead", "test"], [[*row[:3], f"`{row[3]}`"] for row in REFUSED])
    between = f"\n\n{refused}\n\nThe tests of each cell, below `{TESTS}`:\n\n"
    return _table(["framework", *FEATURES], short) + between + _table(["framework", "", "tests"], long) + "\n"


def page() -> str:
    """The page with the tables as they are now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    return before + MARK + "\n" + tables() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(tables())
