"""Units of several types in UNION ALL and outer joins: one number is one unit, whatever the type that holds it.

The frontend declares the type of the first table for such a unit. DuckDB's type may differ: BIGINT beside UBIGINT are
HUGEINT. Counts equal DuckDB's own over its UNION ALL of the units, beyond 2^63 and below 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel.columns.expressions import Own, RelationColumn
from dpduck.kernel.relations import Branch
from dpduck.language.rows import unions
from tests.support.clinics import one_line

EXACT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, max_rows_contributed = {most}, refresh = '{turn}') "
BUDGET = "BUDGET (epsilon = 1e6, delta = 1e-3, delta_keys = 5e-4)"
WIDTHS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
EDGES = (
    0, 1, -1, 127, 128, -128, 255, 2**31, -(2**31), 2**32 - 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1,
    2**64 - 2, 2**64 - 1, -(2**63), 1 - 2**63,
)  # fmt: skip
WARDS = "SELECT ward FROM visits UNION ALL SELECT ward FROM stays"
UNITED = "SELECT id FROM visits UNION ALL SELECT id FROM stays"
LEFT = "SELECT s.id FROM stays AS s LEFT JOIN visits AS v"
JOINED = "SELECT coalesce(visits.id, stays.id) AS id FROM {} ON visits.id = stays.id"
STATEMENTS = {
    "union": (f"({WARDS})", UNITED),
    "union, the other way": ("(SELECT ward FROM stays UNION ALL SELECT ward FROM visits)", UNITED),
    "nested": (
        f"(SELECT ward FROM visits UNION ALL SELECT ward FROM ({WARDS}))", f"{UNITED} UNION ALL SELECT id FROM visits"
    ),
    "full": ("visits FULL JOIN stays ON visits.id = stays.id", JOINED.format("visits FULL JOIN stays")),
    "full, the other way": ("stays FULL JOIN visits ON visits.id = stays.id", JOINED.format("stays FULL JOIN visits")),
    "left": ("stays LEFT JOIN visits ON visits.id = stays.id", f"{LEFT} ON s.id = v.id"),
    "inner": ("visits JOIN stays ON visits.id = stays.id", JOINED.format("visits JOIN stays")),
}  # fmt: skip
"""What follows FROM, and the units of its rows as DuckDB has them."""

WORKED = {"union": "ward * 2 >= 0", "full": "coalesce(visits.ward, stays.ward) * 2 >= 0", "left": "stays.ward / 1 >= 0"}
"""Conditions that a worker process computes, so that units go by the worker's batches."""

APART = (
    ("DECIMAL(10,0)", "BIGINT"), ("VARCHAR", "BIGINT"), ("UUID", "VARCHAR"), ("DATE", "TIMESTAMP"), ("DATE", "VARCHAR"),
    ("INTEGER", "DOUBLE"), ("DOUBLE", "DOUBLE"), ("FLOAT", "DOUBLE"), ("HUGEINT", "UHUGEINT"), ("BIGINT", "HUGEINT"),
    ("UBIGINT", "UHUGEINT"), ("DECIMAL(10,2)", "DECIMAL(12,4)"), ("BOOLEAN", "TINYINT"), ("VARCHAR", "BLOB"),
    ("TIMESTAMP", "TIMESTAMPTZ"), ("TIMESTAMP", "TIMESTAMP_NS"), ("ENUM('a', 'b')", "VARCHAR"),
    ("ENUM('a', 'b')", "ENUM('b', 'a')"), ("TIME", "TIME_NS"),
)  # fmt: skip
"""Types whose values could be cast, or not be equal as keys are."""

ALIKE = {
    "DECIMAL(38,0)": ("'99999999999999999999999999999999999999'", "'-1'"),
    "HUGEINT": ("'170141183460469231731687303715884105727'", "'-170141183460469231731687303715884105728'"),
    "UHUGEINT": ("'340282366920938463463374607431768211455'", "'0'"),
    "UUID": ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'00000000-0000-0000-0000-000000000000'"),
    "DATE": ("'infinity'", "'5877642-06-25 (BC)'"),
    "TIMESTAMP": ("'-infinity'", "'290309-12-22 (BC) 00:00:00'"),
    "VARCHAR": ("repeat('x', 70)", "repeat('x', 71)"),
    "ENUM('a', 'b')": ("'a'", "'b'"),
}
"""Types of both tables, and values of them."""


def whole(kind: str) -> list[str]:
    """Returns numbers at the edges of a type and between, as texts."""
    bits = WIDTHS[kind.removeprefix("U") if kind[0] == "U" else kind]
    low, high = (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return [str(edge) for edge in sorted({*EDGES, low, high}) if low <= edge <= high]


class Tables:
    """Visits, of each unit two, and stays, of each unit three, with units of two types."""

    def __init__(self, kinds: Sequence[str], visits: list[str], stays: list[str], prepared: bool = False):
        self.con = dpduck.connect(config={"threads": 1})
        self.con.execute("SET TimeZone = 'UTC'")
        for table, kind, ward, units in zip(("visits", "stays"), kinds, (0, 1), (visits * 2, stays * 3), strict=True):
            self.con.execute(f"CREATE TABLE {table} (id {kind}, ward INTEGER)")
            for unit in (*units, "NULL"):
                self.con.execute(f"INSERT INTO {table} VALUES (CAST({unit} AS {kind}), {ward})")
        self.dp(f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 2, {BUDGET})")
        self.dp("CREATE PRIVACY POLICY ON stays (PRIVACY UNIT id REFERENCES visits.id MAX ROWS 3)")
        for table in ("visits", "stays") if prepared else ():
            self.dp(f"ALTER PRIVACY POLICY ON {table} PREPARE")

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def wrong(self, turn: str = "all") -> list[str]:
        """Returns the statements with other counts than DuckDB's, with and without a worker."""
        found = []
        for name, (source, units) in STATEMENTS.items():
            for most in (1, 4):
                of_each = f"SELECT least(count(*), {most}) AS n FROM ({units}) WHERE id IS NOT NULL GROUP BY id"
                expected = self.con.execute(f"SELECT sum(n)::BIGINT FROM ({of_each})").fetchall()
                for where in ("", f" WHERE {WORKED[name]}") if name in WORKED else ("",):
                    counted = EXACT.format(most=most, turn=turn) + f"count(*) FROM {source}{where}"
                    found += [counted] * (self.dp(counted) != expected)
        return found


MIXED = (("BIGINT", "UBIGINT"), ("UBIGINT", "BIGINT"), ("UBIGINT", "TINYINT"), ("UINTEGER", "SMALLINT"))


@pytest.mark.sampled
@pytest.mark.parametrize("prepared", [False, True], ids=["stored", "prepared"])
@pytest.mark.parametrize("kinds", MIXED, ids=" ".join)
def test_a_number_is_one_unit_in_both_tables(kinds: tuple[str, str], prepared: bool) -> None:
    """Counts are those of DuckDB's HUGEINT, or of whatever holds both types."""
    assert Tables(kinds, whole(kinds[0]), whole(kinds[1]), prepared).wrong() == []


@pytest.mark.slow
@pytest.mark.parametrize("of", ["visits", "stays"])
def test_nobody_elses_rows_count_otherwise(of: str) -> None:
    """Without one unit of either table, at the edge of its type, all counts are DuckDB's again."""
    tables = Tables(("BIGINT", "UBIGINT"), whole("BIGINT"), whole("UBIGINT"))
    for unit in ("-9223372036854775808", "-1") if of == "visits" else ("18446744073709551615", "9223372036854775808"):
        tables.con.execute(f"DELETE FROM {of} WHERE id = {unit}")
        assert tables.wrong(unit) == []


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ALIKE)
def test_units_of_one_type_are_whatever_it_holds(kind: str) -> None:
    """Units of one type that is no whole number, and is the same in both tables, are counted as DuckDB counts them."""
    visits, both = ALIKE[kind]
    assert Tables((kind, kind), [visits, both], [both]).wrong() == []


@pytest.mark.sampled
@pytest.mark.parametrize("kinds", APART, ids=" ".join)
def test_other_types_are_refused(kinds: tuple[str, str]) -> None:
    """Before anything is charged or read, in either order."""
    for pair in (kinds, kinds[::-1]):
        tables = Tables(pair, [], [])
        for source, _ in STATEMENTS.values():
            with pytest.raises(duckdb.Error) as error:
                tables.dp(EXACT.format(most=1, turn="all") + f"count(*) FROM {source}")
            said = "units of UNION ALL differ in type" if "ward" in source else " are not compared; accepted: one type"
            assert said in one_line(error.value)
        assert tables.con.execute("SELECT count(*) FROM dp_ledger() WHERE epsilon > 0").fetchall() == [(0,)]


def test_units_that_lose_digits_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above sees units of a type that cannot tell them apart: as DOUBLE some are taken for each other."""

    def rounded(*given: Any) -> tuple[Branch, str]:
        branch, sql = in_full(*given)
        assert isinstance(branch.unit, RelationColumn)
        return replace(branch, unit=Own(("CAST(", branch.unit, " AS DOUBLE)"))), sql

    in_full = unions._branch
    monkeypatch.setattr(unions, "_branch", rounded)
    tables = Tables(MIXED[0], whole("BIGINT"), whole("UBIGINT"))
    with pytest.raises(duckdb.InvalidInputException, match="a UNION ALL without the unit of its rows"):
        tables.wrong()
    monkeypatch.setattr("dpduck.kernel.door.require_units", lambda *_: None)
    assert tables.wrong() != []
