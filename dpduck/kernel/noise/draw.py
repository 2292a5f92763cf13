"""Noise draws: the only use of the samplers for answers that leave."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.integers import discrete_gaussian, discrete_laplace
from dpduck.kernel.noise.law import Noise, NoiseKind


def draw(noise: Noise, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Returns independent exact draws of noise, shape (count,), in a new array."""
    sampler = discrete_laplace if noise.kind is NoiseKind.LAPLACE else discrete_gaussian
    return sampler(noise.parameter, count, entropy)
