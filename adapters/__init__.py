"""One module per framework, each with the same function: ``wrap(<the framework's own object>, pruner)``.

``cleanlab`` and ``parquet`` pass on the suspects of a run instead. Trainers in ``watched`` can only be watched.

Nothing is imported here: a framework is imported only with its own module, as ``prunedata.adapters.torch``.
"""

# A source tree has this folder beside prunedata/, and another project's package is called adapters.
if __name__ != "prunedata.adapters":
    raise ImportError(f"Expected to be imported as 'prunedata.adapters'. Got {__name__!r}: import that name.")
