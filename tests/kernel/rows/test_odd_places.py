"""A unit, a domain, a clamp or a draft over odd types: one row of extreme values decides nothing there either.

As in test_extreme_row: outcomes, columns, types, rows and charges are the same with her and without her, at a price
with hardly any noise. Noise decides how many groups a threshold or a summary has, so their number is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa
import pytest

import dpduck
from tests.kernel.rows.test_extreme_row import (
    ARROW,
    BUDGET,
    EXACT,
    KEYS,
    TYPES,
    chosen,
    is_alike,
    require_charges_alike,
    said,
)

HOURS, DAYS = "to_hours(i // 2)", "CAST(i // 2 AS INTEGER)"
MANY = {
    "fraction": "CAST(i // 2 AS DECIMAL(10, 4)) / 1000",
    "date": f"DATE '2024-01-01' + {DAYS}",
    "timestamp": f"TIMESTAMP '2024-01-01' + {HOURS}",
    "nanoseconds": f"TIMESTAMP '2024-01-01' + {HOURS}",
    "zone": f"TIMESTAMPTZ '2024-01-01 00:00:00+00' + {HOURS}",
    "uuid": "'00000000-0000-0000-0000-' || lpad(CAST(i // 2 AS VARCHAR), 12, '0')",
    "bytes": "encode('b' || i // 2)",
    "enum": "CASE WHEN i < 4 THEN ['low', 'mid'][i % 2 + 1] END",
    "text": "'u' || i // 2",
    "long text": "'u' || i // 2",
    "raw date": f"DATE '2024-01-01' + {DAYS}",
    "raw zone": f"TIMESTAMPTZ '2024-01-01 00:00:00+00' + {HOURS}",
    "raw small decimal": "(i // 2) / 10",
}
"""Values of 150 units, by name of what she has; of numbers, i // 2. Of an ENUM, two units of two rows each: of more
rows MAX ROWS would keep others in each table, whose keys differ."""

UNITS = (*MANY, "decimal", "huge", "unsigned", "double", "float", "raw decimal", "raw nan")
OF_UNITS = (
    ("", "ward, count(DISTINCT v), sum(n) FROM visits GROUP BY ward"),
    ("", "count(*) FROM visits WHERE ward * 2 >= 0"),
    ("", "count(*) FROM (SELECT v, count(*) AS c FROM visits GROUP BY v) WHERE c > 1"),
    ("", "w, count(*) FROM (SELECT v, first(ward ORDER BY n) AS w FROM visits GROUP BY v) GROUP BY w"),
    ("", "count(*) FROM (SELECT v, lag(ward) OVER (PARTITION BY v ORDER BY n) AS p FROM visits) WHERE p = 1"),
    ("", "count(*) FROM visits a JOIN visits b ON a.v = b.v"),
    ("", "ward, count(*) FROM (SELECT v, ward FROM visits UNION ALL SELECT v, n FROM visits) GROUP BY ward"),
    (KEYS, "note AS k, count(*) FROM visits GROUP BY k"),
)
"""Statements of a table whose unit is the odd column."""

IN, EDGES, CLAMP = "DOMAIN v IN ({0})", "DOMAIN v RANGE {1} TO {2} STEP {3} WITH EDGES", "CLAMP v BETWEEN {1} AND {2}"
YEAR = ("TIMESTAMP '2024-01-01'", "TIMESTAMP '2024-12-01'", "MONTH")
DECLARED = {
    "decimal": ("5", "0", "10", "1"),
    "fraction": ("0.1", "0.1", "0.3", "0.1"),
    "huge": ("7", "0", "10", "1"),
    "unsigned": ("7", "0", "10", "1"),
    "date": ("DATE '2024-01-05'", "DATE '2024-01-01'", "DATE '2024-12-01'", "MONTH"),
    "timestamp": ("TIMESTAMP '2024-01-05 10:00:00'", *YEAR),
    "collated": ("'Abc'",),
    "text": ("'12', '13'",),
    "long text": ("'a'",),
    "double": ("1.5", "0", "10", "0.5"),
    "float": ("1.5", "0", "10", "0.5"),
    "raw date": ("DATE '2024-01-05'", "DATE '2024-01-01'", "DATE '2024-12-01'", "MONTH"),
    "raw decimal": ("5", "0", "10", "1"),
    "raw small decimal": ("5", "0", "10", "1"),
    "raw nan": ("1.5", "0", "10", "0.5"),
}
"""By name: labels, and of what has an order the ends and steps of a range."""

OF_LABELS = (
    ("", "v, ward, count(*) AS c FROM visits GROUP BY CUBE (v, ward)"),
    ("", "count(*) FROM visits WHERE v = {0}"),
    ("", "v, sum(n) FROM visits GROUP BY v"),
    (KEYS, "note AS k, v, count(*) FROM visits GROUP BY k, v"),
    ("", "a, count(*) FROM (SELECT id, min(v) AS a FROM visits GROUP BY id) GROUP BY a"),
)
OF_CLAMPS = (("", "ward, sum(v), avg(v) FROM visits GROUP BY ward"), ("", "median(v) FROM visits"))
MADE = (
    "CREATE PRIVATE TABLE one OPTIONS (epsilon = 5, delta = 1e-8) AS SELECT v, ward FROM visits WORKLOAD MARGINALS (2)",
    "CREATE PRIVATE TABLE two OPTIONS (epsilon = 5, delta = 1e-8) AS SELECT v, ward FROM visits "
    "WHERE v IS NOT NULL OR ward = 1 WORKLOAD MARGINALS (2)",
    "CREATE PRIVATE VIEW wards OPTIONS (epsilon = 5) AS SELECT v, ward, count(*) AS c FROM visits GROUP BY v, ward",
)


def values(name: str) -> tuple[str, str, str | pa.Array]:
    """Returns the type, the value of everybody, and her value."""
    if name in TYPES:
        return TYPES[name]
    kind, usual, arrow_type, raw = ARROW[name]
    return kind, usual, pa.Array.from_buffers(arrow_type, 1, [None, pa.py_buffer(raw)])


def table(name: str, many: str, hers: bool) -> duckdb.DuckDBPyConnection:
    """Makes visits of 150 people with two rows each, and three rows of hers."""
    kind, _, extreme = values(name)
    plain = kind.partition(" COLLATE")[0]
    connection = dpduck.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE visits (v {kind}, id INTEGER, ward INTEGER, n INTEGER, note VARCHAR)")
    columns = f"CAST({many} AS {plain}), i // 2, i % 3, i % 4, 'n' || i % 3"
    connection.execute(f"INSERT INTO visits SELECT {columns} FROM range(300) AS r(i)")
    source = "range(3) AS r(j)" if isinstance(extreme, str) else "hers, range(3) AS r(j)"
    value = f"CAST({extreme} AS {plain})" if isinstance(extreme, str) else "v"
    if not isinstance(extreme, str):
        connection.register("hers", pa.table({"v": extreme}))
    if hers:
        connection.execute(f"INSERT INTO visits SELECT {value}, 100000, j % 3, j, 'n1' FROM {source}")
    connection.execute("ANALYZE")
    return connection


def require_alike(both: Sequence[duckdb.DuckDBPyConnection], statements: Iterable[str]) -> int:
    """Asks every statement of both connections, and returns how many were answered."""
    answered = sum(is_alike(both, one, ("THRESHOLD",), ("avg(", "median(")) for one in statements)
    require_charges_alike(both)
    return answered


def policy(unit: str, item: str) -> str:
    return (
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT {unit}, {BUDGET}, DOMAIN ward IN (0, 1, 2), "
        f"CLAMP n BETWEEN 0 AND 3{', ' if item else ''}{item})"
    )


PREPARE = "ALTER PRIVACY POLICY ON visits PREPARE"


@pytest.mark.parametrize("prepared", [False, True], ids=["live", "prepared"])
@pytest.mark.parametrize("name", chosen(UNITS, ["raw date"]))
def test_an_odd_unit_decides_nothing(name: str, prepared: bool) -> None:
    """The unit is an odd column, where her value is beyond the range of its type, or the longest possible."""
    both = [table(name, MANY.get(name, "i // 2"), hers) for hers in (True, False)]
    own = [policy("v MAX ROWS 2", ""), *([PREPARE] if prepared else [])]
    asked = (EXACT.format(options) + select for options, select in OF_UNITS)
    assert require_alike(both, [*own, *asked]) >= len(own) + 5


@pytest.mark.parametrize("unit", ["id MAX ROWS 2", "ROW", "prepared"])
@pytest.mark.parametrize("name", chosen(DECLARED, ["collated"]))
def test_an_odd_domain_decides_nothing(name: str, unit: str) -> None:
    """Labels, bins and bounds of odd types, for people and for rows, and answers over them, decide nothing."""
    declared, kind = DECLARED[name], values(name)[0]
    for item in (IN, EDGES, CLAMP)[: 3 if len(declared) > 1 else 1]:
        statements = [policy(unit.replace("prepared", "id MAX ROWS 2"), item.format(*declared))]
        statements += [PREPARE] if unit == "prepared" else []
        asked = OF_CLAMPS if item == CLAMP else OF_LABELS
        first = declared[0].split(", ")[0]
        statements += [EXACT.format(options) + select.format(first) for options, select in asked]
        statements += MADE if item != CLAMP else ()
        usual = f"CAST({values(name)[1]} AS {kind.partition(' COLLATE')[0]})"
        answered = require_alike([table(name, usual, hers) for hers in (True, False)], statements)
        assert answered >= 2 or (item == CLAMP and "MONTH" in declared), "a CLAMP is of numbers"


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen([*TYPES, *ARROW], ["raw zone"]))
def test_a_draft_over_odd_columns_decides_nothing(name: str) -> None:
    """Drafts, private drafts and twins read a table with her in it as any other."""
    outcomes = []
    for hers in (True, False):
        connection = table(name, values(name)[1], hers)
        outcome: list[object] = [said(connection, policy("id MAX ROWS 2", ""))[0]]
        for price in ("", ", privately := 5", ", privately := 0.05"):
            found = connection.execute(f"FROM dp_draft('visits'{price})")
            outcome.append(([name for name, *_ in found.description], bool(found.fetchall())))
        outcome.append(connection.execute("SELECT count(*) FROM dp_twin('visits', 10)").fetchall())
        outcome.append(connection.execute("SELECT count(*), sum(epsilon) FROM dp_ledger()").fetchall())
        outcomes.append(outcome)
        connection.close()
    assert outcomes[0] == outcomes[1]
