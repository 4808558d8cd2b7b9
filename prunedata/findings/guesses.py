"""What the network takes samples for, beside their labels, as they are called."""

from collections.abc import Sequence

import numpy as np

from prunedata.store.state import RunState
from prunedata.types import Array, Arrays

__all__ = ["labels_and_guesses"]


def labels_and_guesses(run: RunState, labels: Array | None = None, names: Sequence[str] = ()) -> Arrays:
    """Return the columns ``label`` and ``guess``, shape (samples,), as far as a run knows them; empty if it does not.

    Parameters
    ----------
    run : RunState
    labels : array of int or str, shape (samples,), optional
        Those that it was trained on, by the samples' ids; without them, those that it was given.
    names : sequence of str
        Of the classes that are numbers from 0; without them numbers stay numbers.

    Returns
    -------
    dict of ndarray, shape (samples,)
        ``guess`` is the class that the network takes a sample for; -1, or empty as a name, where it is not known, or no
        other than the label.
    """
    given = _readable(run.labels if labels is None else np.asarray(labels))
    numbers = given is not None and given.dtype.kind in "iu" and 0 <= given.min() <= given.max() < len(names)
    if names and (given is None or numbers):
        classes = np.array(_readable(np.array(names, dtype=np.str_)))
        given = None if given is None else classes[given]
    elif given is not None and given.dtype.kind == "U":
        known = run.run.get("labels", {}).get("classes", ()) if labels is None else np.unique(labels)
        classes = np.array(_readable(np.array(known, dtype=np.str_)))
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
    """The same labels as text that a file can hold: half a surrogate pair is none in UTF-8."""
    if labels is None or labels.dtype.kind != "U":
        return labels
    names, which = np.unique(labels, return_inverse=True)
    plain = [name.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name in names.tolist()]
    return np.asarray(np.array(plain, dtype=np.str_)[which])
