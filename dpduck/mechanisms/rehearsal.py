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

from dpduck.kernel.columns.expressions import Column as StoredColumn
from dpduck.kernel.columns.expressions import Expression, Lookup
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import rehearse
from dpduck.kernel.price import Ask
from dpduck.kernel.relations import Grouped, Source, Stored, Units
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.program import Division, Output
from dpduck.kernel.worker.workers import StrictWorkers, Workers
from dpduck.language.rows.facts import Column
from dpduck.language.text.names import TableName
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.sandbox import Sandbox
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.quoting import quote_identifier, quote_text
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


def is_plain_count(job: CountingJob) -> bool:
    """Tells whether a job counts the rows of one stored table by stored columns, so that dpduck wrote all of its SQL.

    A condition, a number, an equality of a join and a cast are an analyst's words, whatever they are.
    """
    if job.selected or job.digest or job.source.joins or not isinstance(job.source.first, Stored):
        return False
    stored = all(isinstance(one, StoredColumn) for one in _of_job(job))
    return stored and all(one == Contribution() for one in job.aggregates)


def told(job: CountingJob) -> Hashable:
    """Returns all that a job's failure can depend on, which is all of the job but what its labels become."""
    attributes = tuple((one.sources, one.size) for one in job.attributes)
    codes = replace(job, attributes=(), groups=0, cell_key=(), selected=False, texts=())
    return (codes, attributes, job.groups, job.selected, job.texts)


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

_PRIME = 7
"""A column has at most six made-up values, and NULL: rows number a, b, c in this base, and column k has value number
a + b k + c k^2 modulo it, so that any three of seven columns have all combinations of their values."""


def _each_alone(cursor: duckdb.DuckDBPyConnection, jobs: Sequence[CountingJob], workers: StrictWorkers) -> None:
    """Evaluates every expression of the jobs alone: what the database would compute there, the rest in a worker."""
    written = list(dict.fromkeys(one for job in jobs for one in _of_job(job)))
    plain = [one for one in written if one.plain and not isinstance(one, StoredColumn)]
    try:
        cursor.execute(f"SELECT {', '.join(map(_alone_sql, plain)) or 1}").fetchall()
    except duckdb.Error as error:
        workers.complaints.append(str(error))
        raise InternalError("a condition fails") from None
    programs: dict[frozenset[str], list[Expression]] = {}
    for one in written:
        if not one.plain and one.columns:
            programs.setdefault(frozenset(column.relation for column in one.columns), []).append(one)
    for alike in programs.values():
        division = Division({f"y{n}": Output("flag", one, "{} IS NULL") for n, one in enumerate(alike)}, ())
        names = {column: f"c{number}" for number, column in enumerate(division.columns)}
        inputs = ", ".join(f"{sql} AS {x}" for x, sql in division.inputs(names.__getitem__).items())
        made = cursor.sql(f"SELECT {inputs} FROM {_made_up_sql([column.type_name for column in names])}")
        with workers.runner(division.program()) as runner:
            runner.compute(made.to_arrow_table())


def _of_job(job: CountingJob) -> list[Expression]:
    """Returns all that an analyst may have written of a job."""
    found = [*job.filters, *(key.value for key in job.keys), *job.texts]
    found += [part for one in job.aggregates for part in (one.condition, one.value) if part is not None]
    return [*found, *_of_source(job.source)]


def _of_source(source: Source) -> list[Expression]:
    """Returns the expressions of a source of rows and of those inside it."""
    found = list(source.filters)
    for join in source.joins:
        found += [one.value if isinstance(one, Lookup) else one for one in join.on]
        found += _of_source(join.right)
    inner = source.first
    if isinstance(inner, Stored | Grouped):
        return found
    if isinstance(inner, Units):
        return [*found, *_of_source(inner.source), *inner.conditions, *(value.value for value in inner.operands)]
    return found + [one for branch in inner.branches for one in _of_source(branch.source)]


def _alone_sql(expression: Expression) -> str:
    names = {column: f"c{number}" for number, column in enumerate(expression.columns)}
    made = _made_up_sql([column.type_name for column in names])
    return f"(SELECT count({expression.write(names.__getitem__)}) FROM {made})"


def _made_up_sql(types: Sequence[str]) -> str:
    """Returns rows of columns c0, c1, .. with the made-up values of these types, and NULL."""
    a, b, c = "i", f"i // {_PRIME}", f"i // {_PRIME**2}"
    columns = [
        f"CAST(CASE WHEN {which} < {_PRIME - 1} THEN {_one_of(type_name, which)} END AS {type_name}) AS c{k}"
        for k, type_name in enumerate(types)
        for which in [f"(({a} + {b} * {k % _PRIME} + {c} * {k * k % _PRIME}) % {_PRIME})"]
    ]
    return f"(SELECT {', '.join(columns) or '1'} FROM range({_PRIME ** min(len(types), 3)}) AS r(i))"
