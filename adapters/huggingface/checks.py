"""Checks of the Trainer's arguments: raise an error with the reason for those that a run does not support."""

from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from prunedata.adapters.huggingface.asking import compute_loss_owner
from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Weigher
from prunedata.run.pruner import Pruner

__all__ = [
    "check_args",
    "check_args_by_weight",
    "check_dataset",
    "check_loader",
    "check_loss",
    "check_samples",
    "check_stream",
]


def check_stream(dataset: Any) -> None:
    """Raise :class:`PrunedataError` for a stream."""
    if dataset is not None and (isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__")):
        raise PrunedataError(
            "Expected a map-style train_dataset, because the Trainer needs the number of batches of each epoch "
            f"beforehand. Got the stream {type(dataset).__name__}: pass a map-style dataset, or write your own loop "
            "around "
            "prunedata.adapters.iterable.wrap."
        )


def check_dataset(dataset: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` if it is no dataset over the pruner's samples."""
    check_stream(dataset)
    if dataset is None or len(dataset) != pruner.samples:
        has = "none" if dataset is None else f"one of {len(dataset)}"
        raise PrunedataError(
            f"Expected a train_dataset of {pruner.samples} samples, like the Pruner. Got {has}: build the Pruner with "
            f"len(train_dataset). {_DROPPED}"
        )


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
    if args.n_gpu > 1:
        raise PrunedataError(
            f"Expected one GPU for each process. Got {args.n_gpu}: launch the script with torchrun, or set "
            "CUDA_VISIBLE_DEVICES."
        )
    for name, why in _REFUSED.items():
        if getattr(args, name, None):
            raise PrunedataError(f"Expected {name} to be left out. Got {name}={getattr(args, name)!r}: {why}.")
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name, None):
            raise PrunedataError(
                f"Expected accelerator_config without {name}. Got it: each process reads its own batches of "
                "per_device_train_batch_size samples."
            )
    if getattr(args, "train_sampling_strategy", None) == "batch_rebalance":
        raise PrunedataError(
            "Expected a sampler that returns samples. Got train_sampling_strategy='batch_rebalance', which returns "
            "batches: how many are left after pruning is unknown. Use 'random' or "
            "'group_by_length'."
        )


def check_args_by_weight(args: Any) -> None:
    """Raise :class:`PrunedataError` for arguments under which losses cannot be matched to samples."""
    wrong = {
        "auto_find_batch_size": _REFUSED["auto_find_batch_size"],
        "parallelism_config": _REFUSED["parallelism_config"],
        "deepspeed": "it was not tested",
        "fsdp": "it was not tested",
    }
    for name, why in wrong.items():
        if getattr(args, name, None):
            raise PrunedataError(f"Expected {name} to be left out. Got {name}={getattr(args, name)!r}: {why}.")
    if args.n_gpu > 1:
        raise PrunedataError(
            f"Expected one GPU for each process. Got {args.n_gpu}: launch the script with torchrun, or set "
            "CUDA_VISIBLE_DEVICES."
        )
    if getattr(args, "packing", False) and args.packing_strategy == "wrapped":
        raise PrunedataError(
            "Expected packing_strategy='bfd', or 'bfd_split'. Got 'wrapped', which cuts samples across rows."
        )
    if getattr(args, "train_sampling_strategy", None) == "batch_rebalance":
        raise PrunedataError(
            "Expected a sampler that returns samples. Got train_sampling_strategy='batch_rebalance', which deals "
            "batches to the processes by itself: use 'random' or 'group_by_length'."
        )


def check_samples(dataset: Any, pruner: Pruner, starts: Any, key: str | None) -> None:
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
    samples = len(dataset) if starts is None else int(starts[-1])
    if samples != pruner.samples:
        of = "" if starts is None else f" in {len(dataset)} packed rows"
        raise PrunedataError(
            f"Expected a train_dataset of {pruner.samples} samples, like the Pruner. Got one of {samples}{of}: build "
            f"the Pruner with {samples}. {_DROPPED if samples < pruner.samples else ''}".rstrip()
        )


_DROPPED = (
    "SFTTrainer drops samples of which max_length leaves no label, and ids are positions among those that are left: "
    "drop them from your own data before."
)
_FLAT = "a batch is then one row of many samples, whose losses cannot be told apart"
_REFUSED = {
    "auto_find_batch_size": "an epoch that begins again with smaller batches would have observed samples before",
    "packing": _FLAT,
    "padding_free": _FLAT,
    "shuffle_dataset": "ids are positions in the dataset, and would be those of the shuffled one. The Trainer "
    "shuffles each epoch anyway",
    "parallelism_config": "samples are dealt to processes that each train on batches of their own",
    "deepspeed": "it was not tested",
    "fsdp": "it was not tested",
}
"""Arguments of TrainingArguments and SFTConfig that are refused, each with the reason."""


def check_loss(trainer: Any, pruner: Pruner, mixin: type) -> None:
    """Raise :class:`PrunedataError` if the losses of samples cannot be computed, or not weighted as needed."""
    kind, args = type(trainer), trainer.args
    some_out = pruner.leave_out == "weight" or pruner.holdout is not None
    if some_out and args.world_size > 1 and not args.average_tokens_across_devices:
        raise PrunedataError(
            "Expected average_tokens_across_devices=True, because the mean is over the batches of all processes. Got "
            'False: leave it out, or build the Pruner without leave_out="weight" and holdout.'
        )
    own, stock = compute_loss_owner(kind, mixin)
    name = "compute_loss_func" if callable(trainer.compute_loss_func) else f"{own.__name__}.compute_loss"
    theirs = stock and not callable(trainer.compute_loss_func)
    told = kind.sample_losses is not mixin.sample_losses  # type: ignore[attr-defined]
    if not theirs and not told:
        raise PrunedataError(
            f"Expected sample_losses(self, outputs, inputs) in {kind.__name__}, as {name} may compute any loss. Got "
            "none: return one loss per sample, or super().sample_losses(outputs, inputs) if it is the cross entropy."
        )
    if not isinstance(pruner.policy, Weigher):
        return
    why = {
        name: not theirs,
        "sample_losses": told,
        f"label_smoothing_factor={args.label_smoothing_factor}": args.label_smoothing_factor,
        "loss_type='dft'": getattr(args, "loss_type", None) == "dft",
        "output_router_logits": getattr(getattr(trainer.model, "config", None), "output_router_logits", False),
    }
    for given, is_given in why.items():
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
