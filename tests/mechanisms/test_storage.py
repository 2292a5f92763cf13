"""DuckDB's storage may change a row's form because of other rows. This decides nothing about the row."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck

EXACT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) "
KEYS = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, delta = 1e-7, group_selection_strategy = "
    "LAPLACE_THRESHOLD) CAST(x AS VARCHAR) AS s, count(*) AS n FROM visits GROUP BY s"
)
BUDGET = "BUDGET (epsilon = 1e6, delta = 1e-3, delta_keys = 5e-4)"
OTHERS = 10_000


def zeros(path: Path, kind: str, her: bool) -> None:
    """A file of zeros of both signs, stored as runs of one value. Between the runs lies her other zero."""
    tiny = "1e-300" if kind == "DOUBLE" else "1e-30"
    zero = f"CAST(CASE WHEN i % 2 = 0 THEN {tiny} ELSE -{tiny} END AS {kind}) * CAST({tiny} AS {kind})"
    with duckdb.connect(str(path), config={"threads": 1}) as con:
        con.execute(f"CREATE TABLE visits (patient BIGINT, x {kind})")
        con.execute(f"INSERT INTO visits SELECT i, {zero} FROM range({OTHERS // 2 + 1}) AS r(i)")
        if her:
            con.execute("INSERT INTO visits VALUES (1000000, 1.5)")
        con.execute(f"INSERT INTO visits SELECT i, {zero} FROM range({OTHERS // 2 + 1}, {OTHERS}) AS r(i)")
        con.execute("CHECKPOINT")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
@pytest.mark.parametrize("prepared", [False, True])
def test_zero_has_no_sign(tmp_path: Path, kind: str, prepared: bool) -> None:
    """Nobody's zero is negative, whoever stands beside it: runs of equal values would lose or change the sign."""
    for her in (False, True):
        path = tmp_path / f"clinic_{her}.duckdb"
        zeros(path, kind, her)
        with dpduck.connect(path) as con:
            policy = f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, {BUDGET})"
            con.execute("FROM dp(?)", [policy])
            if prepared:
                con.execute("FROM dp(?)", ["ALTER PRIVACY POLICY ON visits PREPARE"])
            for condition in ("signbit(x)", "CAST(x AS VARCHAR) LIKE '-%'", "1 / x < 0"):
                counted = f"{EXACT} count(*) AS n FROM visits WHERE {condition}"
                ((n, *_),) = con.execute("FROM dp(?)", [counted]).fetchall()
                assert abs(n) <= 1, (condition, her)
            keys = {key: n for key, n, *_ in con.execute("FROM dp(?)", [KEYS]).fetchall()}
            assert set(keys) == {"0.0"} and abs(keys["0.0"] - OTHERS) <= 1


def rows_of_variants(path: Path, her: bool) -> None:
    """A file of objects that DuckDB writes in another form where there are 30,000 rows: with her, there are."""
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS d (STORAGE_VERSION 'v1.5.0')")
        con.execute("CREATE TABLE d.visits (patient BIGINT, g INTEGER, v VARIANT)")
        more = "UNION ALL SELECT 100000, 0, CAST({'b': 'x', 'a': 1} AS VARIANT) FROM range(20)" if her else ""
        con.execute(
            "INSERT INTO d.visits SELECT i // 30, i % 10, CAST({'b': 'x' || i, 'a': i} AS VARIANT) FROM range(29990) "
            f"AS r(i) {more}"
        )
        con.execute("CHECKPOINT d")


def test_how_a_variant_is_stored_chooses_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The total number of rows does not decide which rows of others are kept."""
    monkeypatch.setattr("dpduck.kernel.ledger.ledger.Ledger.bounding_key", property(lambda _: bytes(range(32))))
    counts = {}
    for her in (False, True):
        path = tmp_path / f"clinic_{her}.duckdb"
        rows_of_variants(path, her)
        with dpduck.connect(path) as con:
            policy = f"PRIVACY UNIT patient MAX ROWS 4, DOMAIN g IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9), {BUDGET}"
            con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits ({policy})"])
            found = con.execute("FROM dp(?)", [f"{EXACT} g, count(*) AS n FROM visits GROUP BY g"]).fetchall()
            counts[her] = {g: n for g, n, *_ in found}
    assert sum(abs(counts[True][g] - counts[False][g]) for g in range(10)) <= 4 + 2, counts


OF_TYPES = {
    "VARIANT": ("CASE WHEN i % 2 = 0 THEN CAST(CAST('{}' AS JSON) AS VARIANT) END", "CAST({'a': 1} AS VARIANT)"),
    "GEOMETRY": (
        "CAST(CASE WHEN i % 2 = 0 THEN 'POINT(-0 1)' ELSE 'POINT(0 1)' END AS GEOMETRY)",
        "CAST('LINESTRING(0 0, 1 1)' AS GEOMETRY)",
    ),
}
"""Two values of each person, and one that changes how DuckDB 1.5 stores them."""


def in_another_form(path: Path, kind: str, her: bool) -> None:
    """A file of the newest storage with two rows of each of 60,000 persons, and hers between them, if she is there."""
    value, odd = OF_TYPES[kind]
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS d (STORAGE_VERSION 'latest')")
        con.execute(f"CREATE TABLE d.visits (patient BIGINT, ok BOOLEAN, x {kind})")
        rows = f"SELECT i // 2, i % 2 = 0, {value} FROM range"
        more = f" UNION ALL SELECT 100000, false, {odd}" if her else ""
        con.execute(f"INSERT INTO d.visits {rows}(60000) AS r(i){more} UNION ALL {rows}(60000, 120000) AS r(i)")
        con.execute("CHECKPOINT d")


@pytest.mark.parametrize("kind", OF_TYPES)
def test_how_values_are_stored_chooses_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """One other person's value of another form does not decide which of a person's two rows is kept."""
    monkeypatch.setattr("dpduck.kernel.ledger.ledger.Ledger.bounding_key", property(lambda _: bytes(range(32))))
    counts = []
    for her in (False, True):
        path = tmp_path / f"clinic_{her}.duckdb"
        in_another_form(path, kind, her)
        with dpduck.connect(path) as con:
            policy = f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, {BUDGET})"
            con.execute("FROM dp(?)", [policy])
            ((n, *_),) = con.execute("FROM dp(?)", [f"{EXACT} count_if(ok) AS n FROM visits"]).fetchall()
            counts.append(n)
    assert abs(counts[1] - counts[0]) <= 1 + 1, counts


def test_nothing_of_a_variant_is_read(tmp_path: Path) -> None:
    """By `x IS NULL` one person would decide whether 20,000 others are counted: refused before anything is charged."""
    path = tmp_path / "clinic.duckdb"
    in_another_form(path, "VARIANT", True)
    with dpduck.connect(path) as con:
        con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, {BUDGET})"])
        for rest in (
            "count(*) FROM visits WHERE x IS NULL",
            "count(*) FROM visits WHERE NOT (x IS NOT NULL) OR ok",
            "count(x) FROM visits",
            "count(*) FILTER (WHERE x IS NULL) FROM visits",
            "count(*) FROM (SELECT patient, count(x) AS n FROM visits GROUP BY patient) AS u WHERE n = 1",
            "count(*) FROM (SELECT patient, x FROM visits UNION ALL SELECT patient, x FROM visits) AS u WHERE x IS "
            "NULL",
        ):
            with pytest.raises(duckdb.InvalidInputException, match="a VARIANT"):
                con.execute("FROM dp(?)", [EXACT + rest]).fetchall()
        assert con.execute("SELECT sum(spent) FROM dp_budget()").fetchall() == [(0.0,)]


def test_a_bound_of_a_million_rows_fails_nothing() -> None:
    """DuckDB's pass that turns a rank into an arg_min raises where a unit has a million rows. It is off."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT 1 AS patient FROM range(1000001)")
        con.execute(
            "FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1000000, {BUDGET})"]
        )
        ((n, *_),) = con.execute("FROM dp(?)", [f"{EXACT} count(*) AS n FROM visits"]).fetchall()
        assert abs(n - 1_000_000) < 1_000_000
