"""The folders stay easy to find: few names in each, nothing private used from elsewhere, one meaning for a name."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = ("prunedata", "adapters", "benchmarks")
MOST_NAMES = 20
"""In a folder, its subfolders included."""
FOREIGN = {
    "_SubParsersAction",  # argparse's, for an annotation
    "_batch_size", "_impl", "_inputs", "_variant_tensor",  # of what a tf.data.Dataset is made
    "_exit",  # os._exit: how a forked child ends
    "_compile_loss",  # Keras': one loss for each sample, from a compiled model
    "_on_before_batch_transfer",  # Lightning's: where a batch comes from the loader
    "_orig_mod",  # of a compiled module: the module
    "_indices",  # of a data set of Hugging Face's: the rows that were selected
    "_data_fetcher", "_should_check_val_fx",  # Lightning's: whether a validation is due
    "_get_default_store",  # of torch.distributed: by which the ranks met
    "_is_open",  # zarr's: whether a store was opened
    "_do_one_batch",  # fastai's: the loss of a batch and the step
    "_should_eval",  # Keras': whether fit validates in an epoch
    "_replace",  # of namedtuples, and public in spite of its name
    "_batched", "_shuffle", "_unbatched", "_unlisted",  # WebDataset's own stages
}  # fmt: skip
"""Names of other libraries, which have no public ones for these."""


def python_files(top=TOP):
    for folder in top:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(part.is_symlink() for part in (path, *path.parents)):
                yield path


@cache
def trees():
    """Each module's syntax tree, made once for all tests here."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in python_files()}


def room(path):
    return path.relative_to(ROOT).parent


def folders():
    pages = {path.parent for path in (ROOT / "docs").rglob("*.md")} | {ROOT / "docs" / "pictures"}
    return {path.parent for path in python_files((*TOP, "tests", "docs"))} | pages


def names_in(folder):
    return {
        path.name
        for path in folder.iterdir()
        if path.name not in ("__init__.py", "__pycache__", "py.typed") and not path.is_symlink()
    }


def test_a_folder_has_few_names():
    crowded = {str(f.relative_to(ROOT)): len(names_in(f)) for f in folders() if len(names_in(f)) > MOST_NAMES}
    assert not crowded


def defined(tree):
    """The private names that a module gives a meaning to."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def used(tree):
    """Private names of objects other than ``self``, and private names that are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            if not own and not (isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super"):
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in TOP:
            yield from (
                (name.name, node.lineno)
                for name in node.names
                if name.name.startswith("_") and not name.name.startswith("__")
            )


def test_nothing_private_is_used_outside_of_its_folder():
    every = trees()
    by_room = {}
    for path, tree in every.items():
        by_room.setdefault(room(path), set()).update(defined(tree))
    strays = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, tree in every.items()
        for name, line in used(tree)
        if name not in by_room[room(path)] and name not in FOREIGN
    ]
    assert strays == []


@pytest.mark.parametrize("top", TOP)
def test_a_class_name_means_one_thing(top):
    found = Counter(
        node.name
        for path, tree in trees().items()
        if path.relative_to(ROOT).parts[0] == top
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in found.items() if times > 1] == []


def test_array_types_are_named_in_one_place():
    """``Ids`` once had ten definitions and two meanings."""
    aliases = {
        node.targets[0].id: path
        for path, tree in trees().items()
        if path.relative_to(ROOT).parts[0] != "benchmarks" and path.name != "types.py"
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if ast.unparse(node.value).startswith("npt.NDArray")
    }
    assert aliases == {}
