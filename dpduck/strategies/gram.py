"""Factors whose Gram matrix is alpha I + beta J: the ones that ANOVA components diagonalise (DESIGN 4.3)."""

from __future__ import annotations

from dpduck.arrays import FloatArray
from dpduck.strategies.fourier import hadamard_adjoint
from dpduck.trusted.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor

BALANCED: frozenset[type[Factor]] = frozenset({IdentityFactor, CentredFactor, HadamardFactor})
"""The kinds that `gram` knows."""


def gram(factor: Factor) -> tuple[int, int] | None:
    """(alpha, beta) with F'F = alpha I + beta J, or None where the Gram matrix is not of that form.

    >>> gram(IdentityFactor(3)), gram(CentredFactor(3)), gram(HadamardFactor(3))
    ((1, 0), (9, -3), (4, -1))
    """
    if isinstance(factor, IdentityFactor):
        return 1, 0
    if isinstance(factor, CentredFactor):  # (n I - J)^2 = n^2 I - n J
        return factor.size**2, -factor.size
    if isinstance(factor, HadamardFactor):  # all rows but the constant one: m I - J
        return factor.rows + 1, -1
    return None


def adjoint(factor: Factor, tensor: FloatArray, axis: int) -> FloatArray:
    """F' times `tensor` along `axis`, for a factor that `gram` knows."""
    if isinstance(factor, IdentityFactor):
        return tensor
    if isinstance(factor, CentredFactor):
        centred: FloatArray = factor.size * tensor - tensor.sum(axis=axis, keepdims=True)
        return centred
    if isinstance(factor, HadamardFactor):
        return hadamard_adjoint(factor.size, tensor, axis)
    raise TypeError(f"no adjoint for {type(factor).__name__}")
