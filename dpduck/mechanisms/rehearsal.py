"""Rehearsal of a release before its charge: the same job over tables with the same columns and made-up rows.

A job that fails there is refused with its reason, since made-up rows are public. Each condition also runs by itself,
since a condition that no row meets would hide a failure beside it. An expression may still fail on other rows, and the
worker process exists for that case.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from dpduck.kernel.columns.expressions import Expression, Lookup
from dpduck.kernel.columns.expressions import RelationColumn as StoredColumn
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import rehearse
from dpduck.kernel.price import Ask
from dpduck.kernel.relations import Grouped, Source, Stored, Units
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.program import Division, Output
from dpduck.kernel.worker.workers import StrictWorkers, Workers
from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.sandbox import Sandbox
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.quoting import quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

Shapes = Sequence[tuple[TableName, tuple[CatalogColumn, ...], bool]]
MADE_UP_ROWS = 6
TRIES = 3
"""Most attempts if a rehearsal's process ends without an error: a busy machine may have ended it for its time."""

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


def rehearse_asks(asks: Sequence[Ask[Any]], shapes: Shapes, answered: SandboxAnswers, workers: Workers) -> None:
    """Rehearses the asks over made-up tables, unless their jobs succeeded before or have dpduck's own SQL alone."""
    scans = list({id(ask.scan): ask for ask in asks}.values())
    if scans and all(is_plain_count(scan_ask.scan.job) for scan_ask in scans):
        return
    question = ("rehearsal", tuple(rehearsal_key(scan_ask.scan.job) for scan_ask in scans), tuple(shapes))
    if answered.get(question) is not None:
        return
    said, left = _complaint(scans, shapes, answered, workers), TRIES - 1
    while said == "" and left:
        said, left = _complaint(scans, shapes, answered, workers), left - 1
    if said is None:
        answered.save(question, True)
        return
    words = said.strip().split("\n", 1)[0][:200]
    raise Refusal(
        "the statement fails on made-up rows of its columns' types" + (f": {words}" if words else ""),
        accepted="other expressions; nothing was charged",
    )


def _complaint(scans: Sequence[Ask[Any]], shapes: Shapes, answered: SandboxAnswers, workers: Workers) -> str | None:
    """Rehearses once. Returns None for success, else DuckDB's words. They are "" if a process just ended."""
    tables = {table: columns for table, columns, _ in shapes}
    strict = StrictWorkers(workers)
    try:
        with Sandbox(answered, _with_awkward_rows) as box, box.cursor(tables) as cursor:
            rehearse(cursor, scans, strict)
            _each_alone(cursor, [ask.scan.job for ask in scans], strict)
    except InternalError:
        return next((text for text in strict.complaints or [] if text), "")
    return None


def is_plain_count(job: CountingJob) -> bool:
    """Tells whether a job counts the rows of one stored table by stored columns, so that dpduck wrote all its SQL."""
    if job.selected or job.digest or job.source.joins or not isinstance(job.source.first, Stored):
        return False
    stored = all(isinstance(part, StoredColumn) for part in _of_job(job))
    return stored and all(part == Contribution() for part in job.aggregates)


def rehearsal_key(job: CountingJob) -> Hashable:
    """Returns all parts of a job that its failure can depend on: everything but the codes of its labels."""
    attributes = tuple((attribute.sources, attribute.size) for attribute in job.attributes)
    common = replace(job, attributes=(), groups=0, cell_key=(), selected=False, texts=())
    return (common, attributes, job.groups, job.selected, job.texts)


def _with_awkward_rows(cursor: duckdb.DuckDBPyConnection, table: TableName, columns: Sequence[CatalogColumn]) -> None:
    """Adds rows of extreme values of each type, and keeps plans in the sandbox as plain as over private rows."""
    keep_plans_plain(cursor)
    values = [f"{_one_of(column.type_name)} AS {quote_identifier(column.name)}" for column in columns]
    values = [sql for sql in values if not sql.startswith("NULL")]
    if values:
        cursor.execute(f"INSERT INTO {table.sql} BY NAME SELECT {', '.join(values)} FROM range({MADE_UP_ROWS}) AS r(i)")


def awkward_values(type_name: str) -> tuple[str, ...]:
    """Lists extreme and odd values of a type as texts, none for a type that no formula computes with."""
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
    """Returns SQL for a value of the type in row i, NULL for types that nothing is computed with."""
    values = awkward_values(type_name)
    listed = ", ".join(quote_text(text) for text in values)
    return f"CAST(list_extract([{listed}], 1 + {which} % {len(values)}) AS {type_name})" if values else "NULL"


_PRIME = 7
"""Base of row numbers. A column has at most six made-up values, and NULL. In a row with digits a, b, c column k has
value number a + b k + c k^2 modulo the base. So any three of seven columns have all combinations of their values."""


def _each_alone(cursor: duckdb.DuckDBPyConnection, jobs: Sequence[CountingJob], workers: StrictWorkers) -> None:
    """Evaluates every expression of the jobs alone: in the database if it is computed there, else in a worker."""
    written = list(dict.fromkeys(formula for job in jobs for formula in _of_job(job)))
    plain = [formula for formula in written if formula.plain and not isinstance(formula, StoredColumn)]
    try:
        cursor.execute(f"SELECT {', '.join(map(_alone_sql, plain)) or 1}").fetchall()
    except duckdb.Error as error:
        workers.complaints.append(str(error))
        raise InternalError("a condition fails") from None
    programs: dict[frozenset[str], list[Expression]] = {}
    for formula in written:
        if not formula.plain and formula.columns:
            programs.setdefault(frozenset(column.relation for column in formula.columns), []).append(formula)
    for alike in programs.values():
        division = Division({f"y{n}": Output("flag", formula, "{} IS NULL") for n, formula in enumerate(alike)}, ())
        names = {column: f"c{number}" for number, column in enumerate(division.columns)}
        inputs = ", ".join(f"{sql} AS {x}" for x, sql in division.inputs(names.__getitem__).items())
        relation = cursor.sql(f"SELECT {inputs} FROM {_made_up_sql([column.type_name for column in names])}")
        with workers.runner(division.program()) as runner:
            runner.compute(relation.to_arrow_table())


def _of_job(job: CountingJob) -> list[Expression]:
    expressions = [*job.filters, *(key.value for key in job.keys), *job.texts]
    expressions += [
        part for aggregate in job.aggregates for part in (aggregate.condition, aggregate.value) if part is not None
    ]
    return [*expressions, *_of_source(job.source)]


def _of_source(source: Source) -> list[Expression]:
    expressions = list(source.filters)
    for join in source.joins:
        expressions += [formula.value if isinstance(formula, Lookup) else formula for formula in join.on]
        expressions += _of_source(join.right)
    inner = source.first
    if isinstance(inner, Stored | Grouped):
        return expressions
    if isinstance(inner, Units):
        return [*expressions, *_of_source(inner.source), *inner.conditions, *(value.value for value in inner.operands)]
    return expressions + [formula for branch in inner.branches for formula in _of_source(branch.source)]


def _alone_sql(expression: Expression) -> str:
    names = {column: f"c{number}" for number, column in enumerate(expression.columns)}
    rows_sql = _made_up_sql([column.type_name for column in names])
    return f"(SELECT count({expression.write(names.__getitem__)}) FROM {rows_sql})"


def _made_up_sql(types: Sequence[str]) -> str:
    """Returns SQL for rows of columns c0, c1, .. with the made-up values of these types, and NULL."""
    a, b, c = "i", f"i // {_PRIME}", f"i // {_PRIME**2}"
    columns = [
        f"CAST(CASE WHEN {which} < {_PRIME - 1} THEN {_one_of(type_name, which)} END AS {type_name}) AS c{k}"
        for k, type_name in enumerate(types)
        for which in [f"(({a} + {b} * {k % _PRIME} + {c} * {k * k % _PRIME}) % {_PRIME})"]
    ]
    return f"(SELECT {', '.join(columns) or '1'} FROM range({_PRIME ** min(len(types), 3)}) AS r(i))"
