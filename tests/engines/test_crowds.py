"""A unit with very many rows goes to a task as its first rows alone, and decides nothing about anybody else's."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dpduck.database.functions import database_of
from dpduck.engines import spark
from dpduck.kernel.places import orders
from dpduck.kernel.places.orders import CROWD, Order, Sent, cut_task, first_rows, made_task, read_bytes
from dpduck.kernel.rows import bounding
from dpduck.kernel.rows.bounding import bound_rows_sql, key_integer
from dpduck.kernel.stage import cut_sql
from dpduck.kernel.worker.answered import Asking
from dpduck.kernel.worker.workers import Workers
from tests.engines.conftest import Lake

MANY = CROWD + 5000
TABLE = Sent(("lake", "db", "of_crowds"), (("unit", "BIGINT"), ("text", "VARCHAR"), ("real", "DOUBLE")), unit="unit")
ORDER = Order((TABLE,), (), Asking("SELECT 1"), "SELECT 1", {}, "", 0, key=2**64 - 3)


def crowd(rows: int = MANY, others: int = 50) -> pa.Table:
    """One unit with very many rows, some differing only in the sign of 0, and others with twenty each."""
    units = [7] * rows + [100 + number % others for number in range(20 * others)]
    reals = [(0.0, -0.0, 1.5, float("nan"), None)[number % 5] for number in range(len(units))]
    texts = [None if number % 11 == 0 else f"t{number % 3000}" for number in range(len(units))]
    return pa.table({"unit": units, "text": texts, "real": pa.array(reals, pa.float64())})


def shown(rows: pa.Table) -> list[str]:
    return sorted(map(repr, zip(*(column.to_pylist() for column in rows.columns), strict=True)))


def test_the_first_rows_of_a_unit() -> None:
    """The first rows are as SQL ranks them, also from parts, in any order, without other units. Few rows all stay."""
    whole = crowd()
    found = first_rows(ORDER, TABLE, whole)
    with duckdb.connect() as con:
        con.register("given", whole.append_column("place", pa.array(range(whole.num_rows))))
        window = "row_number() OVER (PARTITION BY unit ORDER BY hash(18446744073709551613::UBIGINT, unit, text, real), "
        sql = f"SELECT place FROM given QUALIFY {window} unit, text, real, signbit(real)) <= {CROWD}"
        assert shown(found) == shown(whole.take(con.sql(sql).to_arrow_table()["place"]))
    turned = whole.take(pa.array(range(whole.num_rows - 1, -1, -1)))
    pieces = [turned.slice(start, 18_000) for start in range(0, whole.num_rows, 18_000)]
    parts = pa.concat_tables(first_rows(ORDER, TABLE, piece) for piece in pieces)
    assert shown(first_rows(ORDER, TABLE, parts)) == shown(found)
    alone = whole.filter(pc.equal(whole["unit"], 7))
    assert shown(first_rows(ORDER, TABLE, alone)) == shown(found.filter(pc.equal(found["unit"], 7)))
    assert first_rows(replace(ORDER, key=None), TABLE, whole) is whole


def test_what_a_task_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of a unit than its first rows, however many parts there are. All that others have."""
    monkeypatch.setattr(orders, "PART", 1 << 15)
    whole = crowd(100_000)
    batches = whole.rename_columns(["dpduck_0_0", "dpduck_0_1", "dpduck_0_2"]).to_batches(max_chunksize=8192)
    sent = pa.Table.from_batches(list(cut_task(ORDER.plain(), batches, Workers())))
    assert pc.sum(pc.equal(sent["dpduck_0_0"], 7)).as_py() == CROWD
    assert shown(sent) == shown(first_rows(ORDER, TABLE, whole))


def test_what_a_task_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit with very many rows keeps only the first rows of each part, others keep every row. Each bucket's rows are
    in bundles of no more than their bytes.
    """
    monkeypatch.setattr(orders, "PART", 1 << 15)
    monkeypatch.setattr(orders, "BUNDLE", 1 << 12)
    given = crowd(100_000).rename_columns(["dpduck_0_0", "dpduck_0_1", "dpduck_0_2"])
    rows_sql = (
        f"SELECT ifnull(strlen(text), 9) AS cell, hash(text, real) AS {bounding.ORDER}, "
        f"unit AS {bounding.UNIT} FROM {TABLE.sql}"
    )
    made_sql, _ = cut_sql(rows_sql, {"cell": 5}, (), 40)
    _, kept_sql = cut_sql("FROM made.main.rows", {"cell": 5}, (), 40)
    alike = f"hash({bounding.UNIT}) % {orders.GROUPS}"
    columns = f"*, CAST({alike} AS INTEGER) AS {orders.ALIKE}, CAST({alike} % 7 AS BIGINT) AS {orders.BUCKET}"
    types = (("cell", "BIGINT"), (bounding.UNIT, "BIGINT"), (bounding.ORDER, "UBIGINT"))
    made = Sent(("made", "main", "rows"), types)
    crowds = Order((made,), (), Asking("FROM made.main.rows"), f"SELECT {columns} FROM ({kept_sql})", {}, "", 0)
    order = Order((TABLE,), (), Asking(rows_sql), f"SELECT {columns} FROM ({made_sql})", {}, "", 0, crowds=crowds)
    found = list(made_task(order.plain(), given.to_batches(max_chunksize=8192), Workers()))
    bundles = [(one[orders.BUCKET][0].as_py(), read_bytes(one[orders.PARTIAL][0].as_buffer())) for one in found]
    assert max(rows.nbytes for _, rows in bundles) <= orders.BUNDLE
    buckets = {unit: bucket for bucket, rows in bundles for unit in rows[bounding.UNIT].to_pylist()}
    whole = pa.concat_tables(rows for _, rows in bundles)
    assert all(buckets[unit] == bucket for bucket, rows in bundles for unit in rows[bounding.UNIT].to_pylist())
    parts = -(-given.num_rows // orders.PART)
    counted = dict(zip(*(column.to_pylist() for column in whole[bounding.UNIT].value_counts().flatten()), strict=True))
    assert counted.pop(7) <= parts * orders.CROWDED
    assert counted == dict.fromkeys(range(100, 150), 20)
    with duckdb.connect() as con:
        con.register("found", whole)
        con.register("given", given.rename_columns(["unit", "text", "real"]))
        asked = bound_rows_sql("FROM rows WHERE cell BETWEEN 0 AND 4", ["cell", bounding.UNIT], 40)
        con.execute(f"CREATE TABLE rows AS {rows_sql.replace(TABLE.sql, 'given')}")
        expected = con.sql(asked).fetchall()
        con.execute("CREATE OR REPLACE TABLE rows AS FROM found")
        assert sorted(con.sql(asked).fetchall()) == sorted(expected)


def test_bundles_are_no_larger_where_rows_differ() -> None:
    """One unit's long texts, in one bucket, make more bundles and no larger ones. Every row is in a bundle."""
    texts = ["short"] * 5000 + ["x" * 65_535] * 100
    rows = pa.table({"text": texts, "row": range(5100), orders.BUCKET: [n % 3 for n in range(5000)] + [1] * 100})
    found = list(orders.bundles(rows))
    assert max(bundle.nbytes for _, bundle in found) <= orders.BUNDLE
    assert sorted((n, bucket) for bucket, one in found for n in one["row"].to_pylist()) == sorted(
        zip(range(5100), rows[orders.BUCKET].to_pylist(), strict=True)
    )


POLICY = (
    "CREATE PRIVACY POLICY ON {} (PRIVACY UNIT {} MAX ROWS 40, BUDGET (epsilon = 1000), DOMAIN kind IN (0, 1, 2, 3))"
)
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, count(*) FROM {} GROUP BY kind"
JOIN = ASK.format("lake.db.lines JOIN (SELECT id FROM lake.db.people) ON id = person WHERE more % 7 > 2")
UNION = ASK.format("(SELECT kind FROM lake.db.lines WHERE more % 7 > 2 UNION ALL SELECT kind FROM lake.db.people)")
COUNTED = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) n, count(*) FROM (SELECT person, count(*) AS n "
    "FROM lake.db.lines GROUP BY person) GROUP BY n"
)


@pytest.mark.slow
def test_a_crowd_in_joins_and_unions(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join of the unit's first rows counts as DuckDB counts. A UNION ALL need not leave out rows.

    The rows of a UNION ALL go to tasks as a few integers for each unit, so their number does not matter.
    """
    people = [1, *range(100, 150)]
    owners = [1] * MANY + [100 + number % 50 for number in range(1000)]
    kinds, more = [number % 4 for number in range(len(owners))], list(range(len(owners)))
    lines = pa.table({"person": owners, "kind": pa.array(kinds, pa.int32()), "more": more})
    lake.put(3, people=pa.table({"id": people, "kind": pa.array([0] * 51, pa.int32())}), lines=lines)
    lake.dp(POLICY.format("lake.db.people", "id"))
    lake.dp(POLICY.format("lake.db.lines", "person REFERENCES lake.db.people.id"))
    asked, carry = list[Order](), spark.SparkEngine.carry

    def noted(engine: object, places: object, buckets: int, order: Order) -> object:
        asked.append(order)
        return carry(engine, places, buckets, order)  # type: ignore[arg-type]

    monkeypatch.setattr(spark.SparkEngine, "carry", noted)
    lake.same(UNION)
    assert asked[-1].before is not None and asked[-1].key is None
    loaded = database_of(lake.con)
    assert loaded is not None
    # the columns that the statement names, in the order of the table
    sent = Sent(("lake", "db", "lines"), (("person", "BIGINT"), ("kind", "INTEGER"), ("more", "BIGINT")), unit="person")
    order = replace(ORDER, key=key_integer(loaded.ledger.bounding_key))
    lake.here.register("first_of_lines", first_rows(order, sent, lines))
    lake.here.execute("DELETE FROM lake.db.lines; INSERT INTO lake.db.lines FROM first_of_lines")
    for statement in (JOIN, COUNTED):
        lake.same(statement)
        assert asked[-1].before is None and asked[-1].key == order.key
