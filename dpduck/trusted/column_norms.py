"""Measures how far an integer operator can carry what one privacy unit changes, by applying it (see ask.price)."""

from __future__ import annotations

from math import prod

import numpy as np

from dpduck.workload.kronecker import Factor, KroneckerQuery

Norms = tuple[int, int, int]  # L1, squared L2, and the largest change of one entry

LARGEST_PROBE = 1 << 20  # entries of a factor looked at one by one; what a larger one says of itself is believed


def column_norms(query: KroneckerQuery, known: dict[Factor, Norms]) -> Norms:
    """Largest L1 and squared L2 norm of a column, and the largest entry: those of the factors, multiplied."""
    for factor in query.factors:
        if factor not in known:
            known[factor] = _factor_norms(factor)
    norms = [known[factor] for factor in query.factors]
    return prod(l1 for l1, _, _ in norms), prod(l2 for _, l2, _ in norms), prod(most for _, _, most in norms)


def _factor_norms(factor: Factor) -> Norms:
    """What `apply` does to every unit vector, not what the factor says of itself; a very large factor is believed."""
    if max(factor.rows, factor.size) * factor.size > LARGEST_PROBE:
        return factor.column_l1(), factor.column_l2_squared(), factor.column_l1()
    columns = factor.apply(np.eye(factor.size, dtype=np.int64), 0)
    most = int(np.abs(columns).max())
    if most**2 * len(columns) >= 1 << 62:
        columns = columns.astype(object)
    return int(np.abs(columns).sum(axis=0).max()), int((columns * columns).sum(axis=0).max()), most
