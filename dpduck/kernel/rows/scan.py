"""SQL of the rows of a job: the columns that the database's process reads, the unit, and the order of a unit's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpduck.kernel.columns.arithmetic import Computed, Double
from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.columns.expressions import Expression, RelationColumn
from dpduck.kernel.columns.periods import pair_sql
from dpduck.kernel.columns.stored import instant_sql, shorten_sql, text_sql
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.relations import EXTENDING, Source, Stored, Union, most_copies, repeats
from dpduck.kernel.rows.bounding import UNIT, order_sql
from dpduck.kernel.rows.held import hash_input_sql
from dpduck.kernel.rows.placed import SourceSql, render_source
from dpduck.kernel.units import REFERENCE, ROWS, Referenced, UnitTuple, lookup_sql, period_of, person_of
from dpduck.kernel.worker.program import Division, longest_lookup, longest_read, longest_repeated
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True)
class JobScan(SourceSql):
    """SQL of the rows of a job as the database reads them, with the conditions that are left to a worker (moved)."""

    job: CountingJob = field(kw_only=True, repr=False)

    @property
    def unit(self) -> Expression | None:
        """Returns a row's privacy unit without the period, None if each row is a unit."""
        return person_of(self.job.unit)

    @property
    def units_sql(self) -> str:
        """Returns SQL of the unit of each row, NULL for rows without a unit. Such rows are never counted."""
        return _select({UNIT: "NULL" if self.unit is None else self.unit.sql}, self.from_sql, self.where)

    @property
    def longest_key(self) -> int:
        copies = most_copies(self.job.source)
        if repeats(self.job.source):
            return longest_repeated(copies)
        return max(longest_repeated(copies), longest_read(1, copies))

    @property
    def longest_lookup(self) -> int:
        return longest_lookup(most_copies(self.job.source), repeats(self.job.source))

    def ordering(self) -> dict[str, str]:
        content = [
            hash_input_sql(col.sql, col.type_name if isinstance(col, RelationColumn) else "")
            for col in self.job.content
        ]
        order = self.order[0] if len(self.order) == 1 else order_sql(self.order or content)
        return self.job.place.ordering(order)

    @property
    def bounding(self) -> list[str]:
        return [] if self.unit is None else [UNIT, *self.ordering()]

    def number(self, value: Expression) -> Computed | None:
        """Returns SQL of a number, if the database computes it itself. None if a worker computes it."""
        if isinstance(value, Double):
            return value.computation(self.job.source.cuts)
        return Computed(value.sql) if value.plain else None

    def steps(self, aggregate: Contribution) -> str:
        """Returns the column of prepared rows with an aggregate's value in steps, "" if there is none."""
        column = aggregate.value.column if isinstance(aggregate.value, Double) else None
        ends = (column, aggregate.low, aggregate.high, aggregate.step)
        if self.unit is None or aggregate.per_group:
            return ""
        matches = (cut.steps_sql for cut in self.job.source.cuts if (cut.column, cut.low, cut.high, cut.step) == ends)
        return next(matches, "")


def scan_of(job: CountingJob) -> JobScan:
    """Renders the rows of a job as SQL."""
    # facts about a unit's prepared rows hold if joins do not repeat them; ranked rows may be repeated
    copied = job.unit is None or not job.place.repeats
    ordered = job.unit is not None and not job.place.is_numbered
    rows = render_source(
        job.source, job.filters, copied=copied, joined=isinstance(person_of(job.unit), Referenced),
        read=_read_expressions(job), content=job.content if ordered else (), periods=job.periods,
    )  # fmt: skip
    return JobScan(rows.from_sql, rows.where, rows.moved, rows.stages, rows.order, job=job)


def _read_expressions(job: CountingJob) -> list[Expression]:
    expressions = [*(key.value for key in job.keys), *job.texts, *([] if job.digest is None else [job.digest])]
    expressions += [part for total in job.aggregates for part in (total.condition, total.value) if part is not None]
    expressions += [] if job.unit is None else [job.unit]
    return expressions


def is_row_by_row(job: CountingJob, private: frozenset[str]) -> bool:
    """Tells whether a job reads all these private tables, and makes each of its rows from one row of one of them."""
    return not isinstance(person_of(job.unit), Referenced) and _firsts(job.source, private) == private


def _firsts(source: Source, private: frozenset[str]) -> frozenset[str]:
    """Returns the private tables with rows that each make whole rows here. Empty if a row is made from several rows."""
    for join in source.joins:
        right = join.right
        if join.kind in EXTENDING or right.joins or not isinstance(right.first, Stored) or right.first.table in private:
            return frozenset()
    if isinstance(source.first, Stored):
        return frozenset((source.first.table,)) & private
    branches = source.first.branches if isinstance(source.first, Union) else ()
    tables = [_firsts(branch.rows, private) for branch in branches]
    return frozenset[str]().union(*tables) if all(tables) else frozenset()


def rows_sql(scan: JobScan, outputs: Mapping[str, str], conditions: Sequence[str], division: Division) -> str:
    """Writes a SELECT of the outputs, the worker's inputs, and the unit and its order if there is one.

    If the unit is in another table, rows are filtered before that table is joined. The last condition names the unit
    and the reference. If it named the unit alone, DuckDB would hash the table of units instead of the few filtered
    rows, which takes TPC-H query 6 twice the time.
    """
    unit, unit_type, period = scan.unit, scan.job.unit_type, period_of(scan.job.unit)
    conditions, outputs = [*scan.where, *conditions, *division.guards()], {**outputs, **division.inputs()}
    if unit is None:
        return _select(outputs, scan.from_sql, conditions)
    several = isinstance(unit.unit if isinstance(unit, Referenced) else unit, UnitTuple)
    written, type_name = (f"({unit.sql})", "") if several else (unit.sql, unit_type)
    text = _unit_text(written, type_name, division.has_work)
    text = text if period is None else pair_sql(text, period.sql)
    outputs, has_unit = {**outputs, **scan.ordering()}, f"{shorten_sql(written, type_name)} IS NOT NULL"
    if isinstance(unit, Referenced):
        rows = _select({**outputs, REFERENCE: unit.reference.sql}, scan.from_sql, conditions)
        rows = (
            f"SELECT {', '.join(f'{ROWS}.{name}' for name in outputs)}, {text} AS {UNIT} FROM ({rows}) AS {ROWS} "
            f"{lookup_sql(unit)}{where_sql([f'{has_unit} OR {ROWS}.{REFERENCE} IS NULL'])}"
        )
    else:  # numbered rows need no condition: their number is NULL if the unit is, and the stage drops them
        numbered = scan.job.place.is_numbered and not division.has_work
        rows = _select({**outputs, UNIT: text}, scan.from_sql, [*conditions, *([] if numbered else [has_unit])])
    if several:  # the text of the unit is made once, and shortened outside
        rows = f"SELECT * REPLACE ({shorten_sql(UNIT, unit_type)} AS {UNIT}) FROM ({rows})"
    return rows


def _unit_text(unit: str, type_name: str, travelling: bool) -> str:
    """Writes the unit of a row, shortened. travelling: whether Arrow must carry its type unchanged."""
    short = shorten_sql(unit, type_name)
    if not travelling or sql_type(type_name).travels:
        return short
    return instant_sql(unit) if type_name == "TIMESTAMP WITH TIME ZONE" else text_sql(short, type_name)


def _select(outputs: Mapping[str, str], from_sql: str, conditions: Sequence[str]) -> str:
    listed = ", ".join(f"{sql} AS {name}" for name, sql in outputs.items()) or "1 AS dpduck_row"
    return f"SELECT {listed} FROM {from_sql}{where_sql(conditions)}"
