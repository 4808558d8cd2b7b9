"""Ray: ``serve(make_pruner, batch_size)`` puts the dealer of a run into an actor, which workers ask for batches.

The actor has the Pruner. Workers, in actors or tasks of their own, have a :class:`RayDealer`, which can be sent to them
as any argument. A worker in an actor that dies is noticed when the others run out of batches, and they get what it had.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
except ImportError as error:
    raise ImportError("prunedata.adapters.ray needs Ray: pip install ray") from error

import numpy as np

from prunedata.checks import real
from prunedata.dealing.deal import Deal, Receipt, Wait, until_done
from prunedata.dealing.dealer import Dealer
from prunedata.errors import DealerDied, PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["RayDealer", "serve"]


def serve(
    make_pruner: Callable[[], Pruner],
    batch_size: int,
    *,
    deal_again_after: float | None = None,
    auto_end: bool = True,
    answer_within: float = 1800.0,
    **options: Any,
) -> "RayDealer":
    """Start the dealer of a run as a Ray actor.

    Parameters
    ----------
    make_pruner : callable
        Returns the run's Pruner. Called in the actor, because a Pruner cannot be sent. With ``store=`` and
        ``resume=True`` the same call starts the run, and resumes it after the actor died.
    batch_size : int
        Samples in a batch.
    deal_again_after : float, optional
        Seconds after which a batch that was not reported is dealt again: for workers in tasks, whose death is not
        noticed, or that may hang. By default never.
    auto_end : bool
        As for :class:`prunedata.Dealer`.
    answer_within : float
        Seconds after which a call of the actor raises :class:`DealerDied`, for networks that lose messages. A dead
        actor is noticed at once. Its start has no limit, because it may wait for a node.
    options
        Options of the actor, such as ``name``, ``resources`` or ``scheduling_strategy``; ``num_cpus`` is 0 by default.
        Ray doesn't restart the actor, because the workers' models would not be set back with it.

    Returns
    -------
    RayDealer
        Pass it to the workers. When its last copy is gone, Ray ends the actor.

    Raises
    ------
    PrunedataError
        If an argument is invalid. Errors of ``make_pruner`` are raised, too.
    DealerDied
        If the actor could not be started.
    """
    if not callable(make_pruner):
        raise PrunedataError(
            f"Expected a function that makes the Pruner, as `lambda: Pruner(...)`. Got {type(make_pruner).__name__}."
        )
    seconds = real("answer_within", answer_within, 0, above=True)
    actor = ray.remote(_Actor).options(**{"num_cpus": 0, "max_restarts": 0, **options}).remote()
    RayDealer(actor, None)._call("start", make_pruner, batch_size, deal_again_after=deal_again_after, auto_end=auto_end)
    return RayDealer(actor, seconds)


class RayDealer:
    """The dealer of a run, called in its actor. It can be sent to workers, and has the methods of :class:`Dealer`.

    Errors of the dealer are raised here unchanged. All methods raise :class:`DealerDied` if the actor is gone.
    """

    def __init__(self, actor: Any, answer_within: float | None) -> None:
        self._actor, self._within = actor, answer_within

    def deal(self, worker: str | int) -> Deal | Wait | None:
        """Return the next batch of a worker; see :meth:`Dealer.deal`."""
        found = self.deal_many(worker, 1)
        return found[0] if isinstance(found, list) else found

    def deal_many(self, worker: str | int, most: int) -> list[Deal] | Wait | None:
        """Return the next batches of a worker, up to ``most``; see :meth:`Dealer.deal_many`."""
        return cast("list[Deal] | Wait | None", self._call("deal_many", worker, most, _this_actor()))

    def deals(self, worker: str | int, *, poll: float = 0.05) -> Iterator[Deal]:
        """Yield a worker's batches until the run is done, asking again every ``poll`` seconds while there is none."""
        return until_done(lambda: self.deal(worker), poll)

    def observe(
        self, deal: Deal | str, losses: Any, *, version: int | None = None, newest: int | None = None
    ) -> Receipt:
        """Record the losses of a batch, once; see :meth:`Dealer.observe`. Tensors may be on any device."""
        receipts = self.observe_many([(deal, losses)], version=version, newest=newest)
        return receipts[0]

    def observe_many(
        self, reports: Iterable[tuple[Deal | str, Any]], *, version: int | None = None, newest: int | None = None
    ) -> list[Receipt]:
        """Record the losses of several batches in one call; see :meth:`Dealer.observe_many`."""
        plain = [(_light(deal), _array(losses)) for deal, losses in reports]
        return cast("list[Receipt]", self._call("observe_many", plain, version=version, newest=newest))

    def skip(self, deal: Deal | str) -> Receipt:
        """Skip a batch that will not be observed; see :meth:`Dealer.skip`."""
        return cast(Receipt, self._call("skip", _light(deal)))

    def lost(self, worker: str | int) -> int:
        """Take back the batches of a worker; see :meth:`Dealer.lost`. For dead actors this is automatic."""
        return cast(int, self._call("lost", worker))

    def end_epoch(self) -> None:
        """End the open epoch and commit it, where ``auto_end`` is False."""
        self._call("end_epoch")

    def commit(self) -> None:
        """Write the run to its store, also within an epoch."""
        self._call("commit")

    def state_dict(self) -> dict[str, Any]:
        """Return the dealer's state, also within an epoch: plain values, for a checkpoint beside the model."""
        return cast("dict[str, Any]", self._call("state_dict"))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the result of :meth:`state_dict`; see :meth:`Dealer.load_state_dict`."""
        self._call("load_state_dict", state)

    @property
    def outstanding(self) -> dict[str | int, int]:
        """How many samples each worker has been dealt and has not reported."""
        return cast("dict[str | int, int]", self._call("look", "outstanding"))

    @property
    def staleness(self) -> dict[int, int]:
        """The number of reports for each staleness; see :attr:`Dealer.staleness`."""
        return cast("dict[int, int]", self._call("look", "staleness"))

    @property
    def is_finished(self) -> bool:
        """Whether the run has no epoch left."""
        return bool(self._call("look", "is_finished"))

    @property
    def is_epoch_done(self) -> bool:
        """Whether an epoch is open of which every batch is accounted for."""
        return bool(self._call("look", "is_epoch_done"))

    def ask(self, question: Callable[[Pruner], Any]) -> Any:
        """Call a function with the Pruner, in the actor, and return its result: ``ask(lambda run: run.history)``."""
        return self._call("ask", question)

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        try:
            return ray.get(getattr(self._actor, name).remote(*given, **named), timeout=self._within)
        except RayTaskError as error:
            raise error.cause from None
        except (RayActorError, GetTimeoutError) as error:
            silent = isinstance(error, GetTimeoutError)
            how = f"no answer within {self._within:g} seconds" if silent else "none, as its process or node died"
            # Whoever waits that long on a busy machine may have lost nothing.
            more = " Where the machine is only busy, give serve() a larger answer_within." if silent else ""
            raise DealerDied(
                f"Expected the actor of the dealer to answer {name}(). Got {how}: stop the workers, start the dealer "
                "again from its store, with resume=True, or from a checkpoint, and the workers from the model saved "
                f"with it.{more}"
            ) from error


def _light(deal: Deal | str) -> Deal | str:
    return deal.without_arrays() if isinstance(deal, Deal) else deal


def _array(losses: Any) -> Any:
    """Losses as an array: the actor does not need the framework."""
    if hasattr(losses, "detach"):
        losses = losses.detach().cpu()
        losses = (losses.float() if losses.element_size() < 4 else losses).numpy()  # numpy has no bfloat16
    return np.asarray(losses)


def _this_actor() -> tuple[str, Any] | None:
    """The id and the handle of the actor that calls, or None outside of one."""
    context = ray.get_runtime_context()
    found = context.get_actor_id()
    return (found, context.current_actor) if found else None


Worker = tuple[Hashable, str | None]  # its name, and which actor it is; None for a task


class _Actor(Dealer):
    """The dealer in the actor's process. :meth:`start` makes it, so that the caller gets its errors as they are."""

    def __init__(self) -> None:
        self._watched: dict[Hashable, tuple[Any, Any]] = {}

    def start(self, make_pruner: Callable[[], Pruner], batch_size: int, **options: Any) -> None:
        super().__init__(make_pruner(), batch_size, **options)

    def deal_many(self, worker: Hashable, most: int, caller: tuple[str, Any] | None = None) -> list[Deal] | Wait | None:
        # An actor that was started in the place of one that died may have its name.
        name, worker = worker, (worker, caller and caller[0])
        answer = super().deal_many(worker, most)
        if caller is not None and worker not in self._watched:
            self._watched[worker] = caller[1], caller[1].__ray_ready__.remote()
        if isinstance(answer, Wait) and self._take_back_from_the_dead():
            answer = super().deal_many(worker, most)
        if answer is None:
            self._watched.pop(worker, None)  # a handle would keep its actor alive
        return [replace(deal, worker=name) for deal in answer] if isinstance(answer, list) else answer

    def _take_back_from_the_dead(self) -> int:
        """Take back the batches of actors that died; return the number of samples."""
        samples = 0
        for worker in [worker for worker in self._of_each() if worker in self._watched]:
            actor, ready = self._watched[worker]
            # This call waits in the actor behind what runs there, and fails when the actor dies.
            if not ray.wait([ready], timeout=0)[0]:
                continue
            try:
                ray.get(ready)
                self._watched[worker] = actor, actor.__ray_ready__.remote()
            except RayActorError:
                del self._watched[worker]
                samples += super().lost(worker)
        return samples

    def lost(self, worker: Hashable) -> int:
        samples = 0
        for owner in self._of_each():
            if owner[0] == worker:
                samples += super().lost(owner)
        return samples

    @property
    def outstanding(self) -> dict[Hashable, int]:
        found: Counter[Hashable] = Counter()
        for (name, _), samples in self._of_each().items():
            found[name] += samples
        return dict(found)

    def _of_each(self) -> dict[Worker, int]:
        """How many samples each actor or task has that was not reported."""
        return cast(dict[Worker, int], super().outstanding)

    def look(self, name: str) -> Any:
        return getattr(self, name)

    def ask(self, question: Callable[[Pruner], Any]) -> Any:
        return question(self.pruner)
