"""Keys that are functions of other keys, such as a county of a block: which cell of one set holds a cell of another.

Two keys over the same column are compared by their labels for each value of the column's domain, which is public.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from dpduck.language.select.request import Key, Question
from dpduck.values.arrays import IntegerArray

Members = tuple[int, ...]


def has_nested_keys(question: Question) -> bool:
    """Tells whether a key is a function of another key."""
    return any(_label_map(fine, coarse) is not None for fine, coarse in permutations(question.keys, 2))


def determines(question: Question, fine: Members, coarse: Members) -> bool:
    """Tells whether the keys of the set `fine` determine the keys of the set `coarse`."""
    return all(_axis(question, fine, key) is not None for key in coarse)


def fold_cells(question: Question, fine: Members, coarse: Members) -> IntegerArray | None:
    """Returns for each cell of a set, row-major, the larger cell of another set that contains it.

    None if the keys of the first set do not determine those of the second.
    """
    axes = []
    for key in coarse:
        found = _axis(question, fine, key)
        if found is None:
            return None
        axes.append(found)
    shape = [question.sizes[key] for key in fine]
    cells = np.zeros(shape, np.int64)
    for key, (place, labels) in zip(coarse, axes, strict=True):
        along = labels.reshape([-1 if axis == place else 1 for axis in range(len(shape))])
        cells = cells * question.sizes[key] + along
    return np.asarray(cells.ravel())


def _axis(question: Question, fine: Members, key: int) -> tuple[int, IntegerArray] | None:
    """Returns the place of a key in `fine` that determines `key`, and the label of `key` for each of its labels."""
    if key in fine:
        return fine.index(key), np.arange(question.sizes[key])
    for place, other in enumerate(fine):
        labels = _label_map(question.keys[other], question.keys[key])
        if labels is not None:
            return place, labels
    return None


def _label_map(fine: Key, coarse: Key) -> IntegerArray | None:
    """Returns a key's label for each label of another key over the same single column. None if that is no function."""
    if len(fine.sources) != 1 or fine.sources != coarse.sources or fine.shape or coarse.shape:
        return None
    from_codes, to_codes = np.array(fine.codes, np.int64), np.array(coarse.codes, np.int64)
    if from_codes.size != to_codes.size or min(from_codes.min(initial=0), to_codes.min(initial=0)) < 0:
        return None
    labels = np.full(len(fine.labels), -1, np.int64)
    labels[from_codes] = to_codes
    return labels if np.array_equal(labels[from_codes], to_codes) and (labels >= 0).all() else None
