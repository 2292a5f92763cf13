"""Discrete Gaussian draws follow P(k) proportional to exp(-k^2/(2 sigma^2)), for every sigma, in bulk and tails.

Each statistical assertion that must hold fails by chance with probability below 2e-9. This is `ALARM` and the error of
the chi-square approximation. Assertions that must be rejected are rejected at the same level.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpduck.kernel.noise import integers as block_sampler
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.integers import discrete_gaussian

ALARM = 1e-9
DRAWS = 1_000_000
SIGMAS = [Fraction(1, 3), Fraction(1, 2), 1, 3, 10, Fraction(50, 3), 30, 33, 1000, 10**6, 10**9]
STEPS = [*np.arange(0, 2, 0.1), 2, 2.25, 2.5, 2.75, 3, 3.3, 3.6]  # edges of cells, in sigmas


def upper(sigma: float, edge: float) -> float:
    """P(k >= edge) for edge >= 1: a sum, or the normal law from sigma = 1000 on, where it is off by at most 1e-7."""
    if sigma >= 1000:
        return float(stats.norm.sf((edge - 0.5) / sigma))
    weights = np.exp(-(np.arange(0, 40 * sigma + 40) ** 2) / (2 * sigma**2))
    return float(weights[int(edge) :].sum() / (2 * weights.sum() - 1))


def outward_edges(sigma: float) -> list[int]:
    """1 = e_0 < e_1 < ...: cells [e_i, e_{i+1}) and their mirror images, each expecting at least 50 of 10^6 draws."""
    edges = [1]
    for edge in sorted({round(step * sigma) for step in STEPS} | set(range(2, 10 if sigma <= 1 else 2))):
        rest = upper(sigma, edge) * DRAWS
        if edge > edges[-1] and rest >= 50 and upper(sigma, edges[-1]) * DRAWS - rest >= 50:
            edges.append(edge)
    return edges


def chi_square(draws: NDArray[np.int64], sigma: float, edges: list[int]) -> float:
    """p-value of the counts in the cells of `edges`, in their mirror images, and at zero."""
    rest = np.array([upper(sigma, edge) for edge in edges] + [0.0])
    half = rest[:-1] - rest[1:]
    expected = len(draws) * np.concatenate((half[::-1], [1 - 2 * rest[0]], half))
    bounds = [1 - edge for edge in reversed(edges)] + edges
    cells = np.searchsorted(bounds, draws, side="right")
    if expected[len(edges)] < 50:  # wide noise: zero alone expects almost nothing, and joins the cell above
        expected[len(edges) + 1] += expected[len(edges)]
        cells[cells == len(edges)] += 1
        expected[len(edges)] = 0
    observed = np.bincount(cells, minlength=len(expected))
    used = expected > 0
    terms = (observed[used] - expected[used]) ** 2 / expected[used]
    return float(stats.chi2.sf(terms.sum(), used.sum() - 1))


def draw(sigma: Fraction | int, count: int = DRAWS) -> NDArray[np.int64]:
    return discrete_gaussian(Fraction(sigma) ** 2, count, operating_system_entropy())


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_right_sigma_is_accepted_and_wrong_ones_rejected(sigma: Fraction) -> None:
    """10^6 draws fit sigma, and the same draws reject 2/3 and 3/2 of sigma."""
    draws, width = draw(sigma), float(sigma)
    assert chi_square(draws, width, outward_edges(width)) > ALARM
    for wrong in (width * 2 / 3, width * 3 / 2):
        assert chi_square(draws, wrong, outward_edges(min(width, wrong))) < ALARM


@pytest.mark.parametrize("sigma", [Fraction(1, 2), 3, 1000, 10**9], ids=str)
def test_far_tail_cells(sigma: Fraction) -> None:
    """4 * 10^6 draws beyond 3.5, 4, 4.5 sigma on each side: exact binomial tests, false alarm 1e-9 for all."""
    draws = draw(sigma, 4 * DRAWS)
    for steps in (3.5, 4, 4.5):
        edge = max(1, round(steps * sigma))
        for count in (int((draws >= edge).sum()), int((draws <= -edge).sum())):
            assert stats.binomtest(count, len(draws), upper(float(sigma), edge)).pvalue > ALARM / 6


def test_tiny_sigma_is_zero() -> None:
    """All draws are 0: P(k != 0) is about 2 exp(-500000)."""
    assert not draw(Fraction(1, 1000)).any()


def test_the_parameter_is_the_squared_sigma() -> None:
    """variance = 1000 has sigma = 31.6: the second moment of draws is within 8 deviations."""
    draws = discrete_gaussian(Fraction(1000), DRAWS, operating_system_entropy())
    assert abs((draws.astype(float) ** 2).mean() / 1000 - 1) < 8 * (2 / DRAWS) ** 0.5


def test_sizes_up_to_the_largest_sigma() -> None:
    """sigma = 2^40: second moment within 8 deviations, nothing near the limits of int64."""
    draws = draw(2**40) / 2.0**40
    assert abs((draws**2).mean() - 1) < 8 * (2 / DRAWS) ** 0.5
    assert np.abs(draws).max() < 10


def position_test(draws: NDArray[np.int64], sigma: float, width: int) -> float:
    """p-value of the position within a block, counted outwards, against the normal law over all blocks."""
    cells = 16
    outward = np.where(draws < 0, ~draws, draws) % width
    observed = np.bincount(outward * cells // width, minlength=cells)
    edges = np.arange(cells + 1) * (width / cells) + np.arange(0, 10 * sigma, width)[:, None]
    expected = len(draws) * 2 * np.diff(stats.norm.cdf(edges / sigma), axis=1).sum(axis=0)
    return float(stats.chi2.sf((((observed - expected) ** 2) / expected).sum(), cells - 1))


@pytest.mark.parametrize(("sigma", "width"), [(10**6, 2**15), (10**6, 2**18), (10**9, 2**25), (10**9, 2**28)])
def test_position_within_a_block(sigma: int, width: int) -> None:
    """The wedges give each value inside a block its own probability, not the block's mean."""
    assert position_test(draw(sigma), sigma, width) > ALARM


@pytest.mark.parametrize("answer", [True, False])
def test_wrong_wedges_are_noticed(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    """The test above has power: it rejects a sampler that accepts every wedge, or accepts by a fair coin."""

    def careless(table: object, blocks: NDArray[np.int64], *rest: object) -> NDArray[np.bool_]:
        coin = np.frombuffer(operating_system_entropy().bytes(len(blocks)), dtype=np.uint8) < 128
        return coin | answer

    monkeypatch.setattr(block_sampler, "_accept_wedges", careless)
    sigma = 2**24 + 1  # just too wide for a shift of 19: the widest blocks
    assert position_test(draw(sigma, 4 * DRAWS), sigma, 2**20) < ALARM


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x: np.where(x == 0, 1, x), id="no zero"),
        pytest.param(lambda x: np.where(x == -7, 7, x), id="one cell moved"),
        pytest.param(lambda x: x + (x > 0), id="shifted right half"),
        pytest.param(lambda x: np.clip(x, -8, 8), id="tail cut"),
    ],
)
def test_wrong_laws_are_rejected(wrong: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> None:
    """The cells notice a small mistake of any kind in the marginal law."""
    assert chi_square(wrong(draw(3)), 3.0, outward_edges(3.0)) < ALARM


def test_a_rounded_continuous_gaussian_is_rejected() -> None:
    """The nearest integer to a normal deviate, as many libraries ship, is rejected: its variance is larger by 1/12."""
    uniform = np.frombuffer(operating_system_entropy().bytes(8 * DRAWS), dtype=np.uint64) / 2.0**64
    rounded = np.rint(stats.norm.ppf(np.clip(uniform, 1e-300, 1 - 1e-16))).astype(np.int64)
    assert chi_square(rounded, 1.0, outward_edges(1.0)) < ALARM


def test_masses_agree_with_dp_accounting() -> None:
    """Masses agree with the cumulative distribution of Google's discrete Gaussian, which others wrote."""
    accounting = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    oracle = accounting.DiscreteGaussianPrivacyLoss(10, sensitivity=1)
    edges = list(range(-36, 37, 3))
    observed = np.bincount(np.searchsorted(edges, draw(10), side="right"), minlength=len(edges) + 1)
    masses = np.diff([0.0, *(float(oracle.noise_cdf(edge - 1)) for edge in edges), 1.0])
    assert stats.chisquare(observed, masses * DRAWS).pvalue > ALARM


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(2**80) + 1])
def test_variances_that_are_refused(variance: Fraction) -> None:
    with pytest.raises(ValueError, match=r"above 0 and at most 2\*\*80"):
        discrete_gaussian(variance, 1, operating_system_entropy())


def test_arguments_that_are_refused() -> None:
    """A float is refused as a variance, and a negative number as a count."""
    with pytest.raises(TypeError, match="must be a Fraction"):
        discrete_gaussian(1.5, 1, operating_system_entropy())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be negative"):
        discrete_gaussian(Fraction(1), -1, operating_system_entropy())


def test_nothing_asked_nothing_drawn() -> None:
    assert discrete_gaussian(Fraction(1), 0, operating_system_entropy()).shape == (0,)
