"""Prices from norms: how far a unit moves answers of one cell each, and any other answer."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.papers._no_rows import NO_ROWS
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.door import require_paid
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan, price
from dpduck.kernel.queries.families import Choice, Families
from dpduck.kernel.queries.keys import GroupBounds, Threshold
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import (
    CentredFactor,
    Factor,
    Family,
    HadamardFactor,
    IdentityFactor,
    KroneckerQuery,
    MatrixFactor,
)
from dpduck.kernel.queries.quantiles import Quantiles
from dpduck.kernel.queries.tables import Present, Table
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.support.nodes import adds, counts, key

ROWS, MOST, SIZES = 16, 3, (4, 3)
GAUSSIAN = Noise(NoiseKind.GAUSSIAN, Fraction(4))
SCAN = AskScan(NO_ROWS, ROWS, most=MOST, attributes=len(SIZES))
CELLS = KroneckerQuery((0, 1), (IdentityFactor(4), IdentityFactor(3)))
PREFIXES = MatrixFactor(np.tril(np.ones((4, 4), np.int64)))
SHIFTED = MatrixFactor(2 * np.eye(4, dtype=np.int64)[[1, 0, 3]])
OTHERS: dict[str, tuple[tuple[int, ...], tuple[Factor, ...]]] = {
    "a margin": ((0,), (IdentityFactor(4),)),
    "the total": ((), ()),
    "residuals": ((0, 1), (CentredFactor(4), IdentityFactor(3))),
    "Fourier coefficients": ((0, 1), (IdentityFactor(4), HadamardFactor(3))),
    "prefixes": ((0, 1), (PREFIXES, IdentityFactor(3))),
}


def norms(query: KroneckerQuery, scan: AskScan = SCAN) -> tuple[int, int, int]:
    found = Ask(scan, Table(query), GAUSSIAN).moves
    assert found is not None
    return found


def test_cells_cost_the_root_of_both_bounds() -> None:
    """Bounds of 16 in all and 3 in a cell give a squared norm of 48. Without a bound for a cell it is 256."""
    assert norms(CELLS) == (16, 48, 3)
    assert norms(CELLS, AskScan(NO_ROWS, ROWS)) == (16, 256, 16)


@pytest.mark.parametrize("name", OTHERS)
def test_answers_that_add_up_cells_cost_what_they_did(name: str) -> None:
    """A unit that is once in each of m cells moves their sum by m: the bound of one cell does not help."""
    query = KroneckerQuery(*OTHERS[name])
    assert norms(query) == norms(query, AskScan(NO_ROWS, ROWS))


def vectors() -> list[NDArray[np.int64]]:
    """Vectors that a unit may add: up to 16 in all and 3 in a cell, of both signs, spread, gathered and random."""
    drawn, found = np.random.default_rng(1), []
    for number in range(400):
        cells, left = np.zeros(12, np.int64), ROWS
        for place in drawn.permutation(12):
            size = min(left, MOST if number % 2 else int(drawn.integers(0, MOST + 1)))
            cells[place], left = size * drawn.choice([-1, 1]), left - size
        found.append(np.abs(cells).reshape(SIZES) if number % 3 else cells.reshape(SIZES))
    return found


@pytest.mark.parametrize("name", ["cells", "twice some cells", *OTHERS])
def test_no_vector_within_the_bounds_moves_further(name: str) -> None:
    """No vector that reaches both bounds moves an answer further than the norms say."""
    known = {"cells": CELLS, "twice some cells": KroneckerQuery((0, 1), (SHIFTED, IdentityFactor(3)))}
    query = known[name] if name in known else KroneckerQuery(*OTHERS[name])
    first, squared, most = norms(query)
    for vector in vectors():
        summed = vector.sum(axis=tuple(axis for axis in range(2) if axis not in query.attributes))
        moved = np.abs(query.apply(np.asarray(summed)))
        assert (moved.sum() <= first, (moved * moved).sum() <= squared, moved.max() <= most) == (True, True, True)


def job_of(codes: list[int], size: int) -> CountingJob:
    """A job that counts persons by a key of three values that becomes an attribute."""
    persons = adds("", "sum", steps=1, per_group="sum")
    values = key("t.k", ValueDomain("INTEGER", ("1", "2", "3")))
    attribute = Attribute((0,), np.array(codes, np.int64), size)
    return counts("t", (), "t.u", ROWS, ("t.k",), (values,), (attribute,), (persons,))


def test_the_bound_of_a_cell_is_that_of_the_job() -> None:
    """An attribute that merges values of its key has no smaller bound for a cell. The door uses the job's own bound."""
    apart, merged = job_of([2, 0, 1], 3), job_of([0, 0, 1], 2)
    assert (apart.unit_bounds, apart.cell_bounds) == ((3,), (1,))
    assert (merged.unit_bounds, merged.cell_bounds) == ((3,), (3,))
    assert job_of([0, -1, 1], 2).cell_bounds == (1,), "a value that is dropped merges nothing"
    query = KroneckerQuery((0,), (IdentityFactor(3),))
    ask = Ask(AskScan(apart, 3, most=1, attributes=1), Table(query), GAUSSIAN)
    require_paid([ask], Charge.zcdp(ask.cost.rho))
    merged_ask = Ask(AskScan(merged, 3, most=1, attributes=1), Table(query), GAUSSIAN)
    for wrong in (merged_ask, replace(ask, scan=AskScan(apart, 3, most=1, attributes=2))):
        with pytest.raises(InternalError, match="nothing was charged"):
            require_paid([wrong], Charge.zcdp(Fraction(50)))


def test_tables_of_several_aggregates_have_no_one_price() -> None:
    """A unit moves the table of each aggregate, so that one price for two tables would be half of the true price."""
    apart = job_of([2, 0, 1], 3)
    two = replace(apart, aggregates=apart.aggregates * 2)
    query = KroneckerQuery((0,), (IdentityFactor(3),))
    for tables in (range(1), range(1, 2)):
        ask = Ask(AskScan(two, 3, tables), Table(query), GAUSSIAN)
        require_paid([ask], Charge.zcdp(ask.cost.rho))
    with pytest.raises(InternalError, match="nothing was charged"):
        require_paid([Ask(AskScan(two, 3, range(2)), Table(query), GAUSSIAN)], Charge.zcdp(Fraction(50)))


def test_a_scan_of_no_tables_is_refused() -> None:
    """A scan without tables is refused: its bounds were compared with none, and a unit with rows was priced as one."""
    for tables in (range(0), range(-1, 0), range(0, 2, 2)):
        with pytest.raises(InternalError, match="a scan of no tables"):
            AskScan(job_of([2, 0, 1], 3), 1, tables)


def test_no_answer_costs_less_than_nothing() -> None:
    """A limit below 0, and an answer with a shape below 0, are refused: a negative price would pay for others."""
    dear = Ask(SCAN, Table(CELLS), GAUSSIAN)
    cheap = Ask(SCAN, Within(Fraction(-1, 10), pure=False, kinds=()))
    fewer = Ask(SCAN, Present(KroneckerQuery((0,), (IdentityFactor(-1),)), 2), GAUSSIAN)
    centred = Ask(SCAN, Table(KroneckerQuery((0,), (CentredFactor(0),))), GAUSSIAN)
    for one in (cheap, fewer, centred):
        with pytest.raises(InternalError, match="less than nothing"):
            price([dear, one])


@pytest.mark.parametrize("least", [0, -1000])
def test_groups_of_no_unit_are_not_published(least: int) -> None:
    """A threshold with a minimum of no units, or fewer, is refused: it was lower by as much, at the same delta."""
    with pytest.raises(InternalError, match="groups of no privacy unit"):
        Threshold(GroupBounds(1, 1, 1, 5), least, 20, GAUSSIAN, 0, (), False)


def test_choices_are_made_by_counts_alone() -> None:
    """Choices are made by counts alone. A sum wraps at 2^64, so it may move by more than a unit adds."""
    counted, each = job_of([2, 0, 1], 3), KroneckerQuery((), ())
    choice = Choice(Families((Family((0,), (3,)),), whole=True), Fraction(1), pure=True)
    quantiles = Quantiles(each, 3, 1, 1, Fraction(1), 0)
    summed = replace(counted, aggregates=(adds("", "sum", "v", Fraction(0), Fraction(9), 9),))
    for query in (choice, quantiles):
        query.require(counted)
        with pytest.raises(InternalError, match="numbers that are no counts"):
            query.require(summed)
