"""Discrete Laplace draws follow P(k) proportional to exp(-|k|/scale), for every scale, in the bulk and in the tails.

Each statistical assertion that must hold fails by chance with probability below 2e-9. This is `ALARM` and the error of
the chi-square approximation. Assertions that must be rejected are rejected at the same level.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import exp, expm1

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpduck.kernel.noise import integers as block_sampler
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.integers import discrete_laplace

ALARM = 1e-9
DRAWS = 1_000_000
SCALES = [Fraction(1, 4), Fraction(1, 2), 1, 3, 10, Fraction(50, 3), 30, 1000, 10**6, 10**9]
STEPS = [*np.arange(0, 1, 0.1), 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8]  # edges of cells, in scales


def upper(scale: float, edge: float) -> float:
    """P(k >= edge) for edge >= 1, alpha^edge / (1 + alpha), which is also P(k <= -edge)."""
    return exp(-edge / scale) / (1 + exp(-1 / scale))


def outward_edges(scale: float) -> list[int]:
    """1 = e_0 < e_1 < ...: cells [e_i, e_{i+1}) and their mirror images, each expecting at least 50 of 10^6 draws."""
    edges = [1]
    for edge in sorted({round(step * scale) for step in STEPS} | set(range(2, 20 if scale <= 1 else 2))):
        rest = upper(scale, edge) * DRAWS
        if edge > edges[-1] and rest >= 50 and upper(scale, edges[-1]) * DRAWS - rest >= 50:
            edges.append(edge)
    return edges


def chi_square(draws: NDArray[np.int64], scale: float, edges: list[int]) -> float:
    """p-value of the counts in the cells of `edges`, in their mirror images, and at zero."""
    rest = np.array([upper(scale, edge) for edge in edges] + [0.0])
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


def draw(scale: Fraction | int, count: int = DRAWS) -> NDArray[np.int64]:
    return discrete_laplace(Fraction(scale), count, operating_system_entropy())


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_right_scale_is_accepted_and_wrong_ones_rejected(scale: Fraction) -> None:
    """10^6 draws fit the scale, and the same draws reject 2/3 and 3/2 of the scale."""
    draws, width = draw(scale), float(scale)
    assert chi_square(draws, width, outward_edges(width)) > ALARM
    for wrong in (width * 2 / 3, width * 3 / 2):
        assert chi_square(draws, wrong, outward_edges(min(width, wrong))) < ALARM


@pytest.mark.parametrize("scale", [Fraction(1, 2), 3, 1000, 10**9], ids=str)
def test_far_tail_cells(scale: Fraction) -> None:
    """4 * 10^6 draws, the cells from 9 to 12 scales on each side: exact binomial tests, false alarm 1e-9 for all."""
    draws = draw(scale, 4 * DRAWS)
    for steps in (9, 10, 11, 12):
        edge = max(1, round(steps * scale))
        for count in (int((draws >= edge).sum()), int((draws <= -edge).sum())):
            assert stats.binomtest(count, len(draws), upper(float(scale), edge)).pvalue > ALARM / 8


def test_tiny_scale_is_zero() -> None:
    """All draws are 0: P(k != 0) = 2 exp(-1000)."""
    assert not draw(Fraction(1, 1000)).any()


def test_sizes_up_to_the_largest_scale() -> None:
    """scale = 2^40: mean magnitude within 8 deviations of the scale, nothing near the limits of int64."""
    draws = draw(2**40)
    assert abs(np.abs(draws).mean() / 2**40 - 1) < 8 / DRAWS**0.5
    assert np.abs(draws).max() < 2**40 * 60


def position_test(draws: NDArray[np.int64], scale: float, width: int) -> float:
    """p-value of the position within a block, counted outwards: exp(-r/scale) on 0..width-1, by memorylessness."""
    outward = np.where(draws < 0, ~draws, draws) % width
    cells = 16
    observed = np.bincount(outward * cells // width, minlength=cells)
    start = np.arange(cells) * (width // cells)
    expected = len(draws) * np.exp(-start / scale) * expm1(-width // cells / scale) / expm1(-width / scale)
    return float(stats.chi2.sf((((observed - expected) ** 2) / expected).sum(), cells - 1))


@pytest.mark.parametrize(("scale", "width"), [(1000, 64), (10**6, 2**16), (10**9, 2**26)])
def test_position_within_a_block(scale: int, width: int) -> None:
    """The wedges give each value inside a block its own probability, not the block's mean."""
    assert position_test(draw(scale), scale, width) > ALARM


@pytest.mark.parametrize("answer", [True, False])
def test_wrong_wedges_are_noticed(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    """The test above has power: it rejects a sampler that accepts every wedge, or accepts by a fair coin."""

    def careless(table: object, blocks: NDArray[np.int64], *rest: object) -> NDArray[np.bool_]:
        coin = np.frombuffer(operating_system_entropy().bytes(len(blocks)), dtype=np.uint8) < 128
        return coin | answer

    monkeypatch.setattr(block_sampler, "_accept_wedges", careless)
    assert position_test(draw(1000), 1000, 64) < ALARM


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x: np.where(x == 0, 1, x), id="no zero"),
        pytest.param(lambda x: np.where(x == -7, 7, x), id="one cell moved"),
        pytest.param(lambda x: x + (x > 0), id="shifted right half"),
        pytest.param(lambda x: np.clip(x, -20, 20), id="tail cut"),
        pytest.param(lambda x: np.where(x % 300 == 7, 8, x), id="a rare cell moved"),
    ],
)
def test_wrong_laws_are_rejected(wrong: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> None:
    """The cells notice a small mistake of any kind in the marginal law."""
    assert chi_square(wrong(draw(3)), 3.0, outward_edges(3.0)) < ALARM


def test_a_rounded_continuous_laplace_is_rejected() -> None:
    """The nearest integer to a continuous Laplace variable, which many libraries ship, is rejected."""
    uniform = np.frombuffer(operating_system_entropy().bytes(8 * DRAWS), dtype=np.uint64) / 2.0**64
    rounded = np.rint(stats.laplace.ppf(np.clip(uniform, 1e-300, 1 - 1e-16))).astype(np.int64)
    assert chi_square(rounded, 1.0, outward_edges(1.0)) < ALARM


def test_masses_agree_with_scipy() -> None:
    """Masses agree with SciPy's discrete Laplace distribution."""
    edges = list(range(-60, 61, 3))
    observed = np.bincount(np.searchsorted(edges, draw(10), side="right"), minlength=len(edges) + 1)
    masses = np.diff([0.0, *(float(stats.dlaplace(0.1).cdf(edge - 1)) for edge in edges), 1.0])
    assert stats.chisquare(observed, masses * DRAWS).pvalue > ALARM


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**40) + 1])
def test_scales_that_are_refused(scale: Fraction) -> None:
    with pytest.raises(ValueError, match=r"above 0 and at most 2\*\*40"):
        discrete_laplace(scale, 1, operating_system_entropy())


def test_arguments_that_are_refused() -> None:
    """A float is refused as a scale, and a negative number as a count."""
    with pytest.raises(TypeError, match="must be a Fraction"):
        discrete_laplace(1.5, 1, operating_system_entropy())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be negative"):
        discrete_laplace(Fraction(1), -1, operating_system_entropy())


def test_nothing_asked_nothing_drawn() -> None:
    assert discrete_laplace(Fraction(1), 0, operating_system_entropy()).shape == (0,)
