"""Rows of a scan: what is read of each by the database's process, and how the worker's answers are put beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import duckdb

from dpduck.kernel.columns.arithmetic import Computed, Cut, Double
from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.columns.expressions import Column, Expression
from dpduck.kernel.columns.periods import paired_sql
from dpduck.kernel.columns.stored import instant_sql, shortened_sql, text_sql
from dpduck.kernel.contributions import (
    KEY,
    UNIT,
    UNIT_HASH,
    Contribution,
    Crowds,
    Known,
    order_sql,
)
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.places.engine import EngineRows, Parts, counted_in_engine
from dpduck.kernel.places.rows import LIVE, LiveRows
from dpduck.kernel.relations import (
    EXTENDING,
    Source,
    Stored,
    Union,
    most_copies,
    repeats,
)
from dpduck.kernel.rows import crowds
from dpduck.kernel.rows.held import hashed_sql
from dpduck.kernel.rows.placed import Stage, placed
from dpduck.kernel.units import REFERENCE, ROWS, Referenced, Together, lookup_sql, period_of, person_of
from dpduck.kernel.worker.answered import answered
from dpduck.kernel.worker.program import Division, longest_lookup, longest_read, longest_repeated, staged
from dpduck.kernel.worker.workers import Workers
from dpduck.values.errors import InternalError
from dpduck.values.sqltypes import sql_type

Parameters = Mapping[str, object]


@dataclass(frozen=True)
class Scan:
    """The rows of a job, divided: FROM and WHERE that the database reads, conditions that a worker decides.

    order: of a unit's rows. place: that the rows lie in. joined: whether there are joins.
    alone: of an engine's rows, whether each comes of one private row, and of no other one.
    copies: the most rows that joins make of one. repeats: whether one may stand beside any number of others.
    cuts: columns that rows hold cut, too. unit: without its period. period: its number, where units are by periods.
    """

    from_sql: str
    where: tuple[str, ...]
    moved: tuple[Expression, ...]
    stages: tuple[Stage, ...]
    unit: Expression | None
    unit_type: str
    order: str
    place: LiveRows = field(default=LIVE, repr=False)
    joined: bool = False
    alone: bool = False
    copies: int = 1
    cuts: tuple[Cut, ...] = field(default=(), repr=False)
    period: Expression | None = None
    repeats: bool = False

    @property
    def longest_key(self) -> int:
        """Returns bytes that the texts of a row may have together that it is grouped by, where they are stored ones."""
        if self.repeats:
            return longest_repeated(self.copies)
        return max(longest_repeated(self.copies), longest_read(1, self.copies))

    @property
    def longest_lookup(self) -> int:
        """Returns bytes that a text may have that is looked up among a public table's keys; see LONGEST_KEY."""
        return longest_lookup(self.copies, self.repeats)

    def known(self, keys: Sequence[Expression] | None, worker: bool) -> Known:
        """Returns what is known of the units of rows that are grouped by these keys. worker: whether one answers for
        rows.

        Rows are left out by conditions, by joins, by a worker that could not compute them, and by other keys than codes
        of domains; keys: None where anything else may leave out rows.
        """
        # two joins take longer than to hold what one leaves, where conditions can be expected to leave few rows of many
        once = worker or (self.joined and bool(self.where))
        free = not (self.where or self.moved or self.stages or self.joined or worker)
        return self.place.known(once, keys if free else None)

    def ordering(self) -> dict[str, str]:
        """Returns columns by which a unit's rows are bounded, but for the unit."""
        return self.place.ordering(self.order)

    @property
    def bounding(self) -> list[str]:
        """Returns the columns by which a unit's rows are bounded; none without a unit."""
        return [] if self.unit is None else [UNIT, *self.ordering()]

    def number(self, value: Expression) -> Computed | None:
        """Returns how the database computes a number itself; None where it does not."""
        if isinstance(value, Double):
            return value.computed(self.cuts)
        return Computed(value.sql) if value.plain else None

    def steps(self, aggregate: Contribution) -> str:
        """Returns the column in which rows hold a number in steps already; "" where they do not."""
        column = aggregate.value.column if isinstance(aggregate.value, Double) else None
        ends = (column, aggregate.low, aggregate.high, aggregate.step)
        if self.unit is None or aggregate.per_group:
            return ""
        found = (one.steps_sql for one in self.cuts if (one.column, one.low, one.high, one.step) == ends)
        return next(found, "")


def scan_of(job: CountingJob) -> Scan:
    """Returns a job's rows."""
    source, unit = job.source, person_of(job.unit)
    found_by = isinstance(unit, Referenced)
    # of prepared rows, what is known of a unit is so where joins do not repeat them; ranked rows may be repeated
    copied = job.unit is None or not job.place.repeats
    ordered, private = job.unit is not None and not job.place.is_numbered, job.place.private
    found = placed(
        source, job.filters, copied=copied, joined=found_by, read=_read(job),
        content=job.content if ordered else (), periods=job.periods,
    )  # fmt: skip
    content = [hashed_sql(one.sql, one.type_name if isinstance(one, Column) else "") for one in job.content]
    order = found.order[0] if len(found.order) == 1 else order_sql(found.order or content)
    return Scan(
        found.from_sql, found.where, found.moved, found.stages, unit, job.unit_type, order,
        job.place, bool(source.joins), not found_by and job.place.in_engine and _firsts(source, private) == private,
        most_copies(source), source.cuts, period_of(job.unit), repeats(source),
    )  # fmt: skip


def _read(job: CountingJob) -> list[Expression]:
    """Lists what a job reads of rows beside their source's conditions."""
    found = [*(key.value for key in job.keys), *job.texts, *([] if job.digest is None else [job.digest])]
    found += [part for one in job.aggregates for part in (one.condition, one.value) if part is not None]
    found += [] if job.unit is None else [job.unit]
    return found


def _firsts(source: Source, private: frozenset[str]) -> frozenset[str]:
    """Returns the private tables whose rows are the source's, one by one; none where rows come of several rows."""
    for join in source.joins:
        right = join.right
        if join.kind in EXTENDING or right.joins or not isinstance(right.first, Stored) or right.first.table in private:
            return frozenset()
    if isinstance(source.first, Stored):
        return frozenset((source.first.table,)) & private
    branches = source.first.branches if isinstance(source.first, Union) else ()
    found = [_firsts(branch.rows, private) for branch in branches]
    return frozenset[str]().union(*found) if all(found) else frozenset()


def _key(parameters: Parameters) -> int:
    key = parameters[KEY]
    if not isinstance(key, int):
        raise InternalError("an order without a key")
    return key


def rows_sql(scan: Scan, outputs: Mapping[str, str], conditions: Sequence[str], division: Division) -> str:
    """SELECT of the outputs, of what the worker needs, and of the unit and its order where there is one.

    Where the unit is looked up, rows are filtered and narrowed before that. A looked-up row has a reference, so that
    the condition is that of the unit alone. It is written over both sides because DuckDB takes a condition on the
    table of units for one that leaves a fifth of them, and hashes that table in place of the few rows that are looked
    up: of TPC-H query 6, twice the time.
    """
    several = isinstance(scan.unit.unit if isinstance(scan.unit, Referenced) else scan.unit, Together)
    if several and scan.unit_type:  # a text that is made once, and then made short
        rows = rows_sql(replace(scan, unit_type=""), outputs, conditions, division)
        return f"SELECT * REPLACE ({shortened_sql(UNIT, scan.unit_type)} AS {UNIT}) FROM ({rows})"
    conditions = [*scan.where, *conditions, *division.guards()]
    outputs = {**outputs, **division.inputs()}
    if scan.unit is None:
        return _select(outputs, scan.from_sql, conditions)
    written = f"({scan.unit.sql})" if several else scan.unit.sql
    text = _unit_text(written, scan.unit_type, division.needed)
    unit = text if scan.period is None else paired_sql(text, scan.period.sql)
    outputs = {**outputs, **scan.ordering()}
    if scan.place.is_numbered and not division.needed:  # the stage looks at numbers that are NULL where the unit is
        return _select({**outputs, UNIT: unit}, scan.from_sql, conditions)
    there = f"{shortened_sql(written, scan.unit_type)} IS NOT NULL"
    if not isinstance(scan.unit, Referenced):
        return _select({**outputs, UNIT: unit}, scan.from_sql, [*conditions, there])
    rows = _select({**outputs, REFERENCE: scan.unit.reference.sql}, scan.from_sql, conditions)
    return (
        f"SELECT {', '.join(f'{ROWS}.{name}' for name in outputs)}, {unit} AS {UNIT} FROM ({rows}) AS {ROWS} "
        f"{lookup_sql(scan.unit)}{where_sql([f'{there} OR {ROWS}.{REFERENCE} IS NULL'])}"
    )


def _unit_text(unit: str, type_name: str, travelling: bool) -> str:
    """Returns a unit as it stands beside a row. travelling: through Arrow, as a value that goes unchanged or a text."""
    short = shortened_sql(unit, type_name)
    if not travelling or sql_type(type_name).travels:
        return short
    return instant_sql(unit) if type_name == "TIMESTAMP WITH TIME ZONE" else text_sql(short, type_name)


def _select(outputs: Mapping[str, str], from_sql: str, conditions: Sequence[str]) -> str:
    listed = ", ".join(f"{sql} AS {name}" for name, sql in outputs.items()) or "1 AS dpduck_row"
    return f"SELECT {listed} FROM {from_sql}{where_sql(conditions)}"


@dataclass(frozen=True)
class Ranked:
    """A job of which at most so many rows of a unit as it says are kept. rows: writes its rows over another scan.

    few: units with more rows are looked for, max_rows of the job if not given.
    """

    job: CountingJob
    rows: Callable[[Scan], str]
    few: int | None = None


@contextmanager
def counted(
    cursor: duckdb.DuckDBPyConnection,
    scan: Scan,
    sql: str,
    parameters: Parameters,
    division: Division,
    workers: Workers | None,
    stage: Callable[[str, Crowds | None], str],
    given: Parameters = MappingProxyType({}),
    parts: Parts | None = None,
    *,
    texts: bool = False,
    ranked: Ranked | None = None,
) -> Iterator[tuple[str, duckdb.DuckDBPyConnection, Parameters]]:
    """Returns SQL of the counts of rows, a cursor that reads it, and its parameters.

    sql: of the rows; the worker's answers are among their columns. workers: None for those that are started and ended
        here. stage: SQL of counts over SQL of rows, with the units that have too many rows.
        given: further parameters of it. parts: of an engine's rows. texts: whether the SQL has texts or bytes among its
        columns besides the unit and what the worker gets. ranked: where a unit's rows are ranked.
    """
    with ExitStack() as stack:
        if workers is None:
            workers = Workers()
            stack.callback(workers.close)
        stages = [staged(one, workers, scan.longest_lookup) for one in scan.stages]
        longer = texts or (scan.unit is not None and not sql_type(scan.unit_type).has_fixed_size)
        asking = division.asking(sql, parameters, longer)
        if not isinstance(scan.place, EngineRows):
            second, own = stack.enter_context(answered(cursor, stages, asking, workers))
            found = None if ranked is None or division.needed else _crowds(second, scan, ranked, {**own, **given})
            if found is not None and found.table:
                stack.callback(second.unregister, found.table)
            yield stage(asking.answered_sql, found), second, {**own, **given}
            return
        parts = parts if scan.alone and scan.unit is not None else None
        key = None if parts is not None or scan.unit is None else _key({**parameters, **given})

        def there_sql(rows: str) -> str:
            return stage(rows, None)

        there = counted_in_engine(cursor, scan.place, stages, asking, there_sql, given, workers, parts, key)
        added, second = stack.enter_context(there)
        yield added, second, {}


def _crowds(cursor: duckdb.DuckDBPyConnection, scan: Scan, ranked: Ranked, parameters: Parameters) -> Crowds | None:
    """Returns the units with too many rows, where these are the rows of one table, which can be read twice."""
    job, source, unit = ranked.job, ranked.job.source, scan.unit
    joined = scan.joined or isinstance(unit, Referenced) or scan.stages or scan.place != LIVE
    if unit is None or joined or scan.period is not None or not sql_type(scan.unit_type).has_one_hash:
        return None
    if not isinstance(source.first, Stored):
        return None
    stored, count = source.first, crowds.rows_of(cursor, source.first.sql)
    if not count:
        return None
    if scan.where:
        first = replace(stored, table=crowds.sampled_sql(stored.table, count))
        sampled = scan_of(replace(job, source=replace(source, first=first)))
        if not crowds.are_many(cursor, _units_sql(sampled), count, parameters):
            return None
    few = job.max_rows if ranked.few is None else min(ranked.few, job.max_rows)
    crowded = crowds.put_crowds(cursor, _units_sql(scan), count, few, parameters)
    if not crowded:
        return None if crowded is None else Crowds()
    theirs = f"{scan.from_sql} SEMI JOIN {crowds.CROWDS} ON hash({unit.sql}) = {UNIT_HASH}"
    return Crowds(crowds.CROWDS, ranked.rows(replace(scan, from_sql=theirs)))


def _units_sql(scan: Scan) -> str:
    """Returns the unit of each row, and NULL for rows of nobody: that these are many changes nothing."""
    return _select({UNIT: "NULL" if scan.unit is None else scan.unit.sql}, scan.from_sql, scan.where)
