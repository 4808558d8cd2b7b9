"""The same training where a framework has the loop, or the data: TensorFlow, Grain, Keras, Lightning, Hugging Face."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from benchmarks.faults.fuzz.sources import Items
from benchmarks.faults.weighed import loops
from benchmarks.faults.weighed.loops import Loop, Stopped
from benchmarks.faults.weighed.setup import CLASSES, FEATURES, MOMENTUM, RATE, data_of

__all__ = ["LOOPS", "GrainLoop", "InKeras", "InLightning", "InTrainer", "TensorLoop", "TrainerByWeight"]


class TensorLoop(Loop):
    """A loop over a ``tf.data.Dataset``."""

    def make(self) -> None:
        import tensorflow as tf  # noqa: PLC0415

        from prunedata.adapters.tensorflow import wrap  # noqa: PLC0415

        data = tf.data.Dataset.range(self.setup.samples)
        self.data: Any = wrap(data, self.pruner).batch(self.setup.batch)

    def batches(self, epoch: Any) -> Iterator[Any]:
        for ids, _ in self.data:
            yield ids.numpy()


class GrainLoop(Loop):
    """A loop over a Grain dataset."""

    def make(self) -> None:
        import grain  # noqa: PLC0415

        from prunedata.adapters.grain import wrap  # noqa: PLC0415

        source: Any = grain.MapDataset.source(list(range(self.setup.samples)))
        self.data = wrap(source, self.pruner, lambda kept: kept.batch(self.setup.batch))

    def batches(self, epoch: Any) -> Iterator[Any]:
        for ids, _ in self.data:
            yield np.asarray(ids)


class Noting(torch.optim.SGD):
    """SGD that writes down the gradients of each step."""

    loop: Any = None

    def step(self, closure: Any = None) -> Any:
        """Note the gradients and the batches that made them, and step."""
        result = None if closure is None else closure()
        super().step()
        weight = self.param_groups[0]["params"][0]
        trained = self.loop.trained
        trained["steps"].append((self.loop.number, self.loop.micro))
        trained["gradients"].append(weight.grad.numpy().copy())
        self.loop.micro = []
        return result


class Net(torch.nn.Module):
    """The linear model, as a Trainer calls it."""

    def __init__(self, loop: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(FEATURES, CLASSES, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.linear.weight)
        self.noted = [loop]  # not a module

    def forward(self, at: Any = None, x: Any = None, labels: Any = None) -> dict[str, Any]:
        """Loss and logits; in training also note which samples came."""
        logits = self.linear(x)
        if self.training:
            self.noted[0].micro.append(at.tolist())
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Fitted(Loop):
    """A trainer has the loop: it is stopped at a moment by a callback, and goes on from its own checkpoint."""

    def make(self) -> None:
        self.folder: Any = tempfile.TemporaryDirectory(prefix="prunedata-fitted-")
        self.came_from: Any = None
        self.number = -1
        self.net = Net(self)
        self.note_epochs()

    def note_epochs(self) -> None:
        """Write down what losses weigh in each epoch, by attaching to the run."""
        loop, begin = self, self.pruner.begin_epoch

        def noting() -> Any:
            epoch = begin()
            loop.note_epoch(epoch)
            loop.number = epoch.number
            return epoch

        self.pruner.begin_epoch = noting  # type: ignore[method-assign]

    def labels_of(self, ids: Any) -> Any:
        """The labels of some samples, poisoned where they must not be learned."""
        labels = self.labels[torch.as_tensor(ids)]
        if not (self.poisoned and self.pruner.is_open):  # between epochs a trainer validates
            return labels
        epoch = self.pruner.current
        counts = epoch.trained
        return torch.where(torch.from_numpy(counts[np.asarray(ids)]), labels, (labels + 1) % CLASSES)

    def train(self, stop: int | None = None) -> dict[str, Any]:
        self.stop = stop
        stopped = False
        try:
            self.fit()
        except Stopped:
            stopped = True
        self.note_history()
        if stopped:
            self.trained["state"] = {"folder": self.folder, "moments": self.moments}
        return self.trained

    def load(self, states: list[dict[str, Any]]) -> None:
        self.came_from = states[0]["folder"]

    def fit(self) -> None:
        """Train to the end, or raise :class:`Stopped`."""
        raise NotImplementedError

    @property
    def checkpoint(self) -> Path:
        """Where the checkpoint is written at which the training stops."""
        return Path(self.folder.name)


class InTrainer(Fitted):
    """A Trainer of Hugging Face with the mixin, which shortens epochs."""

    def trainer(self) -> Any:
        import transformers  # noqa: PLC0415

        from prunedata.adapters.huggingface import PruneTrainerMixin  # noqa: PLC0415

        class Pruned(PruneTrainerMixin, transformers.Trainer):  # type: ignore[misc]
            pass

        return Pruned(**self.arguments(), pruner=self.pruner)

    def arguments(self) -> dict[str, Any]:
        import transformers  # noqa: PLC0415

        setup, loop = self.setup, self

        class Stop(transformers.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                loop.moments += 1
                if loop.moments == loop.stop:
                    control.should_save = control.should_training_stop = True
                    loop.halted = True

        def collate(batch: list[Any]) -> dict[str, Any]:
            ids = [int(one["at"]) for one in batch]
            return {"at": torch.tensor(ids), "x": self.features[ids], "labels": self.labels_of(ids)}

        optimizer = Noting(self.net.parameters(), RATE, MOMENTUM)
        optimizer.loop = self
        args = transformers.TrainingArguments(
            self.folder.name,
            num_train_epochs=setup.epochs,
            per_device_train_batch_size=setup.batch,
            gradient_accumulation_steps=setup.accumulate,
            dataloader_drop_last=setup.drop_last,
            max_grad_norm=0.0,
            remove_unused_columns=False,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no" if self.stop is None else "steps",
            save_steps=10**9,
            eval_strategy="epoch" if setup.figure else "no",
            metric_for_best_model="accuracy" if setup.figure else None,
            seed=setup.seed,
        )
        data = [{"at": at} for at in range(setup.samples)]
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        return {
            "model": self.net, "args": args, "train_dataset": data, "data_collator": collate,
            "eval_dataset": data if setup.figure else None, "callbacks": [Stop()],
            "optimizers": (optimizer, schedule), "compute_metrics": lambda _: {"accuracy": self.figure()},
        }  # fmt: skip

    halted = False

    def fit(self) -> None:
        from transformers import PrinterCallback  # noqa: PLC0415

        trainer, resume = self.trainer(), None
        trainer.remove_callback(PrinterCallback)
        if self.came_from is not None:
            resume = str(next(Path(self.came_from.name).glob("checkpoint-*")))
        trainer.train(resume_from_checkpoint=resume)
        if self.halted and self.pruner.next_epoch < self.setup.epochs:
            raise Stopped


class TrainerByWeight(InTrainer):
    """A Trainer that is already built, by weight."""

    def trainer(self) -> Any:
        import transformers  # noqa: PLC0415

        from prunedata.adapters.huggingface import wrap  # noqa: PLC0415

        return wrap(transformers.Trainer(**self.arguments()), self.pruner)


class InLightning(Fitted):
    """Lightning's Trainer."""

    def fit(self) -> None:
        import logging  # noqa: PLC0415

        import lightning  # noqa: PLC0415

        from prunedata.adapters.lightning import DataPruning, observe, wrap  # noqa: PLC0415

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        loop, setup = self, self.setup

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = loop.net.linear

            def training_step(self, ids: Any, _: int) -> Any:
                loop.micro.append(ids.tolist())
                losses = F.cross_entropy(self.net(loop.features[ids]), loop.labels_of(ids), reduction="none")
                return observe(self, losses)

            def validation_step(self, _: Any, __: int) -> None:
                self.log("val_accuracy", loop.figure(), batch_size=1)

            def configure_optimizers(self) -> Any:
                optimizer = Noting(self.net.parameters(), RATE, MOMENTUM)
                optimizer.loop = loop
                return optimizer

        class Stop(lightning.Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                loop.moments += 1
                if loop.moments == loop.stop:
                    trainer.save_checkpoint(loop.checkpoint / "last.ckpt")
                    raise Stopped

        loader = DataLoader(Items(setup.samples), setup.batch, shuffle=True, drop_last=setup.drop_last)
        pruning = DataPruning(self.pruner, monitor="val_accuracy" if setup.figure else None)
        trainer = lightning.Trainer(
            max_epochs=setup.epochs, callbacks=[pruning, Stop()], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=1,
            accumulate_grad_batches=setup.accumulate, limit_val_batches=1 if setup.figure else 0,
            num_sanity_val_steps=0, default_root_dir=self.folder.name,
        )  # fmt: skip
        validation = DataLoader(Items(2)) if setup.figure else None
        came = None if self.came_from is None else str(Path(self.came_from.name) / "last.ckpt")
        trainer.fit(Module(), wrap(loader, self.pruner), validation, ckpt_path=came)


class InKeras(Fitted):
    """``fit`` of Keras on TensorFlow."""

    def fit(self) -> None:
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        import keras  # noqa: PLC0415
        import tensorflow as tf  # noqa: PLC0415

        from prunedata.adapters.keras import PruneCallback, PruneMixin, wrap  # noqa: PLC0415

        loop, setup = self, self.setup

        class Model(PruneMixin, keras.Model):  # type: ignore[misc]
            def train_step(self, data: Any) -> Any:
                tf.py_function(lambda ids: loop.micro.append(ids.numpy().tolist()), [data[0]], [])
                return super().train_step(data)

        class Note(keras.callbacks.Callback):  # type: ignore[misc]
            last, velocity = np.zeros((FEATURES, CLASSES)), np.zeros((FEATURES, CLASSES))

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                weight = self.model.get_weights()[0]
                velocity = (self.last - weight) / RATE
                loop.trained["gradients"].append((velocity - MOMENTUM * self.velocity).T)
                loop.trained["steps"].append((loop.number, loop.micro))
                self.last, self.velocity, loop.micro = weight, velocity, []

        features, _ = data_of(setup)
        data = wrap(tf.data.Dataset.from_tensor_slices((features, np.arange(setup.samples))), self.pruner)

        def labeled(number: Any, sample: Any) -> Any:
            labels = tf.numpy_function(lambda at: self.labels_of([int(at)]).numpy()[0], [number], tf.int64)
            labels.set_shape(())
            return number, (sample[0], labels)

        inputs = keras.Input((FEATURES,), dtype="float64")
        dense = keras.layers.Dense(CLASSES, use_bias=False, kernel_initializer="zeros", dtype="float64")
        model: Any = Model(inputs, dense(inputs))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
        model.compile(keras.optimizers.SGD(RATE, MOMENTUM), loss, jit_compile=False)
        data = data.map(labeled).batch(setup.batch, drop_remainder=setup.drop_last)
        callbacks = [PruneCallback(self.pruner), Note()]
        model.fit(data, epochs=setup.epochs, callbacks=callbacks, verbose=0)


LOOPS: dict[str, type[Loop]] = {
    "plain": Loop,
    "dealer": loops.Dealt,
    "loader": loops.LoaderLoop,
    "loader with ids": loops.WithIds,
    "stateful": loops.Stateful,
    "own sampler": loops.OwnSamplerLoop,
    "own batches": loops.OwnBatchesLoop,
    "id_key": loops.Sorting,
    "stream": loops.Streamed,
    "watch by weight": loops.Watched,
    "accelerate": loops.Accelerated,
    "iterable": loops.IterableLoop,
    "webdataset": loops.Tarred,
    "tf.data": TensorLoop,
    "grain": GrainLoop,
    "keras": InKeras,
    "trainer": InTrainer,
    "trainer by weight": TrainerByWeight,
    "lightning": InLightning,
}
"""All loops by their names. A framework is imported by the loop that needs it."""
