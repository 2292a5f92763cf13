"""Rehearses a release before its charge: the same job over tables of the same columns with rows that are made up.

The tables have one row of NULLs and rows of awkward values. Then each condition runs by itself, over every made-up
value of its own columns: a condition that no row meets would hide a failure beside it. It is public and free; what
fails there is refused with its reason. It is no proof: an expression may fail on rows that nobody made up, and the
worker process is what that is for.

A count of rows by stored columns is not rehearsed: no analyst wrote any SQL that runs over its rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from dpduck.database.cursors import SandboxAnswers
from dpduck.database.sandbox import Sandbox
from dpduck.frontend.rows.facts import Column
from dpduck.frontend.rows.parts import Source, Stored, Units
from dpduck.frontend.text.names import TableName, quote_identifier, quote_text
from dpduck.trusted.ask import Ask
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.door import rehearse
from dpduck.trusted.private.jobs import CountingJob, KeyedJob, KeyJob
from dpduck.trusted.rows.plain import columns_of, is_plain, keep_plans_plain, plain_text, renamed
from dpduck.trusted.rows.plain_numbers import number_sql
from dpduck.trusted.rows.program import Division, Output
from dpduck.trusted.rows.workers import StrictWorkers, Workers
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.sqltypes import sql_type

Shapes = Sequence[tuple[TableName, tuple[Column, ...], bool]]
MADE_UP_ROWS = 6
TRIES = 3
"""How often a rehearsal is begun whose process ended without a word: a busy machine may have ended it for its time."""

_NUMBERS = ("0", "1", "-1", "7")
_VALUES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "FLOAT": ("nan", "inf", "-3.4e38", "-0.0", "1"),
    "DOUBLE": ("nan", "-inf", "1.7e308", "-0.0", "0.5"),
    "VARCHAR": ("", "12", "a\u0308 [%_\\\\", "2024-02-30", "1e400", "x" * 300),
    "DATE": ("infinity", "5877642-06-25 (BC)", "5881580-07-10", "2024-02-29"),
    "TIMESTAMP": ("-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "2024-02-29 23:59:59"),
    "TIME": ("00:00:00", "24:00:00", "12:34:56.789"),
    "INTERVAL": ("1 month", "-1 day", "2147483647 months"),
    "UUID": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
}


def rehearsed(asks: Sequence[Ask[Any]], shapes: Shapes, answered: SandboxAnswers, workers: Workers) -> None:
    """Counts for the asks over made-up tables.

    A job that went well before is not rehearsed, nor one with SQL of dpduck's alone.
    """
    scans = list({id(ask.scan): ask for ask in asks}.values())
    if scans and all(is_plain_count(one.scan.job) for one in scans):
        return
    question = ("rehearsal", tuple(told(one.scan.job) for one in scans), tuple(shapes))
    if answered.get(question) is not None:
        return
    said, left = _complaint(scans, shapes, answered, workers), TRIES - 1
    while said == "" and left:
        said, left = _complaint(scans, shapes, answered, workers), left - 1
    if said is None:
        answered.put(question, True)
        return
    words = said.strip().split("\n", 1)[0][:200]
    raise Refusal(
        "this fails on rows that were made up of its columns' types" + (f": {words}" if words else ""),
        accepted="other expressions; nothing was charged",
    )


def _complaint(scans: Sequence[Ask[Any]], shapes: Shapes, answered: SandboxAnswers, workers: Workers) -> str | None:
    """Rehearses once: None where all went well, else DuckDB's words; "" where a process ended without any."""
    tables = {table: columns for table, columns, _ in shapes}
    strict = StrictWorkers(workers)
    try:
        with Sandbox(answered, _with_awkward_rows) as box, box.cursor(tables) as cursor:
            rehearse(cursor, scans, strict)
            _each_alone(cursor, [one.scan.job for one in scans], strict)
    except InternalError:
        return next((text for text in strict.complaints or [] if text), "")
    return None


def is_plain_count(job: object) -> bool:
    """Tells whether a job counts the rows of one stored table by stored columns, so that dpduck wrote all of its SQL.

    A condition, a number, an equality of a join and a cast are an analyst's words, whatever they are.
    """
    if not isinstance(job, CountingJob) or job.source is None or job.source.joins:
        return False
    written: Written = {}
    _of_job(job, written)
    stored = isinstance(job.source.first, Stored) and written.keys() <= dict(job.source.types).keys()
    return stored and all(one == Contribution("") for one in job.aggregates)


def told(job: object) -> Hashable:
    """Returns all that a job's failure can depend on, which is all of the job but what its labels become."""
    if isinstance(job, CountingJob):
        attributes = tuple((one.sources, one.size) for one in job.attributes)
        return (replace(job, attributes=(), groups=0, cell_key=()), attributes, job.groups)
    if isinstance(job, KeyedJob):
        return (told(job.rows), job.texts, job.groups)
    return (told(job.rows), job.key_sql) if isinstance(job, KeyJob) else (id(job),)


def _with_awkward_rows(cursor: duckdb.DuckDBPyConnection, table: TableName, columns: Sequence[Column]) -> None:
    """Adds rows of extreme values of each type, and no NULL but in columns of types that are not computed with.

    Plans of the sandbox are as plain as those over private rows from then on.
    """
    keep_plans_plain(cursor)
    made = [f"{_one_of(column.type_name)} AS {quote_identifier(column.name)}" for column in columns]
    made = [sql for sql in made if not sql.startswith("NULL")]
    if made:
        cursor.execute(f"INSERT INTO {table.sql} BY NAME SELECT {', '.join(made)} FROM range({MADE_UP_ROWS}) AS r(i)")


def awkward_values(type_name: str) -> tuple[str, ...]:
    """Lists texts of awkward values of a type; none of one that is not computed with."""
    kind = sql_type(type_name)
    if kind.is_whole and kind.is_signed:
        return (str(kind.least), str(kind.most), *(_NUMBERS if kind.is_integer else ("1",)))
    if kind.is_integer:
        return (str(kind.most), "0", "1")
    if kind.is_decimal:
        largest = f"{'9' * (kind.digits - kind.scale) or '0'}.{'9' * kind.scale}"
        return (largest.rstrip("."), f"-{largest.rstrip('.')}", "0")
    return _VALUES.get(type_name, ())


def _one_of(type_name: str, which: str = "i") -> str:
    """Returns a value of the type for row i; NULL for types that nothing is computed with."""
    values = awkward_values(type_name)
    listed = ", ".join(quote_text(text) for text in values)
    return f"CAST(list_extract([{listed}], 1 + {which} % {len(values)}) AS {type_name})" if values else "NULL"


# Each condition by itself.

Pairs = tuple[tuple[str, str], ...]
Written = dict[str, Pairs]
"""Expressions, each with the columns that it may read and their types."""

_PRIME = 7
"""A column has at most six made-up values, and NULL: rows number a, b, c in this base, and column k has value number
a + b k + c k^2 modulo it, so that any three of seven columns have all combinations of their values."""


def _each_alone(cursor: duckdb.DuckDBPyConnection, jobs: Sequence[object], workers: StrictWorkers) -> None:
    """Evaluates every expression of the jobs alone: what the database would compute there, the rest in a worker."""
    written: Written = {}
    for job in jobs:
        _of_job(job, written)
    plain = {text: dict(types) for text, types in written.items() if is_plain(text, dict(types))}
    try:
        cursor.execute(f"SELECT {', '.join(_alone_sql(*one) for one in plain.items()) or 1}").fetchall()
    except duckdb.Error as error:
        workers.complaints.append(str(error))
        raise InternalError("a condition fails") from None
    for pairs in dict.fromkeys(written.values()):
        types = dict(pairs)
        texts = [
            text for text, own in written.items() if own == pairs and text not in plain and not _is_read(text, types)
        ]
        division = Division({f"y{n}": Output("flag", text, "{} IS NULL") for n, text in enumerate(texts)}, (), types)
        if not division.columns:
            continue
        names = {name: f"c{number}" for number, name in enumerate(division.columns)}
        inputs = ", ".join(f"{renamed(sql, names)} AS {x}" for x, sql in division.inputs().items())
        made = cursor.sql(f"SELECT {inputs} FROM {_made_up_sql([types[name] for name in names])}")
        with workers.runner(division.program()) as runner:
            runner.compute(made.to_arrow_table())


def _is_read(text: str, types: dict[str, str]) -> bool:
    """Tells whether the database reads a value itself: a stored number or text as such."""
    return text in types or number_sql(text, types) is not None or plain_text(text, types) is not None


def _of_job(job: object, written: Written) -> None:
    """Returns all that an analyst may have written of a job."""
    rows = job if isinstance(job, CountingJob) else job.rows if isinstance(job, (KeyedJob, KeyJob)) else None
    if rows is None or rows.source is None:
        return
    types = rows.source.types
    texts = [*rows.filters, *(key.sql for key in rows.keys), *(job.texts if isinstance(job, KeyedJob) else ())]
    texts += [text for one in rows.aggregates for text in (one.condition, one.value_sql)]
    written.update({text: types for text in texts if text})
    _of_source(rows.source, types, written)


def _of_source(source: Source, types: Pairs, written: Written) -> None:
    """Collects the expressions of a source of rows and of those inside it. types: of its level."""
    on = [one if isinstance(one, str) else one.value_sql for join in source.joins for one in join.on]
    written.update(dict.fromkeys((*source.filters, *on), types))
    for join in source.joins:
        _of_source(join.right, types, written)
    inner = source.first
    if isinstance(inner, Stored):
        return
    inside = [inner.source] if isinstance(inner, Units) else [branch.source for branch in inner.branches]
    for one in inside:
        _of_source(one, one.types, written)
        if isinstance(inner, Units):
            written.update(dict.fromkeys((*inner.conditions, *(value.sql for value in inner.operands)), one.types))


def _alone_sql(condition: str, types: dict[str, str]) -> str:
    names = {name: f"c{number}" for number, name in enumerate(columns_of(condition, types))}
    made = _made_up_sql([types[name] for name in names])
    return f"(SELECT count(*) FROM {made} WHERE {renamed(condition, names)})"


def _made_up_sql(types: Sequence[str]) -> str:
    """Returns rows of columns c0, c1, .. with the made-up values of these types, and NULL."""
    a, b, c = "i", f"i // {_PRIME}", f"i // {_PRIME**2}"
    columns = [
        f"CAST(CASE WHEN {which} < {_PRIME - 1} THEN {_one_of(type_name, which)} END AS {type_name}) AS c{k}"
        for k, type_name in enumerate(types)
        for which in [f"(({a} + {b} * {k % _PRIME} + {c} * {k * k % _PRIME}) % {_PRIME})"]
    ]
    return f"(SELECT {', '.join(columns) or '1'} FROM range({_PRIME ** min(len(types), 3)}) AS r(i))"
