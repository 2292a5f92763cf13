"""Type of exact counts. Only the `draw` of a query turns them into numbers that leave."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpduck.values.errors import InternalError


class Hidden:
    """Value that cannot be printed, copied or written: it gets into no message, log or pickle."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InternalError("exact counts cannot be copied or written")

    def __getstate__(self) -> NoReturn:
        raise InternalError("exact counts cannot be copied or written")


class ExactCounts(Hidden):
    """Sparse exact counts by released attributes. They are opaque, because even their number is private.

    _exact_coordinates: one row of codes per attribute, one or more columns per occupied combination.
    _exact_counts: one row per table of integers, an aggregate's tables next to each other. They wrap at 64 bits. Both
    arrays are 64-bit integers whatever the rows hold, so no row can make arithmetic on them fail or round.
    _sizes: sizes of the attributes. _unit_bounds: for each table, a unit's bound over all tables of its aggregate.
    _exact_answers: results that queries computed once (queries/families.py), as hidden as the counts.
    """

    __slots__ = ("_exact_answers", "_exact_coordinates", "_exact_counts", "_sizes", "_unit_bounds")

    def __init__(
        self,
        coordinates: tuple[NDArray[np.int64], ...],
        counts: NDArray[np.int64],
        sizes: tuple[int, ...],
        unit_bounds: tuple[int, ...],
    ) -> None:
        if counts.dtype != np.int64 or any(codes.dtype != np.int64 for codes in coordinates):
            raise InternalError("exact counts of another type than 64-bit integers")
        self._exact_coordinates = coordinates
        self._exact_counts = counts
        self._sizes = sizes
        self._unit_bounds = unit_bounds
        self._exact_answers = dict[object, tuple[NDArray[np.int64], NDArray[np.int64]]]()
