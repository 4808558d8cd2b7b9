"""A disk as it may be found after a power cut, made from the log of the calls that wrote to it.

Only what was synchronized is sure: the bytes of a file by a call on the file, the names in a folder by a call on the
folder. Of everything else any part may be there: a write in whole, in some of its sectors, as zeros, or not; a name as
it was at any moment since. No real file system is as bad.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.calls import CallOnFile

__all__ = ["Disk", "Operation", "Tree", "operations", "read_in", "write_out"]

SECTOR = 512
Tree = dict[str, bytes | None]
"""Every path below a folder: the bytes of a file, None of a folder; a folder before what is in it."""


@dataclass(frozen=True)
class Operation:
    """One change: ``make``, ``empty``, ``write``, ``resize``, ``rename``, ``link``, ``remove``, ``folder`` or ``sync``.

    Attributes
    ----------
    kind, path : str
    other : str
        The new name of a renaming or a link.
    offset : int
        Of a write; the size of a resizing.
    data : bytes
    """

    kind: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""


def operations(call: CallOnFile) -> Iterator[Operation]:
    """What a call does to the disk, if it succeeds.

    Raises
    ------
    NotImplementedError
        If it writes in a way that is not known here.
    """
    name, path, arguments = call.name, call.paths[0], call.arguments
    if name in ("open", "creat", "openat"):
        flags = os.O_CREAT | os.O_TRUNC if name == "creat" else arguments[1 if name == "open" else 2]
        if flags & os.O_APPEND:
            raise NotImplementedError(f"Expected no file that is appended to. Got {path}.")
        if flags & os.O_CREAT:
            yield Operation("make", path)
        if flags & os.O_TRUNC:
            yield Operation("empty", path)
    elif name in ("write", "pwrite64"):
        offset = arguments[3] if name == "pwrite64" else call.offset
        yield Operation("write", path, offset=offset, data=call.memory(arguments[1], arguments[2]))
    elif name == "ftruncate":
        yield Operation("resize", path, offset=arguments[1])
    elif name in ("fsync", "fdatasync"):
        yield Operation("sync", path)
    elif name in ("rename", "renameat", "link", "linkat"):
        yield Operation(name.removesuffix("at"), path, other=call.paths[1])
    elif name in ("unlink", "unlinkat", "rmdir"):
        yield Operation("remove", path)
    elif name in ("mkdir", "mkdirat"):
        yield Operation("folder", path)
    elif name.startswith(("write", "pwrite", "send", "copy", "fallocate", "truncate", "rename", "symlink", "openat2")):
        raise NotImplementedError(f"Expected a call that the log knows. Got {name} of {path}.")


@dataclass
class _Node:
    """A file or a folder, whatever its name."""

    is_folder: bool
    safe: bytes = b""
    now: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)
    names: dict[str, list["_Node | None"]] = field(default_factory=dict)
    """Of a folder: what each name stood for, from what is safe to what is now."""

    def at(self, name: str) -> "_Node | None":
        return self.names[name][-1] if name in self.names else None

    def put(self, name: str, node: "_Node | None") -> None:
        self.names.setdefault(name, [None]).append(node)


class Disk:
    """A folder that is empty and safe, and then what operations make of it.

    Parameters
    ----------
    top : Path
        Operations on other files are not looked at.
    """

    def __init__(self, top: Path) -> None:
        self.top = str(top)
        self._root = _Node(is_folder=True)

    def apply(self, operation: Operation) -> None:
        """Do an operation, as far as the real one can have succeeded."""
        found = self._find(operation.path)
        if found is None:
            return
        folder, name = found
        node = self._root if folder is None else folder.at(name)
        kind = operation.kind
        if kind in ("make", "folder") and folder is not None and node is None:
            folder.put(name, _Node(is_folder=kind == "folder"))
        elif node is None:
            return
        elif kind == "sync":
            _sync(node)
        elif kind in ("empty", "write", "resize"):
            _change(node.now, operation)
            node.pending.append(operation)
        elif kind == "remove" and folder is not None:
            folder.put(name, None)
        elif kind in ("rename", "link") and folder is not None:
            there = self._find(operation.other)
            if there is None or there[0] is None or (kind == "link" and there[0].at(there[1]) is not None):
                return
            there[0].put(there[1], node)
            if kind == "rename":
                folder.put(name, None)

    def _find(self, path: str) -> tuple[_Node | None, str] | None:
        """The folder of a path, and its name there; no folder, if it is the top."""
        if path == self.top:
            return None, ""
        if not path.startswith(f"{self.top}/"):
            return None
        *above, name = path.removeprefix(f"{self.top}/").split("/")
        folder = self._root
        for part in above:
            child = folder.at(part)
            if child is None:
                return None
            folder = child
        return folder, name

    def now(self) -> Tree:
        """What lies below the top."""
        return dict(_walk(self._root, "", lambda names: names[-1], lambda node: bytes(node.now)))

    def after_a_cut(self, chance: random.Random) -> Tree:
        """As :meth:`now`, of a disk that was cut off: one of all that may be there."""
        mood = chance.choice(["any", "any", "any", "names come through", "bytes come through", "nothing comes through"])

        def name(values: list[_Node | None]) -> _Node | None:
            if mood == "names come through":
                return values[-1]
            return values[0] if mood == "nothing comes through" else chance.choice(values)

        def data(node: _Node) -> bytes:
            if mood == "bytes come through":
                return bytes(node.now)
            return node.safe if mood == "nothing comes through" else _torn(node, chance)

        return dict(_walk(self._root, "", name, data))


def write_out(tree: Tree, top: Path) -> None:
    """Make the files and folders of a tree."""
    top.mkdir(parents=True)
    for path, data in tree.items():
        if data is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(data)


def read_in(top: Path) -> Tree:
    """The files and folders below a folder."""
    return {str(path.relative_to(top)): None if path.is_dir() else path.read_bytes() for path in sorted(top.rglob("*"))}


def _walk(
    folder: _Node, above: str, name: "Callable[[list[_Node | None]], _Node | None]", data: Callable[[_Node], bytes]
) -> Iterator[tuple[str, bytes | None]]:
    for own, values in folder.names.items():
        node = name(values)
        if node is None:
            continue
        path = f"{above}{own}"
        if node.is_folder:
            yield path, None
            yield from _walk(node, f"{path}/", name, data)
        else:
            yield path, data(node)


def _sync(node: _Node) -> None:
    node.safe, node.pending = bytes(node.now), []
    node.names = {name: values[-1:] for name, values in node.names.items() if values[-1] is not None}


def _change(data: bytearray, operation: Operation) -> None:
    if operation.kind == "empty":
        data.clear()
    elif operation.kind == "resize":
        data[operation.offset :] = b""
        data.extend(bytes(operation.offset - len(data)))
    else:
        data.extend(bytes(max(0, operation.offset - len(data))))
        data[operation.offset : operation.offset + len(operation.data)] = operation.data


def _torn(node: _Node, chance: random.Random) -> bytes:
    """The safe bytes, and of each change since: all, some sectors, a beginning, zeros, or nothing."""
    data = bytearray(node.safe)
    for change in node.pending:
        fate = chance.choice(["all", "all", "sectors", "beginning", "zeros", "nothing"])
        if fate == "nothing":
            continue
        if fate == "all" or change.kind != "write":
            _change(data, change)
            continue
        cut = chance.randint(0, len(change.data))
        for first in range(0, len(change.data), SECTOR):
            part = change.data[first : first + SECTOR]
            if fate == "zeros":
                part = bytes(len(part))
            elif fate == "beginning":
                part = part[: max(0, cut - first)]
            elif chance.random() < 0.5:
                continue
            _change(data, Operation("write", "", offset=change.offset + first, data=part))
    return bytes(data)
