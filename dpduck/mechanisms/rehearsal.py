"""Rehearses a release before its charge: the same job over tables of the same columns with rows that are made up.

No row, one row of NULLs, and rows of awkward values. It is public and free; what fails there is refused with its
reason. It is no proof: an expression may fail on rows that nobody made up, and the worker process is what that is for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from dpduck.database.sandbox import Answered, Sandbox
from dpduck.frontend.rows.facts import Column
from dpduck.frontend.text.names import TableName, quote_identifier, quote_text
from dpduck.trusted.ask import Ask
from dpduck.trusted.private.door import rehearse
from dpduck.trusted.private.jobs import CountingJob, KeyedJob, KeyJob
from dpduck.trusted.rows.workers import Workers

Shapes = Sequence[tuple[TableName, tuple[Column, ...], bool]]
MADE_UP_ROWS = 6
_NUMBERS = ("0", "1", "-1", "7")
_VALUES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127", *_NUMBERS),
    "SMALLINT": ("-32768", "32767", *_NUMBERS),
    "INTEGER": ("-2147483648", "2147483647", *_NUMBERS),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", *_NUMBERS),
    "HUGEINT": ("-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "1"),
    "UTINYINT": ("255", "0", "1"),
    "USMALLINT": ("65535", "0", "1"),
    "UINTEGER": ("4294967295", "0", "1"),
    "UBIGINT": ("18446744073709551615", "0", "1"),
    "FLOAT": ("nan", "inf", "-3.4e38", "-0.0", "1"),
    "DOUBLE": ("nan", "-inf", "1.7e308", "-0.0", "0.5"),
    "VARCHAR": ("", "12", "a\u0308 [%_\\\\", "2024-02-30", "1e400", "x" * 300),
    "DATE": ("infinity", "5877642-06-25 (BC)", "5881580-07-10", "2024-02-29"),
    "TIMESTAMP": ("-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "2024-02-29 23:59:59"),
    "TIME": ("00:00:00", "24:00:00", "12:34:56.789"),
    "INTERVAL": ("1 month", "-1 day", "2147483647 months"),
    "UUID": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
}


def rehearsed(asks: Sequence[Ask[Any]], shapes: Shapes, answered: Answered, workers: Workers) -> None:
    """Counts for the asks over made-up tables; a job that went well is not rehearsed again."""
    scans = list({id(ask.scan): ask for ask in asks}.values())
    question = ("rehearsal", tuple(told(one.scan.job) for one in scans), tuple(shapes))
    if answered.get(question) is not None:
        return
    tables = {table: columns for table, columns, _ in shapes}
    with Sandbox() as box, box.cursor() as cursor:
        box.copy(cursor, tables)
        for fill in (_as_copied, _without_rows, _with_awkward_rows):
            fill(cursor, tables)
            rehearse(cursor, scans, workers)
    answered.put(question, True)


def told(job: object) -> Hashable:
    """All that a job's failure can depend on, which is all of the job but what its labels become."""
    if isinstance(job, CountingJob):
        attributes = tuple((one.sources, one.size) for one in job.attributes)
        return (replace(job, attributes=()), attributes)
    if isinstance(job, KeyedJob):
        return (told(job.rows), job.texts, job.groups)
    return (told(job.rows), job.key_sql) if isinstance(job, KeyJob) else (id(job),)


def _as_copied(cursor: duckdb.DuckDBPyConnection, tables: dict[TableName, tuple[Column, ...]]) -> None:
    """A copy has one row of NULLs."""


def _without_rows(cursor: duckdb.DuckDBPyConnection, tables: dict[TableName, tuple[Column, ...]]) -> None:
    for table in tables:
        cursor.execute(f"DELETE FROM {table.sql}")


def _with_awkward_rows(cursor: duckdb.DuckDBPyConnection, tables: dict[TableName, tuple[Column, ...]]) -> None:
    """Rows of extreme values of each type, and no NULL but in columns of types that are not computed with."""
    for table, columns in tables.items():
        made = [f"{_one_of(column.type_name)} AS {quote_identifier(column.name)}" for column in columns]
        made = [sql for sql in made if not sql.startswith("NULL")]
        if made:
            cursor.execute(
                f"INSERT INTO {table.sql} BY NAME SELECT {', '.join(made)} FROM range({MADE_UP_ROWS}) AS r(i)"
            )


def _made_up(type_name: str) -> tuple[str, ...]:
    if type_name.startswith("DECIMAL("):
        width, scale = map(int, type_name.removeprefix("DECIMAL(").removesuffix(")").split(","))
        largest = "9" * (width - scale) + "." + "9" * scale if width > scale else "0." + "9" * scale
        return (largest.rstrip("."), f"-{largest.rstrip('.')}", "0")
    return _VALUES.get(type_name, ())


def _one_of(type_name: str) -> str:
    """A value of the type for row i; NULL for types that nothing is computed with."""
    values = _made_up(type_name)
    listed = ", ".join(quote_text(text) for text in values)
    return f"CAST(list_extract([{listed}], 1 + i % {len(values)}) AS {type_name})" if values else "NULL"
