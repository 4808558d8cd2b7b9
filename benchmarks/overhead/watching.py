"""What ``prunedata watch`` adds to a training step, in each trainer: the same training unwatched takes turns with it.

python -m benchmarks.overhead.watching        some minutes; Keras runs on the backend that KERAS_BACKEND names

A step is that of a tiny network, so that all that is seen is the trainers' own work and ours. Its time is the one that
a tenth of a run's steps stay below, by the processor's clock, so that other programs disturb little. What is done for
256 steps together is in few of them: its own time is divided by 256, and added.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import torch

from benchmarks.common.commands import positive, program
from benchmarks.common.timing import Row, alternate, machine, table
from prunedata.adapters.torch.losses import Later

__all__ = ["FIRST", "KINDS", "WIDTH", "main", "trained", "watched_step"]

STEP = 5_000.0
"""Microseconds of the step that the goal is a hundredth of."""
BATCH, WIDTH = 16, 8
FIRST = 20
"""Steps that are not timed on a GPU."""


class _Clock:
    """Notes the time after each step: the processor's, and the clock's.

    ``waits`` are steps after which the device is waited for first, as the host may have run ahead of it.
    """

    def __init__(self, waits: Iterable[int] = ()) -> None:
        self.times: list[float] = []
        self.at: list[float] = []
        self._waits = frozenset(waits)

    def tick(self, *_: Any, **__: Any) -> None:
        if len(self.at) in self._waits:
            torch.cuda.synchronize()
        self.times.append(process_time())
        self.at.append(perf_counter())

    def step(self) -> float:
        """Microseconds of a step."""
        return 1e6 * quantiles([later - earlier for earlier, later in pairwise(self.times)], n=10)[0]


@contextmanager
def _flushes() -> Iterator[list[float]]:
    """Note how long it takes to work on the losses of many steps together."""
    took, own = [], Later.flush

    def flush(later: Later) -> None:
        full, began = len(later) == Later.batches, process_time()
        own(later)
        if full:
            took.append(1e6 * (process_time() - began))

    Later.flush = flush  # type: ignore[assignment, method-assign]
    try:
        yield took
    finally:
        Later.flush = own  # type: ignore[method-assign]


Training = tuple[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any], _Clock]
"""A trainer, its class's method that trains, the arguments of that, and what notes the time."""


def small() -> torch.nn.Module:
    """The least network, so that the trainers' own work and ours are all that is seen."""
    return torch.nn.Linear(WIDTH, 3)


def transformers_trainer(
    steps: int, folder: Path, network: Callable[[], torch.nn.Module] = small, *, gpu: bool = False
) -> Training:
    from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: PLC0415 (one trainer is measured)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def forward(self, points: Any, labels: Any) -> Any:
            logits = self.layers(points)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    clock = _Clock((FIRST, steps - 1) if gpu else ())
    rows = [{"points": torch.rand(WIDTH), "labels": at % 3} for at in range(steps * BATCH)]
    arguments = TrainingArguments(
        str(folder), num_train_epochs=1, per_device_train_batch_size=BATCH, report_to=[], save_strategy="no",
        logging_strategy="no", use_cpu=not gpu, disable_tqdm=True,
    )  # fmt: skip
    ticks = type("Ticks", (TrainerCallback,), {"on_step_end": clock.tick})
    trainer = Trainer(Net(), arguments, train_dataset=rows, callbacks=[ticks()])
    return trainer, Trainer.train, (), {}, clock


def lightning_trainer(
    steps: int, folder: Path, network: Callable[[], torch.nn.Module] = small, *, gpu: bool = False
) -> Training:
    import lightning.pytorch as pl  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    clock = _Clock((FIRST, steps - 1) if gpu else ())
    dataset = TensorDataset(torch.rand(steps * BATCH, WIDTH), torch.randint(0, 3, (steps * BATCH,)))

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def training_step(self, batch: Any, number: int) -> Any:
            return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

        def on_train_batch_end(self, *_: Any) -> None:
            clock.tick()

    trainer = pl.Trainer(
        max_epochs=1, accelerator="cuda" if gpu else "cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    return trainer, pl.Trainer.fit, (Net(), DataLoader(dataset, batch_size=BATCH, shuffle=True)), {}, clock


def own_loop(
    steps: int, folder: Path, network: Callable[[], torch.nn.Module] = small, *, gpu: bool = False
) -> Training:
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    clock, device = _Clock((FIRST, steps - 1) if gpu else ()), "cuda" if gpu else "cpu"
    dataset = TensorDataset(torch.rand(steps * BATCH, WIDTH), torch.randint(0, 3, (steps * BATCH,)))
    net = network().to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def train(loader: DataLoader[Any]) -> None:
        for points, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points.to(device)), labels.to(device)).backward()
            optimizer.step()
            clock.tick()

    return DataLoader(dataset, batch_size=BATCH, shuffle=True), train, (), {}, clock


def keras_trainer(steps: int, folder: Path) -> Training:
    import keras  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    clock, random = _Clock(), np.random.default_rng(0)
    points, labels = random.random((steps * BATCH, WIDTH), dtype=np.float32), random.integers(0, 3, steps * BATCH)
    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    ticks = keras.callbacks.LambdaCallback(on_train_batch_end=clock.tick)
    options = {"batch_size": BATCH, "epochs": 1, "verbose": 0, "callbacks": [ticks]}
    return model, type(model).fit, (points, labels), options, clock


KINDS = {
    "torch": own_loop, "huggingface": transformers_trainer, "lightning": lightning_trainer, "keras": keras_trainer,
}  # fmt: skip
"""By the adapter that watches it."""


@contextmanager
def _watched(kind: str, training: Training) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Watch a training, and yield its arguments."""
    from torch.utils.data import DataLoader  # noqa: PLC0415

    from prunedata.cli.watching.hooks import watch_loops  # noqa: PLC0415
    from prunedata.cli.watching.session import Session, Watch  # noqa: PLC0415 (reads the folder that was set)

    trainer, own, args, given, _ = training
    if kind != "torch":
        with Watch(f"{kind}.watching", trainer, own, args, given) as watch:
            yield watch.args, watch.options
        return
    own_iter = DataLoader.__iter__
    watch_loops(DataLoader)
    try:
        yield args, given
        Session.current().loops.close()
    finally:
        DataLoader.__iter__ = own_iter  # type: ignore[method-assign]


def trained(kind: str, steps: int, *, watched: bool, **options: Any) -> _Clock:
    """Train for so many steps, watched or not, and return what noted their times."""
    from prunedata.cli.watching.session import Session  # noqa: PLC0415 (reads the folder that is set here)

    with TemporaryDirectory() as folder:
        os.environ["PRUNEDATA_WATCH"] = folder
        Session.current.cache_clear()
        training = KINDS[kind](steps, Path(folder), **options)
        trainer, own, args, given, clock = training
        if not watched:
            own(trainer, *args, **given)
            return clock
        with _watched(kind, training) as (args, given):
            own(trainer, *args, **given)
        (run,) = Session.current().runs
        if not run.pruner.history:
            raise RuntimeError(f"{kind} was not watched")
        Session.current().runs.clear()  # or they are listed when the process ends
        return clock


def watched_step(kind: str, repeats: int, steps: int = 300) -> Row:
    """What a watched step takes longer, beside the step unwatched; the goal is a hundredth of a step of 5 ms."""

    def run(*, watched: bool) -> float:
        with _flushes() as flushes:
            clock = trained(kind, steps, watched=watched)
        return clock.step() + min(flushes, default=0.0) / Later.batches

    times = alternate({"plain": lambda: run(watched=False), "watched": lambda: run(watched=True)}, repeats)
    added = [watched - plain for plain, watched in zip(times["plain"], times["watched"], strict=True)]
    name = f"a step watched, {kind}"
    if kind == "keras":
        import keras  # noqa: PLC0415

        name += f" on {keras.backend.backend()}"
    return Row(name, steps * BATCH, BATCH, "us", added, {"the step unwatched": times["plain"]}, STEP / 100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.overhead.watching", __doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="default: all")
    parser.add_argument("--repeats", type=positive, default=9, help="default: %(default)s")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = [watched_step(kind, given.repeats) for kind in given.kinds]
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    shares = "; ".join(f"{row.part}: {median(row.times) / STEP:.2%} of a step of 5 ms" for row in rows)
    print(about, table(rows), shares, sep="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
