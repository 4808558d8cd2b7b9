"""Parquet: ``write_table(table, path)`` writes the table of a run's suspects into a Parquet file."""

from pathlib import Path

from prunedata.types import Arrays

try:
    import pyarrow
    import pyarrow.parquet
except ImportError as error:
    raise ImportError("prunedata.adapters.parquet needs pyarrow: pip install pyarrow") from error

__all__ = ["write_table"]


def write_table(table: Arrays, path: str | Path) -> None:
    """Write columns into a Parquet file.

    Parameters
    ----------
    table : dict of ndarray, shape (n,)
        A table of :func:`prunedata.findings.table.suspect_table`. Each column keeps its dtype.
    path : str or Path
        The file. An existing one is replaced.
    """
    pyarrow.parquet.write_table(pyarrow.table({name: pyarrow.array(array) for name, array in table.items()}), path)
