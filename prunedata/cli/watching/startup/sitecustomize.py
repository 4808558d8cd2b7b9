"""Python imports this before a program, where PYTHONPATH names the folder: whatever trains in it will be watched."""

import os
import sys
from importlib import import_module


def _leave() -> None:
    """Take the folder out of the search path again, and import the environment's own ``sitecustomize``."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    sys.modules.pop("sitecustomize", None)
    try:
        import_module("sitecustomize")  # that of the environment, if it has one
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = _own  # for whoever imported it


if __name__ == "sitecustomize":
    _own = sys.modules[__name__]
    _leave()
    if os.environ.get("PRUNEDATA_WATCH"):
        # The program may leave the folder.
        os.environ["PRUNEDATA_WATCH"] = os.path.abspath(os.environ["PRUNEDATA_WATCH"])
        try:
            from prunedata.cli.watching.hooks import install
        except ImportError:
            pass  # the Python of another environment, which a watched program has started
        else:
            install()
