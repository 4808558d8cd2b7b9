"""A mutant put in the place of what it was made of: in a function that is there, or when its module is imported."""

import importlib.abc
import importlib.util
import sys
import warnings
from dataclasses import replace
from functools import cached_property
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from benchmarks.mutants.changes import Mutant

__all__ = ["ROOT", "can_swap", "import_instead", "module_of", "swap"]

ROOT = Path(__file__).resolve().parents[2]


def can_swap(path: Path, mutant: Mutant) -> bool:
    """Whether only a function's body differs, and Python lets it take that: with the same free variables."""
    if not mutant.inner:
        return False
    original = replace(mutant, text=path.read_text(encoding="utf-8"))
    return _code_of(mutant, path).co_freevars == _code_of(original, path).co_freevars


def import_instead(path: Path, mutant: Mutant) -> None:
    """Let the module, when it is imported, be the mutant."""
    sys.meta_path.insert(0, _Finder(module_of(path), path, _compiled(mutant.text, path)))


def module_of(path: Path) -> str:
    """The name of the module in a file of the repository."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def swap(module: ModuleType, mutant: Mutant) -> None:
    """Give the function of the mutant its code."""
    owner: Any = module
    *outer, last = mutant.where.split(".")
    for name in outer:
        owner = vars(owner)[name]
    _plain_function(vars(owner)[last]).__code__ = _code_of(mutant, Path(str(module.__file__)))


def _plain_function(found: Any) -> FunctionType:
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, cached_property):
        found = found.func
    elif isinstance(found, classmethod | staticmethod):
        found = found.__func__
    return found  # type: ignore[no-any-return]


def _code_of(mutant: Mutant, path: Path) -> CodeType:
    waiting = [_compiled(mutant.text, path)]
    while waiting:
        code = waiting.pop()
        if code.co_qualname == mutant.where:
            return code
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise LookupError(mutant.where)


def _compiled(text: str, path: Path) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as of "is" beside a number: it is for the tests to notice
        return compile(text, str(path), "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the mutant where its module is imported."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, str(self.path))
        loader.code = self.code
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class _Loader(SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code
