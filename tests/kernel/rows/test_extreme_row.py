"""A person's row of extreme values decides nothing. Each statement is asked with her and without her, for each type.

Outcomes, columns, types, rows and charges are the same. At a price with hardly any noise the counts differ by her row
alone. Some of her values are such as only Arrow brings in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet

import dpduck
from dpduck.kernel.worker.workers import Runner
from dpduck.values.errors import InternalError
from tests.support.clinics import one_line

EXACT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 50{}) "
KEYS = ", delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD"
BUDGET = "BUDGET (epsilon = 1000000, delta = 9e-3, delta_keys = 8e-3)"
POLICY = f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 2, {BUDGET}, DOMAIN ward IN (0, 1, 2))"
DAY, MOMENT = "'2024-01-05'", "'2024-01-05 10:00:00'"
TYPES = {
    "decimal": ("DECIMAL(38,0)", "5", "'99999999999999999999999999999999999999'"),
    "fraction": ("DECIMAL(38,38)", "0.1", "'-0.99999999999999999999999999999999999999'"),
    "huge": ("HUGEINT", "7", "'-170141183460469231731687303715884105728'"),
    "unsigned": ("UHUGEINT", "7", "'340282366920938463463374607431768211455'"),
    "interval": ("INTERVAL", "'1 day'", "'-2147483648 months 2147483647 days -9223372036854775807 microseconds'"),
    "date": ("DATE", DAY, "'infinity'"),
    "timestamp": ("TIMESTAMP", MOMENT, "'290309-12-22 (BC) 00:00:00'"),
    "nanoseconds": ("TIMESTAMP_NS", MOMENT, "'infinity'"),
    "zone": ("TIMESTAMPTZ", MOMENT, "'294247-01-10 04:00:54.775806+00'"),
    "time": ("TIMETZ", "'10:00:00+00'", "'24:00:00-15:59:59'"),
    "uuid": ("UUID", "'00000000-0000-0000-0000-000000000001'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "bits": ("BIT", "'101'", "repeat('1', 50000)"),
    "bytes": ("BLOB", "'abc'", r"'\xFF\x00\xFE'"),
    "enum": ("ENUM ('low', 'mid', '')", "'low'", "''"),
    "collated": ("VARCHAR COLLATE NOCASE.NOACCENT", "'Abc'", "'ÀB' || chr(769) || chr(304) || chr(64258)"),
    "text": ("VARCHAR", "'12'", r"chr(0) || '1e999%_\' || chr(1114111)"),
    "long text": ("VARCHAR", "'a'", "repeat('x', 3000000)"),
    "double": ("DOUBLE", "1.5", "'-nan'"),
    "float": ("FLOAT", "1.5", "'3.4e38'"),
    "list": ("INTEGER[]", "[1, 2]", "range(20000)"),
    "struct": ("STRUCT(a INTEGER, b VARCHAR)", "{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': repeat('y', 100000)}"),
    "map": ("MAP(VARCHAR, INTEGER)", "MAP {'a': 1}", "MAP {}"),
    "json": ("JSON", "'{\"a\": 1}'", "repeat('[', 500) || repeat(']', 500)"),
}
"""By name: the type, what everybody has, and what she has."""

OFTEN = ("decimal", "interval", "date", "collated", "text", "struct")
"""Types that every run tries; `make audit` tries all."""

ARROW = {
    "raw date": ("DATE", DAY, pa.date32(), struct.pack("<i", -(2**31))),
    "raw zone": ("TIMESTAMPTZ", MOMENT, pa.timestamp("us", "UTC"), struct.pack("<q", -(2**63))),
    "raw decimal": ("DECIMAL(38,0)", "5", pa.decimal128(38, 0), (2**127 - 1).to_bytes(16, "little")),
    "raw small decimal": ("DECIMAL(4,2)", "5", pa.decimal128(4, 2), (32767).to_bytes(16, "little")),
    "raw interval": (
        "INTERVAL", "'1 day'", pa.month_day_nano_interval(), struct.pack("<iiq", -(2**31), 2**31 - 1, -(2**63))
    ),
    "raw nan": ("DOUBLE", "1.5", pa.float64(), struct.pack("<Q", 0xFFF0000000000001)),
}  # fmt: skip
"""The same of values that Arrow files bring in: what she has as its bytes."""

PLACES = (
    ("", "ward, count(*) FROM visits WHERE ward * 2 >= 0 GROUP BY ward"),
    ("", "count(*) FROM visits WHERE v < {o} OR v >= {o} OR v IS NULL"),
    ("", "ward, count(*) FROM visits WHERE v IN ({o}, NULL) OR ward >= 0 GROUP BY ward"),
    ("", "count(*) FROM visits WHERE CAST(v AS VARCHAR) LIKE '%1%' OR CAST(CAST(v AS VARCHAR) AS INTEGER) > 3"),
    ("", "count(*) FROM visits WHERE v + v > {o} OR -v < {o} OR abs(v) = {o}"),
    ("", "count(*) FROM visits WHERE date_trunc('month', v) = {o} OR date_diff('day', v, {o}) > 0"),
    ("", "count(*) FROM visits WHERE strftime(v, '%j') > '' OR date_part('week', v) > 3"),
    ("", "ward, count(*) FILTER (WHERE greatest(v, {o}) = {o}) FROM visits GROUP BY ward"),
    ("", "sum(CASE v WHEN {o} THEN 1 ELSE 2 END), count(nullif(v, {o})) FROM visits"),
    ("", "sum(CAST(v AS DOUBLE), contribution_bounds_per_row => (0, 3)) FROM visits"),
    ("", "sum(v * 2 - v, contribution_bounds_per_group => (0, 3)) FROM visits"),
    ("", "count(DISTINCT v), median(CAST(v AS DOUBLE), contribution_bounds_per_row => (0, 3)) FROM visits"),
    (KEYS, "v AS k, count(*) FROM visits GROUP BY k"),
    (KEYS, "concat(v, '-') AS k, count(*) FROM visits GROUP BY k"),
    ("", "count(*) FROM (SELECT id, min(v) AS a, max(v) AS b FROM visits GROUP BY id) WHERE a = b OR a IS NULL"),
    ("", "w, count(*) FROM (SELECT id, first(ward ORDER BY v, ward) AS w FROM visits GROUP BY id) GROUP BY w"),
    ("", "n, count(*) FROM (SELECT id, count(DISTINCT v) AS n FROM visits GROUP BY id) GROUP BY n"),
    ("", "count(*) FROM (SELECT id, sum(v) AS a FROM visits GROUP BY id) WHERE a > 1"),
    ("", "count(*) FROM (SELECT v, lag(v) OVER (PARTITION BY id ORDER BY ward, v) AS p FROM visits) WHERE v = p"),
    ("", "count(*) FROM (SELECT ward FROM visits QUALIFY rank() OVER (PARTITION BY id ORDER BY v DESC) = 1)"),
    ("", "count(*) FROM visits JOIN labels ON visits.v = labels.v"),
    ("", "count(*) FROM visits WHERE v NOT IN (SELECT v FROM labels)"),
    ("", "count(*) FROM visits a JOIN visits b ON a.id = b.id AND a.v = b.v"),
    ("", "count(*) FROM visits b LEFT JOIN visits a ON a.id = b.id AND a.v <> {o}"),
    ("", "count(*) FROM (SELECT v FROM visits UNION ALL SELECT v FROM visits WHERE ward = 1) WHERE v = {o}"),
)  # fmt: skip
"""Options, and where her value stands: {o} is everybody's."""

MOST = 7
"""What two of her rows may add, with noise that exceeds 1 once in e^25 (2 rows, a scale of 1/25): 1e-11 each."""


def visits(kind: str, usual: str, hers: str | pa.Array | None, prepared: bool) -> duckdb.DuckDBPyConnection:
    connection = dpduck.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE visits (id BIGINT, ward INTEGER, v {kind})")
    plain = kind.partition(" COLLATE")[0]
    connection.execute(f"INSERT INTO visits SELECT i // 2, i % 3, CAST({usual} AS {plain}) FROM range(300) AS r(i)")
    if isinstance(hers, str):
        connection.execute(f"INSERT INTO visits SELECT 1000000, 1, CAST({hers} AS {plain})")
    elif hers is not None:
        connection.register("hers", pa.table({"v": hers}))
        connection.execute("INSERT INTO visits SELECT 1000000, 1, v FROM hers")
    connection.execute("CREATE TABLE labels AS SELECT v FROM visits LIMIT 1")
    connection.execute("ANALYZE")
    for statement in ("DECLARE PUBLIC TABLE labels", POLICY):
        connection.execute("FROM dp(?)", [statement])
    if prepared:
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
    return connection


def said(connection: duckdb.DuckDBPyConnection, statement: str) -> tuple[object, list[tuple[object, ...]]]:
    """Returns the names and types of an answer's columns with its rows, or the message of a refusal and no rows."""
    try:
        found = connection.execute("FROM dp(?)", [statement])
    except duckdb.Error as error:
        return one_line(error), []
    return [(name, str(kind)) for name, kind, *_ in found.description], sorted(found.fetchall(), key=repr)


def far(one: object, other: object) -> bool:
    return isinstance(one, (int, float)) and isinstance(other, (int, float)) and not abs(one - other) <= MOST


def require_alike(kind: str, usual: str, hers: str | pa.Array, prepared: bool) -> int:
    """Asks every statement of both connections, and returns how many were answered."""
    both = [visits(kind, usual, value, prepared) for value in (hers, None)]
    everybody = f"CAST({usual} AS {kind.partition(' COLLATE')[0]})"
    answered = sum(is_alike(both, EXACT.format(options) + select.format(o=everybody)) for options, select in PLACES)
    require_charges_alike(both)
    return answered


def is_alike(
    both: Sequence[duckdb.DuckDBPyConnection], statement: str, by_noise: Sequence[str] = (), rough: Sequence[str] = ()
) -> bool:
    """Asks a statement of both connections, and tells whether it was answered.

    by_noise: words of statements where noise decides the number of rows. rough: where figures are no counts.
    """
    (first, rows), (second, others) = (said(one, statement) for one in both)
    assert first == second, statement
    assert "after its charge" not in str(first), statement
    if not any(word in statement for word in by_noise):
        assert len(rows) == len(others), statement
        wrong = [pair for pair in zip(rows, others, strict=True) if any(map(far, *pair))]
        assert not wrong or any(word in statement for word in rough), (statement, wrong)
    return isinstance(first, list)


def require_charges_alike(both: Sequence[duckdb.DuckDBPyConnection]) -> None:
    """Compares the ledgers of both connections, and closes them."""
    charges = [
        one.execute("SELECT count(*), sum(epsilon), sum(rho), sum(delta) FROM dp_ledger()").fetchall() for one in both
    ]
    assert charges[0] == charges[1]
    for one in both:
        one.close()


def chosen(names: Iterable[str], often: Sequence[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=() if name in often else pytest.mark.audit) for name in names]


@pytest.mark.sampled
@pytest.mark.parametrize("name", chosen(TYPES, OFTEN))
def test_a_row_of_extremes_decides_nothing(name: str) -> None:
    """Whatever the type of her value, it decides nothing at any place of a statement."""
    assert require_alike(*TYPES[name], prepared=False) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", chosen(["decimal", "unsigned", "date", "enum", "text", "long text", "double"], ["text"])
)
def test_it_decides_nothing_in_a_prepared_table(name: str) -> None:
    """In a prepared table she decides nothing about the preparing or about counts."""
    assert require_alike(*TYPES[name], prepared=True) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(ARROW, ["raw date", "raw decimal"]))
def test_bytes_that_arrow_brings_in_decide_nothing(name: str) -> None:
    """Values beyond the range of a type, which DuckDB stores as Arrow brings them, decide nothing."""
    kind, usual, arrow_type, raw = ARROW[name]
    hers = pa.Array.from_buffers(arrow_type, 1, [None, pa.py_buffer(raw)])
    assert require_alike(kind, usual, hers, prepared=False) >= 1


def test_without_halving_she_would_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: without TRY and the rehearsal, and where a failing batch is not halved, a statement
    fails after its charge with her alone."""

    def failed(self: Runner, batch: pa.Table) -> pa.Table:
        raise InternalError("counting failed")

    def untried(sql: str) -> str:
        return sql.replace("try(", "(")

    monkeypatch.setattr("dpduck.kernel.worker.program.with_results_of_their_own", untried)
    monkeypatch.setattr("dpduck.mechanisms.release.rehearse_asks", lambda *_: None)
    monkeypatch.setattr("tests.kernel.rows.test_extreme_row.PLACES", PLACES[3:4])
    assert require_alike(*TYPES["text"], prepared=False) == 1
    monkeypatch.setattr(Runner, "_halve", failed)
    with pytest.raises(AssertionError, match="after its charge"):
        require_alike(*TYPES["text"], prepared=False)
