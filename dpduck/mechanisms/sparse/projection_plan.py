"""A random projection: how many rows, which noise, and what error to expect; public figures alone.

With A the signs (T rows), y = A x + z and the estimate (A q).y / T of a query q with m keys of weight 1:

    error = distortion + noise,  E[distortion^2] <= (F |q|^2 + (q.x)^2) / T <= 2 m F / T,  F = |x|^2
    Gaussian noise, sigma^2 = T B^2 / (2 rho):   E[noise^2] = sigma^2 |A q|^2 / T^2 = m B^2 / (2 rho)
    Laplace noise, scale T B / epsilon:          E[noise^2] = 2 m T B^2 / epsilon^2

because every unit adds at most B to every row, in absolute value: L2 sensitivity sqrt(T) B, L1 sensitivity T B.
Over k queries, at confidence 1 - beta (half of beta for each part, by the union bound):
noise: sub-Gaussian, sqrt(2 ln(4 k/beta)) standard errors (Laplace: Bernstein's further term);
distortion: r-wise independent signs have the moments of independent ones up to p = r/2, and Markov's inequality gives
(mu_p 2 k/beta)^(1/p) standard errors, mu_p = (p-1)!! the normal moment (the limit of many rows).
docs/sparse_queries.md has the derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, prod, sqrt

from dpduck.algebra.hashing import words_for
from dpduck.trusted.noise.law import NoiseKind
from dpduck.values.accounting import sigma2_of
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

INDEPENDENCE = 32
FEWEST_ROWS, MOST_ROWS = 64, 10**6
USUAL_ROWS_OF_TABLE = 10**5
"""Taken where the policy says no EXPECT ROWS."""


@dataclass(frozen=True)
class ProjectionPlan:
    """rows: T. spread: sigma^2 of Gaussian noise, the scale of Laplace noise, of each released integer.

    noise_quantile, distortion_quantile: standard errors that none of the declared queries exceeds.
    """

    rows: int
    noise: NoiseKind
    spread: Fraction
    noise_quantile: float
    distortion_quantile: float

    @property
    def words(self) -> int:
        """Polynomials that the signs are taken from."""
        return words_for(self.rows)

    @property
    def noise_variance(self) -> float:
        """Variance of the noise of one released row, from above."""
        return float(self.spread) if self.noise is NoiseKind.GAUSSIAN else 2.0 * float(self.spread) ** 2

    def stderr(self, weight_squared: float, second_moment: float, answer: float = 0.0) -> float:
        """Standard error of a query with this |q|^2 over data with this F and this answer."""
        return sqrt((weight_squared * (self.noise_variance + second_moment) + answer**2) / self.rows)

    def error(self, weight_squared: float, second_moment: float, answer: float = 0.0) -> float:
        """What no declared query exceeds, at the plan's confidence."""
        noise = sqrt(weight_squared * self.noise_variance / self.rows)
        distortion = sqrt((weight_squared * second_moment + answer**2) / self.rows)
        return self.noise_quantile * noise + self.distortion_quantile * distortion


def plan_projection(
    charge: Charge, unit_bound: int, sparsity: int, queries: int, beta: Fraction, second_moment: float, rows: int | None
) -> ProjectionPlan:
    """The plan at a charge. second_moment: a public guess of F, used where `rows` is not given.

    >>> plan_projection(Charge.pure(Fraction(1)), 1, 64, 1000, Fraction(1, 20), 1e6, None).rows
    1012
    """
    gaussian = charge.epsilon is None
    chances = log(4 * queries / float(beta))
    far = distortion_quantile(queries, float(beta))
    near = sqrt(2 * chances)
    if rows is None:
        if gaussian:
            wanted = 4 * second_moment * float(charge.rho) / unit_bound**2 * (far / near) ** 2
        else:
            wanted = sqrt(second_moment) * float(charge.epsilon or 0) / unit_bound * far / near
        rows = min(MOST_ROWS, max(FEWEST_ROWS, ceil(wanted)))
    if not 1 <= rows <= MOST_ROWS:
        raise Refusal(f"a projection of {rows} rows", accepted=f"rows from 1 to {MOST_ROWS}")
    if gaussian:
        spread = sigma2_of(charge.rho, Fraction(rows * unit_bound**2))
        return ProjectionPlan(rows, NoiseKind.GAUSSIAN, spread, near, far)
    scale = Fraction(rows * unit_bound) / (charge.epsilon or Fraction(1))
    return ProjectionPlan(rows, NoiseKind.LAPLACE, scale, near + chances * sqrt(sparsity / (2 * rows)), far)


def distortion_quantile(queries: int, beta: float, independence: int = INDEPENDENCE) -> float:
    """The least of (mu_p 2 k / beta)^(1/p) over even p up to r/2.

    >>> round(distortion_quantile(10**6, 0.05), 2)
    7.4
    """
    bounds = [float((prod(range(1, p, 2)) * 2 * queries / beta) ** (1 / p)) for p in range(2, independence // 2 + 1, 2)]
    return min(bounds)


def guessed_second_moment(rows_of_table: int | None, heaviest: int | None) -> float:
    """F <= n times the largest count; without a guess of that, the square root of n."""
    rows = rows_of_table or USUAL_ROWS_OF_TABLE
    return float(rows) * float(heaviest or ceil(sqrt(rows)))
