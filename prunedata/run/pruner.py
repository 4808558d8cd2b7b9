"""The run as its user sees it: epochs, losses, advice, and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, cast
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from prunedata.checks import integer, shown, warn
from prunedata.counting.guess import two_likeliest
from prunedata.counting.joining import joined
from prunedata.errors import FinishedWarning, LossError, NeverPrunesWarning, PrunedataError, UnweighedWarning
from prunedata.keys import hash_keys, own_keys
from prunedata.plan.savings import savings
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy, Weigher
from prunedata.policies.rules import DroppingCount
from prunedata.run.adapter import Adapter
from prunedata.run.engine import Engine
from prunedata.run.epoch import Epoch, Role
from prunedata.run.frameworks import adapter_of, labels_in, samples_in
from prunedata.run.group import Group
from prunedata.run.identity import Prints, Rows, Whole
from prunedata.run.keeping import keep, restore, shorten, standing, trains_on
from prunedata.run.meter import Overhead
from prunedata.run.options import RunOptions, scheduled
from prunedata.run.waiting import Shared
from prunedata.store.state import GUESS, RunState, guessed_classes
from prunedata.types import Arrays, Counts, Keys, LeaveOut, Mask

if TYPE_CHECKING:
    from prunedata.findings.advice import Advice
    from prunedata.store.location import StoreLike

Some = TypeVar("Some", bound=Adapter)
LARGE = 20.0  # no cross entropy begins so high: that of 1 in a million classes is 14
_ARRAYS = (np.ndarray, list, tuple)  # np.ndarray | list | tuple is built in each call, and takes a quarter of it


class _NotBegun:
    """In the place of a run's engine until the number of samples is known: what it is asked for raises."""

    def __getattr__(self, name: str) -> Never:
        raise PrunedataError(
            "The run has not begun, as its samples, or the column of their labels, are not known yet. Wrap a "
            "loader or a dataset that has a length, or pass the data set: Pruner(train_set, epochs=30)."
        )


class Pruner:
    """One training run: records the losses of samples, and leaves samples out epoch by epoch (Algorithms 1 and 2).

    Parameters
    ----------
    samples : int or sized object, optional
        How many samples the data set has, or the data set itself; their ids are ``0 .. samples - 1``. By default the
        length of the first object that is wrapped.
    schedule : Schedule, optional
        Which epochs to prune. With a schedule the default policy is the paper's, :class:`DroppingCount`.
    epochs : int, optional
        How many epochs the run has, instead of a schedule. The default policy is then ``"auto"``; with another policy
        the schedule is ``Schedule.steady(epochs)``.
    prune : int, float or str, optional
        PruningNum: the number of samples that a pruned epoch leaves out, a fraction of all samples, or a percentage
        such as ``"20%"``. With ``policy="auto"`` the maximum, by default 45 %. Not needed with ``leave_out="nothing"``.
    policy : Policy or "auto", optional
        Which samples to leave out. ``"auto"`` begins in the last third of the run, or earlier once the losses or the
        validation figure (from :meth:`validated` or ``holdout``) show that the network memorizes labels. From then on
        every epoch leaves out the samples with the highest recent losses: as many as labels look wrong
        (:func:`prunedata.advise`), but never more than ``prune``. It leaves nothing out if the losses do not form two
        groups, as with clean labels, or if the run has five epochs or fewer. See :attr:`advice`.
    store : path, URL or zarr store, optional
        Where to keep the run. By default it lives in memory.
    seed : int
        Seed of the epochs' orders and of ties.
    batch_size : int, optional
        Round the number of kept samples in pruned epochs up to whole batches, so that none ends with a tiny batch.
    resume : bool or "other data"
        Continue the run in ``store``, or begin one if the store is empty. By default an existing run is an error. To
        lengthen a run, pass more epochs than it began with. If 30 samples show that the data set has other samples at
        the same ids, :class:`prunedata.errors.OtherData` is raised; ``"other data"`` continues all the same, for
        samples that are the same but are read in another way.
    leave_out : "delivery", "weight" or "nothing"
        How pruned epochs leave samples out. With ``"delivery"`` they do not deliver them, and are shorter. With
        ``"weight"`` every epoch delivers all samples, and those that are left out have weight 0: train on the mean over
        the others. Observe the losses of all: those with weight 0 are not recorded. The run leaves out the same samples
        as with ``"delivery"``, but saves no visits; use it if the length of an epoch cannot change. ``"nothing"``
        trains on everything and keeps counting, to see what pruning would save.
    classes : int, optional
        The number of classes, at least 2. The run then counts for each sample how often its loss was above
        ``ln(classes)``, that of a uniform guess, in the array ``high`` (see :attr:`arrays`).
    holdout : float, optional
        Hold out that share of the samples, drawn by ``seed``, if you have no validation set: every epoch delivers them
        with weight 0, so the model never trains on them. Their losses give the validation figure, the mean of
        ``exp(-loss / 4)``; for cross-entropies this is the fourth root of the label's probability. Losses of another
        kind must not be much larger than these, or the figure shows little. In a loop without an adapter, train on the
        mean of :meth:`Epoch.factors` times the losses.
    without : array of bool, shape (samples,), or of int, shape (n,), or path, optional
        Samples to leave out of every epoch, for example those whose labels you found to be wrong: a mask, ids, or a
        file with verdicts from ``prunedata report --review``, of which the wrong ones are left out. They do not count
        in ``prune``. The run keeps them: a resumed run leaves out the earlier ones, and from its next epoch on these.
    labels : array of int or str, shape (samples,), or str, optional
        The label of each sample, as it is trained on; or the name of a column of the data set that is passed as
        ``samples`` or to :meth:`wrap`. With ``policy="auto"`` samples are then compared with those of the same label,
        so that rare classes are not left out because they are hard, and the network's guess for a sample
        (:meth:`observe`) is the most likely other class. By default ``policy="auto"`` uses the labels of that data set
        if they can only be classes: the ``targets`` or ``labels`` of a torchvision data set without
        ``target_transform``, the last tensor of a ``TensorDataset`` if it has whole numbers, or the ``ClassLabel``
        column ``label`` or ``labels`` of a ``datasets.Dataset``; or else, behind a wrapped DataLoader, those of its
        batches, if these are pairs whose second part is one whole number a sample. Numbers are positions of classes in
        logits, and -100 is no label; names are sorted, and have the positions of that order. The run keeps the labels.
    keys : sequence or array of str, bytes or int, one a sample, optional
        A unique name of each row, such as a file name or a primary key: the run keeps 8 bytes of each. With keys a
        resumed run checks that every sample is still the same row, and may ``follow`` rows. By default the keys of the
        wrapped object if it has some, such as WebDataset's ``__key__`` or the files of an image folder.
    follow : bool
        Let a resumed run (``resume=True`` or :meth:`load_state_dict`) follow its rows by their keys, between two
        epochs: counts, averages and verdicts move with each row to its position in the new data. New rows begin as in a
        new run. The values of rows that are gone are kept, and return with these rows. The number of samples may
        change, and ``prune`` with it.

    Raises
    ------
    PrunedataError
        If an argument is impossible, or the store is damaged, holds something else, or another run.

    Warns
    -----
    NeverPrunesWarning
        If the run never leaves anything out, unless ``leave_out="nothing"``. Also if ``prune`` is an integer
        that looks like a percentage.

    Examples
    --------
    >>> import numpy as np
    >>> from prunedata import Pruner, Schedule
    >>> pruner = Pruner(100, Schedule(4, window=4, start=2, block=2, pruned_per_block=1), prune=0.25)
    >>> for epoch in pruner.epochs():
    ...     for ids in epoch.batches(32):
    ...         pruner.observe(np.cos(ids), ids)  # a loss for each id
    >>> [record["kept"] for record in pruner.history]
    [100, 100, 75, 100]
    """

    def __init__(
        self,
        samples: int | Sized | None = None,
        schedule: Schedule | None = None,
        *,
        epochs: int | None = None,
        prune: int | float | str | None = None,
        policy: Policy | Literal["auto"] | None = None,
        store: StoreLike | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        resume: bool | Literal["other data"] = False,
        leave_out: LeaveOut = "delivery",
        classes: int | None = None,
        holdout: float | None = None,
        without: npt.ArrayLike | PathLike[str] | None = None,
        labels: npt.ArrayLike | str | None = None,
        keys: Any = None,
        follow: bool = False,
    ) -> None:
        if policy is None:
            policy = "auto" if schedule is None else DroppingCount()
        if isinstance(samples, Schedule):
            raise PrunedataError(
                "Expected samples first. Got a Schedule: write Pruner(samples, schedule), or Pruner(schedule=...), and "
                "wrap() finds their number."
            )
        when = scheduled(schedule, epochs)
        given = None if keys is None else hash_keys(keys)
        if samples is None and given is not None:
            samples = given.size

        # Their length is no number of samples: that of a text, of columns, or of the parts of a data set.
        if isinstance(samples, str | bytes) or (isinstance(samples, Mapping) and 0 not in samples):
            raise PrunedataError(
                f"Expected samples as a number, or a data set that has as many. Got {shown(samples)}: pass the number "
                "of rows, or one part of what has several."
            )
        # An array or a tensor without dimensions is a number, though it has a method for its length.
        dataset = samples if isinstance(samples, Sized) and getattr(samples, "ndim", True) else None
        self._number = cast("int | None", samples) if dataset is None else len(dataset)

        self._observers: list[ReferenceType[Any]] = []
        """The loaders that keep which samples they delivered last. A WeakSet would take some us in each step."""
        self._keys = given
        self._warned: set[str] = set()  # the warnings that were shown, each once
        self._engine = cast("Engine", _NotBegun())
        self._add: Callable[[Any, Any], bool] = lambda ids, losses: False
        self._begin_with: Callable[[int, Any, Keys | None], None] | None = None
        """Begins the run with a number of samples, the object that has them, and their keys; None once it has begun."""

        def begin(number: int, data: Any, keys: Keys | None) -> None:
            known: Any = labels
            if isinstance(labels, str):
                known = labels_in(data, labels)
            elif labels is None and policy == "auto":
                known = labels_in(data)
                if known is not None and known.size != number:  # a trainer has packed rows
                    known = None
            options = RunOptions(
                number, when, prune, policy, seed, batch_size, leave_out, classes, holdout, without, known, keys, follow
            )
            self._begin_with = None
            self._engine = Engine(options)
            keep(self._engine, store, resume=resume)
            self._add = self._engine.buffer.add  # looked up once, as it is called for every batch

        if self._number is not None and (dataset is not None or not isinstance(labels, str)):
            begin(self._number, dataset, given)
        else:
            self._begin_with = begin

    # -- its options

    @property
    def samples(self) -> int:
        """How many samples the data set has."""
        return self._engine.options.samples

    @property
    def prune(self) -> int:
        """How many samples a pruned epoch leaves out, at most with ``policy="auto"``."""
        return int(self._engine.options.prune)

    @property
    def seed(self) -> int:
        """The seed of the order of the samples, and of random choices."""
        return self._engine.options.seed

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch, if given."""
        return self._engine.options.batch_size

    @property
    def leave_out(self) -> LeaveOut:
        """How samples are left out, as given."""
        return self._engine.options.leave_out

    @property
    def holdout(self) -> float | None:
        """The share of the samples that is held out, if any."""
        return self._engine.options.holdout

    # -- where it stands

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, after any :meth:`rewindow`."""
        return self._engine.pruning.schedule

    @property
    def policy(self) -> Policy:
        """The policy; with ``"auto"`` the one that its advice names."""
        return self._engine.options.chosen

    @property
    def advice(self) -> Advice:
        """How many labels look wrong by the finished epochs, what to do, and why.

        With ``policy="auto"`` the run itself follows advice to prune. It then keeps this advice, unless a validation
        figure shows the memorization onset later.
        """
        pruning, ledger = self._engine.pruning, self._engine.ledger
        if pruning.advice is not None:
            return pruning.advice
        return pruning.advise(ledger)

    @property
    def without(self) -> Mask:
        """The samples that are left out for good, shape (samples,). A copy."""
        return np.equal(self._engine.pruning.roles, Role.LEFT_OUT)

    @property
    def keys(self) -> Keys | None:
        """The hash of each sample's key, uint64, shape (samples,); None without keys. Do not change it."""
        return self._engine.identity.keys

    @property
    def is_weighed(self) -> bool:
        """Whether losses may have weights other than 1, by ``leave_out``, ``holdout``, or a policy with weights."""
        return self.leave_out == "weight" or self.holdout is not None or isinstance(self.policy, Weigher)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that is open, or else of the next to begin."""
        return self._engine.ledger.next_epoch

    @property
    def is_open(self) -> bool:
        """Whether an epoch is open: begun and not ended, also in a run that was just resumed."""
        return self._engine.opened is not None

    @property
    def current(self) -> Epoch:
        """The open epoch. Raises :class:`NotInEpoch` if none is."""
        return self._engine.now.epoch

    @property
    def history(self) -> list[dict[str, Any]]:
        """A record of each finished epoch, a dict.

        It has ``number``, ``pruned``, ``kept``, ``observed`` (visits), ``seconds`` of training, ``mean_loss``, and
        ``overhead``, the seconds spent in this library. Where they apply, it also has:

        - ``would_prune``: with ``leave_out="nothing"``, how many samples would have been left out;
        - ``agreement``: the share of the left-out samples that the previous pruned epoch left out too;
        - ``without``, ``held_out``, ``by_weight``: how many samples were left out for good, held out, or left out by
          weight; the last two are among ``kept``;
        - ``validation`` and ``lower_is_better``: as passed to :meth:`validated`, or the figure of held-out samples, and
          ``accuracy``, theirs, from 0 to 1, if labels and logits are known;
        - ``high``: with ``classes``, how many losses were above that of a uniform guess;
        - ``samples``, ``lost``, ``fresh``: in a run that followed its rows, how many it had, lost and got;
        - ``apart``, ``worse``, ``turned``, ``within``, ``noise``: with ``policy="auto"``, numbers for its advice.
        """
        return self._engine.ledger.history

    @property
    def counts(self) -> Counts:
        """DroppingCount of each sample, shape (samples,), the open epoch included. A copy.

        With several processes, each has only its own observations of the open epoch; if they share batches, without
        hits, which they find together when it ends. In a thread other than the one that trains, losses that still wait
        in a buffer are missing. The same holds for :attr:`hits`, :attr:`visits` and :attr:`arrays`.
        """
        return self._engine.observed()[0].counts.copy()

    @property
    def hits(self) -> Counts:
        """The number of hits of each sample, shape (samples,), the open epoch included. A copy."""
        return self._engine.observed()[0].hits.copy()

    @property
    def visits(self) -> Counts:
        """The number of observations of each sample, shape (samples,), the open epoch included. A copy."""
        return self._engine.observed()[0].visits.copy()

    @property
    def arrays(self) -> Arrays:
        """The other arrays of shape (samples,) by name, the open epoch included. Copies.

        ``mean_excess``, float32: how far a sample's losses lay above the means of their batches, averaged over its
        visits, up to the memorization onset. With ``classes`` the array ``high``: visits with a high loss. Once logits
        were observed ``guess``, int32: the network's guess for the class of a sample, -1 if unknown. And those of the
        policy, as ``loss``.
        """
        found = self._engine.observed()[1]
        return {name: guessed_classes(array) if name == GUESS else array.copy() for name, array in found.items()}

    @property
    def saved(self) -> dict[str, Any]:
        """The savings of the finished epochs: visits, batches and time.

        The keys are those of :func:`prunedata.plan.savings.savings`.
        """
        return savings(self.history, self.samples, self.batch_size)

    @property
    def overhead(self) -> Overhead:
        """The time spent in this library in the open or last epoch: its ``elapsed`` are the seconds so far.

        For adapters it is a context manager: the time within it counts. Nested ones count once.
        """
        return self._engine.meter.overhead

    def kept_in(self, epoch: int) -> int:
        """Return how many samples epoch number ``epoch`` delivers, or delivered if it has finished.

        Raises :class:`PrunedataError` for an epoch that the schedule does not have.
        """
        epoch = integer("epoch", epoch, 0, self.schedule.epochs - 1)
        history = self._engine.ledger.history
        return int(history[epoch]["kept"]) if 0 <= epoch < len(history) else self._engine.pruning.kept_in(epoch)

    def total_batches(self, batch_size: int | None = None, *, drop_last: bool = False) -> int:
        """Return how many batches, and so steps, the whole run has: for schedulers that step by batch.

        Parameters
        ----------
        batch_size : int, optional
            By default the run's own ``batch_size``.
        drop_last : bool
            As the loader's.

        Notes
        -----
        With ``policy="auto"`` this is the maximum, until the run begins to leave samples out. Each of several ranks has
        only the batches of its own share.
        """
        size = self.batch_size if batch_size is None else integer("batch_size", batch_size, 1)
        if size is None:
            raise PrunedataError("Expected batch_size, here or in the Pruner. Got neither.")
        kept = [self.kept_in(epoch) for epoch in range(self.schedule.epochs)]
        return sum(number // size if drop_last else -(-number // size) for number in kept)

    # -- the epochs

    def epochs(self) -> Iterator[Epoch]:
        """Yield the remaining epochs of the run. Each is committed when the loop advances.

        If you leave the loop by ``break`` after an epoch was completely observed, the epoch ends, in memory. It is not
        committed, because an error looks the same from here, and your model may not be saved: call :meth:`commit` after
        the loop.

        Raises
        ------
        SkippedSamples
            At the end of an epoch in which kept samples were not observed.

        Warns
        -----
        FinishedWarning
            If nothing is left to train.
        """
        engine = self._engine
        # An epoch that lacks only its figure is yielded again, so that the loop can validate.
        if engine.opened is not None and engine.is_complete_everywhere() and not engine.awaits_figure_somewhere():
            self.end_epoch()
        elif engine.is_finished:
            warn(
                f"This run has finished its {self.schedule.epochs} epochs. To continue, pass more epochs and "
                "resume=True; to train anew, name another store. In a search for settings, make a Pruner within each "
                "trial, with a store of its own.",
                FinishedWarning,
            )
        while not engine.is_finished:
            epoch = self.begin_epoch()
            try:
                yield epoch
            except GeneratorExit:
                engine.end_if_complete(epoch)
                raise
            if engine.is_open(epoch):
                self.end_epoch()

    def begin_epoch(self) -> Epoch:
        """Open the next epoch, or continue the one that is open, and return it."""
        return self._engine.begin()

    def wrap(self, given: Any, *arguments: Any, **options: Any) -> Any:
        """Wrap a loader, a dataset, a stream or a trainer, so that it delivers the samples that each epoch keeps.

        Parameters
        ----------
        given : object
            PyTorch's DataLoader, a WebDataset, a ``tf.data.Dataset``, a Grain MapDataset, a Hugging Face Trainer, or
            any iterable. The adapter of its library wraps it: ``prunedata.adapters.<library>.wrap``.
        *arguments, **options
            Passed to that function, for example ``with_ids=True``.

        Returns
        -------
        object
            Of the framework's own class, where it has one.

        Raises
        ------
        PrunedataError
            If no adapter wraps such an object, its library is not installed, or the adapter cannot wrap this one.
        """
        _, adapter = adapter_of(given)
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        if not hasattr(adapter, "wrap"):
            raise PrunedataError(
                f"Expected a loader, a dataset, a stream or a trainer. Got a {kind}, which {adapter.__name__} does not "
                "wrap: see its page."
            )
        try:  # before a run begins in a store
            signature(adapter.wrap).bind(given, self, *arguments, **options)
        except TypeError as error:
            raise PrunedataError(
                f"Expected a loader, a dataset, a stream or a trainer, with the arguments of its adapter's wrap. Got a "
                f"{kind}, for {adapter.__name__}.wrap, {error}: see its page, or wrap the loader that you train on."
            ) from None
        if self._begin_with is not None:
            samples = samples_in(given, *arguments, **options) if self._number is None else self._number
            if samples is None:
                raise PrunedataError(
                    f"Expected a Pruner with the number of samples, which the {type(given).__name__} does not know. "
                    "Got none: pass it, as in Pruner(50_000, epochs=30)."
                )
            own = self._keys
            if own is None and hasattr(adapter, "keys_in"):
                own = own_keys(adapter.keys_in(given, *arguments, **options), samples)
            self._begin_with(samples, given, own)
        return adapter.wrap(given, self, *arguments, **options)

    def observe(
        self, losses: Any, ids: Any = None, *, weights: Any = None, logits: Any = None, labels: Any = None
    ) -> Any:
        """Record the losses of one batch (Algorithm 1, lines 4-8).

        Parameters
        ----------
        losses : array or tensor of float, shape (n,)
            One loss for each sample. Copied.
        ids : array of int, shape (n,), optional
            Which samples. An id that repeats counts each time. Pruned samples may be observed too. Not needed behind a
            wrapped DataLoader, which keeps what it delivered last.
        weights : tensor of float, shape (n,), optional
            Behind a wrapped DataLoader: the weight of each loss in the returned mean, as
            ``class_weights[targets]``. The losses are recorded without them.
        logits : array or tensor of float, shape (n, classes), or (n,) for two classes, optional
            The network's outputs for the samples, or its probabilities. The run then keeps its guess for each sample,
            the most likely class by recent epochs, in the array ``guess``: 2 bytes a sample, and 4 with more than 4,096
            classes. If the label is known, the guess is the most likely other class.
        labels : array or tensor of int, shape (n,), optional
            The labels of the samples, as they are trained on, if the run does not know them: it keeps them in 2 bytes a
            sample, and compares losses within a label, as with ``Pruner(..., labels=...)``. It reads them until it
            knows the label of each sample: on a GPU, each step of the first epoch waits for the device. Then it reads
            those of the first batch of each epoch, to compare them. 0 to 32,767, or -100 for none.

        Returns
        -------
        tensor or None
            Behind a wrapped DataLoader the weighted mean, on which to call ``backward()``. None for arrays: train on
            the mean of :meth:`Epoch.factors` times the losses.

        Raises
        ------
        LossError
            If ids or losses have a wrong shape, dtype or length; if an id is unknown or a loss not finite; if ids are
            missing; if logits are NaN or have another number of classes than before; or if labels differ from those
            that the run knows. Values are checked at once in an epoch's first batch, and then 65,536 losses at a time:
            the error names the bad batch, which is not recorded, and every other batch is.
        NotInEpoch
            If no epoch is open.
        """
        alone = ids is not None and (not self._observers or isinstance(losses, _ARRAYS))
        observer = None if alone else self._observer(has_ids=ids is not None)
        if observer is None:
            if weights is not None:
                raise LossError(
                    "Expected weights with the tensors of a wrapped DataLoader, whose mean is returned. Got them with "
                    "losses that are recorded only: observe these without weights, and weight them in your own mean."
                )
            if labels is not None:
                self.see_labels(ids, labels, losses, logits)
            if logits is not None:
                guesses, number = two_likeliest(logits)
                self.record(losses, ids, guesses=guesses, classes=number)
            elif not self._add(ids, losses):  # it is full, or not plain
                self._engine.add(ids, losses)
            return None
        if weights is logits is labels is None:
            return observer.observe(losses) if ids is None else observer.observe(losses, ids)
        options = {"weights": weights, "logits": logits, "labels": labels}
        options = {name: given for name, given in options.items() if given is not None}
        return observer.observe(losses, **options) if ids is None else observer.observe(losses, ids, **options)

    def observed_by(self, loader: Any) -> None:
        """For adapters: let :meth:`observe` pass losses to this loader, which keeps which samples it delivered last."""
        self._observers.append(ref(loader, self._observers.remove))

    def _observer(self, *, has_ids: bool) -> Any:
        """Return the loader whose batch waits for its losses; None if the ids are known and none waits."""
        known = [one for each in tuple(self._observers) if (one := each()) is not None]
        found = known if len(known) == 1 else [one for one in known if one.awaits_losses]
        if len(found) == 1:
            return found[0]
        if has_ids and not found:
            return None
        if not known:
            got = "none, and no wrapped loader that knows which samples it delivered: call observe(losses, ids)"
        elif found:
            got = f"none, and {len(found)} wrapped loaders that wait for losses: call the loader's own observe(losses)"
        else:
            got = "none, and no wrapped loader that waits for losses: observe each batch once, after it came"
        raise LossError(f"Expected ids with the losses. Got {got}.")

    def record(
        self, losses: Any, ids: Any, sizes: Any = None, guesses: Any = None, *, classes: int | None = None
    ) -> None:
        """Record the losses of one batch, for adapters: like :meth:`observe`, with arrays only.

        ``sizes``, an array of int: the samples of each of several batches, as they come from a device. ``guesses``,
        int32 of shape (n,), by logits of so many ``classes``: the most likely class of each sample times 32,768, plus
        the second, or -1 where a logit is NaN. See :meth:`expect_classes`.
        """
        if classes is not None:
            self.expect_classes(classes)
        if sizes is not None or guesses is not None or not self._add(ids, losses):  # it is full, or not plain
            self._engine.add(ids, losses, sizes, guesses)

    def see_labels(self, ids: Any, labels: Any, losses: Any = None, logits: Any = None, *, sure: bool = True) -> None:
        """Keep the labels of a batch, for adapters; see :meth:`observe`.

        If an adapter is not ``sure`` that they are labels, it is no error that they are none, or that they change.
        """
        self._engine.see_labels(ids, labels, losses, logits, sure=sure)

    @property
    def wants_labels(self) -> bool:
        """Whether the run was given no labels, and :meth:`see_labels` would keep or compare those of the next batch."""
        engine = self._engine
        return engine.options.labels is None and (engine.opened is None or engine.opened.wants_labels)

    @property
    def needs_labels(self) -> bool:
        """Whether it wants them also where the loop passes none: to decide, or to compare with names that it was given.

        Adapters then look for them in the batches.
        """
        engine = self._engine
        if engine.options.labels is not None and engine.options.labels.named:
            return engine.opened is None or engine.opened.wants_labels
        return engine.options.auto and self.wants_labels

    def expect_classes(self, classes: int) -> None:
        """Raise :class:`LossError` unless this run has so many classes; for adapters."""
        self._engine.ledger.arrays.guess.check(classes)

    def forgive(self, told: Callable[[str], object] = lambda text: None) -> None:
        """Raise no error for what a script that is watched may do; call ``told`` with a sentence that says what came.

        A loss that is no number counts as the mean of its batch, so that its sample is neither suspect nor clean by it,
        and logits that are none say nothing. If the label of a sample changes, the run forgets all labels.
        """
        self._engine.buffer.passes_nan = lambda: told("a loss that is NaN or infinite counts as the mean of its batch")
        self._engine.ledger.arrays.guess.passes_changes = lambda: told(
            "labels change from epoch to epoch, so that samples are not compared with those of the same label"
        )

    def end_epoch(self) -> None:
        """Close the open epoch and commit it.

        Raises
        ------
        SkippedSamples
            If kept samples were not observed. The epoch stays open: observe them, or correct the loop.

        Warns
        -----
        UnweighedWarning
            Once, if losses of the epoch have weights other than 1, as with ``leave_out="weight"`` or ``holdout``, and
            the loop neither called :meth:`Epoch.factors` nor ``backward()`` on what ``observe`` returned.
        """
        engine = self._engine
        opened, trained = engine.opened, engine.is_recording  # else it was trained before the run was restored
        engine.end()
        trained = trained and opened is not None and opened.tally.observed > 0  # by this process
        if opened is not None and trained and (unapplied := opened.epoch.unapplied):
            self._warn_once(
                "factors",
                f"Expected a loop that applies the weights of losses, as {unapplied} delivered samples have a weight "
                "other than 1. Got one that trains on all alike: call backward() on what observe() returns behind a "
                "wrapped loader, or train on the mean of epoch.factors(ids) * losses, or deal.weights * losses. "
                "Observe losses without weights.",
                UnweighedWarning,
            )
        self._look_at_figures()
        self._look_for_model()

    def validated(self, figure: float, *, lower_is_better: bool | None = None, agreed: bool = False) -> None:
        """Record the validation figure of an epoch, for ``policy="auto"`` and advice.

        It belongs to the open epoch, or else to the one that has just ended. Not every epoch needs a figure: you may
        validate every other epoch.

        Parameters
        ----------
        figure : float
            A number such as accuracy, on samples that you do not train on. Their labels may be as noisy as all others.
            The mean of ``exp(-loss / 4)`` varies least, and so shows the smallest falls.
        lower_is_better : bool, optional
            True for a loss. By default more is better; but a figure that falls without having risen before may be a
            loss after all, so it never starts pruning. Pass False if the first epochs may be the best, as when you
            fine-tune a trained network.
        agreed : bool
            All ranks pass the same figure; then it may also come after the epoch has ended. Otherwise each rank, or
            some of them, passes its own before the epoch ends, and the mean of these counts.

        Raises
        ------
        PrunedataError
            If the epoch has a figure already, if this one is not finite, or if it is of another direction or scale
            than earlier ones. With ``agreed``, if the ranks' figures differ, when the epoch ends or the next begins.
        NotInEpoch
            If no epoch has begun; or, without ``agreed``, if the epoch has ended in a run of several ranks.

        Warns
        -----
        NeverPrunesWarning
            Once, with ``policy="auto"``, if the figure falls from its first epochs on and ``lower_is_better`` was not
            passed.
        """
        self._engine.validated(figure, lower_is_better=lower_is_better, agreed=agreed)
        self._look_at_figures()

    @property
    def is_validated(self) -> bool:
        """Whether the epoch that is open, or else the one that has just ended, has its validation figure."""
        return self._engine.is_validated

    def skip(self, samples: int) -> None:
        """Allow that many kept samples of the open epoch to stay unobserved.

        For a loop that drops a batch, because its losses are not finite or it isn't full. Calls add up.
        """
        self._engine.now.skipped += integer("the samples to skip", samples, 0)

    @property
    def skipped(self) -> int:
        """How many samples :meth:`skip` has skipped since the open epoch began or was resumed."""
        return 0 if self._engine.opened is None else self._engine.opened.skipped

    @property
    def awaits_figure(self) -> bool:
        """Whether the completely observed epoch, open or just ended, still lacks its validation figure.

        True in a run that resumes from a checkpoint saved between an epoch's last batch and :meth:`validated`: call
        ``validated`` before the next epoch begins, and the run continues as if it had never stopped. :meth:`epochs`
        yields the open epoch once more for it. False in a run without figures, or one that holds samples out.
        """
        return self._engine.awaits_figure

    def rewindow(self, window: int) -> None:
        """Begin a new window of ``window`` epochs with the next epoch; the store records it."""
        pruning = self._engine.pruning
        pruning.schedule = pruning.schedule.rewindow(self.next_epoch + self.is_open, window)
        self.commit()

    # -- for adapters

    def attach(self, adapter: Some) -> Some:
        """Attach an adapter to the run, and return it, or the one with the same key that is attached already.

        Adapters are called in the order in which they were attached. If an epoch is open, the adapter's
        ``begin_epoch`` is called at once.
        """
        option = 'leave_out="weight"' if self.leave_out == "weight" else "holdout"
        weighs = self.leave_out == "weight" or self.holdout is not None
        if not isinstance(adapter, Adapter):
            raise PrunedataError(f"Expected an adapter, a subclass of prunedata.Adapter. Got {type(adapter).__name__}.")
        if weighs and not adapter.by_weight:
            raise PrunedataError(
                f"Expected an adapter that can leave samples out by weight. Got {type(adapter).__name__}, which can't: "
                f"build the Pruner without {option}, or train by an adapter that can, as that of PyTorch."
            )
        for one in self.adapters:
            if one is adapter or (adapter.key is not None and one.key == adapter.key):
                if not isinstance(one, type(adapter)):
                    raise PrunedataError(
                        f"Expected adapters of one class for the key {adapter.key!r}. Got {type(one).__name__} and "
                        f"{type(adapter).__name__}."
                    )
                return one
        self._engine.adapters += (adapter,)
        if self._engine.is_recording:
            adapter.begin_epoch(self.current)
        return adapter

    def trains_on(
        self,
        prints: Prints,
        keys: Callable[[], Any] | None = None,
        whole: Whole | None = None,
        rows: Rows | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        """Record how to read samples, so that a resumed run notices other data. The first call counts.

        Parameters
        ----------
        prints : callable
            Takes at most 32 ids, two of them twice, and returns the fingerprint of each sample, or None where it is
            unknown: see :func:`prunedata.run.identity.prints_by`. Called when the run is saved for the first time, and
            when it is resumed.
        keys : callable, optional
            Returns the source's own names of its samples, as for ``keys=``, or None. Called if the run has no keys.
            Names that repeat are not used.
        whole : callable, optional
            Returns a fingerprint of all samples, in 16 hexadecimal digits, without reading them; None if it is unknown.
            Where it is the one that the run was saved with, no sample is read.
        rows : callable, optional
            Returns the row of each sample in the data set that was selected from, shape (samples,), or None. In a later
            call they must be the same.
        in_order : bool
            Whether samples can only be read one after another, so that the first ones are looked at, from 0 on each
            time. Otherwise they are drawn by the seed.

        Raises
        ------
        OtherData
            If the run was saved with other data, or a later call has other rows.
        """
        identity = self._engine.identity
        found = own_keys(keys(), self.samples) if keys is not None and not identity.is_told else None
        if found is not None:
            trains_on(self._engine, found)
        identity.trains_on(prints, whole, rows, in_order=in_order)

    @property
    def group(self) -> Group:
        """The processes that train the run together."""
        return self._engine.group

    def join(self, group: Group) -> None:
        """Train the run together with other processes. If an epoch is open, it begins for the group at once."""
        if not isinstance(group, Group):
            raise PrunedataError(f"Expected a subclass of prunedata.run.group.Group. Got {type(group).__name__}.")
        self._engine.join(group)

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters that take part, in the order in which they were attached."""
        return self._engine.adapters

    def standing(self) -> dict[str, Any]:
        """Return what must be equal in all processes that train together: arguments, position, checksums of the counts.

        Plain values, for adapters to compare before the first epoch.
        """
        return standing(self._engine)

    def share_batches(self, shared: Shared | None) -> None:
        """Set how the processes that train together share the open epoch's batches; None if each has its own.

        Call it on every process when a loader begins its pass. A loss is then compared with the mean of its global
        batch, which is known when the epoch ends. By default each process has batches of its own.

        Raises
        ------
        PrunedataError
            If another loader of this epoch shares batches otherwise, or losses were observed before this was known.
        """
        opened = self._engine.now
        self._engine.flush()
        opened.share(shared, recorded=self._engine.buffer.batches > 0)

    def __repr__(self) -> str:
        done, epochs = len(self._engine.ledger.history), self.schedule.epochs
        return f"Pruner({self.samples:,} samples, {done:,} of {epochs:,} epochs done, {self.policy!r})"

    def take_over(self) -> None:
        """Make the calling thread the one that trains: only it may record losses, save the run and end epochs.

        For runs that several threads share. Use a lock, so that only one of them calls the pruner at a time.
        """
        self._engine.take_over()

    # -- persistence

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected a Pruner to stay the only one of its run. Got a copy or a pickle of it: make it in the process, "
            "or in the function of a trial, that trains; to go on with a run, load its state_dict() there."
        )

    def commit(self) -> None:
        """Write the state of the run to its store, if it has one; at any time, also within an epoch."""
        self._engine.commit()

    def shorten(self) -> None:
        """Record in the store that the training has ended early, with the epochs that are done.

        Reports and advice then count wrong labels by this length. It changes nothing in a run that has left samples out
        or was given a schedule. To go on after all, resume with more epochs.
        """
        shorten(self._engine)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run, also within an epoch, for a checkpoint that you save beside the model.

        It holds dicts, lists, numbers, strings and bytes only, so that any format can save it
        (``torch.load`` reads it with ``weights_only=True``).
        """
        return self._engine.checkpoint()

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]] | Iterator[dict[str, Any]]) -> None:
        """Continue from a result of :meth:`state_dict`. Raises :class:`PrunedataError` if it is of another run.

        Parameters
        ----------
        state : dict, or list, tuple or iterator of dict
            For a run that several processes trained together, pass the states of all of them, in any order. Any number
            of processes can continue from these; each loads all of them.
        """
        if isinstance(state, list | tuple | Iterator):
            restore(self._engine, joined(map(RunState.from_checkpoint, state)))
        else:
            restore(self._engine, RunState.from_checkpoint(state))

    def _look_at_figures(self) -> None:
        """Warn once if figures fall from the first epoch on, are of too large losses, or whole batches keep doubted."""
        engine, mean = self._engine, self.history[0]["mean_loss"] if len(self.history) == 1 else None
        if self.holdout is not None and mean is not None and mean > LARGE:
            warn(
                "Expected losses of about the size of cross-entropies, as the validation figure of holdout= is the "
                f"mean of exp(-loss / 4). Got losses with a mean of {mean:.3g}, for which that is near 0 and shows "
                "little: divide what you pass to observe() by about their first mean, or build the Pruner without "
                "holdout and pass the loss on a validation set to validated(loss, lower_is_better=True).",
                NeverPrunesWarning,
            )
        if engine.options.auto and engine.figures.only_falls:
            self._warn_once(
                "falling",
                "Expected a validation figure that rises while the network learns. Got one that fell from its first "
                "epochs on, as a loss does, and so the run ignores it: for a loss call pruner.validated(loss, "
                "lower_is_better=True); if more of it is better, pruner.validated(figure, lower_is_better=False).",
                NeverPrunesWarning,
            )
        if engine.pruning.keeps_doubted:
            self._warn_once(
                "whole batches",
                f"Expected epochs that leave out the {self.advice.prune} samples whose labels look wrong. Got epochs "
                f"that keep all {self.samples}, rounded up to whole batches of {self.batch_size}: build the Pruner "
                "with a smaller batch_size, or without.",
                NeverPrunesWarning,
            )

    def _look_for_model(self) -> None:
        """Warn once if the first epoch of a resumed run has losses as the very first one, of a model that knew nothing.

        A run cannot see the model, and goes on with the records of another.
        """
        if self._engine.resumed_at != len(self.history) - 1 or len(self.history) <= 2:
            return
        first, *later, now = means = [record["mean_loss"] for record in self.history]
        if None not in means and max(later) < 0.9 * first and now > (first + max(later)) / 2:
            self._warn_once(
                "model",
                f"Expected losses that go on from those of earlier epochs. Got a mean of {now:.3g} in epoch "
                f"{len(later) + 1}, at which the run was resumed, after {first:.3g} in the first epoch and at most "
                f"{max(later):.3g} since: was the model loaded that belongs to this epoch? A run keeps the records of "
                "the samples only. To train a new model, name another store.",
                UserWarning,
            )

    def _warn_once(self, about: str, message: str, category: type[Warning]) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warn(message, category)
