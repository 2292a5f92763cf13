"""No condition is given to a scan: the plans of every kind of statement are read, and rows of NULL are counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel.columns import conditions
from dpduck.kernel.rows import reader

OWN_INTEGERS = frozenset(("dpduck_rows_of_unit", "dpduck_of_unit", "dpduck_open_rows", "dpduck_place"))
"""Columns of prepared rows that dpduck wrote: whole numbers. Comparisons of these alone may be given to a scan."""

POLICIES = (
    "DECLARE PUBLIC TABLE wards",
    "CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 3000, delta = 1e-6, "
    "delta_keys = 1e-7), DOMAIN sex IN ('f', 'm') WITH NULL)",
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person REFERENCES people.person MAX ROWS 3, "
    "BUDGET (epsilon = 3000, delta = 1e-6, delta_keys = 1e-7), DOMAIN ward FROM wards.name WITH NULL, "
    "DOMAIN score RANGE 0 TO 10 STEP 1, "
    "DOMAIN day RANGE '2024-01-01' TO '2025-01-01' STEP INTERVAL 1 MONTH, DOMAIN ok BOOLEAN, "
    "CLAMP cost BETWEEN 0 AND 100 STEP 1)",
    "CREATE PRIVACY POLICY ON parts (PRIVACY UNIT visit REFERENCES visits.visit MAX ROWS 4, "
    "BUDGET (epsilon = 3000, delta = 1e-6, delta_keys = 1e-7), DOMAIN kind IN (1, 2))",
)
TABLES = (
    "CREATE TABLE wards AS SELECT 'w' || i AS name, i % 2 AS floor FROM range(4) r(i)",
    "CREATE TABLE people (person INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER)",
    "INSERT INTO people SELECT i AS person, ['f', 'm', NULL][1 + i % 3] AS sex, i % 90 AS age FROM range(400) r(i)",
    "CREATE TABLE visits AS SELECT i AS visit, (i // 3)::INTEGER AS person, 'w' || i % 4 AS ward, "
    "NULL::INTEGER AS score, DATE '2024-01-01' + (i % 366)::INTEGER AS day, i % 2 = 0 AS ok, "
    "(i % 120)::DOUBLE AS cost, "
    "['a', 'b', NULL][1 + i % 3] AS note FROM range(1200) r(i)",
    "ALTER TABLE visits ADD PRIMARY KEY (visit)",
    "CREATE TABLE parts AS SELECT i // 2 AS visit, 1 + i % 2 AS kind FROM range(2400) r(i)",
)
PLAIN = "v.score = 1 OR v.score IS DISTINCT FROM 0"
"""A condition that every row of NULL meets, and by which DuckDB 1.5 leaves out a part that has NULLs alone."""

ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) "
STATEMENTS = {
    "no group": f"count(*) FROM visits AS v WHERE {PLAIN}",
    "compared columns": "count(*) FROM visits AS v WHERE v.visit > v.person AND v.cost < 50 AND v.note IS NOT NULL",
    "domains": "ward, score, ok, count(*) FROM visits AS v GROUP BY ward, score, ok",
    "months": "date_trunc('month', day) AS m, sum(cost), avg(cost), median(cost) FROM visits WHERE ok GROUP BY m",
    "a cube": f"ward, ok, count(*), sum(cost) FROM visits AS v WHERE {PLAIN} GROUP BY CUBE (ward, ok)",
    "units": f"ward, count(DISTINCT person) FROM visits AS v WHERE {PLAIN} GROUP BY ward",
    "values": "count(DISTINCT ward) FROM visits WHERE cost > 3",
    "a worker": "ward, count(*) FROM visits WHERE length(note) = 1 AND cost > 3 GROUP BY ward",
    "a public join": f"floor, count(*) FROM visits AS v JOIN wards ON ward = name "
    f"WHERE ({PLAIN}) AND floor = 1 AND cost > 1 GROUP BY floor",
    "a left join": "ward, count(floor) FROM visits LEFT JOIN wards ON ward = name WHERE cost > 1 GROUP BY ward",
    "an anti join": "count(*) FROM visits ANTI JOIN wards ON ward = name WHERE cost > 1",
    "units' rows": "sex, count(*) FROM people AS p JOIN visits AS v ON p.person = v.person AND v.cost > 10 "
    f"AND p.age > 30 WHERE {PLAIN} GROUP BY sex",
    "references": f"kind, count(*) FROM parts JOIN visits AS v ON parts.visit = v.visit WHERE {PLAIN} AND kind = 1 "
    "GROUP BY kind",
    "a union": f"count(*) FROM (SELECT person FROM visits AS v WHERE {PLAIN} UNION ALL "
    "SELECT person FROM people WHERE age < 40) AS u",
    "features": f"count(*) FROM (SELECT person, count(*) AS n, max(cost) AS most FROM visits AS v WHERE {PLAIN} "
    "GROUP BY person) AS u WHERE n > 1 AND most > 20",
    "tests of groups": "ward, count(*) AS n FROM visits WHERE ok IS NOT TRUE GROUP BY ward HAVING n > 10",
}
SELECTED = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-9, group_selection_strategy = "
    f"GAUSSIAN_THRESHOLD) note, count(*) FROM visits AS v WHERE {PLAIN} GROUP BY note"
)
STREAM = (
    "CREATE PRIVATE STREAM monthly OPTIONS (epsilon = 1, periods = 12) AS SELECT day, ok, count(*) AS n "
    f"FROM visits AS v WHERE {PLAIN} GROUP BY day, ok"
)


def given_to_scans(node: dict[str, Any]) -> Iterator[str]:
    """Yields the conditions that a plan gives to its scans, except comparisons of dpduck's own integers."""
    given = node.get("extra_info", {}).get("Filters", [])
    for condition in [given] if isinstance(given, str) else given:
        names = set(re.findall(r"[a-z_]\w*", condition.lower())) - {"optional", "or", "and"}
        if not names <= OWN_INTEGERS:
            yield condition
    for child in node.get("children", []):
        yield from given_to_scans(child)


class Watch:
    """Reads the plan of every statement over private rows before it runs."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.plans = 0
        self.given: list[str] = []
        for name in ("run", "columns", "record_batches"):
            patch.setattr(reader, name, self._watched(getattr(reader, name)))

    def _watched(self, work: Any) -> Any:
        def read(
            cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Any = MappingProxyType({}), *more: Any
        ) -> Any:
            sql_of_rows = sql.partition(" TABLE ")[2].partition(" AS ")[2] if sql.startswith("CREATE") else sql
            if sql_of_rows.startswith(("SELECT", "WITH")) and not sql.endswith("LIMIT 0"):
                (row,) = cursor.execute(f"EXPLAIN (FORMAT JSON) {sql_of_rows}", dict(parameters)).fetchall()
                self.plans += 1
                for plan in json.loads(row[1]):
                    self.given += given_to_scans(plan)
            return work(cursor, sql, parameters, *more)

        return read


def ask(connection: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return connection.execute("FROM dp(?)", [statement]).fetchall()


@pytest.fixture(scope="module", params=["memory", "prepared"])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, duckdb.DuckDBPyConnection]]:
    with dpduck.connect() as connection:
        for sql in TABLES:
            connection.execute(sql)
        for policy in POLICIES:
            ask(connection, policy)
        if request.param == "prepared":
            for table in ("people", "visits", "parts"):
                ask(connection, f"ALTER PRIVACY POLICY ON {table} PREPARE")
        yield request.param, connection


def answers(connection: duckdb.DuckDBPyConnection, epsilon: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: ask(connection, ASK.format(epsilon) + rest) for name, rest in STATEMENTS.items()}


def test_no_scan_is_given_a_condition(
    opened: tuple[str, duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan has a filter in a scan: of joins, features, unions, keys and streams, live and prepared."""
    place, connection = opened
    watch = Watch(monkeypatch)
    found = answers(connection, "50")
    ask(connection, SELECTED)
    if place == "memory":  # a stream reads rows as they are
        ask(connection, STREAM)
        ask(connection, "REFRESH PRIVATE STREAM monthly UNTIL '2024-06-01'")
    connection.execute("FROM dp_check('visits')").fetchall()
    assert watch.given == []
    assert watch.plans > len(STATEMENTS) + 3
    assert abs(found["no group"][0][0] - 1200) < 5, "rows of NULL are counted"


def test_plain_conditions_would_be_given(
    opened: tuple[str, duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch sees conditions that are written as they are. With these DuckDB 1.5 counts no row of NULL."""
    _, connection = opened
    watch = Watch(monkeypatch)
    monkeypatch.setattr(conditions, "beyond_scans", lambda condition: condition)
    found = answers(connection, "51")
    assert len(watch.given) > len(STATEMENTS)
    assert abs(found["no group"][0][0]) < 5 or not duckdb.__version__.startswith("1.")


def test_conditions_mean_what_they_say() -> None:
    """The same rows meet a condition that is kept from scans."""
    with duckdb.connect() as plain:
        plain.execute(
            "CREATE TABLE t AS SELECT x, y FROM (VALUES (1, NULL), (NULL, 2), (3, 3), (NULL, NULL)) AS t(x, y)"
        )
        for condition in ("x > 1", "x IS NULL", "x = y", "NOT (x > y)", "x IS DISTINCT FROM y", "NULL", "TRUE"):
            written = (f" WHERE {condition}", conditions.where_sql([condition, "TRUE"]))
            first, second = (plain.execute(f"SELECT * FROM t{where} ORDER BY ALL").fetchall() for where in written)
            assert first == second, condition
    assert conditions.where_sql([]) == ""


def test_only_one_place_writes_where() -> None:
    """The kernel writes WHERE through where_sql alone. The other places are about dpduck's own rows, or the catalog."""
    package = Path(dpduck.__file__).parent
    written = {
        (path.name, line.strip())
        for path in (package / "kernel").rglob("*.py")
        if "ledger" not in path.parts
        for line in path.read_text(encoding="utf-8").splitlines()
        if " WHERE " in line and 'f"' in line
    }
    files = {name for name, _ in written}
    assert files <= {
        *("conditions.py", "bounding.py", "prepared_writer.py", "features.py", "binning.py", "labels.py"),
        *("answered.py", "plans.py", "stand_ins.py", "live.py", "facts.py", "units.py"),
    }
