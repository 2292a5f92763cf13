"""A table with every nasty value in clamped columns, its policy, and exact tables of a statement over any rows."""

from __future__ import annotations

from math import prod
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpduck
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.marginals import exact_marginals, present
from dpduck.kernel.queries.tables import Present, Table
from dpduck.language.select.analyse import analyse
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.cubes.measure import declare_asks, scans_of
from dpduck.mechanisms.cubes.plan import CubePlan, plan_cube
from dpduck.store.catalog import Catalog
from dpduck.store.policies import PolicyStore

COLUMNS = (
    "who INTEGER, sex VARCHAR, ward VARCHAR, big BIGINT, huge HUGEINT, real DOUBLE, dec DECIMAL(18, 3), "
    "moment TIMESTAMP, text VARCHAR, flag BOOLEAN"
)
POLICY = """CREATE PRIVACY POLICY ON stays (PRIVACY UNIT {unit}, BUDGET ({budget}),
    DOMAIN sex IN ('F', 'M'), DOMAIN ward IN ('w0', 'w1', 'w2') WITH NULL, DOMAIN flag BOOLEAN WITH NULL,
    DOMAIN text IN ('a', 'b', 'c'), DOMAIN moment RANGE '2024-01-01' TO '2025-01-01' STEP INTERVAL 1 MONTH,
    CLAMP big BETWEEN -50 AND 100, CLAMP huge BETWEEN 0 AND 1000 STEP 10, CLAMP real BETWEEN -1 AND 1 STEP 0.25,
    CLAMP dec BETWEEN 0 AND 10 STEP 0.001)"""
NASTY = """(VALUES
    (9223372036854775807, 170141183460469231731687303715884105727::HUGEINT, 'NaN'::DOUBLE, 10.000,
        'infinity'::TIMESTAMP, 'a'),
    (-9223372036854775808, '-170141183460469231731687303715884105727'::HUGEINT, 'inf'::DOUBLE, -0.001,
        '-infinity'::TIMESTAMP, 'b'),
    (100, 1000, 1.0, 999999999999999.999, TIMESTAMP '2024-06-01', 'c'),
    (-50, 0, -1.0, 0.000, TIMESTAMP '1970-01-01', '1e400'),
    (0, 5, '-inf'::DOUBLE, 3.141, TIMESTAMP '2024-02-29', '{"a": 1}'),
    (7, 995, 1e308, 9.999, TIMESTAMP '2024-12-31 23:59:59', '12'),
    (NULL, NULL, NULL, NULL, NULL, NULL),
    (-1, 1001, -0.0, 0.0005, TIMESTAMP '290000-01-01', '(a+)+$')
) AS v(big, huge, real, dec, moment, text)"""  # fmt: skip


def open_stays(
    unit: str = "who MAX ROWS 3", units: int = 24, budget: str = "epsilon = 1000000"
) -> duckdb.DuckDBPyConnection:
    """Units with one to five rows of nasty values each, and some rows without a unit."""
    connection = dpduck.connect()
    connection.execute(f"CREATE TABLE stays ({COLUMNS})")
    connection.execute("CREATE TABLE wards AS FROM (VALUES ('w0', 1), ('w0', 2), ('w1', 1)) AS w(name, floor)")
    connection.execute("CREATE MACRO drawn(seed, place) AS CAST(hash(seed, place) >> 2 AS BIGINT)")
    connection.execute(
        f"INSERT INTO stays SELECT nullif(drawn(n, 1) % {units}, 0), ['F', 'M', 'x', NULL][drawn(n, 2) % 4 + 1], "
        "['w0', 'w1', 'w2', NULL, 'w9'][drawn(n, 3) % 5 + 1], big, huge, real, dec, moment, text, "
        f"[TRUE, FALSE, NULL][drawn(n, 4) % 3 + 1] FROM {NASTY}, range({units * 3 // 8}) AS r(i), "
        "LATERAL (SELECT drawn(i, hash(v.big, v.real, v.text)) AS n)"
    )
    connection.execute("DROP MACRO drawn")
    connection.execute("FROM dp('DECLARE PUBLIC TABLE wards')")
    connection.execute("FROM dp(?)", [POLICY.format(unit=unit, budget=budget)])
    return connection


def plan_of(connection: duckdb.DuckDBPyConnection, statement: str) -> CubePlan:
    """Returns the plan of a statement."""
    ask = parse_statement(statement)
    assert isinstance(ask, AskStatement)
    with connection.cursor() as cursor:
        return plan_cube(analyse(ask, Catalog(cursor, PolicyStore(connection.cursor, "private", dict))).request)


def exact_tables(connection: duckdb.DuckDBPyConnection, found: CubePlan) -> list[NDArray[np.int64]]:
    """For every measure, all its exact tables side by side, as trusted code would add noise to them."""
    tables: dict[int, NDArray[np.int64]] = {}
    for scan in scans_of(found):
        counts = count_exactly(connection.cursor(), scan.job, b"key")
        first = 0
        for number in scan.measures:
            measure = found.measures[number].measure
            if measure.form == "distinct":
                sets = found.request.question.grouping_sets
                tables[number] = np.concatenate([present(counts, one).ravel() for one in sets])
                continue
            rows = range(first, first + measure.contribution.tables)
            tables[number] = np.concatenate([dense(counts, row) for row in rows])
            first += measure.contribution.tables
    return [tables[number] for number in range(len(found.measures))]


def exact_answers(connection: duckdb.DuckDBPyConnection, found: CubePlan) -> list[tuple[Ask[Any], NDArray[np.int64]]]:
    """Every ask for tables or values present, with its exact answers: of all tables side by side."""
    answers: list[tuple[Ask[Any], NDArray[np.int64]]] = []
    counted = {scan.measures: count_exactly(connection.cursor(), scan.job, b"key") for scan in scans_of(found)}
    by_measure = {number: counts for measures, counts in counted.items() for number in measures}
    for one in declare_asks(found):
        counts = by_measure[one.measure]
        for ask in one.asks:
            if isinstance(ask.query, Present):
                answers.append((ask, present(counts, ask.query.query.attributes).ravel()))
            elif isinstance(ask.query, Table):
                query = ask.query.query
                by_table = [exact_marginals(counts, table, {query.attributes}) for table in ask.scan.tables]
                answers.append((ask, np.concatenate([query.apply(of[query.attributes]).ravel() for of in by_table])))
    return answers


def dense(counts: ExactCounts, row: int) -> NDArray[np.int64]:
    """One exact table over all cells."""
    sizes = counts._sizes
    table = np.zeros(max(1, prod(sizes)), dtype=np.int64)
    values = counts._exact_counts[row]
    places = np.ravel_multi_index(tuple(counts._exact_coordinates), sizes) if sizes else np.zeros(len(values), np.intp)
    np.add.at(table, places, values)
    return table
