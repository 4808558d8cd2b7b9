"""Check that a run continues with the data that it began with: by the keys of its samples, or some fingerprints."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from prunedata.checks import warn
from prunedata.errors import OtherData, PrunedataError
from prunedata.store.state import LOST, RunState
from prunedata.types import Arrays, Counts, Ids, Keys, Mask

Prints = Callable[[Sequence[int]], Sequence[str | None]]  # given ids, returns the fingerprint of each sample
Whole = Callable[[], str | None]
"""Returns a fingerprint of all samples and their order, which differs if any of them does, without reading them; None
where that is impossible."""
Rows = Callable[[], Ids | None]
"""Returns the row of each sample in the data set that the user selected from; None if nothing was selected."""

PROBED = 30  # samples that are read, at most; two of them are read twice
TWICE = 2
DEEPEST = 20  # of containers within each other; what lies deeper is not looked at
SEARCHED = 2000  # objects in which a data set's own random generators are sought
FIRST = 100  # parts of each of these objects that are looked at


def probed(samples: int, seed: int) -> Ids:
    """Return which samples are looked at, shape (n,), ascending: ``PROBED`` of them, or all if there are fewer."""
    if samples <= PROBED:
        return np.arange(samples)
    drawn = np.random.default_rng(seed % (1 << 64)).choice(samples, PROBED, replace=False)
    return np.sort(drawn).astype(np.int64)


def fingerprint(item: Any) -> str | None:
    """Return 16 hexadecimal digits that are the same for equal samples, in every process and on every machine.

    A sample is made of numbers, text, bytes, None, arrays and tensors, images of PIL's, and tuples, lists and mappings
    of these; None is returned for anything else.
    """
    digest = blake2b(digest_size=8)
    try:
        for part in _parts(item, 0):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    except _Unknown:
        return None
    return digest.hexdigest()


class _Unknown(Exception):
    """An object that cannot be turned into bytes."""


def _parts(item: Any, depth: int) -> Iterator[bytes]:
    """Yield the bytes of a sample, each part after its type, so that no two types collide."""
    if depth > DEEPEST:
        raise _Unknown
    if item is None or isinstance(item, bool | int | float | complex | str):
        yield f"{type(item).__name__}:{item!r}".encode("utf-8", "surrogatepass")
    elif isinstance(item, bytes | bytearray | memoryview):
        yield b"bytes"
        yield bytes(item)
    elif isinstance(item, Mapping):
        yield f"mapping:{len(item)}".encode()
        for key in sorted(item, key=repr):
            yield repr(key).encode("utf-8", "surrogatepass")
            yield from _parts(item[key], depth + 1)
    elif isinstance(item, tuple | list):
        yield f"sequence:{len(item)}".encode()
        for each in item:
            yield from _parts(each, depth + 1)
    else:
        yield from _array(item)


def _array(item: Any) -> Iterator[bytes]:
    """The bytes of an array, a tensor or an image."""
    try:
        array = np.asarray(item.detach().cpu() if hasattr(item, "detach") else item)
    except Exception as error:  # of whatever library: a dtype that NumPy has not, a file that is closed
        raise _Unknown from error
    if array.dtype.kind not in "biufcSUM" and array.dtype.kind != "m":
        raise _Unknown
    yield f"array:{array.dtype.str}:{array.shape}".encode()
    yield np.ascontiguousarray(array).tobytes()


@contextmanager
def drawn_alike(more: AbstractContextManager[object]) -> Iterator[None]:
    """Let random transforms of a sample draw the same numbers each time, and leave the generators as they were."""
    ours, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 (the one that transforms draw from)
    try:
        with more:
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002


@contextmanager
def own_draws_kept(source: Any) -> Iterator[None]:
    """Leave the random generators that an object holds as they were: transforms of a data set may have some.

    They are not seeded, as those of Python and NumPy are: samples that they change have no fingerprint.
    """
    restore = _restorers(source)
    try:
        yield
    finally:
        for each in restore:
            each()


def _restorers(source: Any) -> list[Callable[[], object]]:
    """Return what sets the generators that are found in an object, by its attributes, to their present state."""
    found: list[Callable[[], object]] = []
    seen, left = dict[int, Any](), deque([source])
    while left and len(seen) < SEARCHED:
        one: Any = left.popleft()
        if id(one) in seen or isinstance(one, type):
            continue
        seen[id(one)] = one  # kept, or another object may get its id
        if isinstance(one, random.Random):
            found.append(partial(one.setstate, one.getstate()))
        elif isinstance(one, np.random.Generator):
            found.append(partial(setattr, one.bit_generator, "state", one.bit_generator.state))
        elif type(one).__name__ in ("Generator", "RandomState") and hasattr(one, "get_state"):  # PyTorch's, NumPy's
            found.append(partial(one.set_state, one.get_state()))
        else:
            left.extend(_held_by(one))
    return found


def _held_by(one: Any) -> Iterator[Any]:
    """Yield what an object holds: its attributes, its items, and what a function was made with."""
    if isinstance(one, dict | list | tuple):
        yield from islice(one.values() if isinstance(one, dict) else one, FIRST)
    elif isinstance(one, partial):
        yield from (one.func, one.args, one.keywords)
    elif isinstance(one, MethodType | BuiltinMethodType):
        yield one.__self__
    elif isinstance(one, FunctionType):
        yield one.__closure__
    elif isinstance(one, CellType):
        with suppress(ValueError):  # an empty one
            yield one.cell_contents
    if not isinstance(one, ModuleType):
        with suppress(AttributeError):  # not by getattr, which may run code of the user's
            yield from islice(object.__getattribute__(one, "__dict__").values(), FIRST)


def print_of(
    read: Callable[[int], Any], sample: int, alike: Callable[[], AbstractContextManager[object]] = nullcontext
) -> str | None:
    """Return the fingerprint of one sample, which ``read`` returns; None if it cannot be read or has none.

    ``alike`` returns a context manager that seeds the generators of a framework, as those of Python and NumPy are.
    """
    with drawn_alike(alike()):
        try:
            return fingerprint(read(sample))
        except Exception:  # of the user's data: training raises it again
            return None


def prints_by(read: Callable[[int], Any], alike: Callable[[], AbstractContextManager[object]] = nullcontext) -> Prints:
    """Return what gives the fingerprints of samples that this process reads; see :func:`print_of`."""

    def prints(ids: Sequence[int]) -> list[str | None]:
        with own_draws_kept(read):
            return [print_of(read, sample, alike) for sample in ids]

    return prints


class Identity:
    """What a run's data is known by: keys, and fingerprints of a few samples; those saved, and those it trains on.

    ``samples`` and ``seed`` choose the samples that are read.
    """

    def __init__(self, samples: int, seed: int, keys: Keys | None = None, *, follows: bool = False) -> None:
        self.accepts_all, self.follows = False, follows
        """Whether to go on with any data; and whether a run that continues follows its rows."""
        self.keys, self.is_told = keys, keys is not None
        """The hashes of the data's keys, or until these are known, those that the run was saved with; and which."""
        self.rest: Arrays = {}
        """By the names under which it is saved: in how many epochs each sample was not in the data, or kept and not
        observed; and what was known of rows that are not in the data now."""
        self._ids, self._in_order = probed(samples, seed), False
        self._prints: Prints | None = None
        self._whole: Whole = lambda: None
        self._rows: Rows = lambda: None
        self.stored: Sequence[str | None] | None = None
        """The fingerprints that the run was saved with: those of the samples that are read, then that of the whole
        data. None if nothing is known."""

    @property
    def arrays(self) -> Arrays:
        """What is saved of it beside the fingerprints, by name."""
        return ({} if self.keys is None else {"keys": self.keys}) | self.rest

    def restore(self, state: RunState) -> None:
        """Continue from a checked state. Keys of the data take precedence."""
        self.stored = state.data
        self.rest = {name: array for name, array in state.arrays.items() if name == "absent" or name.startswith(LOST)}
        if not self.is_told:
            self.keys = state.keys

    def miss(self, trained: Mask, visits: Counts) -> None:
        """Add to ``absent`` what each sample's visits in the epoch that ends differ from one for each trained sample.

        1 for a trained sample that was not observed; less than 0, modulo 2**32, for one that was observed more often.
        """
        missed = trained.astype(np.uint32)
        missed -= visits
        if missed.any():
            missed += self.rest.get("absent", np.uint32(0))
            self.rest |= {"absent": missed}

    def refuse_unknown(self) -> None:
        """Raise if the run follows rows whose keys are unknown."""
        if self.follows and not self.is_told:
            raise PrunedataError(
                "Expected keys beside follow=True. Got none, and what was wrapped has no names of its own: pass "
                "keys=..., with one for each sample."
            )

    def trains_on(
        self, prints: Prints, whole: Whole | None = None, rows: Rows | None = None, *, in_order: bool = False
    ) -> None:
        """Set how samples are read, unless the whole data tells; raise :class:`OtherData` if a saved run had others.

        Of several loaders the first one counts. The others may read the same samples in another way, as larger images,
        but no other rows.
        """
        if self._prints is None:
            self._prints, self._whole, self._in_order = prints, whole or self._whole, in_order
            self._rows = rows or self._rows
            if in_order:
                self._ids = np.arange(self._ids.size)
            self.check(self.stored)
        elif rows is not None:
            before, now = self._rows(), rows()
            if before is not None and now is not None and not np.array_equal(before, now):
                raise OtherData(
                    "Expected the rows of the run's first loader. Got others, or these in another order, by which an "
                    "id would be another sample in each loader: make a Pruner for each part of the data, as for each "
                    "fold, or wrap loaders of the whole data set with samplers."
                )

    def check(self, stored: Sequence[str | None] | None) -> None:
        """Raise :class:`OtherData` if fingerprints that were saved are not those of the data, if both are known."""
        if stored is None or self._prints is None or self.accepts_all:
            return
        if not any(stored):
            self._warn_of_unknown()
            return
        if stored[-1] is not None and stored[-1] == self._whole():
            return
        both = [
            (number, one, other)
            for number, one, other in zip(self._ids.tolist(), stored, self._now(), strict=False)
            if one is not None and other is not None
        ]
        others = [number for number, one, other in both if one != other]
        if others:
            some = ", ".join(map(str, others[:5]))
            raise OtherData(
                f"Expected the data that the run began with. Got other samples at {len(others)} of the {len(both)} "
                f"places that were compared (ids {some}{', ...' if len(others) > 5 else ''}), so its records belong to "
                "other rows. Pass the same data in the same order; or begin a new store; or, if these are the same "
                'samples, read in another way, pass resume="other data". A run that begins with keys=... can follow '
                "its rows in changed data, by follow=True."
            )

    def saved(self) -> Sequence[str | None] | None:
        """Return the fingerprints to be saved. The data is read once, when the run is first saved."""
        if self._prints is not None and (self.stored is None or self.accepts_all):
            self.stored, self.accepts_all = [*self._now(), self._whole()], False
            if not any(self.stored):
                self._warn_of_unknown()
        return self.stored

    def _warn_of_unknown(self) -> None:
        if self.keys is None:
            moves = (
                " If it is their order that differs, losses are recorded for wrong samples, as an id is a position: "
                "let the source give the same order in each pass."
            )
            warn(
                "This run cannot notice if it goes on with other data: its samples differ each time they are read, or "
                "hold objects of which no fingerprint can be computed. To let it notice, pass keys=..., one for each "
                f"sample.{moves * self._in_order}",
                UserWarning,
            )

    def _now(self) -> list[str | None]:
        assert self._prints is not None
        ids = self._ids.tolist()
        again = ids[:TWICE]
        try:
            found = list(self._prints([*again, *ids]))
        except Exception:  # of the user's data, or of a process that reads it: the loop will see it, here it is unknown
            return [None] * len(ids)
        # Of samples that are random all the same, nothing is known.
        same = found[: len(again)] == found[len(again) : 2 * len(again)]
        return found[len(again) :] if same else [None] * len(ids)
