"""Inverses of the normal matrix A'WA of a strategy A, and pseudo-inverses if A does not determine every value."""

from __future__ import annotations

import numpy as np
import scipy

from dpduck.values.arrays import FloatArray

SINGULAR = 1e-6
"""A Cholesky factor counts as singular if its smallest diagonal entry is below this part of the largest."""


def cholesky_factor(normal: FloatArray) -> tuple[FloatArray, bool] | None:
    """Returns a factor for scipy's cho_solve, or None if the matrix is singular to working precision."""
    try:
        factor: tuple[FloatArray, bool] = scipy.linalg.cho_factor(normal)
    except scipy.linalg.LinAlgError:
        return None
    diagonal = np.abs(factor[0].diagonal())
    return factor if diagonal.min() >= SINGULAR * diagonal.max() else None


def covariance_of(normal: FloatArray) -> FloatArray:
    """Returns the covariance of the least-squares estimate (of least norm if several) from its normal matrix."""
    factor = cholesky_factor(normal)
    inverse: FloatArray = (
        scipy.linalg.pinvh(normal, rtol=SINGULAR**2)
        if factor is None
        else scipy.linalg.cho_solve(factor, np.eye(len(normal)))
    )
    return inverse
