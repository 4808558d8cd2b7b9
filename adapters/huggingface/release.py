"""Check that the installed Trainer has the methods that the mixin overrides, and behaves like tested releases."""

import inspect
import warnings
from typing import Any

import transformers
from packaging.version import Version

from prunedata.errors import PrunedataError

__all__ = ["UntestedReleaseWarning", "check_release", "check_steps", "check_values"]

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

    Raises
    ------
    PrunedataError
        If it gave other values than the tested releases do.
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
