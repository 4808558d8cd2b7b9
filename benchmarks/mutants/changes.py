"""The mutants of a source file: the file with one small change each, by the operators of mutmut."""

import hashlib
import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.mutators import mutation_operators

__all__ = ["ROOT", "Mutant", "can_swap", "import_instead", "module_of", "mutants", "swap"]

UNTOUCHED = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.Raise)
"""What is for readers and type checkers. Of errors, what they say: whether one is raised is decided before."""
UNTOUCHED_CALLS = {"len", "isinstance", "cast", "TypeVar"}
"""As mutmut: without its one argument ``len`` only raises; ``cast`` and ``TypeVar`` are for the type checker."""


@dataclass(frozen=True)
class Mutant:
    """A source file with one change.

    Attributes
    ----------
    where : str
        Name of the function or class with the change, as ``Tally.add``; empty at the top of a file.
    before, after : str
        The lines that the change takes away, and those that it puts in their place.
    text : str
        The whole file.
    inner : bool
        Whether the change is within the body of a function, so that nothing else than its code differs.
    """

    where: str
    before: str
    after: str
    text: str
    inner: bool

    @property
    def key(self) -> str:
        """Names the mutant as long as its file stays as it is."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a file, none twice."""
    source = path.read_text(encoding="utf-8")
    module = MetadataWrapper(cst.parse_module(source)).module
    found: dict[str, Mutant] = {}
    for place, changed in _changes(module, _Place(), lambda node: cast(cst.Module, node)):
        text = changed.code
        if text != source and _compiles(text):
            found.setdefault(text, Mutant(".".join(place.names), *_lines(source, text), text, place.inner))
    return list(found.values())


@dataclass(frozen=True)
class _Place:
    names: tuple[str, ...] = ()
    inner: bool = False

    def below(self, node: cst.CSTNode, child: cst.CSTNode) -> "_Place":
        if self.inner or not isinstance(node, cst.FunctionDef | cst.ClassDef):
            return self
        return _Place((*self.names, node.name.value), isinstance(node, cst.FunctionDef) and child is node.body)


def _changes(
    node: cst.CSTNode, place: _Place, rebuild: Callable[[cst.CSTNode], cst.Module]
) -> Iterator[tuple[_Place, cst.Module]]:
    """The modules that `rebuild` makes of what may stand in the place of a node, and of each node below it."""
    if _is_untouched(node):
        return
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            yield from ((place, rebuild(changed)) for changed in operator(node))
    for child in node.children:
        yield from _changes(child, place.below(node, child), partial(_rebuilt, rebuild, node, child))


def _rebuilt(
    rebuild: Callable[[cst.CSTNode], cst.Module], node: cst.CSTNode, old: cst.CSTNode, new: cst.CSTNode
) -> cst.Module:
    return rebuild(_with(node, old, new))


def _with(node: cst.CSTNode, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
    """A node with another child: quicker than libcst's own way, which walks through the whole tree."""
    for field in fields(node):
        value = getattr(node, field.name)
        if value is old:
            return node.with_changes(**{field.name: new})
        if isinstance(value, Sequence) and any(each is old for each in value):
            return node.with_changes(**{field.name: [new if each is old else each for each in value]})
    raise LookupError(f"Expected a child of {type(node).__name__}. Got {type(old).__name__}.")


def _is_untouched(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name):
        return node.targets[0].target.value == "__all__" or _called(node.value) == "TypeVar"
    return isinstance(node, UNTOUCHED) or _called(node) in UNTOUCHED_CALLS


def _called(node: cst.CSTNode) -> str | None:
    return node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) else None


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _lines(source: str, text: str) -> tuple[str, str]:
    """The lines in which two texts differ: what lies between their common beginning and end."""
    before, after = source.splitlines(), text.splitlines()
    while before and after and before[0] == after[0]:
        del before[0], after[0]
    while before and after and before[-1] == after[-1]:
        del before[-1], after[-1]
    return " ".join(map(str.strip, before)), " ".join(map(str.strip, after))


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
