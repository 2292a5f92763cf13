"""Spark Connect (Spark 4, Databricks, Sail): describes an engine's tables, and runs orders over whole units there.

Only this module imports pyspark, when an engine is attached.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from dpduck.engines.listener import plain_address, require_answer, require_listener
from dpduck.engines.pieces import OTHERS, PIECE, packing, rows_name
from dpduck.engines.task import PIECES, task_of
from dpduck.kernel.places.orders import ALIKE, BUCKET, GROUPS, PARTIAL, TABLE, Order, Sent, column_name
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.bounding import UNIT
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.sqltypes import sql_type

TYPES = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN", "date": "DATE", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
"""DuckDB's types for values that pass unchanged through Arrow. Timestamps of a session's time zone, char(n), texts
under a collation and nested values do not.
"""

Columns = tuple[tuple[str, str], ...]
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", re.ASCII)
_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
_NOT_ALL_ROWS = ("row filter", "column mask", "row access policy")
ACCEPTED = "a table with rows of its own (MANAGED or EXTERNAL), named as schema.table"


@dataclass(frozen=True)
class TableDescription:
    """Description of an engine's table. columns: names and DuckDB types. identity: a text that no other table has."""

    columns: Columns
    identity: str


@dataclass(frozen=True)
class TablePlace:
    """Table in an engine. unit: the column with the unit of a row, None if each row is a unit.

    every: whether rows without a unit are read as well, which only the owner may see.
    """

    there: str
    columns: Columns = field(repr=False)
    unit: str | None = None
    every: bool = False


@dataclass(frozen=True)
class Packed:
    """Tables that are packed into one table of an engine, as pieces of whole units. there: the pack's name.

    identity: the pack's identity. mark: start of all names of pieces. pieces: the number of pieces. tables: the columns
    of each table, by its name.
    """

    there: str
    identity: str
    mark: str
    pieces: int
    tables: tuple[tuple[str, Columns], ...] = field(repr=False)


def open_session(address: str) -> Any:
    """Opens a session of a Spark Connect server. Refuses an address where none answers, within ten seconds."""
    require_listener(address)
    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):  # as in python -c: pyspark would take this for its doctests and exit
        main.__file__ = ""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra, which the core does without
        from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415
    except ImportError:
        raise Refusal("there is no client of Spark Connect", accepted="pip install '.[engines]'") from None
    try:
        channel = DefaultChannelBuilder(address).toChannel()
    except Exception:  # its error may hold a token
        raise Refusal("this is no address of an engine", accepted="sc://host:15002/;use_ssl=true;token=..") from None
    require_answer(address, channel)
    try:
        return SparkSession.builder.remote(address).create()
    except Exception:
        raise Refusal("the engine does not answer", accepted="sc://host:15002/;use_ssl=true;token=..") from None


class SparkEngine:
    """Engine behind a session of Spark Connect."""

    def __init__(self, session: Any, address: str = "") -> None:
        """address: where the session was opened, "" for a session object."""
        self._session, self._at = session, f" at {plain_address(address)}" if address else ""

    def describe(self, there: str) -> TableDescription:
        """Returns the description of a table. Refuses views, filtered tables and types that Arrow would change."""
        if not _NAME.fullmatch(there):
            raise Refusal(f"{there!r} is no name of an engine's table", accepted=ACCEPTED)
        try:
            kind = self._session.catalog.getTable(there)
            facts = self._facts(there)
            fields = self._session.table(there).schema.fields
        except Exception:
            raise Refusal(
                f"the engine{self._at} has no table {there} in this session: a session may not see tables that another "
                "session made",
                accepted=f"{ACCEPTED}, or attach_spark(con, session, ..) with the session that made it",
            ) from None
        if kind.isTemporary or kind.tableType not in ("MANAGED", "EXTERNAL") or "view text" in facts:
            raise Refusal(f"{there} is a {str(kind.tableType).lower()}, not a table", accepted=ACCEPTED)
        if any(word in name for name in facts for word in _NOT_ALL_ROWS):
            raise Refusal(f"{there} has row filters or masks: its rows depend on who reads", accepted=ACCEPTED)
        return TableDescription(tuple(_column(there, column) for column in fields), self._identity(there, facts))

    def _identity(self, there: str, facts: dict[str, str]) -> str:
        """Returns a table's identity: Delta's id, Iceberg's uuid, or otherwise the location of its files."""
        uuid = re.search(r"\buuid=([0-9a-f-]{36})", facts.get("table properties", ""))
        if uuid is not None:
            return f"iceberg {uuid[1]}"
        if facts.get("provider", "").lower() == "delta":
            try:
                return f"delta {self._rows(f'SELECT id FROM (DESCRIBE DETAIL {there})')[0][0]}"
            except Exception:
                raise Refusal(f"the engine does not tell the id of {there}", accepted=ACCEPTED) from None
        location = facts.get("location", "").rstrip("/")
        if not location:
            raise Refusal(f"the engine does not say where {there} lies", accepted=ACCEPTED)
        return f"location {re.sub('^file:/+', '/', location)}"

    def _facts(self, there: str) -> dict[str, str]:
        return {str(row[0]).strip().lower(): str(row[1]) for row in self._rows(f"DESCRIBE TABLE EXTENDED {there}")}

    def _rows(self, sql: str) -> list[Any]:
        return list(self._session.sql(sql).collect())

    def carry(self, places: dict[str, TablePlace], buckets: int, order: Order) -> Iterator[pa.Table]:
        """Runs an order over tables, in one task for each bucket, and yields the results of the tasks.

        groupBy obliges the engine to give all rows of a bucket to one call. A partitioning would not guarantee this.
        """
        frames = {name: self._session.table(place.there) for name, place in places.items()}
        return self.carry_frames(frames, places, buckets, order)

    def pack(self, places: Mapping[str, TablePlace], buckets: int, there: str, mark: str, key: int) -> Packed:
        sent = [Sent((name,), place.columns, unit=place.unit) for name, place in places.items()]
        bundles = [self._bundle_rows(sent, number, place, buckets, key) for number, place in enumerate(places.values())]
        columns = [f"{column_name(t, c)} binary" for t, table in enumerate(sent) for c in range(len(table.columns))]
        columns += [f"{BUCKET} bigint", f"{PIECE} string", *(f"{rows_name(t)} bigint" for t in range(len(sent)))]
        grouped = reduce(lambda whole, table: whole.unionByName(table), bundles).groupBy(BUCKET)
        pieces = grouped.applyInArrow(task_of(packing(sent, key), "pack_task", PIECES), ", ".join(columns))
        named = (f"concat('{mark}.', {PIECE}) AS {PIECE}" if name == PIECE else name for name in pieces.columns)
        pieces.selectExpr(*named).write.partitionBy(BUCKET).saveAsTable(there)
        count = int(self._rows(f"SELECT count(*) FROM {there}")[0][0])
        tables = tuple((name, table.columns) for name, table in places.items())
        return Packed(there, self._identity(there, self._facts(there)), mark, count, tables)

    def _bundle_rows(self, sent: Sequence[Sent], number: int, place: TablePlace, buckets: int, key: int) -> Any:
        """Returns the rows of a table, one of several, as bundles that tasks can exchange."""
        columns = [f"{_quote_name(name)} AS {column_name(0, n)}" for n, (name, _) in enumerate(place.columns)]
        bucket = f"{_bucket(replace(place, every=True), buckets)} AS {BUCKET}"
        rows = self._session.table(place.there).selectExpr(*columns, bucket)
        listed = [f"{column_name(0, n)} binary" for n in range(max(len(table.columns) for table in sent))]
        schema = [f"{BUCKET} bigint, {TABLE} bigint, {OTHERS} bigint", *listed]
        return rows.mapInArrow(task_of(packing(sent, key, number), "bundle_task", PIECES), ", ".join(schema))

    def is_packed(self, packed: Packed) -> bool:
        """Tells whether a pack is where it was written, and has each piece exactly once."""
        marked = f"count(DISTINCT CASE WHEN {PIECE} LIKE '{packed.mark}.%' THEN {PIECE} END)"
        try:
            (row,) = self._rows(f"SELECT count(*), {marked} FROM {packed.there}")
            identity = self._identity(packed.there, self._facts(packed.there))
            return identity == packed.identity and set(row) == {packed.pieces}
        except Exception:
            return False

    def count_rows(self, packed: Packed, table: str) -> int:
        """Returns the number of rows that a table had when it was packed, for its owner alone."""
        number = [name for name, _ in packed.tables].index(table)
        return int(self._rows(f"SELECT sum({rows_name(number)}) FROM {packed.there}")[0][0] or 0)

    def unpack(self, there: str) -> None:
        self._session.sql(f"DROP TABLE IF EXISTS {there}").collect()

    def carry_packed(self, packed: Packed, order: Order) -> Iterator[pa.Table]:
        """Runs an order over the pieces of a pack. Fails unless each piece is read exactly once."""
        listed, tables = [PIECE], dict(packed.tables)
        for number, table in enumerate(table for table in order.tables if table.rows is None):
            place, names = list(tables).index(table.sql), [name for name, _ in tables[table.sql]]
            listed.append(f"{rows_name(place)} AS {rows_name(number)}")
            listed += [
                f"{column_name(place, names.index(name))} AS {column_name(number, n)}"
                for n, (name, _) in enumerate(table.columns)
            ]
        rows = self._session.table(packed.there).selectExpr(*listed)
        results, seen = (
            rows.mapInArrow(task_of(order, "answer_packed", PIECES), f"{PIECE} string, {PARTIAL} binary"),
            list[str](),
        )
        for pieces, body in self._fetch_results(results):
            seen += str(pieces).split()
            if body is not None:
                yield pa.ipc.open_stream(body).read_all()
        named = {piece for piece in seen if piece.startswith(f"{packed.mark}.")}
        if not packed.pieces == len(seen) == len(named):
            raise InternalError(reader.FAILED)

    def made_up(self, rows: pa.Table, partitions: int) -> Any:
        return self._session.createDataFrame(rows).repartition(partitions)

    def carry_frames(
        self, frames: dict[str, Any], places: dict[str, TablePlace], buckets: int, order: Order
    ) -> Iterator[pa.Table]:
        whole = _frame_to_group(frames, places, buckets, order)
        results = whole.groupBy(BUCKET).applyInArrow(task_of(order, "answer_task"), f"{PARTIAL} binary")
        for (body,) in self._fetch_results(results):
            yield pa.ipc.open_stream(body).read_all()

    def _fetch_results(self, results: Any) -> Iterator[Sequence[Any]]:
        """Yields results as tasks end, or all at once from an engine in this process, so that tasks run together."""
        if ".connect." in type(self._session).__module__:
            yield from results.toLocalIterator()
        else:
            for batch in results.toArrow().to_batches(max_chunksize=1):
                yield [column[0].as_py() for column in batch.columns]


def _frame_to_group(frames: dict[str, Any], places: dict[str, TablePlace], buckets: int, order: Order) -> Any:
    """Returns the rows that an order groups: rows of its tables, or integers computed from parts of the rows."""
    first = order.before or order
    named = [(places[item.sql], item, frames[item.sql]) for item in first.tables if item.rows is None]
    if order.before is None:
        return _whole([_select_columns(number, *item, order) for number, item in enumerate(named)], buckets)
    rows = _whole([_select_columns(number, *item, first) for number, item in enumerate(named)], 1).drop(
        BUCKET, *([TABLE] if len(named) == 1 else [])
    )
    if first.crowds is None:
        raise InternalError(reader.FAILED)
    alike = f"hash({UNIT}) % {GROUPS}"
    columns = f"*, CAST({alike} AS INTEGER) AS {ALIKE}, CAST({alike} % {buckets} AS BIGINT) AS {BUCKET}"
    first, crowds = (
        replace(item, stage_sql=f"SELECT {columns} FROM ({item.stage_sql})") for item in (first, first.crowds)
    )
    task = task_of(replace(first, crowds=crowds), "made_task")
    return rows.mapInArrow(task, f"{BUCKET} bigint, {PARTIAL} binary")


def _select_columns(number: int, place: TablePlace, table: Sent, frame: Any, order: Order) -> tuple[TablePlace, Any]:
    """Returns the columns that an order needs, renamed by number. Units with too many rows keep only the first rows."""
    own = table.columns
    own_rows = frame if place.unit is None or place.every else frame.where(f"{_quote_name(place.unit)} IS NOT NULL")
    rows = own_rows.selectExpr(*(f"{_quote_name(name)} AS {column_name(number, n)}" for n, (name, _) in enumerate(own)))
    columns = tuple((column_name(number, n), of) for n, (_, of) in enumerate(own))
    unit = next((column_name(number, n) for n, (name, _) in enumerate(own) if name == place.unit), None)
    if order.key is not None and unit is not None:
        schema = ", ".join(f"{sent} {_spark_type(of)}" for sent, of in columns)
        rows = rows.mapInArrow(task_of(replace(order, tables=(table,), stages=()), "cut_task"), schema)
    return TablePlace("", columns, unit, place.every), rows


def _whole(named: Sequence[tuple[TablePlace, Any]], buckets: int) -> Any:
    """Returns the rows of all tables as one frame, with all columns, the bucket and the table's number."""
    whole = None
    for number, (place, rows) in enumerate(named):
        columns = [name for name, _ in place.columns]
        for other, (another, _) in enumerate(named):
            missing = another.columns if other != number else ()
            columns += [f"CAST(NULL AS {_spark_type(of)}) AS {name}" for name, of in missing]
        columns += [f"{number} AS {TABLE}", f"{_bucket(place, buckets)} AS {BUCKET}"]
        chosen = rows.selectExpr(*columns)
        whole = chosen if whole is None else whole.unionByName(chosen)
    return whole


def _bucket(place: TablePlace, buckets: int) -> str:
    """Writes the bucket of a row: its unit's bucket, or any bucket for a row that is a unit or has no unit."""
    anywhere = f"pmod(xxhash64({', '.join(_quote_name(name) for name, _ in place.columns)}), {buckets})"
    if place.unit is None:
        return anywhere
    type_name = dict(place.columns)[place.unit]
    unit = f"CAST({_quote_name(place.unit)} AS BIGINT)" if sql_type(type_name).is_integer else _quote_name(place.unit)
    bucket = f"pmod(xxhash64({unit}), {buckets})"
    return f"CASE WHEN {unit} IS NULL THEN {anywhere} ELSE {bucket} END" if place.every else bucket


def _column(there: str, described: Any) -> tuple[str, str]:
    name, type_name = described.name, described.dataType.simpleString()
    padded = str((described.metadata or {}).get(_PADDED, "")).lower().startswith("char")
    own_type = type_name.upper() if _DECIMAL.fullmatch(type_name) else TYPES.get(type_name)
    if own_type is None or padded:
        raise Refusal(
            f"{there}.{name} is {'char' if padded else type_name.partition('<')[0]}, a type that is not supported",
            accepted=f"columns of {', '.join(TYPES)} and decimal; or a table without it",
        )
    return name, own_type


def _spark_type(type_name: str) -> str:
    types = {own: theirs for theirs, own in TYPES.items()} | {"UBIGINT": "bigint", "BLOB": "binary"}
    return types.get(type_name, type_name)


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
