"""Neighbours differ by one unit: no exact table by selected key moves by more than its noise is calibrated to."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from dpduck.kernel.counting.exact import GROUP
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.queries.keys import Threshold, _tables, read_groups
from dpduck.kernel.queries.operators import Norms
from dpduck.kernel.stage import UNITS
from dpduck.language.select.analyse import analyse
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.keys.plan import propose_keys
from dpduck.store.catalog import Catalog
from dpduck.store.policies import PolicyStore
from tests.mechanisms.cubes.aggregate_clinic import open_stays
from tests.mechanisms.cubes.test_aggregate_sensitivity import neighbours

OPTIONS = "epsilon = 1, delta = 1e-6, max_groups_contributed = {}, group_selection_strategy = {}_THRESHOLD"
AGGREGATES = (
    "sum(dec), count(*)", "avg(dec), sum(dec), count(dec)", "avg(real) FILTER (WHERE flag)", "sum(huge), avg(huge * 2)",
    "sum(dec, contribution_bounds_per_group => (1, 8)), count(*)",
    "avg(dec, contribution_bounds_per_group => (0, 8)), sum(dec, contribution_bounds_per_group => (0, 8))",
    "sum(huge, contribution_bounds_per_group => (-60, 20)) FILTER (WHERE flag), count(DISTINCT who)",
    "count(*, contribution_bounds_per_group => (0, 2)), count(*, contribution_bounds_per_group => (1, 5))",
    "count(DISTINCT who) FILTER (WHERE flag)", "sum(text::INTEGER, contribution_bounds_per_row => (0, 20))",
)  # fmt: skip
"""Aggregates of selected keys over values that are NULL, NaN, infinite, or overflow."""
WEIGHED = (
    "count(*)", "count(*) FILTER (WHERE flag), sum(huge)", "avg(dec), sum(dec), count(DISTINCT who)",
    "sum(huge, contribution_bounds_per_group => (-60, 20))", "count(*, contribution_bounds_per_group => (0, 2))",
)  # fmt: skip
"""Aggregates of units that may be weighed."""
Groups = dict[tuple[object, ...], np.ndarray[tuple[int], np.dtype[np.int64]]]


@pytest.fixture(scope="module")
def stays() -> Iterator[duckdb.DuckDBPyConnection]:
    """Units of up to three rows, under a budget with a delta for keys."""
    with open_stays(budget="epsilon = 1000, delta = 1e-4, delta_keys = 5e-5") as connection:
        yield connection


def planned(connection: duckdb.DuckDBPyConnection, statement: str) -> tuple[CountingJob, Threshold]:
    """The job of a statement, and the query with its claimed bounds."""
    parsed = parse_statement(statement)
    assert isinstance(parsed, AskStatement)
    with connection.cursor() as cursor:
        ask = propose_keys(
            analyse(parsed, Catalog(cursor, PolicyStore(connection.cursor, "private", dict))).request
        ).ask
    assert isinstance(ask.query, Threshold) and isinstance(ask.scan.job, CountingJob)
    return ask.scan.job, ask.query


def exact(connection: duckdb.DuckDBPyConnection, job: CountingJob) -> Groups:
    """The exact tables of every group, as trusted code would add noise to them."""
    found: Groups = {}
    with connection.cursor() as cursor, read_groups(cursor, job, b"key", None) as batches:
        for batch in batches:
            keys = [batch.column(name).to_pylist() for name in batch.column_names if name.startswith(GROUP)]
            tables = _tables(batch, job)
            found |= {
                key: np.array([table[row] for table in tables]) for row, key in enumerate(zip(*keys, strict=True))
            }
    return found


def moves(before: Groups, after: Groups, merged: bool) -> list[tuple[int, int, int]]:
    """How far each table moves: L1, squared L2, and the largest move of one number. merged: half of all are one row."""
    tables = len(next(iter(before.values())))
    nothing = np.zeros(tables, np.int64)
    keys = sorted(before.keys() | after.keys(), key=repr)
    moved = np.array([before.get(key, nothing) - after.get(key, nothing) for key in keys]).astype(object)
    if merged:
        moved = np.array([*moved[::2], moved[1::2].sum(axis=0)])
    sizes = [np.abs(moved).sum(axis=0), (moved * moved).sum(axis=0), np.abs(moved).max(axis=0)]
    return [(int(l1), int(l2), int(most)) for l1, l2, most in zip(*sizes, strict=True)]


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("aggregates", AGGREGATES)
def test_no_unit_moves_a_table_by_more_than_is_claimed(
    stays: duckdb.DuckDBPyConnection, aggregates: str, groups: int
) -> None:
    """Sums, averages and counts, by rows and by group, over one key and two, with the row for all others."""
    noise = "LAPLACE" if groups == 2 else "GAUSSIAN"
    keys = "sex, big" if groups == 2 else "big"
    more = ", other = TRUE" if groups == 3 and "per_group" not in aggregates and "DISTINCT" not in aggregates else ""
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({OPTIONS.format(groups, noise)}{more}) {keys}, "
    job, query = planned(stays, f"{statement}{aggregates} FROM stays GROUP BY {keys}")
    pairs = compared(stays, job, query, groups)
    assert all(one <= most for found, claimed in pairs for one, most in zip(found, claimed, strict=True))
    assert max(found[1] for found, _ in pairs) > 0


def compared(
    stays: duckdb.DuckDBPyConnection, job: CountingJob, query: Threshold, first: int
) -> list[tuple[Norms, Norms]]:
    """Moves of each table without some units in turn, table by table, beside the claimed ones."""
    whole = exact(stays, job)
    return [
        (found, query.of_aggregate(number).norms)
        for _ in neighbours(stays, [1 + (first * 7 + step) % 23 for step in range(0, 23, 2)])
        for number, found in enumerate(moves(whole, exact(stays, job), query.other))
    ]


@pytest.mark.parametrize("norm", ["1", "1.5", "2.9"])
@pytest.mark.parametrize("aggregates", WEIGHED)
def test_no_weighed_unit_moves_a_table_by_more_than_its_norm(
    stays: duckdb.DuckDBPyConnection, aggregates: str, norm: str
) -> None:
    """A unit's groups that are kept have the norm at most, in parts of 1/1024, and others have their weights still.

    Of some table a unit comes within a part of 512 of the norm: the largest weight that fits is taken.
    """
    options = OPTIONS.format(3, "GAUSSIAN") + f", max_norm_contributed = {norm}"
    job, query = planned(
        stays, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) big, {aggregates} FROM stays GROUP BY big"
    )
    pairs = compared(stays, job, query, 1)
    assert all(one <= most for found, claimed in pairs for one, most in zip(found, claimed, strict=True))
    near = [
        found[1] >= claimed[1] * (1 - 1 / 256)
        for place, (found, claimed) in enumerate(pairs)
        if place % query.aggregates not in query.reused and claimed[1] > 0
    ]
    assert max(found[1] for found, _ in pairs) > 0 and (norm != "1" or any(near))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_groups_are_selected_by_whole_units(stays: duckdb.DuckDBPyConnection, groups: int) -> None:
    """Each group's number of units is the same with a norm and without: weights apply only to the answers beside it."""
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({OPTIONS.format(groups, 'GAUSSIAN')}) big, count(*), "
    text += "count(DISTINCT who), sum(huge) FROM stays GROUP BY big"
    jobs = [
        planned(stays, text)[0],
        planned(stays, text.replace("THRESHOLD", "THRESHOLD, max_norm_contributed = 1"))[0],
    ]
    found = []
    for job in jobs:
        with stays.cursor() as cursor, read_groups(cursor, job, b"key", None) as batches:
            rows = [row for batch in batches for row in batch.to_pylist()]
        found.append({repr(row[f"{GROUP}0"]): row[UNITS] for row in rows})
    assert found[0] == found[1] and max(found[0].values()) > 3
