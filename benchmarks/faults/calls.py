"""The system calls that a child makes on files, one by one: looked at, let pass, made to fail, or the last it made.

The kernel holds every such call until the parent has answered (seccomp's user notification, Linux 5.5 or newer). So
what is seen and disturbed is what the process does, whichever library does it and in whichever thread.
"""

import contextlib
import ctypes
import fcntl
import os
import platform
import signal
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["CALLS", "CallOnFile", "Notifier", "can_watch", "fork", "hand_over_calls"]


class _Number(NamedTuple):
    x86_64: int | None
    aarch64: int | None
    paths: tuple[tuple[int | None, int], ...] = ()
    """For each path among the arguments: where the folder is that it may be relative to, and where it is."""


CALLS = {
    "open": _Number(2, None, ((None, 0),)),
    "creat": _Number(85, None, ((None, 0),)),
    "openat": _Number(257, 56, ((0, 1),)),
    "openat2": _Number(437, 437, ((0, 1),)),
    "close": _Number(3, 57),
    "read": _Number(0, 63),
    "pread64": _Number(17, 67),
    "readv": _Number(19, 65),
    "preadv": _Number(295, 69),
    "write": _Number(1, 64),
    "pwrite64": _Number(18, 68),
    "writev": _Number(20, 66),
    "pwritev": _Number(296, 70),
    "pwritev2": _Number(328, 287),
    "sendfile": _Number(40, 71),
    "copy_file_range": _Number(326, 285),
    "fallocate": _Number(285, 47),
    "truncate": _Number(76, 45, ((None, 0),)),
    "ftruncate": _Number(77, 46),
    "lseek": _Number(8, 62),
    "fsync": _Number(74, 82),
    "fdatasync": _Number(75, 83),
    "flock": _Number(73, 32),
    "ioctl": _Number(16, 29),
    "fcntl": _Number(72, 25),
    "getdents64": _Number(217, 61),
    "stat": _Number(4, None, ((None, 0),)),
    "lstat": _Number(6, None, ((None, 0),)),
    "fstat": _Number(5, 80),
    "newfstatat": _Number(262, 79, ((0, 1),)),
    "statx": _Number(332, 291, ((0, 1),)),
    "access": _Number(21, None, ((None, 0),)),
    "faccessat": _Number(269, 48, ((0, 1),)),
    "faccessat2": _Number(439, 439, ((0, 1),)),
    "readlink": _Number(89, None, ((None, 0),)),
    "readlinkat": _Number(267, 78, ((0, 1),)),
    "mkdir": _Number(83, None, ((None, 0),)),
    "mkdirat": _Number(258, 34, ((0, 1),)),
    "rmdir": _Number(84, None, ((None, 0),)),
    "unlink": _Number(87, None, ((None, 0),)),
    "unlinkat": _Number(263, 35, ((0, 1),)),
    "rename": _Number(82, None, ((None, 0), (None, 1))),
    "renameat": _Number(264, 38, ((0, 1), (2, 3))),
    "renameat2": _Number(316, 276, ((0, 1), (2, 3))),
    "link": _Number(86, None, ((None, 0), (None, 1))),
    "linkat": _Number(265, 37, ((0, 1), (2, 3))),
    "symlink": _Number(88, None, ((None, 1),)),
    "symlinkat": _Number(266, 36, ((1, 2),)),
}
"""Every call by which a file is reached, made, written, renamed, made safe, locked or removed."""
_MACHINE = platform.machine()
_NUMBERS = {name: getattr(number, _MACHINE, None) for name, number in CALLS.items()}
_NAMES = {number: name for name, number in _NUMBERS.items() if number is not None}
_SECCOMP = {"x86_64": 317, "aarch64": 277}.get(_MACHINE)
_AT_FDCWD = -100
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_CONTINUE = 1
_DIES_WITH_PARENT, _NO_NEW_PRIVILEGES, _SET_FILTER, _WITH_LISTENER = 1, 38, 1, 8


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("then", ctypes.c_ubyte),
        ("otherwise", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def can_watch() -> bool:
    """Whether this system lets a parent answer its child's system calls."""
    if _SECCOMP is None or not hasattr(os, "fork") or platform.system() != "Linux":
        return False
    pid = fork()
    if not pid:
        try:
            hand_over_calls()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def fork() -> int:
    """As ``os.fork``, in a process whose other threads, as zarr's, only wait; Python warns of any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def hand_over_calls() -> int:
    """From now on this thread, and those that it starts, wait for an answer to each call of :data:`CALLS`.

    Return the descriptor by which another process answers: send it there by a call that is not among them.
    """
    numbers = sorted(_NAMES)
    load, equals, give = 0x20, 0x15, 0x06
    program = [_Instruction(load, 0, 0, 0)]
    program += [_Instruction(equals, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    program += [_Instruction(give, 0, 0, 0x7FFF0000), _Instruction(give, 0, 0, 0x7FC00000)]  # allow; ask
    library = ctypes.CDLL(None, use_errno=True)
    array = (_Instruction * len(program))(*program)
    given = _Program(len(program), array)
    library.prctl(_DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)  # nobody would answer
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    descriptor = int(library.syscall(_SECCOMP, _SET_FILTER, _WITH_LISTENER, ctypes.byref(given)))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return descriptor


@dataclass(frozen=True)
class CallOnFile:
    """A system call that waits for an answer.

    Attributes
    ----------
    name : str
    paths : tuple of str
        The files that it is about: one, or two of a renaming; what is no file, as a pipe, has a name in brackets.
    arguments : tuple of int
    thread : int
    cookie : int
        By which the kernel knows it.
    """

    name: str
    paths: tuple[str, ...]
    arguments: tuple[int, ...]
    thread: int
    cookie: int

    def is_within(self, folder: Path) -> bool:
        """Whether it is about something in a folder, or about the folder itself."""
        top = str(folder)
        return any(path == top or path.startswith(f"{top}/") for path in self.paths)

    @property
    def offset(self) -> int:
        """Where the descriptor of the call stands in its file."""
        about = Path(f"/proc/{self.thread}/fdinfo/{self.arguments[0]}").read_text()
        return int(about.split(maxsplit=2)[1])

    def memory(self, address: int, length: int) -> bytes:
        """What lies in the memory of the process that calls."""
        return _memory(self.thread, address, length)


class Notifier:
    """Receives the calls of a child, and answers them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def receive(self) -> CallOnFile | None:
        """The next call, which waits; None if its process died meanwhile."""
        raw = bytearray(80)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, raw)
            cookie, thread, _, number, _, _, *arguments = struct.unpack("<QIIiIQ6Q", raw)
            name = _NAMES[number]
            return CallOnFile(name, tuple(_paths(name, thread, arguments)), tuple(arguments), thread, cookie)
        except OSError:
            return None

    def answer(self, call: CallOnFile, errno: int = 0) -> None:
        """Let a call happen, or make it fail with an error without happening."""
        flags = 0 if errno else _CONTINUE
        with contextlib.suppress(FileNotFoundError):  # it was killed
            fcntl.ioctl(self.descriptor, _ANSWER, struct.pack("<QqiI", call.cookie, 0, -errno, flags))

    def close(self) -> None:
        os.close(self.descriptor)


def _paths(name: str, thread: int, arguments: list[int]) -> list[str]:
    places = CALLS[name].paths
    if not places:
        return [_path_of(thread, arguments[0])]
    found = []
    for folder, at in places:
        path = _text(thread, arguments[at])
        base = _AT_FDCWD if folder is None else _signed(arguments[folder])
        if not path:  # as fstat by newfstatat: the descriptor itself
            path = _path_of(thread, base)
        elif not path.startswith("/"):
            top = os.readlink(f"/proc/{thread}/cwd") if base == _AT_FDCWD else _path_of(thread, base)
            path = os.path.join(top, path)
        found.append(os.path.normpath(path))
    return found


def _path_of(thread: int, descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/{thread}/fd/{_signed(descriptor)}")
    except FileNotFoundError:
        return "[closed]"


def _signed(value: int) -> int:
    return ctypes.c_int(value & 0xFFFFFFFF).value


def _text(thread: int, address: int) -> str:
    if not address:
        return ""
    page = 4096
    raw = b""
    while b"\0" not in raw:  # not over the end of a page that may be the last
        raw += _memory(thread, address + len(raw), page - (address + len(raw)) % page)
    return os.fsdecode(raw[: raw.index(b"\0")])


def _memory(thread: int, address: int, length: int) -> bytes:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        raw = b""
        while len(raw) < length:
            part = memory.read(length - len(raw))
            if not part:
                raise OSError(f"Expected {length} bytes of memory. Got {len(raw)}.")
            raw += part
        return raw
