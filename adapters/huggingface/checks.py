"""Refuse, with the reason, what a run does not support: a release, arguments, a data set, a loader, a loss."""

import inspect
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import transformers
from packaging.version import Version
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from prunedata.adapters.huggingface.forward import compute_loss_owner
from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Weigher
from prunedata.run.pruner import Pruner

# -- the release of transformers

OLDEST, NEWEST = "5.3", "5.24"
"""The tests run with both. Of a newer release it is looked whether its Trainer still works as these do."""
HOOKS: dict[str, tuple[str, ...]] = {
    "_get_num_items_in_batch": ("batch_samples",),
    "_get_train_sampler": (),
    "_hp_search_setup": ("trial",),
    "_init_training_state": (),
    "_inner_training_loop": ("resume_from_checkpoint",),
    "_maybe_log_save_evaluate": (),
    "_run_epoch": ("epoch", "steps_in_epoch", "num_update_steps_per_epoch"),
    "_save_rng_state": ("output_dir",),
    "compute_loss": ("model", "inputs", "return_outputs"),
    "create_scheduler": ("num_training_steps", "optimizer"),
    "get_train_dataloader": (),
    "set_initial_training_values": ("args", "dataloader"),
    "training_step": ("model", "inputs"),
}
"""Methods of the Trainer's that the mixin overrides, with the parameters that it needs."""


class UntestedReleaseWarning(UserWarning):
    """A release of transformers newer than the newest that the tests ran with."""


def check_release(trainer: type = transformers.Trainer, release: str = transformers.__version__) -> None:
    """Raise :class:`PrunedataError` if the Trainer lacks what the mixin needs; warn if it is newer than was tested."""
    for name, needs in HOOKS.items():
        method = getattr(trainer, name, None)
        lacks = [] if method is None else [each for each in needs if each not in inspect.signature(method).parameters]
        if method is None or lacks:
            raise PrunedataError(
                f"Expected transformers from {OLDEST} to {NEWEST}, whose Trainer has {name}({', '.join(needs)}). Got "
                f"{release}, whose Trainer has none{' with ' if lacks else ''}{' and '.join(lacks)}: pip install "
                f"'transformers~={NEWEST}.0'"
            )
    if Version(release).release[:2] > Version(NEWEST).release:
        warnings.warn(
            f"Expected transformers up to {NEWEST}, the newest that prunedata was tested with. Got {release}: its "
            "Trainer has what is needed, and each run checks itself in its first step. To be sure, pip install "
            f"'transformers~={NEWEST}.0'",
            UntestedReleaseWarning,
            stacklevel=3,
        )


def check_values(values: Any, args: Any) -> int:
    """Return the samples of an optimizer step, from the result of ``set_initial_training_values``.

    Raises :class:`PrunedataError` if it gave other values than the tested releases do.
    """
    step: int = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    if not isinstance(values, tuple) or len(values) != 7 or (values[0], values[4]) != (args.num_train_epochs, step):
        raise _otherwise(
            f"whose set_initial_training_values gives seven values, {args.num_train_epochs} epochs first and {step} "
            "samples of a step fifth",
            values,
        )
    return step


def check_steps(state: Any, *, epochs: int, steps: int) -> None:
    """Raise :class:`PrunedataError` if the Trainer is about to train other steps or epochs than the mixin said."""
    if (state.num_train_epochs, state.max_steps) != (epochs, steps):
        raise _otherwise(
            f"that trains {steps} steps in {epochs} epochs, as it was told",
            f"{state.max_steps} in {state.num_train_epochs}",
        )


def _otherwise(expected: str, got: Any) -> PrunedataError:
    return PrunedataError(
        f"Expected a Trainer {expected}. Got {got} from that of transformers {transformers.__version__}, which works "
        "otherwise than those that were tested, or whose methods are overridden: pip install "
        f" 'transformers~={NEWEST}.0'"
    )


# -- the data set


def check_stream(dataset: Any) -> None:
    """Raise :class:`PrunedataError` for a stream."""
    if dataset is not None and (isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__")):
        raise PrunedataError(
            "Expected a map-style train_dataset, because the Trainer needs the number of batches of each epoch "
            f"beforehand. Got the stream {type(dataset).__name__}: pass a map-style dataset, or write your own loop "
            "around prunedata.adapters.iterable.wrap."
        )


def check_dataset(dataset: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` if it is no dataset over the pruner's samples."""
    check_stream(dataset)
    if dataset is None:
        raise PrunedataError(
            f"Expected a train_dataset of {pruner.samples} samples, like the Pruner. Got none: pass it."
        )
    _check_length(dataset, pruner, None)


def check_samples(dataset: Any, pruner: Pruner, starts: npt.NDArray[np.int64] | None, key: str | None) -> None:
    """Raise :class:`PrunedataError` if it is no dataset over the pruner's samples, or a stream without ids."""
    if dataset is None or isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        if dataset is None or key is None:
            raise PrunedataError(
                "Expected a train_dataset; of a stream also id, the key at which each of its samples has its id. Got "
                f"{'none' if dataset is None else type(dataset).__name__ + ' without id'}."
            )
        return
    if key is not None:
        raise PrunedataError("Expected id for a stream alone. Got it for a dataset with places, which are its ids.")
    _check_length(dataset, pruner, starts)


def _check_length(dataset: Any, pruner: Pruner, starts: npt.NDArray[np.int64] | None) -> None:
    samples = len(dataset) if starts is None else int(starts[-1])
    if samples == pruner.samples:
        return
    of = "" if starts is None else f" in {len(dataset)} packed rows"
    dropped = (
        " SFTTrainer drops samples of which max_length leaves no label, and ids are positions among those that are "
        "left: drop them from your own data before."
    )
    raise PrunedataError(
        f"Expected a train_dataset of {pruner.samples} samples, like the Pruner. Got one of {samples}{of}: build the "
        f"Pruner with {samples}.{dropped if samples < pruner.samples else ''}"
    )


# -- arguments

_FLAT = "a batch is then one row of many samples, whose losses cannot be told apart"
_REFUSED = {
    "auto_find_batch_size": "an epoch that begins again with smaller batches would have observed samples before",
    "parallelism_config": "samples are dealt to processes that each train on batches of their own",
    "deepspeed": "it was not tested",
    "fsdp": "it was not tested",
}
"""Arguments of TrainingArguments that are refused, each with the reason."""
_REFUSED_IF_SHORTENED = {
    "packing": _FLAT,
    "padding_free": _FLAT,
    "shuffle_dataset": "ids are positions in the dataset, and would be those of the shuffled one. The Trainer "
    "shuffles each epoch anyway",
}
"""Arguments of SFTConfig that are refused where epochs are shortened."""


def check_args(args: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` for arguments that conflict with the run's schedule."""
    epochs = pruner.schedule.epochs
    if pruner.leave_out == "weight":
        raise PrunedataError(
            'Expected a Pruner that shortens epochs. Got one with leave_out="weight": build the trainer without the '
            "mixin, and call wrap(trainer, pruner) of prunedata.adapters.huggingface."
        )
    if args.max_steps > 0:
        raise PrunedataError(
            f"Expected num_train_epochs={epochs}, as pruning goes by epochs. Got max_steps={args.max_steps}: leave it "
            "out, and choose the length of the run by the schedule's epochs."
        )
    if args.num_train_epochs != epochs:
        raise PrunedataError(
            f"Expected num_train_epochs={epochs}, as many as the pruner's schedule has. Got {args.num_train_epochs}."
        )
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name, None):
            raise PrunedataError(
                f"Expected accelerator_config without {name}. Got it: each process reads its own batches of "
                "per_device_train_batch_size samples."
            )
    _refuse(args, _REFUSED | _REFUSED_IF_SHORTENED, "batches: how many are left after pruning is unknown")


def check_args_by_weight(args: Any) -> None:
    """Raise :class:`PrunedataError` for arguments under which losses cannot be matched to samples."""
    if getattr(args, "packing", False) and args.packing_strategy == "wrapped":
        raise PrunedataError(
            "Expected packing_strategy='bfd', or 'bfd_split'. Got 'wrapped', which cuts samples across rows."
        )
    _refuse(args, _REFUSED, "batches, which it deals to the processes by itself")


def _refuse(args: Any, refused: dict[str, str], rebalances: str) -> None:
    """Raise for these arguments, and for what neither way supports. "batch_rebalance" returns ``rebalances``."""
    for name, why in refused.items():
        if getattr(args, name, None):
            raise PrunedataError(f"Expected {name} to be left out. Got {name}={getattr(args, name)!r}: {why}.")
    if args.n_gpu > 1:
        raise PrunedataError(
            f"Expected one GPU for each process. Got {args.n_gpu}: launch the script with torchrun, or set "
            "CUDA_VISIBLE_DEVICES."
        )
    if getattr(args, "train_sampling_strategy", None) == "batch_rebalance":
        raise PrunedataError(
            f"Expected a sampler that returns samples. Got train_sampling_strategy='batch_rebalance', which returns "
            f"{rebalances}. Use 'random' or 'group_by_length'."
        )


# -- losses and loaders


def check_loss(trainer: Any, pruner: Pruner, *, own_losses: bool) -> None:
    """Raise :class:`PrunedataError` if the losses of samples cannot be computed, or not weighted as needed.

    ``own_losses`` says whether the user defined those of the samples.
    """
    kind, args = type(trainer), trainer.args
    some_out = pruner.leave_out == "weight" or pruner.holdout is not None
    if some_out and args.world_size > 1 and not args.average_tokens_across_devices:
        raise PrunedataError(
            "Expected average_tokens_across_devices=True, because the mean is over the batches of all processes. Got "
            'False: leave it out, or build the Pruner without leave_out="weight" and holdout.'
        )
    own, stock = compute_loss_owner(kind)
    name = "compute_loss_func" if callable(trainer.compute_loss_func) else f"{own.__name__}.compute_loss"
    theirs = stock and not callable(trainer.compute_loss_func)
    if not theirs and not own_losses:
        raise PrunedataError(
            f"Expected sample_losses(self, outputs, inputs) in {kind.__name__}, as {name} may compute any loss. Got "
            "none: return one loss per sample, or super().sample_losses(outputs, inputs) if it is the cross entropy."
        )
    if not isinstance(pruner.policy, Weigher):
        return
    other = {
        name: not theirs,
        "sample_losses": own_losses,
        f"label_smoothing_factor={args.label_smoothing_factor}": args.label_smoothing_factor,
        "loss_type='dft'": getattr(args, "loss_type", None) == "dft",
        "output_router_logits": getattr(getattr(trainer.model, "config", None), "output_router_logits", False),
    }
    for given, is_given in other.items():
        if is_given:
            raise PrunedataError(
                f"Expected the model's own cross entropy, as {type(pruner.policy).__name__} weights the loss of each "
                f"sample. Got {given}: use a policy without weights, such as RunningLoss()."
            )


def check_loader(loader: Any, pruner: Pruner, world: int) -> None:
    """Raise :class:`PrunedataError` if the number of batches of a pruned epoch is unknown beforehand."""
    if not isinstance(loader, DataLoader) or len(getattr(loader, "dataset", ())) != pruner.samples:
        return  # wrap() says what is wrong with it
    batch_sampler: Any = loader.batch_sampler
    sampler: Any = getattr(batch_sampler, "sampler", None)
    if type(batch_sampler) is not BatchSampler:
        got = type(batch_sampler).__name__
    elif type(sampler) is DistributedSampler:
        return
    elif world > 1 and type(sampler) not in (RandomSampler, SequentialSampler):
        got = f"{type(sampler).__name__}, which cannot be dealt to {world} processes: use PyTorch's own samplers"
    elif len(sampler) != pruner.samples or getattr(sampler, "replacement", False):
        got = f"{type(sampler).__name__} of {len(sampler)} samples"
    else:
        return
    raise PrunedataError(
        f"Expected a sampler that returns each of {pruner.samples} samples once, because the Trainer computes the "
        f"number of batches from it. Got {got}."
    )
