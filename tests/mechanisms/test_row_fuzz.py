"""No row decides: statements are answered alike with and without a row, whatever it does to an expression.

A function that no allowlist would let through (raise, kill, allocate, hang) stands at every place where an analyst may
write an expression. On her row it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel.worker import functions as row_functions
from dpduck.kernel.worker import workers
from dpduck.kernel.worker.workers import Runner, Workers
from dpduck.language.rows import functions as allowlist
from dpduck.store import parse_tree as duckdb_tree
from dpduck.store.sandbox import NO_TABLES, Sandbox, Tables
from tests.kernel.worker.test_workers import FAULTY
from tests.support.clinics import one_line

EXACT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100{}) "
KEYS = ", delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD"
PLACES = {
    "WHERE": ("", "count(*) FROM visits WHERE {f} OR ward >= 0"),
    "WHERE, negated": ("", "count(*) FROM visits WHERE NOT {f}"),
    "FILTER": ("", "ward, count(*) FILTER (WHERE NOT {f}) FROM visits GROUP BY ward"),
    "count_if": ("", "count_if(NOT {f}) FROM visits"),
    "a sum": ("", "sum(CASE WHEN {f} THEN 2 ELSE 1 END) FROM visits"),
    "an average": ("", "avg(CASE WHEN {f} THEN 2 ELSE ward END, contribution_bounds_per_row => (0, 4)) FROM visits"),
    "a variance": ("", "var_pop(CASE WHEN {f} THEN 2 ELSE 1 END) FROM visits"),
    "a median": ("", "median(CASE WHEN {f} THEN 2 ELSE 1 END) FROM visits"),
    "a sum by group": ("", "sum(CASE WHEN {f} THEN 2 ELSE 1 END, contribution_bounds_per_group => (0, 3)) FROM visits"),
    "a count of a value": ("", "count(CASE WHEN {f} THEN 2 ELSE 1 END) FROM visits"),
    "a selected key": (KEYS, "CASE WHEN {f} THEN 'a' ELSE 'b' END AS k, count(*) FROM visits GROUP BY k"),
    "a condition of selected keys": (KEYS, "note, count(*) FILTER (WHERE NOT {f}) FROM visits GROUP BY note"),
    "a column of a subquery": ("", "sum(w) FROM (SELECT CASE WHEN {f} THEN 2 ELSE 1 END AS w FROM visits)"),
    "a filter of a subquery": ("", "count(*) FROM (SELECT id FROM visits WHERE NOT {f})"),
    "counts per unit": (
        "",
        "n, count(*) FROM (SELECT id, count(CASE WHEN NOT {f} THEN 1 END) AS n FROM visits GROUP BY id) GROUP BY n",
    ),
    "a filter of counts per unit": (
        "",
        "n, count(*) FROM (SELECT id, count(*) AS n FROM visits WHERE NOT {f} GROUP BY id) GROUP BY n",
    ),
    "a value of a unit": (
        "",
        "count(*) FROM (SELECT id, sum(CASE WHEN {f} THEN 2 ELSE 1 END) AS n FROM visits GROUP BY id) WHERE n > 2",
    ),
    "a condition of a unit": (
        "",
        "e, count(*) FROM (SELECT id, bool_or(NOT {f}) FILTER (WHERE NOT {f}) AS e FROM visits GROUP BY id) GROUP BY e",
    ),
    "an order of a unit": (
        "",
        "w, count(*) FROM (SELECT id, first(ward ORDER BY CASE WHEN {f} THEN 2 ELSE 1 END DESC, ward) AS w "
        "FROM visits GROUP BY id) GROUP BY w",
    ),
    "a window": (
        "",
        "count(*) FROM (SELECT note, sum(CASE WHEN {f} THEN 2 ELSE 1 END) OVER (PARTITION BY id) AS s FROM visits) "
        "WHERE s = 2 AND note <> 'bad'",
    ),
    "an order of a window": (
        "",
        "count(*) FROM (SELECT ward, note, lag(ward) OVER (PARTITION BY id ORDER BY CASE WHEN {f} THEN 2 ELSE 1 END, "
        "ward) AS w FROM visits) WHERE w < ward AND note <> 'bad'",
    ),
    "QUALIFY": (
        "",
        "ward, count(*) FROM (SELECT ward FROM visits WHERE note <> 'bad' QUALIFY NOT {f} AND row_number() OVER "
        "(PARTITION BY id ORDER BY ward) = 1) GROUP BY ward",
    ),
    "a branch": ("", "count(*) FROM (SELECT id FROM visits WHERE NOT {f} UNION ALL SELECT id FROM stays)"),
    "a branch of a branch": (
        "",
        "count(*) FROM (SELECT id FROM (SELECT id FROM visits WHERE NOT {f} UNION ALL SELECT "
        "id FROM stays) UNION ALL SELECT id FROM stays)",
    ),
    "a private join": ("", "count(*) FROM visits JOIN stays ON visits.id = stays.id AND NOT {f}"),
    "an outer join": ("", "count(*) FROM stays LEFT JOIN visits ON visits.id = stays.id AND NOT {f}"),
    "a semi join": ("", "count(*) FROM stays SEMI JOIN visits ON visits.id = stays.id AND NOT {f}"),
    "a right join": ("", "count(*) FROM visits RIGHT JOIN stays ON visits.id = stays.id AND NOT {f}"),
    "a public join": (
        "",
        "region, count(*) FROM visits JOIN wards ON CASE WHEN {f} THEN 'w0' ELSE 'w1' END = name GROUP BY region",
    ),
    "a public outer join": (
        "",
        "region, count(*) FROM visits LEFT JOIN wards ON CASE WHEN {f} THEN 'w0' ELSE 'w1' END = name GROUP BY region",
    ),
    "membership": ("", "count(*) FROM visits WHERE CASE WHEN {f} THEN 'w0' ELSE 'w1' END IN (SELECT name FROM wards)"),
    "a cube": ("", "ward, sex, count(*) FROM visits WHERE NOT {f} GROUP BY CUBE (ward, sex)"),
    "a summary": (
        ", summary = 'filter', summary_size = 3",
        "ward, sex, count(*) AS n FROM visits WHERE NOT {f} GROUP BY ward, sex",
    ),
}
"""Where an analyst may write {f}: options, and the statement."""

OTHERS = (
    "CREATE PRIVATE TABLE made OPTIONS (epsilon = 1) AS SELECT ward, sex FROM visits WHERE NOT {f} "
    "WORKLOAD MARGINALS (1)",
    "CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1) AS SELECT note FROM visits WHERE NOT {f}",
    "CREATE PRIVATE PROJECTION p OPTIONS (epsilon = 1, sparsity = 2, queries = 10) AS SELECT note FROM visits "
    "WHERE NOT {f}",
)


@contextmanager
def with_faulty_functions() -> Iterator[None]:
    """Lets `faulty` through both looks, knows it in sandboxes, and runs it in workers that have it.

    TRY would catch its errors. It is removed from the workers' SQL, since the claim does not rest on it.
    """
    pool = Workers(FAULTY)
    own = Sandbox.cursor

    @contextmanager
    def cursor(self: Sandbox, tables: Tables = NO_TABLES) -> Iterator[duckdb.DuckDBPyConnection]:
        with own(self, tables) as connection:
            connection.execute("CREATE OR REPLACE MACRO memory.main.faulty(mode, text) AS text = 'bad' AND mode <> ''")
            yield connection

    class Pool(Workers):
        def start(self) -> None:
            pool.start()

        def take(self, clean: bool = False) -> workers.Worker:
            return pool.take(clean)

        def give_back(self, worker: workers.Worker, clean: bool = False) -> None:
            pool.give_back(worker, clean)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allowlist, "NAMED_FUNCTIONS", allowlist.NAMED_FUNCTIONS | {"faulty"})
        for look in (duckdb_tree, row_functions):
            patch.setattr(look, "FUNCTIONS", row_functions.FUNCTIONS | {"faulty"})
        patch.setattr(Sandbox, "cursor", cursor)
        patch.setattr(workers, "ROW_SECONDS", 0.3)
        patch.setattr("dpduck.kernel.worker.program.with_results_of_their_own", lambda sql: sql.replace("try(", "("))
        for module in ("dpduck.database.database", "dpduck.kernel.counting.exact"):
            patch.setattr(f"{module}.Workers", Pool)
        yield
    pool.close()


def clinic(bad: bool | None) -> duckdb.DuckDBPyConnection:
    """Visits and stays of 40 people. bad: whether a further row of person 7 is there, None for an ordinary row."""
    connection = dpduck.connect(config={"threads": 1})
    for sql in (
        "CREATE TABLE wards AS SELECT 'w' || i AS name, 'r' || (i % 2) AS region FROM range(3) AS r(i)",
        "CREATE TABLE visits AS SELECT i % 40 AS id, 'n' || (i % 2) AS note, i % 3 AS ward, ['F', 'M'][1 + i % 2] "
        "AS sex FROM range(80) AS r(i)",
        "CREATE TABLE stays AS SELECT i AS id, 'n' || i AS remark FROM range(40) AS r(i)",
        *([] if bad is False else [f"INSERT INTO visits VALUES (7, '{'n0' if bad is None else 'bad'}', 1, 'F')"]),
        "ANALYZE",
    ):
        connection.execute(sql)
    for statement in (
        "DECLARE PUBLIC TABLE wards",
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 4, BUDGET (epsilon = 1e6, delta = 1e-3, "
        "delta_keys = 5e-4), DOMAIN ward IN (0, 1, 2), DOMAIN sex IN ('F', 'M'))",
        "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT id REFERENCES visits.id MAX ROWS 1)",
    ):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    return connection


@dataclass
class Pair:
    """Two databases, one with her row and one without."""

    present: duckdb.DuckDBPyConnection
    absent: duckdb.DuckDBPyConnection

    def said(self, statement: str) -> tuple[object, object]:
        return said(self.present, statement), said(self.absent, statement)


def said(connection: duckdb.DuckDBPyConnection, statement: str) -> object:
    """The rows of the answer, or the one line of its refusal or failure."""
    try:
        return sorted(map(repr, connection.execute("FROM dp(?)", [statement]).fetchall()))
    except duckdb.Error as error:
        return one_line(error)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with with_faulty_functions():
        found = Pair(clinic(True), clinic(False))
        yield found
        found.present.close()
        found.absent.close()


@pytest.mark.sampled
@pytest.mark.parametrize("place", PLACES)
def test_a_row_that_raises_changes_nothing_else(pair: Pair, place: str) -> None:
    """At every place: answered with the row as without it, exactly so at a price that adds no noise."""
    options, select = PLACES[place]
    statement = EXACT.format(options) + select.format(f="faulty('raise', note)")
    present, absent = pair.said(statement)
    assert isinstance(absent, list), absent
    assert isinstance(present, list), present
    if place == "a public outer join":  # as where the condition is NULL: a row without a partner
        present, absent = ([row for row in found if "None" not in row] for found in (present, absent))
    if place not in ("WHERE", "an average", "a sum by group", "a summary"):  # noise, or her row is wanted
        assert present == absent


@pytest.mark.parametrize("statement", OTHERS)
def test_a_row_that_raises_fails_no_other_release(pair: Pair, statement: str) -> None:
    """Synthetic tables, histograms and projections."""
    present, absent = pair.said(statement.format(f="faulty('raise', note)"))
    assert isinstance(present, list) and isinstance(absent, list), (present, absent)


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["kill", "allocate", "hang"])
def test_a_row_that_ends_the_worker_changes_nothing_else(pair: Pair, mode: str) -> None:
    """The process dies, fills its memory or hangs on her row, and on hers alone."""
    for place in ("WHERE, negated", "an outer join") if mode != "hang" else ("WHERE, negated",):
        options, select = PLACES[place]
        statement = EXACT.format(f"{options}, refresh = '{mode}'") + select.format(f=f"faulty('{mode}', note)")
        present, absent = pair.said(statement)
        assert isinstance(present, list) and isinstance(absent, list), (present, absent)


def test_without_halving_the_row_would_decide(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: where a failed batch fails the job, her row decides."""

    def failed(self: Runner, batch: Any) -> Any:
        raise ValueError("a batch failed")

    monkeypatch.setattr(Runner, "_halve", failed)
    statement = EXACT.format(", refresh = 'unhalved'") + PLACES["WHERE, negated"][1].format(f="faulty('raise', note)")
    present, absent = pair.said(statement)
    assert "failed after its charge" in str(present) and isinstance(absent, list)
