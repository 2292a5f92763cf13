"""Exact counts are the sums of those of each privacy unit alone, of tables of DuckLake, PostgreSQL and an engine.

Files of Parquet have minima, maxima and Bloom filters of their own, and so have DuckLake's lists of files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpduck
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.publish.extensions import load_extension
from tests.engines.conftest import Lake
from tests.engines.corpus import OF_PEOPLE, POLICY, STATEMENTS, rows
from tests.support.additivity import Counted, compare, in_dp, plain_again
from tests.support.plain_conditions import COLUMNS, Conditions, rows_sql
from tests.support.postgres_server import postgres_server


def needs(name: str) -> pytest.MarkDecorator:
    missing = find_spec(f"duckdb_extension_{name}") is None or not duckdb.__version__.startswith("1.")
    return pytest.mark.skipif(missing, reason=f"the extension {name} is not installed for this DuckDB")


UNIT = "PRIVACY UNIT patient MAX ROWS 100000, BUDGET (epsilon = 100000)"
MANY = "(range % 3)::INTEGER AS patient"
ONE_MORE = "UNION ALL SELECT 9, {} FROM range(1)"
ZERO = ("x = 0", "x IN (0, 7)", "x = 0 AND patient < 100000", "x >= 0 AND x <= 0", "NOT (x <> 0)", "x = -0.0",
        "x BETWEEN 0 AND 0", "x IS NOT DISTINCT FROM 0", "x < 1")  # fmt: skip
NAN = ("x > 5", "x >= 5", "NOT (x <= 5)", "x BETWEEN 5 AND 'nan'::DOUBLE", "x = 'nan'::DOUBLE",
       "x IN (7, 'nan'::DOUBLE)", "x <> 1", "x < 100", "x > 5 OR patient = 77")  # fmt: skip
WIDER = ("x >= 0.1000000001", "x > 0.1", "x = 0.1", "x <> 0.1", "x < 0.1", "x <= 0.1", "x BETWEEN 0.1000000001 AND 1")


@contextmanager
def open_lake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """A connection with an empty DuckLake, with files of another program, too, if there are any."""
    made = Counted(dpduck.connect())
    load_extension(made.connection, "ducklake", "")
    made.connection.execute(
        f"ATTACH 'ducklake:{folder}/lake.ducklake' AS lake (DATA_PATH '{folder}/files', DATA_INLINING_ROW_LIMIT 0)"
    )
    # a text that is no UTF-8 is why other programs' files are refused: these have none
    monkeypatch.setattr("dpduck.store.stored.require_written_by_ducklake", lambda *given: None)
    compare(made.found, monkeypatch)
    try:
        yield made
    finally:
        made.close()


def require_sums(made: Counted, table: str, conditions: Sequence[str]) -> int:
    """The first condition alone, and each in a branch. How many jobs were counted."""
    made.connection.execute(in_dp(f"CREATE PRIVACY POLICY ON {table} ({UNIT})")).fetchall()
    made.ask(f"count(*) FROM {table} WHERE {conditions[0]}")
    branches = [f"SELECT patient FROM {table} WHERE {condition}" for condition in conditions]
    made.ask(f"count(*) FROM ({' UNION ALL '.join(branches)})")
    return made.counted


@needs("ducklake")
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_zeros_with_a_sign(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-0.0, as round(-0.3) makes it, equals 0. A Bloom filter of Parquet hashes bytes, and does not know 0.0."""
    with open_lake(tmp_path, monkeypatch) as made:
        zeros = f"SELECT {MANY}, round(-0.3 / (range + 1))::{kind} AS x FROM range(60)"
        made.connection.execute(f"CREATE TABLE lake.main.v AS {zeros} {ONE_MORE.format('1.0')}")
        assert require_sums(made, "lake.main.v", ZERO) == 2


@needs("ducklake")
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_numbers_that_are_none(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is above 5. Minima and maxima in files of another program leave it out, and DuckLake leaves the file out."""
    with open_lake(tmp_path, monkeypatch) as made:
        con = made.connection
        con.execute(f"CREATE TABLE lake.main.v (patient INTEGER, x {kind})")
        x = pa.array([float("nan")] * 40 + [float(n % 5) for n in range(20)], pa.float64()).cast(
            pa.float64() if kind == "DOUBLE" else pa.float32()
        )
        pq.write_table(
            pa.table({"patient": pa.array([n % 3 for n in range(60)], pa.int32()), "x": x}), tmp_path / "a.parquet"
        )
        con.execute(f"CALL ducklake_add_data_files('lake', 'v', '{tmp_path}/a.parquet')")
        assert require_sums(made, "lake.main.v", NAN) == 2


@needs("ducklake")
def test_a_column_that_became_wider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FLOAT that is DOUBLE now is read as 0.10000000149. The lists of files say 0.1."""
    with open_lake(tmp_path, monkeypatch) as made:
        rows_of = f"SELECT {MANY}, (CASE WHEN range < 50 THEN 0.1 ELSE 0.05 END)::FLOAT AS x FROM range(60)"
        made.connection.execute(f"CREATE TABLE lake.main.v AS {rows_of}")
        made.connection.execute("ALTER TABLE lake.main.v ALTER COLUMN x SET DATA TYPE DOUBLE")
        assert require_sums(made, "lake.main.v", WIDER) == 2


@needs("ducklake")
@pytest.mark.parametrize("case", [test_zeros_with_a_sign, test_numbers_that_are_none, test_a_column_that_became_wider])
def test_what_a_scan_leaves_out_is_found(
    case: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the three faults is found where DuckDB is given conditions again."""
    plain_again(monkeypatch)
    kind = () if case is test_a_column_that_became_wider else ("DOUBLE",)
    with pytest.raises(AssertionError, match="WHERE x"):
        case(*kind, tmp_path, monkeypatch)


def random_sums(made: Counted, table: str, conditions: Conditions, statements: int) -> int:
    """Asks random conditions, eight a statement. Returns how many jobs were counted."""
    for _ in range(statements):
        branches = [f"SELECT patient FROM {table} WHERE {conditions.one()}" for _ in range(8)]
        made.ask(f"count(*) FROM ({' UNION ALL '.join(branches)})")
    return made.counted


@needs("ducklake")
@pytest.mark.parametrize("added", [False, True], ids=["as DuckLake writes them", "of another program"])
@pytest.mark.parametrize("statements", [3, pytest.param(40, marks=pytest.mark.audit)])
def test_random_conditions_on_files(
    added: bool, statements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with constant or NULL columns. The long form takes a fresh seed, which is printed."""
    seed = "files" if statements == 3 else operating_system_entropy().bytes(4).hex()
    print("seed:", seed)  # noqa: T201
    source = random.Random(seed)  # noqa: S311
    with open_lake(tmp_path, monkeypatch) as made:
        con = made.connection
        con.execute(f"CREATE TABLE written AS {rows_sql(source, rows=300)}")
        con.execute("CREATE TABLE lake.main.v AS FROM written LIMIT 0")
        for number in range(5):
            part = con.execute("FROM written OFFSET ? LIMIT 300", [number * 300]).to_arrow_table()
            if added:
                pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=100)
                con.execute(f"CALL ducklake_add_data_files('lake', 'v', '{tmp_path}/{number}.parquet')")
            else:
                con.register("part", part)
                con.execute("INSERT INTO lake.main.v FROM part")
                con.unregister("part")
        con.execute(in_dp(f"CREATE PRIVACY POLICY ON lake.main.v ({UNIT})")).fetchall()
        assert random_sums(made, "lake.main.v", Conditions(source), statements) == statements


@needs("postgres_scanner")
@pytest.mark.parametrize("statements", [3, pytest.param(40, marks=pytest.mark.audit)])
def test_random_conditions_in_postgres(statements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random conditions over a table of PostgreSQL: counts are the sums of each unit's alone."""
    seed = "postgres" if statements == 3 else operating_system_entropy().bytes(4).hex()
    print("seed:", seed)  # noqa: T201
    source = random.Random(seed)  # noqa: S311
    kept = {name: kind for name, kind in COLUMNS.items() if kind not in ("TINYINT", "UBIGINT", "VARCHAR")}
    made = Counted(dpduck.connect())
    with postgres_server() as uri:
        load_extension(made.connection, "postgres_scanner", "")
        made.connection.execute(f"ATTACH '{uri}' AS pg (TYPE postgres)")
        rows_there = rows_sql(source, kept, 200).replace("5881580-07-10", "5874897-12-31")  # PostgreSQL's last day
        made.connection.execute(f"CREATE TABLE pg.public.v AS {rows_there}")
        made.connection.execute(in_dp(f"CREATE PRIVACY POLICY ON pg.public.v ({UNIT})")).fetchall()
        compare(made.found, monkeypatch)
        assert random_sums(made, "pg.public.v", Conditions(source, kept), statements) == statements
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["patient_id MAX ROWS 3", "ROW"])
def test_statements_in_an_engine(unit: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form of statement, over rows of a few units: one unit has NULL in every column, and one constant rows."""
    lake.public("wards", "FROM (VALUES ('north'), ('south'), ('west'), ('nörth')) AS t(name)")
    lake.put(3, visits=laid(rows(600)), files=2)
    lake.dp(POLICY.format(unit=unit))
    made = Counted(lake.con, lake.here)
    compare(made.found, monkeypatch)
    for title, statement in STATEMENTS.items():
        if unit != "ROW" or title not in OF_PEOPLE:
            made.run(in_dp(statement))
    assert made.counted >= len(STATEMENTS) - (len(OF_PEOPLE) if unit == "ROW" else 2)
    made.found.close()


@pytest.mark.slow
@pytest.mark.parametrize("statements", [2, pytest.param(12, marks=pytest.mark.audit)])
def test_random_conditions_in_an_engine(statements: int, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task lays rows out as a table of DuckDB's own where a worker computes a part of a branch."""
    seed = "engine" if statements == 2 else operating_system_entropy().bytes(4).hex()
    print("seed:", seed)  # noqa: T201
    source = random.Random(seed)  # noqa: S311
    kept = {name: kind for name, kind in COLUMNS.items() if kind != "UBIGINT"}
    lake.put(2, visits=duckdb.execute(rows_sql(source, kept, 100)).to_arrow_table(), files=2)
    lake.dp(f"CREATE PRIVACY POLICY ON lake.db.visits ({UNIT.replace('100000,', '30,')})")
    made = Counted(lake.con, lake.here)
    compare(made.found, monkeypatch)
    conditions = Conditions(source, kept)
    for _ in range(statements):
        plain = [f"SELECT patient FROM lake.db.visits WHERE {conditions.one()}" for _ in range(6)]
        computed = [f"{branch} AND upper(note) IS DISTINCT FROM 'B'" for branch in plain]
        made.ask(f"count(*) FROM ({' UNION ALL '.join(plain)})")
        made.ask(f"count(*) FROM ({' UNION ALL '.join(computed)})")
    assert made.counted == 2 * statements
    made.found.close()


def laid(table: pa.Table) -> pa.Table:
    """Rows of three patients: one has NULL in every column, one the same row again and again."""
    names = [name for name in table.column_names if name != "patient_id"]
    listed = ", ".join(
        f"CASE p WHEN 0 THEN NULL WHEN 1 THEN first({n}) OVER (PARTITION BY p) ELSE {n} END AS {n}" for n in names
    )
    found = duckdb.execute(
        f'SELECT p AS patient_id, {listed} FROM (SELECT (patient_id % 3)::BIGINT AS p, * FROM "table" '
        "WHERE patient_id IS NOT NULL LIMIT 120)"
    )
    return found.to_arrow_table()
