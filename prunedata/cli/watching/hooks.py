"""Patch the trainers that are watched, each when its framework has been imported, and not before."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # every process of a watched job imports this module, though few of them train
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

TRAINERS = {
    "transformers.trainer": ("Trainer", "train", "huggingface.watching"),
    "lightning.pytorch.trainer.trainer": ("Trainer", "fit", "lightning.watching"),
    "pytorch_lightning.trainer.trainer": ("Trainer", "fit", "lightning.watching"),
    "keras.src.backend.tensorflow.trainer": ("TensorFlowTrainer", "fit", "keras.watching"),
    "keras.src.backend.torch.trainer": ("TorchTrainer", "fit", "keras.watching"),
    "keras.src.backend.jax.trainer": ("JAXTrainer", "fit", "keras.watching"),
    "ultralytics.engine.trainer": ("BaseTrainer", "train", "watched.ultralytics"),
    "fastai.learner": ("Learner", "fit", "watched.fastai"),
}
"""By the module that defines it: a class, its method that trains, and the module in ``adapters`` that watches it."""
LOADERS = {
    "torch.utils.data.dataloader": "DataLoader",
    "torchdata.stateful_dataloader.stateful_dataloader": "StatefulDataLoader",
}
"""By its module a class of loaders that loops of the user's own iterate."""
OPTIMIZERS = "torch.optim.optimizer"  # the module whose steps show that a loop trains
DATA = "datasets.arrow_dataset"  # the module of data sets whose ``map`` forgets what was selected before it


def install() -> None:
    """Watch trainers in this process, once their modules are imported."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        for name in filter(_is_watched, list(sys.modules)):  # another sitecustomize may have imported them
            _imported(name, sys.modules[name])
        sys.meta_path.insert(0, _Finder())


def _is_watched(name: str) -> bool:
    return name in TRAINERS or name in LOADERS or name in (DATA, OPTIMIZERS)


class _Finder:
    """Find modules by the other finders, and patch those of trainers after they were executed."""

    def __init__(self) -> None:
        self._sought: set[str] = set()
        """The modules that the other finders are asked for now. One of these may ask all finders in turn."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module that defines a trainer; None of any other."""
        if not _is_watched(name) or name in self._sought:
            return None
        finders = [one.find_spec for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        self._sought.add(name)
        try:
            spec = next((found for find in finders if (found := find(name, path, target)) is not None), None)
        finally:
            self._sought.remove(name)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                _imported(name, module)

            loader.exec_module = exec_module
        return spec


def _imported(name: str, module: ModuleType) -> None:
    """Watch what trains in a module that was imported."""
    if name == DATA:
        from prunedata.cli.watching.tracebacks import leave_out_own_frames
        from prunedata.run.rows import carry_rows

        carry_rows(module.Dataset)
        leave_out_own_frames()  # a function of map() may fail before any training
    elif name in LOADERS:
        watch_loops(getattr(module, LOADERS[name]))
    elif name == OPTIMIZERS:
        notice_steps(module)
    else:
        _patch(module, *TRAINERS[name])


def _patch(module: ModuleType, kind: str, method: str, adapter: str) -> None:
    """Watch a trainer's method. A release without such a method is left as it is."""
    trainer = getattr(module, kind, None)
    own: Callable[..., Any] | None = getattr(trainer, method, None)
    if own is None:
        return
    from functools import wraps

    @wraps(own)
    def watched(self: Any, *args: Any, **options: Any) -> Any:
        from prunedata.cli.watching.session import Watch

        with Watch(adapter, self, own, args, options) as given:
            return own(self, *given.args, **given.options)

    setattr(trainer, method, watched)


def watch_loops(loader: Any) -> None:
    """Watch the loops that iterate loaders of a class, but for those of a trainer."""
    from functools import wraps

    own = loader.__iter__

    @wraps(own)
    def watched(self: Any) -> Any:
        from prunedata.cli.watching.session import Session

        return Session.current().iterate(self, own)

    loader.__iter__ = watched
    if hasattr(loader, "state_dict"):
        state = loader.state_dict

        @wraps(state)
        def state_dict(self: Any) -> Any:
            from prunedata.cli.watching.session import Session

            return Session.current().state_of(self, state)

        loader.state_dict = state_dict


def notice_steps(optimizers: Any) -> Any:
    """Let the session know when an optimizer of a module takes its first step; return what ends that."""
    seen: list[bool] = []

    def step(*_: Any) -> None:
        if not seen:
            seen.append(True)
            from prunedata.cli.watching.session import Session

            Session.current().trains = True

    return optimizers.register_optimizer_step_post_hook(step)
