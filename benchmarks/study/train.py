"""One run of the study, resumed where it was stopped, and its facts as JSON.

    python -m benchmarks.study.train --data FOLDER --network resnet18 --policy dropping-count --saving 0.25

Give --prune, the share of a pruned epoch's samples, instead of --saving, the share of the run's visits.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed import all_reduce, get_rank, get_world_size, init_process_group, is_initialized
from tqdm import tqdm

from benchmarks.common.commands import add_images, add_results, program
from benchmarks.study.arm import Chooser, Ids, PlannedEpoch, Task
from benchmarks.study.arms import ARMS
from benchmarks.study.data import StudyData, study_data
from benchmarks.study.recipe import PEOPLE, LabelNoise, Recipe
from benchmarks.study.results import LAST, RESULTS, facts_of, hardware, save_arrays
from benchmarks.study.trace import Trace
from benchmarks.study.training_step import Images, Parallel, Trainer

__all__ = ["Options", "chooser_of", "main", "train"]


@dataclass(frozen=True)
class Options:
    """How to run, which must not change what comes of it but for rounding."""

    data: Path | None = None
    people: Path | None = None
    """People's labels, for a recipe that asks for them."""
    infobatch: Path | None = None
    device: str = "cpu"
    threads: int = 1
    compiled: bool = False
    parallel: Parallel = ""
    """How ranks that torchrun started share the work; then there is no checkpoint."""
    checkpoint: Path | None = None
    arrays: Path | None = None
    every: int = 1
    """Test after every so many epochs, and after each of the last fifth."""
    trace: int = 0
    """Of so many samples keep each epoch's loss, and counts of all, in the arrays."""


def train(
    recipe: Recipe, options: Options, tick: Callable[[dict[str, Any]], object] = lambda _: None
) -> dict[str, Any]:
    """Train one recipe from its checkpoint, if there is one, to its end; return the facts."""
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    data = study_data(recipe, options.data, options.people)
    chooser = chooser_of(recipe, data, options.infobatch)
    shown, test = Images(data.train, device), Images(data.test, device)
    trainer = Trainer(recipe, shown, data.classes, compiled=options.compiled, parallel=options.parallel)
    curves: list[dict[str, Any]] = []
    trace = Trace(data, recipe.trained_epochs, options.trace, device) if options.trace else None
    if options.checkpoint is not None and options.checkpoint.exists():
        saved = torch.load(options.checkpoint, weights_only=False)
        trainer.load_state_dict(saved["trainer"])
        chooser.load_state_dict(saved["arm"])
        curves = saved["curves"]
        if trace is not None:
            trace.load_state_dict(saved.get("trace"))
    begun = trainer.clock()
    for plan in chooser.epochs():
        visits, mean_loss = _epoch(trainer, chooser, plan, trace)
        point: dict[str, Any] = {
            "epoch": plan.number,
            "pruned": plan.pruned,
            "visits": visits,
            "loss": round(mean_loss, 5),
        }
        point["seconds"] = round(trainer.clock() - begun, 4)
        if plan.pruned and chooser.pruner is not None:
            out = ~chooser.pruner.current.trained
            point["left_out"] = [int(out.sum()), int((out & data.wrong).sum())]
        if _tested(plan.number, recipe.trained_epochs, options.every):
            test_loss, accuracy = trainer.test(test)
            point |= {"test_loss": round(test_loss, 5), "accuracy": round(accuracy, 5)}
        curves.append(point)
        if options.checkpoint is not None:
            state = {"trainer": trainer.state_dict(), "arm": chooser.state_dict(), "curves": curves}
            _save(options.checkpoint, state | ({"trace": trace.state_dict()} if trace else {}))
        tick(point)
        begun = trainer.clock()
    if options.arrays is not None:
        save_arrays(options.arrays, chooser, trainer, shown, data, trace)
    facts = facts_of(recipe, data, chooser, curves, hardware(options.device, options.threads))
    return facts | {"classes": trainer.by_class(test, data.classes)}


def chooser_of(recipe: Recipe, data: StudyData, infobatch: Path | None = None) -> Chooser:
    """Return the arm of a recipe at work on its data; ``infobatch`` is a checkout of InfoBatch."""
    task = Task(
        samples=len(data.train),
        classes=data.classes,
        wrong=data.wrong,
        labels=data.train.labels.numpy(),
        epochs=recipe.trained_epochs,
        saving=recipe.saving,
        schedule=recipe.schedule,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        infobatch=infobatch,
        rank=get_rank() if is_initialized() else 0,
        ranks=get_world_size() if is_initialized() else 1,
    )
    return ARMS[recipe.arm].choose(task)


def _epoch(trainer: Trainer, chooser: Chooser, plan: PlannedEpoch, trace: Trace | None) -> tuple[int, float]:
    trainer.begin_epoch(plan.number, plan.steps)
    visits, total = 0, torch.zeros((), device=trainer.device)
    for ids in plan.batches:

        def reduce(losses: Tensor, ids: Any = ids) -> Tensor:
            return chooser.reduce(ids, losses)

        where = _moved(ids, trainer.device)
        if chooser.is_weighed or is_initialized():
            losses = trainer.step(where, reduce)
        else:  # the mean is the trainer's own, which it may have captured; the losses are only recorded
            losses = trainer.step(where)
            reduce(losses)
        if trace is not None:
            trace.add(where, losses)
        total += losses.sum()
        visits += len(ids)
    if trace is not None:
        trace.end_epoch(plan.number)
    if is_initialized():
        total = torch.stack((total, total.new_tensor(visits)))
        all_reduce(total)
        total, visits = total[0], int(total[1])
    return visits, float(total) / visits


def _moved(ids: Ids, device: torch.device) -> Tensor:
    """The ids on the device; from pinned memory, as the host would else wait for the copy."""
    where = torch.from_numpy(ids.astype(np.int64))
    return where.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else where


def _tested(number: int, epochs: int, every: int) -> bool:
    return (number + 1) % every == 0 or number >= 0.8 * epochs or number >= epochs - LAST


def _save(path: Path, state: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)  # a kill leaves the one before or this one, never half of one


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        recipe = _recipe(given)
        kept = given.checkpoint and not given.parallel
        checkpoint = given.results.file.parent / "checkpoints" / f"{recipe.name}.pt" if kept else None
        if given.parallel:
            given.device = _joined(given.device)
        options = Options(
            data=given.data, people=given.labels, infobatch=given.infobatch, device=given.device, threads=given.threads,
            compiled=given.compile, parallel=given.parallel, checkpoint=checkpoint,
            arrays=given.arrays, every=given.every, trace=given.trace,
        )  # fmt: skip
        with tqdm(total=recipe.trained_epochs, desc=recipe.name, unit=" epochs") as bar:
            facts = train(recipe, options, lambda _: bar.update())
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if is_initialized() and get_rank():
        return 0
    given.results.add(recipe.name, facts)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    print(json.dumps({name: value for name, value in facts.items() if name != "curves"}, indent=2))
    print(f"Written to {given.results}", file=sys.stderr)
    return 0


def _joined(device: str) -> str:
    """Join the ranks that torchrun started, and return this one's device."""
    init_process_group("nccl" if device == "cuda" else "gloo")
    if device != "cuda":
        return device
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return f"cuda:{os.environ['LOCAL_RANK']}"


def _recipe(given: argparse.Namespace) -> Recipe:
    saving = given.saving
    noise = LabelNoise(given.noise_kind if given.noise or given.noise_kind in PEOPLE else "none", given.noise)
    common = {
        "network": given.network, "arm": given.policy, "seed": given.seed, "noise": noise, "samples": given.samples,
        "epochs": given.epochs, "batch_size": given.batch_size, "learning_rate": given.learning_rate,
        "augment": not given.plain, "widen": given.widen, "rates": given.rates,
    }  # fmt: skip
    if given.prune is not None:
        schedule = Recipe(**{**common, "saving": 0.01}).schedule
        saving = given.prune * len(schedule.pruned_epochs) / schedule.epochs
    return Recipe(**common, saving=saving)


def _parser() -> argparse.ArgumentParser:
    parser = program("benchmarks.study.train", "One run of the study.")
    add = parser.add_argument
    add_images(parser)
    add("--labels", type=Path, metavar="NPZ", help="CIFAR-10N's labels, for --noise-kind worse and aggre")
    add("--network", default="lenet", help="default: %(default)s")
    add("--widen", type=int, default=10, help="of wide residual networks; default: %(default)s")
    add("--policy", default="regular", choices=ARMS, help="how samples are chosen; default: %(default)s")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--saving", type=float, default=0.0, help="share of the sample visits to save")
    amount.add_argument("--prune", type=float, help="share of the samples that a pruned epoch leaves out")
    add("--noise", type=float, default=0.0, metavar="SHARE", help="share of the labels made wrong")
    add("--noise-kind", default="random", choices=("random", "confusable", *PEOPLE), help="default: %(default)s")
    add("--samples", type=int, help="a fixed part of the images; default: all")
    add("--epochs", type=int, default=200, help="default: %(default)s")
    add("--batch-size", type=int, default=128, help="default: %(default)s")
    add("--learning-rate", type=float, default=0.02, help="default: %(default)s")
    add("--rates", default="steps", choices=("steps", "cosine"), help="how the rate falls; default: %(default)s")
    add("--plain", action="store_true", help="no crop and flip")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--device", default="cpu", help="cpu or cuda; default: %(default)s")
    add("--threads", type=int, default=1, help="of torch on CPU; default: %(default)s")
    add("--compile", action="store_true", help="run the network through torch.compile")
    add(
        "--parallel",
        default="",
        choices=("ddp", "fsdp"),
        help="how the ranks of torchrun share the work; no checkpoint",
    )
    add("--every", type=int, default=1, help="test after every so many epochs; default: %(default)s")
    add("--infobatch", type=Path, metavar="CHECKOUT", help="for the arm infobatch")
    add("--arrays", type=Path, metavar="NPZ", help="write what each sample went through")
    add("--trace", type=int, default=0, metavar="N", help="also the losses of N samples in every epoch")
    add("--no-checkpoint", dest="checkpoint", action="store_false", help="don't save after each epoch")
    add_results(parser, RESULTS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
