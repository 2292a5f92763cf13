"""Numbers of values present: how far one unit moves them, and that prices and counts agree about this bound."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from benchmarks.papers._no_rows import NO_ROWS
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import Attribute
from dpduck.kernel.door import require_paid
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan, price
from dpduck.kernel.queries.operators import CentredFactor, IdentityFactor, KroneckerQuery
from dpduck.kernel.queries.tables import Present
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.kernel.doors import price_of, scan_of
from tests.support.nodes import adds, counts, key

CELLS, VALUES = 3, 2
SMALL = Noise(NoiseKind.LAPLACE, Fraction(1, 100))  # a draw other than 0 has a probability of 2 exp(-100)
BY_CELL = Present(KroneckerQuery((0,), (IdentityFactor(CELLS),)), VALUES)
ALL = Present(KroneckerQuery((), ()), VALUES)
JOB = counts(
    "t", (), "t.u", 5, ("t.u", "t.v"), (key("t.v", ValueDomain("INTEGER", ("1", "2"))),),
    (Attribute((0,), np.arange(VALUES), VALUES),), (adds(""),),
)  # fmt: skip


def counts_of(rows: list[tuple[int, int]], bound: int = 5, values: int = VALUES) -> ExactCounts:
    """Returns counts of rows by cell and value."""
    cells = np.array([cell for cell, _ in rows], np.int64), np.array([value for _, value in rows], np.int64)
    return ExactCounts(cells, np.ones((1, len(rows)), np.int64), (CELLS, values), (bound,))


def present(rows: list[tuple[int, int]], query: Present) -> NDArray[np.int64]:
    return query.draw(counts_of(rows), Ask(AskScan(NO_ROWS, 5), query, SMALL), operating_system_entropy(), None)


ROWS = st.lists(st.tuples(st.integers(0, CELLS - 1), st.integers(0, VALUES - 1)), max_size=5)


@given(others=ROWS, unit=ROWS)
def test_a_unit_moves_no_more_than_the_bound(others: list[tuple[int, int]], unit: list[tuple[int, int]]) -> None:
    """Removing the rows of a unit moves answers within all bounds. Noise is not 0 with a chance below 1e-40 in all."""
    for query in (BY_CELL, ALL):
        moved = present(others + unit, query) - present(others, query)
        l1, l2_squared, most = query.moves(scan_of(len(unit)))
        assert (np.abs(moved).sum() <= l1, (moved**2).sum() <= l2_squared, np.abs(moved).max() <= most) == (True,) * 3
        assert l2_squared == l1 * most


def test_the_bound_is_reached() -> None:
    """One row, all values of one total, and all values of all cells reach their bounds: none is too large."""
    everything = [(cell, value) for cell in range(CELLS) for value in range(VALUES)]
    assert present(everything, ALL).sum() == ALL.moves(scan_of(6))[0] == 2
    assert present(everything, BY_CELL).sum() == BY_CELL.moves(scan_of(6))[0] == BY_CELL.moves(scan_of(100))[0] == 6
    assert present(everything[:1], BY_CELL).sum() == BY_CELL.moves(scan_of(1))[0] == 1


def test_prices_of_values_present() -> None:
    """Each set costs min(rows, values x cells), in both kinds of noise, as computed by hand."""
    laplace, gaussian = Noise(NoiseKind.LAPLACE, Fraction(2)), Noise(NoiseKind.GAUSSIAN, Fraction(4))
    assert price_of(ALL, laplace, 5).epsilon == Fraction(2, 2)
    assert price_of(ALL, gaussian, 5).rho == Fraction(2 * 2, 8)
    assert price_of(BY_CELL, gaussian, 5).rho == Fraction(5 * 2, 8)
    assert price_of(ALL, laplace, 1).epsilon == Fraction(1, 2)
    assert price_of(BY_CELL, laplace, 5).epsilon == Fraction(5, 2)
    assert price_of(BY_CELL, laplace, 7).epsilon == Fraction(6, 2)
    scan = scan_of(5)
    assert price([Ask(scan, ALL, laplace), Ask(scan, BY_CELL, laplace)]).epsilon == Fraction(2 + 5, 2)


def test_other_values_than_were_priced_are_not_answered() -> None:
    """A price for fewer values or rows than are counted, or a query without one number for each cell, is a defect."""
    of_keys = Present(KroneckerQuery((1,), (IdentityFactor(VALUES),)), VALUES)
    for query, rows, values, match in (
        (BY_CELL, 5, 3, "disagree about the values"),
        (BY_CELL, 4, VALUES, "contribution bound"),
        (Present(KroneckerQuery((0,), (IdentityFactor(CELLS - 1),)), VALUES), 5, VALUES, "domain"),
        (of_keys, 5, VALUES, "disagree about the values"),
        (Present(KroneckerQuery((0,), (CentredFactor(CELLS),)), VALUES), 5, VALUES, "no other query"),
    ):
        with pytest.raises(InternalError, match=match):
            query.draw(counts_of([], values=values), Ask(scan_of(rows), query, SMALL), operating_system_entropy(), None)


@pytest.mark.parametrize("values", [1, 3])
def test_values_are_compared_before_the_charge(values: int) -> None:
    """The door compares a query with the values of the counted job itself, before the charge."""
    noise, scan, charge = Noise(NoiseKind.LAPLACE, Fraction(5)), AskScan(JOB, 5), Charge.pure(Fraction(1))
    require_paid([Ask(scan, ALL, noise)], charge)
    with pytest.raises(InternalError, match="disagree about the values; nothing was charged"):
        require_paid([Ask(scan, Present(ALL.query, values), noise)], charge)
