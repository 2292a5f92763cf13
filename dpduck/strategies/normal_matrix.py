"""The inverse of a normal matrix A'WA, or its pseudo-inverse where the strategy does not determine every value."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh

from dpduck.arrays import FloatArray

SINGULAR = 1e-6
"""A Cholesky factor whose smallest diagonal entry is below this part of the largest is taken for singular."""


def cholesky_factor(normal: FloatArray) -> tuple[FloatArray, bool] | None:
    """A factor for scipy's cho_solve, or None where the matrix is singular to working precision."""
    try:
        factor: tuple[FloatArray, bool] = cho_factor(normal)
    except LinAlgError:
        return None
    diagonal = np.abs(factor[0].diagonal())
    return factor if diagonal.min() >= SINGULAR * diagonal.max() else None


def covariance_of(normal: FloatArray) -> FloatArray:
    """The covariance of the least-squares estimate of least norm."""
    factor = cholesky_factor(normal)
    inverse: FloatArray = pinvh(normal, rtol=SINGULAR**2) if factor is None else cho_solve(factor, np.eye(len(normal)))
    return inverse
