"""Import an object named on the command line, as ``script.py:loader`` or ``module:train_set``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from prunedata.errors import PrunedataError

__all__ = ["named_object"]


def named_object(named: str) -> Any:
    """Return the named object of a script or a module; a function without arguments is called.

    A script is run, but isn't ``__main__``. Modules are looked for in the current folder first.
    """
    place, _, name = named.rpartition(":")
    if not place or not name:
        raise PrunedataError(f"Expected a name such as module:train_set or script.py:train_set. Got {named}.")
    if place.endswith(".py") and not Path(place).is_file():
        raise PrunedataError(f"Expected a file of yours that makes {name}. Got {place}, where there is none.")
    try:
        found = getattr(_script(place) if place.endswith(".py") else _module(place), name)
        return found() if inspect.isroutine(found) else found
    except AttributeError as error:
        raise PrunedataError(f"Expected {name!r} in {place}. Got {error}.") from error
    except (Exception, SystemExit) as error:
        told = str(error).removesuffix(".")
        raise PrunedataError(
            f"Expected {place} to run, and to make {name} without training. Got {type(error).__name__}: {told}."
        ) from error


def _module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise PrunedataError(f"Expected a script of Python. Got {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    sys.modules[spec.name] = module  # worker processes look for the classes of its data there
    spec.loader.exec_module(module)
    return module
