"""The labels of samples and the network's guesses, by the names of their classes."""

from collections.abc import Sequence

import numpy as np

from prunedata.store.state import RunState
from prunedata.types import Array, Arrays

__all__ = ["labels_and_guesses"]


def labels_and_guesses(run: RunState, labels: Array | None = None, names: Sequence[str] = ()) -> Arrays:
    """Return the columns ``label`` and ``guess``, shape (samples,), if known.

    Parameters
    ----------
    run : RunState
    labels : array of int or str, shape (samples,), optional
        The labels that it was trained on, by id; by default those of the run.
    names : sequence of str
        Of classes 0, 1, ...; without names, numbers stay numbers.

    Returns
    -------
    dict of ndarray, shape (samples,)
        ``guess`` is the network's guess for the class; -1, or "" for names, if it is unknown or the label itself.
    """
    given = _readable(run.labels if labels is None else np.asarray(labels))
    numbers = given is not None and given.dtype.kind in "iu" and 0 <= given.min() <= given.max() < len(names)
    if names and (given is None or numbers):
        classes = np.array(_readable(np.array(names, dtype=np.str_)))
        given = None if given is None else classes[given]
    elif given is not None and given.dtype.kind == "U":
        known = run.run.get("labels", {}).get("classes", ()) if labels is None else np.unique(labels)
        classes = np.array(_readable(np.array(known, dtype=np.str_)))
    elif given is None and names:
        classes = np.array(_readable(np.array(names, dtype=np.str_)))
    else:
        classes = None
    found = {} if given is None else {"label": given}
    guess = run.guess
    if guess is None:
        return found
    if classes is None:
        told = guess.astype(np.int64)
        return found | {"guess": told if given is None else np.where(told == given, -1, told)}
    told = np.append(classes, "")[np.where((guess >= 0) & (guess < classes.size), guess, classes.size)]
    return found | {"guess": told if given is None else np.where(told == given, "", told)}


def _readable(labels: Array | None) -> Array | None:
    """Return labels as valid UTF-8: half a surrogate pair is replaced."""
    if labels is None or labels.dtype.kind != "U":
        return labels
    names, which = np.unique(labels, return_inverse=True)
    plain = [name.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name in names.tolist()]
    return np.asarray(np.array(plain, dtype=np.str_)[which])
