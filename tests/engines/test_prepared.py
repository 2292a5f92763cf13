"""Prepared tables of an engine: packed as whole units, counted the same, anew with each epoch, never another's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.database.functions import database_of
from dpduck.engines import pieces as packed_pieces
from dpduck.engines.pieces import PIECE, bundle_task, pack_task, packing, rows_name
from dpduck.engines.prepared import PreparedThere
from dpduck.engines.spark import SparkEngine
from dpduck.kernel.places.orders import BUCKET, CROWD, Sent, column_name
from dpduck.kernel.worker.workers import Workers
from tests.engines.conftest import Lake
from tests.engines.corpus import POLICY, STATEMENTS, rows

PLAIN = (
    "CREATE PRIVACY POLICY ON lake.db.{} (PRIVACY UNIT unit{} MAX ROWS 2, BUDGET (epsilon = 100), "
    "DOMAIN kind IN ('a', 'b'))"
)
ASK = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{}') kind, count(*) FROM lake.db.{} "
    "GROUP BY kind"
)
JOINED = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) v.kind, count(*) FROM lake.db.{} v JOIN lake.db.{} w "
    "ON v.unit = w.unit GROUP BY v.kind"
)
BOTH = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{2}') kind, count(*) FROM (SELECT unit, kind "
    "FROM lake.db.{0} UNION ALL SELECT unit, kind FROM lake.db.{1}) GROUP BY kind"
)


def plain(count: int = 2000, units: int = 300) -> pa.Table:
    kinds = pa.array(("ab"[n % 3 % 2] for n in range(count)), pa.string())
    return pa.table({"unit": pa.array((n % units for n in range(count)), pa.int64()), "kind": kinds})


def prepare(lake: Lake, *tables: str) -> str:
    return str(lake.dp(f"ALTER PRIVACY POLICY ON {', '.join(f'lake.db.{one}' for one in tables)} PREPARE")[0][0])


def packs(lake: Lake) -> PreparedThere:
    loaded = database_of(lake.con)
    assert loaded is not None
    return loaded.engines.prepared


def spent(lake: Lake, table: str) -> float:
    row = lake.con.execute("SELECT spent FROM dp_budget() WHERE table_name = ?", [table]).fetchone()
    return 0.0 if row is None else float(row[0])


def there(lake: Lake) -> list[str]:
    """The packed tables that the engine has."""
    tables = lake.server.session.sql("SHOW TABLES IN db").collect()
    return [str(row.tableName) for row in tables if "dpduck_packed" in row.tableName]


@pytest.fixture
def pond(lake: Lake) -> Lake:
    """A Lake. Its engine has no packs of other tests."""
    for name in there(lake):
        lake.server.session.sql(f"DROP TABLE db.{name}").collect()
    return lake


@pytest.mark.slow
def test_every_form_of_statement(lake: Lake) -> None:
    """Packed rows count as in DuckDB: awkward values, joins, keys, sums, synthetic data."""
    lake.public("wards", "FROM (VALUES ('north'), ('south'), ('west'), ('nörth')) AS t(name)")
    lake.put(2, visits=rows(1500), files=2)
    lake.dp(POLICY.format(unit="patient_id MAX ROWS 3"))
    prepare(lake, "visits")
    found = {title: lake.same(statement) for title, statement in STATEMENTS.items()}
    assert all(found.values()), "each counts something"
    findings = {row[0]: row[1] for row in lake.con.execute("FROM dp_check('lake.db.visits')").fetchall()}
    assert findings["rows"] == findings["rows that were prepared"] == 1500


def test_an_epoch_keeps_its_rows(pond: Lake) -> None:
    """New rows are counted from the next epoch on, or when the table is no longer prepared. The old pack is deleted."""
    pond.put(3, kept=plain(), more=plain(500, 77))
    pond.dp(PLAIN.format("kept", ""))
    said = prepare(pond, "kept")
    assert said.startswith("lake.db.kept is prepared: new questions are about its rows of ")
    assert prepare(pond, "kept") == said, "the same, asked again"
    first = there(pond)
    assert len(first) == 1
    pond.server.session.table("db.more").write.insertInto("db.kept")
    before = pond.same(ASK.format(1, "kept"))
    listed = pond.con.execute("SELECT prepared_at IS NOT NULL FROM dp_policies() WHERE table_name = 'lake.db.kept'")
    assert listed.fetchone() == (True,)
    moved = pond.con.execute(
        "SELECT value FROM dp_check('lake.db.kept') WHERE finding IN ('rows', 'rows that were prepared')"
    )
    assert moved.fetchall() == [(2500.0,), (2000.0,)]
    pond.here.execute("INSERT INTO lake.db.kept FROM lake.db.more")
    assert "is prepared" in str(pond.dp("ALTER PRIVACY POLICY ON lake.db.kept NEW EPOCH"))
    second = there(pond)
    assert len(second) == 1 and second != first
    assert pond.same(ASK.format(2, "kept")) != before
    assert "is not prepared" in str(pond.dp("ALTER PRIVACY POLICY ON lake.db.kept UNPREPARE"))
    assert there(pond) == []
    assert pond.same(ASK.format(3, "kept"))


def test_tables_of_one_moment(pond: Lake) -> None:
    """Tables that share their units lie in one pack, and are joined there. One alone is refused beside another."""
    pond.put(3, ones=plain(), twos=plain(900, 200))
    pond.dp(PLAIN.format("ones", ""))
    pond.dp(PLAIN.format("twos", " REFERENCES lake.db.ones.unit"))
    prepare(pond, "twos")
    assert "not of one moment" in pond.refused(JOINED.format("ones", "twos"))
    prepare(pond, "ones")
    assert len(there(pond)) == 1
    assert pond.same(JOINED.format("ones", "twos"))
    assert pond.same(BOTH.format("ones", "twos", 1))
    pond.dp("DROP PRIVACY POLICY ON lake.db.twos")
    assert there(pond) == [] and packs(pond).at() == {}


@pytest.mark.parametrize("left", ["nothing", "another", "less", "twice"])
def test_what_is_not_there_any_more_is_refused(pond: Lake, left: str) -> None:
    """A missing pack, another one under its name, a piece less or twice: all refused before the charge."""
    gone = f"gone_{left}"
    pond.put(3, **{gone: plain(), f"other_{left}": plain(900, 200)})
    for table in (gone, f"other_{left}"):
        pond.dp(PLAIN.format(table, ""))
        prepare(pond, table)
    names = {one.tables[0].rpartition(".")[2].strip('"'): one.packed.there for one in packs(pond)._packs}
    rows, other = (pond.server.session.table(names[table]) for table in (gone, f"other_{left}"))
    kept = {"another": other, "less": rows.where("dpduck_bucket <> 1"), "twice": rows.unionByName(rows)}.get(left)
    if kept is not None:
        kept.write.saveAsTable(f"db.kept_{left}")
    pond.server.session.sql(f"DROP TABLE {names[gone]}").collect()
    if kept is not None:
        pond.server.session.table(f"db.kept_{left}").write.saveAsTable(names[gone])
    assert "changed since then" in pond.refused(ASK.format(1, gone))
    assert spent(pond, gone) == 0
    prepare(pond, gone)
    assert pond.same(ASK.format(1, gone)) and pond.same(ASK.format(1, f"other_{left}"))
    assert len(there(pond)) == 2


@pytest.mark.parametrize("rows", [plain(0), pa.table({"unit": pa.nulls(9, pa.int64()), "kind": ["a"] * 9}), plain(1)])
def test_few_rows(pond: Lake, rows: pa.Table) -> None:
    """No rows, none that has a unit, and a single one are prepared and counted: no row decides whether that fails."""
    few = f"few_{rows.num_rows}"
    pond.put(3, **{few: rows})
    pond.dp(PLAIN.format(few, ""))
    prepare(pond, few)
    pond.same(ASK.format(1, few))
    found = {row[0]: row[1] for row in pond.con.execute(f"FROM dp_check('lake.db.{few}')").fetchall()}
    assert found["rows"] == found["rows that were prepared"] == rows.num_rows


def test_releases_of_one_epoch_are_known_together(pond: Lake) -> None:
    """Two releases about the same packed rows are combined, as for prepared tables here. Others are not."""
    pond.put(3, known=plain())
    pond.dp(PLAIN.format("known", ""))
    question = "SELECT kind, count(*) AS n FROM lake.db.known GROUP BY kind"

    def error() -> float:
        row = pond.con.execute("SELECT stderr FROM dp_known(?)", [question]).fetchone()
        assert row is not None
        return float(row[0])

    for tag in (1, 2):
        pond.same(ASK.format(tag, "known"))
    alone = error()
    prepare(pond, "known")
    pond.same(ASK.format(3, "known"))
    assert error() == pytest.approx(alone)
    pond.same(ASK.format(4, "known"))
    assert error() == pytest.approx(alone / 2**0.5)


@pytest.mark.parametrize("told", ["twice", "less", "of another"])
def test_each_piece_is_counted_once(pond: Lake, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    """If a piece comes twice, is missing or is of another pack, the statement fails, and stays paid."""
    pond.put(3, pieces=plain())
    pond.dp(PLAIN.format("pieces", ""))
    prepare(pond, "pieces")
    said = SparkEngine._fetch_results

    def changed(self: SparkEngine, found: Any) -> Any:
        every = [tuple(one) for one in said(self, found)]
        (name, body), others = every[0], every[1:]
        if told == "of another":
            name = " ".join("0" * 32 + one[32:] for one in str(name).split())
        return [*others, *{"twice": [every[0], every[0]], "less": [], "of another": [(name, body)]}[told]]

    monkeypatch.setattr(SparkEngine, "_fetch_results", changed)
    assert "failed after its charge" in pond.refused(ASK.format(1, "pieces"))
    assert spent(pond, "pieces") > 0


def test_a_pack_that_is_not_finished(pond: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where writing fails, the table stays as before, the engine's message is not shown, and remains are deleted."""
    pond.put(3, unfinished=plain())
    pond.dp(PLAIN.format("unfinished", ""))
    pack = SparkEngine.pack

    def failing(self: SparkEngine, *given: Any) -> Any:
        pack(self, *given)
        raise ValueError("canary")

    def nothing(self: SparkEngine, name: str) -> None:
        raise ValueError("canary")

    monkeypatch.setattr(SparkEngine, "pack", failing)
    monkeypatch.setattr(SparkEngine, "unpack", nothing)
    refused = pond.refused("ALTER PRIVACY POLICY ON lake.db.unfinished PREPARE")
    assert "cannot be prepared" in refused and "canary" not in refused
    monkeypatch.undo()
    assert len(there(pond)) == 1 and packs(pond).at() == {}
    packs(pond).clear("lake")
    assert there(pond) == []


UNITS = st.lists(st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(-3, 12))), max_size=200)
SENT = (Sent(("a",), (("unit", "INTEGER"), ("text", "VARCHAR")), unit="unit"),
        Sent(("b",), (("more", "DOUBLE"), ("unit", "BIGINT")), unit="unit"))  # fmt: skip
Members = Sequence[tuple[int, int | None]]


def packed(members: Members, parts: int = 2) -> list[dict[str, Any]]:
    """Returns the pieces of two tables, in parts, as an engine makes them."""
    bundles = list[pa.RecordBatch]()
    for number in (0, 1):
        rows = [(place, unit) for place, (table, unit) in enumerate(members) if table == number]
        units = pa.array([unit for _, unit in rows], (pa.int32(), pa.int64())[number])
        others = [pa.array([f"t{place % 5}" for place, _ in rows], pa.string()),
                  pa.array([float(place) for place, _ in rows], pa.float64())]  # fmt: skip
        columns = [units, others[0]] if number == 0 else [others[1], units]
        columns.append(pa.array([0 if unit is None else unit % 2 for _, unit in rows], pa.int64()))
        whole = pa.record_batch(columns, names=["dpduck_0_0", "dpduck_0_1", BUCKET])
        ends = [part * len(rows) // parts for part in range(parts + 1)]
        for start, end in itertools.pairwise(ends):
            given = [whole.slice(start, end - start)] if end > start else []
            bundles += bundle_task(packing(SENT, 7, number).plain(), given, Workers())
    found = list[dict[str, Any]]()
    for bucket in (0, 1):
        own = [one for one in bundles if one.column(BUCKET)[0].as_py() == bucket]
        if own:
            found += pack_task(packing(SENT, 7).plain(), pa.Table.from_batches(own), Workers()).to_pylist()
    return found


def column(piece: dict[str, Any], table: int, place: int) -> list[Any]:
    return list(pa.ipc.open_stream(piece[column_name(table, place)]).read_all().column(0).to_pylist())


@given(UNITS.filter(bool), st.integers(1, 60), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_a_unit_lies_in_one_piece(members: list[tuple[int, int | None]], size: int, parts: int) -> None:
    """All rows of a unit, of all tables, lie in one piece, each row once and whole. A piece has some rows, not all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_pieces, "PIECE_ROWS", size)
        pieces = packed(members, parts)
    found = [[column(one, 0, 0), column(one, 1, 1)] for one in pieces]
    for one, other in itertools.combinations(found, 2):
        assert not set(itertools.chain(*one)) & set(itertools.chain(*other))
    for number, unit_first in ((0, True), (1, False)):
        rows = [row for one in pieces for row in zip(column(one, number, 0), column(one, number, 1), strict=True)]
        own = [(n, unit) for n, (table, unit) in enumerate(members) if table == number and unit is not None]
        assert sorted(rows) == sorted((unit, f"t{n % 5}") if unit_first else (float(n), unit) for n, unit in own)
        assert sum(one[rows_name(number)] for one in pieces) == sum(table == number for table, _ in members)
    assert len({one[PIECE] for one in pieces}) == len(pieces)
    most = max((sum(unit == one for _, unit in members) for one in range(-3, 13)), default=0)
    assert all(len(one[0]) + len(one[1]) < size + most for one in found)


def test_a_crowd_is_cut_when_it_is_packed() -> None:
    """Of a unit with very many rows the first are packed, and nothing of anybody else's is left out."""
    pieces = packed([(0, 5)] * (CROWD + 100) + [(0, 6)] * 50)
    kept = list(itertools.chain.from_iterable(column(one, 0, 0) for one in pieces))
    assert (kept.count(5), kept.count(6)) == (CROWD, 50)
