"""Covariances between released cells, for standard errors of their sums, differences and ratios.

Least squares (formula in variance.py) and the plain Fourier inverse (the same over the padded sizes m_i):

    Cov(cell of A, cell of B) = 1/(n_A n_B) sum over U in A and B of c_U prod_{i in U} (n_i [cells agree on i] - 1),

with c_U = 1/d_U. Without least squares: the noise of the cells that both sum, where one table answers both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress, product
from math import prod

import numpy as np

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.planning.marginals.planners import coefficient_variances, padded_lattice
from dpduck.planning.plan import Plan, measured_kinds
from dpduck.planning.variance import component_precisions, component_variances, direct_sources
from dpduck.trusted.noise.law import noise_variance
from dpduck.trusted.operators import HadamardFactor, IdentityFactor
from dpduck.values.arrays import FloatArray

Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ComponentCovariances:
    """Answers made of uncorrelated components. variances: c_U for every set of the lattice."""

    lattice: Lattice
    variances: FloatArray

    def between(self, first: Members, second: Members) -> FloatArray:
        """Covariance of a cell of each, shape (2,) * common attributes: index 1 where the cells agree."""
        sizes = dict(zip(self.lattice.attributes, self.lattice.sizes, strict=True))
        common = tuple(sorted(set(first) & set(second)))
        table = np.zeros((2,) * len(common))
        for held in product((0, 1), repeat=len(common)):
            table[held] = self.variances[self.lattice.numbers[tuple(compress(common, held))]]
        for axis, attribute in enumerate(common):  # rows: agree or not; columns: attribute in U or not
            step = np.array([[1.0, -1.0], [1.0, sizes[attribute] - 1.0]])
            table = np.moveaxis(np.tensordot(step, table, axes=([1], [axis])), 0, axis)
        cells = prod([float(sizes[i]) for i in first]) * prod([float(sizes[i]) for i in second])
        scaled: FloatArray = np.asarray(table / cells)
        return scaled


@dataclass(frozen=True, eq=False)
class TableCovariances:
    """Answers that are sums of one noisy table each. sources: for each marginal the table and its noise variance."""

    sizes: tuple[int, ...]
    sources: dict[Members, tuple[Members, float]]

    def between(self, first: Members, second: Members) -> FloatArray:
        """The same: the noise of the table's cells that lie in both, when the cells agree everywhere."""
        common = set(first) & set(second)
        table = np.zeros((2,) * len(common))
        (measured, variance), (other, _) = self.sources[first], self.sources[second]
        if measured == other:
            shared = [float(self.sizes[i]) for i in measured if i not in {*first, *second}]
            table[(1,) * len(common)] = variance * prod(shared)
        return table


def covariances(plan: Plan) -> ComponentCovariances | TableCovariances:
    """The covariance of any two released cells of a plan over marginals; build once, ask often.

    With consistency 'l1' or 'linf' there is no closed form: the covariances are those before the linear program, and
    are not kept with a release.
    """
    kinds = measured_kinds(plan)
    tables = kinds <= {IdentityFactor}
    if tables and (plan.consistency != "l2" or len(plan.measurements) == 1):
        sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
        found = [plan.measurements[source] for source in sources]
        held = [(used.query.attributes, noise_variance(plan.noise, used.spread)) for used in found]
        return TableCovariances(plan.workload.sizes, dict(zip(plan.workload.marginals, held, strict=True)))
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    if kinds <= {HadamardFactor} and plan.consistency == "none":
        return ComponentCovariances(
            padded_lattice(lattice), coefficient_variances(lattice, plan.measurements, plan.noise)
        )
    precisions = component_precisions(lattice, plan.measurements, plan.noise)
    return ComponentCovariances(lattice, component_variances(lattice, precisions))
