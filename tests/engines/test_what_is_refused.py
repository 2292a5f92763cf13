"""Engine tables that could be read as something else are refused. No stand-in is counted in place of the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.engines import spark
from dpduck.engines.spark import SparkEngine
from dpduck.engines.tables import EngineTables
from dpduck.kernel.places.orders import BUCKET
from dpduck.kernel.rows import reader
from dpduck.values.errors import InternalError, Refusal
from tests.engines.conftest import Lake
from tests.support.engine_servers import Server

ROWS = pa.table({"unit": [1, 2, 3], "kind": [0, 1, 1]})
POLICY = "CREATE PRIVACY POLICY ON {} (PRIVACY UNIT unit MAX ROWS 2, BUDGET (epsilon = 10), DOMAIN kind IN (0, 1))"
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, count(*) FROM {} GROUP BY kind"


def engines(lake: Lake) -> EngineTables:
    loaded = database_of(lake.con)
    assert loaded is not None
    return loaded.engines


def spent(lake: Lake) -> int:
    return len(lake.con.execute("FROM dp_ledger() WHERE rho > 0").fetchall())


def test_what_is_no_table(server: Server) -> None:
    """Views, temporary views, names of one part, and missing tables."""
    engine = SparkEngine(server.session)
    server.put("plain", ROWS)
    server.session.sql("CREATE VIEW db.seen AS SELECT * FROM db.plain").collect()
    server.session.table("db.plain").createOrReplaceTempView("passing")
    assert engine.describe("db.plain").columns == (("unit", "BIGINT"), ("kind", "BIGINT"))
    for name in ("db.seen", "passing", "db.nothing", "db.plain; DROP TABLE db.plain"):
        with pytest.raises(Refusal, match="accepted: a table with rows of its own"):
            engine.describe(name)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), "timestamp"),
        (pa.array([b"x"], pa.binary()), "binary"),
        (pa.array([[1]], pa.list_(pa.int64())), "array"),
        (pa.array([{"a": 1}], pa.struct([("a", pa.int64())])), "struct"),
    ],
)
def test_what_does_not_travel(server: Server, values: pa.Array, said: str) -> None:
    """Columns of other types are refused by name."""
    there = server.put(f"of_{said}", pa.table({"unit": [1], "odd": values}), 1)
    with pytest.raises(Refusal, match=f"odd is {said}, a type that is not supported"):
        SparkEngine(server.session).describe(there)


class Catalog:
    def getTable(self, name: str) -> Any:  # noqa: N802
        return SimpleNamespace(tableType="MANAGED", isTemporary=False)


def pretending(facts: dict[str, str], fields: list[Any] | None = None) -> SparkEngine:
    """An engine that reports this for every table."""
    table = SimpleNamespace(schema=SimpleNamespace(fields=fields or []))
    session = SimpleNamespace(
        catalog=Catalog(),
        table=lambda name: table,
        sql=lambda text: SimpleNamespace(collect=lambda: [("7f",)] if "DETAIL" in text else list(facts.items())),
    )
    return SparkEngine(session)


def test_row_filters_masks_and_padded_texts() -> None:
    """Tables with rows that depend on the reader are refused, as is char(n), which ignores trailing blanks."""
    for fact in ("# Row Filter", "Column Masks"):
        with pytest.raises(Refusal, match="row filters or masks"):
            pretending({fact: "", "Location": "s3://x"}).describe("db.t")
    padded = SimpleNamespace(name="c", dataType=SimpleNamespace(simpleString=lambda: "string"),
                             metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})  # fmt: skip
    with pytest.raises(Refusal, match="c is char"):
        pretending({"Location": "s3://x"}, [padded]).describe("db.t")


def test_what_tells_tables_apart() -> None:
    """Delta's id, Iceberg's uuid, else where the files lie. A table without any identity is refused."""
    iceberg = {"Table Properties": "[format=parquet,uuid=9c12d441-03fe-4693-9a96-a0705ddf69c1]"}
    assert pretending(iceberg).describe("db.t").identity == "iceberg 9c12d441-03fe-4693-9a96-a0705ddf69c1"
    assert pretending({"Provider": "delta", "Location": "s3://x"}).describe("db.t").identity == "delta 7f"
    assert pretending({"Location": "file:///a/b/"}).describe("db.t").identity == "location /a/b"
    with pytest.raises(Refusal, match="does not say where"):
        pretending({}).describe("db.t")


def test_one_table_has_one_budget(lake: Lake) -> None:
    """The same files under two names have one policy. Their owner may not spend a second budget on them."""
    lake.put(1, once=ROWS)
    place = next(lake.server.folder.glob("once_*"))
    lake.server.session.sql(f"CREATE TABLE db.again USING parquet LOCATION 'file://{place}'").collect()
    dpduck.attach_spark(lake.con, lake.server.session, name="other", tables=["db.again"])
    lake.dp(POLICY.format("lake.db.once"))
    assert "other.db.again is lake.db.once, which has or had a policy" in lake.refused(POLICY.format("other.db.again"))
    lake.dp("DROP PRIVACY POLICY ON lake.db.once")
    assert "had a policy" in lake.refused(POLICY.format("other.db.again"))


def test_units_keys_and_statements(lake: Lake) -> None:
    """Units of doubles, references to keys, public and prepared stand-ins, and tables of two places are refused."""
    rows = ROWS.append_column("real", pa.array([0.5] * 3)).append_column("exact", pa.array([Decimal("1.5")] * 3))
    lake.put(1, first=rows, second=rows)
    lake.con.execute("CREATE TABLE here AS SELECT 1 AS unit, 1 AS kind")
    assert "no privacy unit in an engine" in lake.refused(
        POLICY.format("lake.db.first").replace("unit MAX", "real MAX")
    )
    for table in ("lake.db.first", "here"):
        lake.dp(POLICY.format(table))
    through = "CREATE PRIVACY POLICY ON lake.db.second (PRIVACY UNIT kind REFERENCES lake.db.first.kind MAX ROWS 1)"
    assert "is not a key" in lake.refused(through)
    assert "cannot be declared public" in lake.refused("DECLARE PUBLIC TABLE lake.db.second")
    assert "not of one engine" in lake.refused("ALTER PRIVACY POLICY ON lake.db.first, here PREPARE")
    both = ASK.format("(SELECT kind FROM lake.db.first UNION ALL SELECT kind FROM here)")
    assert lake.refused(both) and not spent(lake)


def test_a_table_that_changed(lake: Lake) -> None:
    """Other columns than when it was attached, or another place: refused before the charge."""
    lake.put(1, moving=ROWS)
    lake.dp(POLICY.format("lake.db.moving"))
    lake.server.session.sql("DROP TABLE db.moving").collect()
    lake.server.put("moved", ROWS.append_column("more", pa.array([1] * 3)))
    place = next(lake.server.folder.glob("moved_*"))
    lake.server.session.sql(f"CREATE TABLE db.moving USING parquet LOCATION 'file://{place}'").collect()
    assert "lake.db.moving changed in its engine" in lake.refused(ASK.format("lake.db.moving"))
    with duckdb.connect() as _, pytest.raises(Refusal, match="has a policy, of another table"):
        engines(lake).attach("lake", SparkEngine(lake.server.session), ["db.moving"], 1)
    assert not spent(lake)


READINGS: tuple[Callable[[duckdb.DuckDBPyConnection, str], object], ...] = (
    lambda cursor, sql: reader.columns(cursor, sql, {}),
    lambda cursor, sql: list(reader.batches(cursor, sql, {}, 10)),
    lambda cursor, sql: reader.record_batches(cursor, sql, {}, 10),
    lambda cursor, sql: reader.run(cursor, f"CREATE TEMP TABLE kept AS {sql}"),
)


@pytest.mark.parametrize("reading", READINGS)
def test_no_reader_reads_a_stand_in(lake: Lake, reading: Callable[[duckdb.DuckDBPyConnection, str], object]) -> None:
    """The rows are elsewhere: any reader of the stand-in here fails, whoever asks."""
    lake.con.execute('ATTACH \':memory:\' AS "La""ke"; CREATE SCHEMA "La""ke".dpduck_twins')
    lake.con.execute('CREATE TABLE "La""ke".main.visits AS SELECT 1 AS unit')
    for name in ('"La""ke"."main"."visits"', '"LA""KE"."main"."visits"'):
        with lake.con.cursor() as cursor, pytest.raises(InternalError, match="not counted here"):
            reading(cursor, f"SELECT * FROM {name}")


def test_without_its_engine_nothing_is_counted(lake: Lake) -> None:
    """A stand-in without its engine is refused. Even without this check, its empty rows are not counted."""
    lake.put(1, gone=ROWS)
    lake.dp(POLICY.format("lake.db.gone"))
    known = engines(lake)
    known._engines.clear()
    assert "the engine 'lake' is not attached" in lake.refused(ASK.format("lake.db.gone"))
    with pytest.raises(duckdb.Error, match="is not attached"):
        lake.con.execute("FROM dp_check('lake.db.gone')").fetchall()
    assert not spent(lake)
    lake.con.execute("DELETE FROM private.dpduck.engine_tables")
    known._held = None
    assert "the charge stays, nothing was released" in lake.refused(ASK.format("lake.db.gone"))
    with pytest.raises(duckdb.Error):
        lake.con.execute("FROM dp_check('lake.db.gone')").fetchall()


def test_norms_of_a_statement_are_not_looked_for_in_an_engine(lake: Lake) -> None:
    """dp_check of a statement reads a row for each unit: units do not travel. Its refusal is one line."""
    lake.put(1, weighed=ROWS)
    lake.dp(POLICY.format("lake.db.weighed"))
    with pytest.raises(duckdb.Error, match="dp_check of a statement does not look into an engine's tables; accepted: "):
        lake.con.execute("FROM dp_check('lake.db.weighed', ?)", [ASK.format("lake.db.weighed")]).fetchall()
    assert not spent(lake)


def test_names_in_full_where_last_parts_coincide(lake: Lake) -> None:
    """dp_budget tells tables of one name apart."""
    lake.put(1, twice=ROWS)
    lake.con.execute("CREATE TABLE twice AS SELECT 1 AS unit, 1 AS kind")
    for table in ("twice", "lake.db.twice"):
        lake.dp(POLICY.format(table))
    names = [row[0] for row in lake.con.execute("FROM dp_budget()").fetchall()]
    assert sorted(names) == ["lake.db.twice", "memory.main.twice"]


def test_an_engine_that_fails_the_probe(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that hands parts of units to its tasks is not attached: it would count a unit too often."""
    whole = spark._whole

    def scattered(named: Any, buckets: int) -> Any:
        frame = whole(named, buckets)
        return frame.withColumn(BUCKET, frame.dpduck_0_0 * 0 + frame.dpduck_0_1)

    monkeypatch.setattr(spark, "_whole", scattered)
    with dpduck.connect() as con, pytest.raises(Refusal, match="does not count whole units"):
        dpduck.attach_spark(con, server.session, name="lake", tables=["db.nothing"])


def test_a_public_table_that_became_an_engines(lake: Lake) -> None:
    """A table declared in a DuckDB of that name has a stand-in. Reading that is refused unpaid."""
    lake.con.execute(
        "ATTACH ':memory:' AS lake; CREATE SCHEMA lake.db; CREATE TABLE visits AS SELECT 1 AS unit, 1 AS k"
    )
    lake.con.execute("CREATE TABLE lake.db.kinds AS SELECT 1::BIGINT AS unit, 1::BIGINT AS kind")
    lake.dp("DECLARE PUBLIC TABLE lake.db.kinds")
    lake.dp(POLICY.format("visits").replace("DOMAIN kind", "DOMAIN k"))
    asked = ASK.format("visits JOIN lake.db.kinds AS p ON k = p.kind WHERE k = 1").replace(" kind, ", " k, ")
    asked = asked.replace("BY kind", "BY k")
    lake.dp(asked)
    assert spent(lake) == 1
    lake.con.execute("DETACH lake")
    lake.put(1, kinds=ROWS)
    assert "lake.db.kinds is an engine's table" in lake.refused(asked.replace("k = 1", "k = 0"))
    assert spent(lake) == 1
