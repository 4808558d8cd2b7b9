"""The watched runs of this process: begun with a training, stored in a folder, listed when the process ends."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, cached_property
from importlib import import_module
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from prunedata.checks import printable
from prunedata.cli.watch import Settings
from prunedata.cli.watching.lines import lines_of
from prunedata.cli.watching.tracebacks import leave_out_own_frames
from prunedata.reporting.kept import MOST, keep_previews
from prunedata.run.adapter import Adapter
from prunedata.run.frameworks import ADAPTERS, labels_in
from prunedata.run.identity import drawn_alike, own_draws_kept
from prunedata.run.pruner import Pruner
from prunedata.run.rows import original_rows
from prunedata.types import LeaveOut


class WatchedRun:
    """One training that is watched. Its run leaves nothing out unless the user asked for it.

    ``place`` is its store, None on a process other than the first of those that train together; ``dataset[id]`` is a
    sample as people see it, for the previews; ``rows``, shape (samples,), has the row of each sample in the data set
    that the user selected from, None if these are the ids.
    """

    def __init__(self, pruner: Pruner, place: Path | None, dataset: Any, rows: Any) -> None:
        self.pruner, self.place, self.dataset, self.rows = pruner, place, dataset, rows
        self.told = 0  # epochs after which its suspects were listed
        self._kept = 0, 0  # epochs after which previews were written, and the number of samples

    def keep_previews(self, alike: AbstractContextManager[object] | None = None, most: int = MOST) -> None:
        """Write previews of the most suspect samples beside the run, if it has a store and observed anything.

        ``alike`` leaves a framework's random numbers as they were: transforms draw some when samples are read. ``most``
        is the number of samples. Those that were written since the last epoch are not written again.
        """
        epochs = len(self.pruner.history)
        if self.place is not None and epochs and self._kept < (epochs, most):
            self._kept = epochs, most
            with own_draws_kept(self.dataset), drawn_alike(alike or nullcontext()):
                keep_previews(self.place, self.pruner, self.dataset, self.rows, most)

    def tell(self, top: int) -> None:
        """Print the suspects of the run, unless they were printed since its last epoch."""
        epochs = len(self.pruner.history)
        if self.place is not None and (epochs != self.told or not epochs):
            self.told = epochs
            print("\n".join(lines_of(self.place, top)), file=sys.stderr, flush=True)

    def forget_if_empty(self) -> bool:
        """Remove the store if nothing was recorded, and return whether it was removed."""
        if self.place is None or (self.pruner.history and self.pruner.visits.any()):  # of an open epoch none is stored
            return False
        shutil.rmtree(self.place)
        self.place = None
        return True


class _Live(Adapter):
    """Lists the suspects of a run at the end of every epoch."""

    def __init__(self, session: Session, run: WatchedRun) -> None:
        self._session, self._run = session, run

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """List the suspects."""
        self._session.show(self._run, self._session.settings.top)


class Session:
    """The watched runs of this process. There is one session: :meth:`Session.current`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.runs: list[WatchedRun] = []
        self.trainings = 0
        """How many trainers train, one within another."""
        self.has_begun = False
        """Whether a run has, in this process or in the one that it sends its losses to."""
        self.trains = False
        """Whether an optimizer of PyTorch's has taken a step."""
        self._printed: set[str] = set()
        self._process = os.getpid()
        atexit.register(self._tell)
        leave_out_own_frames()
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        if shell is not None:  # what a notebook's process prints when it ends, nobody sees
            shell.events.register("post_run_cell", self._cell_ended)

    @staticmethod
    @cache
    def current() -> Session:
        """Return the session of this process, which begins with its first training."""
        return Session(Settings.from_environment())

    def begin(
        self,
        samples: int,
        epochs: int,
        *,
        rank: int = 0,
        dataset: Any = None,
        selected: Any = None,
        by: LeaveOut = "weight",
        classes: int | None = None,
    ) -> WatchedRun:
        """Begin a run of so many samples and passes over them.

        Of several processes that train together, the one of rank 0 has the store. ``dataset[id]`` is a sample as people
        see it, for the previews; ``selected`` is what is trained on, if the user may have selected it from another data
        set. ``by`` is how the trainer leaves samples out, if the user asked for it: by weight no length changes.
        ``classes`` is how many classes the model tells apart, one a sample.
        """
        self.has_begun, place = True, self._unused_place() if rank == 0 else None
        with warnings.catch_warnings():  # a user who changes no line can do nothing about them
            warnings.simplefilter("ignore")
            # With the labels of the data set, if it has some: right ones of a rare class would look wrong.
            labels = labels_in(dataset if selected is None else selected, classes=classes)
            known = None if labels is None or labels.size != samples else labels
            how: LeaveOut = by if self.settings.leave_out else "nothing"
            pruner = Pruner(samples, epochs=epochs, store=place, leave_out=how, labels=known)
        pruner.forgive(self.say)  # the script would train on: float16 overflows in some steps
        run = WatchedRun(pruner, place, dataset, original_rows(selected))
        self.runs.append(run)
        if self.settings.live and place is not None:
            pruner.attach(_Live(self, run))
        return run

    @property
    def in_trainer(self) -> bool:
        """Whether a trainer trains now. Its own loops over loaders are not watched."""
        return self.trainings > 0

    @cached_property
    def loops(self) -> Any:
        """The loops of the user's own in this process over loaders of PyTorch's."""
        return import_module(f"{ADAPTERS}.watched.loops").Loops(self)

    def iterate(self, loader: Any, own: Callable[[Any], Any]) -> Any:
        """Return what iterates a loader of PyTorch's, for a loop that is watched if it trains."""
        return self.loops.iterate(loader, own) if self._has_loops else own(loader)

    def state_of(self, loader: Any, own: Callable[[Any], Any]) -> Any:
        """Return the state of a loader of torchdata's, which may make the iterator of the next pass."""
        return self.loops.with_ids(loader, own) if self._has_loops else own(loader)

    @property
    def _has_loops(self) -> bool:
        """Whether loops may be watched now, or were: a trainer may iterate a loader whose workers live on."""
        return not self.is_forked and (not self.in_trainer or "loops" in vars(self))

    def say(self, text: str) -> None:
        """Print a line on standard error, once."""
        if text not in self._printed:
            self._printed.add(text)
            print(f"prunedata: {printable(text)}", file=sys.stderr, flush=True)

    def show(self, run: WatchedRun, most: int) -> None:
        """List the suspects of a run while its program goes on, with previews; if that fails, the program continues."""
        try:
            torch = import_module(f"{ADAPTERS}.torch.seeds") if "torch" in sys.modules else None
            run.keep_previews(None if torch is None else torch.drawing_alike(), most)
            run.tell(self.settings.top)
        except Exception as error:
            self.say(f"{run.place} cannot be shown: {error}")

    def _say_if_unwatched(self) -> None:
        """Say it if an optimizer has taken steps and no run has begun."""
        if not self.trains or self.has_begun or self._printed:
            return
        loops = vars(self).get("loops")
        if loops is None or not loops.has_batches:
            why = "its loop takes no batches from PyTorch's DataLoader over a data set whose samples have positions"
            self.say(f"not watched: {why}")
        elif loops.sees_no_losses:
            self.say(f"not watched: {loops.UNSEEN}")

    def _cell_ended(self, _: Any) -> None:
        """Print the suspects below a notebook's cell that has trained an epoch."""
        if self.is_forked:
            return
        self._say_if_unwatched()
        for run in self.runs:
            if len(run.pruner.history) != run.told:
                self.show(run, MOST)

    def _unused_place(self) -> Path:
        """Make an unused place in the folder, named as the program: another process may look for one now."""
        program = Path(getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0] or "run")
        if program.stem == "ipykernel_launcher":
            program = Path(os.environ.get("JPY_SESSION_NAME") or "notebook")  # JupyterLab tells the notebook's path
        name = program.parent.name if program.stem == "__main__" else program.stem
        for number in count(1):
            place = self.settings.folder / f"{name}{'' if number == 1 else f'-{number}'}.zarr"
            with suppress(FileExistsError):
                place.mkdir(parents=True)
                break
        return place

    @property
    def is_forked(self) -> bool:
        """Whether this is a copy of the process that trains, which has nothing to store or to list."""
        return os.getpid() != self._process

    def _tell(self) -> None:
        """Print the suspects when the process ends."""
        if self.is_forked:
            return
        self._say_if_unwatched()
        for run in self.runs:
            try:
                if run.forget_if_empty() and not self._printed:
                    self.say("nothing was recorded: no batch was trained on")
                run.tell(self.settings.top)
            except Exception as error:
                self.say(f"{run.place} cannot be shown: {error}")


class Watch:
    """One call of a trainer's method, watched if possible. It raises no errors of its own.

    The adapter's module has a function ``watch(session, trainer, call)``, which is given the watched runs of this
    process, the trainer and this object: it may change ``args`` and ``options``, with which the method is then called.
    It returns a function to call after the training, with whether it was completed. If it cannot watch, it raises
    :class:`PrunedataError`, and trainer and arguments are as they were.
    """

    def __init__(
        self, adapter: str, trainer: Any, own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._adapter, self._trainer, self._own = adapter, trainer, own
        self.args, self.options = args, options
        self._end: Callable[[bool], None] | None = None

    def __enter__(self) -> Watch:
        session = Session.current()
        session.trainings += 1
        try:
            watching = import_module(f"{ADAPTERS}.{self._adapter}")
            self._end = watching.watch(session, self._trainer, self)
        except Exception as error:
            self._not(error)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        session = Session.current()
        session.trainings -= 1
        if self._end is not None and not session.is_forked:
            try:
                self._end(error is None)
            except Exception as failed:
                self._not(failed)

    def bound(self) -> dict[str, Any]:
        """Return the arguments of the call by their names; without the trainer itself."""
        import inspect

        found = inspect.signature(self._own).bind(self._trainer, *self.args, **self.options)
        found.apply_defaults()
        return dict(list(found.arguments.items())[1:])

    def _not(self, error: Exception) -> None:
        Session.current().say(f"not watched: {error}")
