"""Exact counts are 64-bit integers, and any attempt to show or copy them fails or hides them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.values.errors import InternalError

CODES, COUNTS = np.array([0, 1]), np.array([[3, 4]])


@pytest.mark.parametrize("type_name", ["uint64", "int32", "uint8", "float64", "object"])
def test_other_types_are_refused(type_name: str) -> None:
    """Counts and codes of other types are refused before noise: a row could have decided the type."""
    with pytest.raises(InternalError, match="another type"):
        ExactCounts((CODES, CODES.astype(type_name)), COUNTS, (2, 2), (1,))
    with pytest.raises(InternalError, match="another type"):
        ExactCounts((CODES,), COUNTS.astype(type_name), (2,), (1,))


def test_they_are_hidden() -> None:
    """A repr shows nothing, and a copy or a pickle is refused."""
    counts = ExactCounts((CODES,), COUNTS, (2,), (1,))
    assert repr(counts) == "ExactCounts(hidden)"
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InternalError):
            copied(counts)
