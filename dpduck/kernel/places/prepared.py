"""Place of prepared tables: copies of the stored tables that a job reads, with codes and numbers (prepared_writer.py).

A job then counts the rows of the moment at which the copies were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import duckdb

from dpduck.kernel.columns.expressions import Expression, Lookup, Own, RelationColumn
from dpduck.kernel.columns.whole_numbers import Cut
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import CountingJob, GroupKey, row_copies
from dpduck.kernel.places.clamps import ClampedColumn
from dpduck.kernel.places.labels import Ask, CodedColumn, encode_condition, evaluate_on_labels, tells
from dpduck.kernel.places.place import Opened, RowPlace
from dpduck.kernel.places.prepared_writer import CODE, NUMBER, OPEN_ROWS, PLACE, ROWS_OF_UNIT, code_type
from dpduck.kernel.places.rows import LIVE, LiveRows, NumberedRows
from dpduck.kernel.relations import First, Grouped, Source, Stored, Units, adds_nulls, tables_of
from dpduck.kernel.units import Referenced, UnitTuple
from dpduck.kernel.worker.workers import Workers
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier


@dataclass(frozen=True)
class PreparedTable:
    """A prepared copy of a private table.

    sql: its name. codes: its DOMAIN columns. cuts: its columns with a CLAMP. Both are in the order of their numbers.
    unit: the column that holds the unit of each row, None for PRIVACY UNIT ROW. unit_type: its type. own: whether the
    private table has that column. max_rows: MAX ROWS of its policy. together: for a unit of several columns, these
    columns with their types. They belong to the table itself, or to the last table that its references lead to. keys:
    keys of several columns that the private table had when the copy was made.
    """

    sql: str
    codes: tuple[tuple[str, Domain], ...] = field(repr=False)
    unit: str | None
    unit_type: str
    own: bool = True
    cuts: tuple[ClampedColumn, ...] = field(default=(), repr=False)
    max_rows: int = 0
    together: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()

    def unit_of(self, alias: str) -> Expression | None:
        if self.own and self.together:
            return UnitTuple(tuple(RelationColumn(alias, name, kind) for name, kind in self.together))
        return None if self.unit is None else RelationColumn(alias, self.unit, self.unit_type)

    def codes_of(self, alias: str) -> list[tuple[str, RelationColumn, Domain]]:
        """Lists the DOMAIN columns under an alias. Each has its name, the column with its codes, and the domain."""
        listed = enumerate(self.codes)
        return [
            (name, RelationColumn(alias, CODE.format(n), code_type(domain)), domain) for n, (name, domain) in listed
        ]


Beside = Callable[
    [duckdb.DuckDBPyConnection], AbstractContextManager[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]
]


@dataclass(frozen=True)
class PreparedPlace(RowPlace):
    """Place of a statement's prepared tables. tables: prepared tables by the SQL names of the private tables.

    beside: function that yields a cursor, which reads the tables in a transaction. It also yields the names of copies
    of public tables, as the given cursor sees these tables. note_failure: function for `doubt`.
    """

    tables: Mapping[str, PreparedTable]
    beside: Beside = field(repr=False)
    note_failure: Callable[[], None] = field(repr=False)
    moment: str = ""

    @contextmanager
    def open_rows(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> Iterator[Opened]:
        jobs: dict[int, tuple[CountingJob, CountingJob]] = {}
        with self.beside(cursor) as (second, public):

            def over(job: CountingJob) -> CountingJob:
                if id(job) not in jobs:
                    ask = partial(evaluate_on_labels, second, workers)
                    jobs[id(job)] = job, over_prepared(job, self.tables, public, ask)
                return jobs[id(job)][1]

            yield second, over

    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        """Tells whether a table had this key when its prepared rows were written. The table may have changed since."""
        return table in self.tables and key in self.tables[table].keys

    def doubt(self) -> None:
        self.note_failure()


def over_prepared(
    job: CountingJob, tables: Mapping[str, PreparedTable], public: Mapping[str, str], ask: Ask
) -> CountingJob:
    """Returns the job over prepared tables and copies of public tables. ask: evaluates conditions on labels."""
    over = _Over({**{name: table.sql for name, table in tables.items()}, **public}, tables, ask)
    level = _Level(job.source, over)
    by_alias, unit = level.by_alias, level.unit_column(job.unit)
    keys = tuple(map(level.key, job.keys))
    if not level.adds_nulls:
        level.inside = frozenset(col for key in keys for col in key.value.columns)
    source = replace(level.rows(), cuts=_cuts(by_alias))
    first = "" if isinstance(source.first, Grouped) else source.first.alias
    place: LiveRows = LIVE
    if unit is not None and first in by_alias and unit == by_alias[first].unit_of(first) and _once(source):
        codes = frozenset[Expression](code for _, code, _ in by_alias[first].codes_of(first))
        crowded = job.max_rows < by_alias[first].max_rows
        rows_sql, open_sql, order_sql = (f"{quote_identifier(first)}.{col}" for col in (ROWS_OF_UNIT, OPEN_ROWS, PLACE))
        place = NumberedRows(rows_sql, open_sql, order_sql, codes=codes, repeats=crowded)
        if not 0 < job.groups < job.max_rows:  # fewer groups are chosen by a hash of the unit itself
            unit = Own((f"{quote_identifier(first)}.{NUMBER}",), "BIGINT")
    return replace(
        job,
        source=source,
        filters=tuple(map(level.condition, job.filters)),
        keys=keys,
        aggregates=tuple(map(level.aggregate, job.aggregates)),
        beside=tuple(map(level.aggregate, job.beside)),
        unit=unit,
        place=place,
        cell_key=(),  # a key of the table itself; the door has compared bounds before
    )


@dataclass(frozen=True)
class _Over:
    """Replacements of tables. names: new by old names. tables: prepared tables by old names. ask: see labels.Ask."""

    names: Mapping[str, str]
    tables: Mapping[str, PreparedTable]
    ask: Ask


class _Level:
    """Rewriter of one FROM: prepared tables in place of others, and codes in place of values.

    by_alias: prepared tables of this FROM, without those inside a UNION ALL or Units. inside: code columns for
    which rows outside of the domain are left out anyway.
    """

    def __init__(self, source: Source, over: _Over) -> None:
        self._source, self._over, self.adds_nulls = source, over, adds_nulls(source)
        self.by_alias = {node.alias: over.tables[node.table] for node in tables_of(source) if node.table in over.tables}
        self.inside = frozenset[RelationColumn]()
        self._coded: dict[Expression, Expression] = {}

    def unit_column(self, unit: Expression | None) -> Expression | None:
        """Returns a unit over prepared rows. These have its column, even if stored rows find it by references."""
        if not isinstance(unit, Referenced):
            return unit
        alias = unit.reference.relation
        return self.by_alias[alias].unit_of(alias)

    def key(self, key: GroupKey) -> GroupKey:
        """Returns the key with the code column in place of its column, if a prepared table has its codes."""
        # NULL may be in the domain, but a row of NULLs from an outer join has no code: then the key stays
        column = key.value
        if self.adds_nulls or not isinstance(column, RelationColumn):
            return key
        matches = (code for name, code, domain in self._codes(column) if (name, domain) == (column.name, key.domain))
        codes = tuple(map(str, range(key.domain.size)))
        return next((GroupKey(code, ValueDomain(code.type_name, codes)) for code in matches), key)

    def condition(self, condition: Expression) -> Expression:
        """Returns a condition over codes. An analyst's expression stays if a join adds NULLs, which have no code."""
        if isinstance(condition, Lookup) or (self.adds_nulls and not condition.plain):
            return condition
        if condition not in self._coded:
            columns = ((column, self._declaration_of(column)) for column in condition.columns)
            declared = {column: declaration for column, declaration in columns if declaration is not None}
            self._coded[condition] = encode_condition(condition, declared, self.inside, self._over.ask)
        return self._coded[condition]

    def aggregate(self, aggregate: Contribution) -> Contribution:
        """Returns the contribution, with its condition over codes unless a worker must decide some rows."""
        coded = None if aggregate.condition is None else self.condition(aggregate.condition)
        return replace(aggregate, condition=coded) if coded is not None and coded.plain else aggregate

    def rows(self) -> Source:
        rows = self._replace_tables(self._source)
        joins = (replace(join, on=tuple(map(self._on, join.on))) for join in rows.joins)
        return replace(rows, filters=tuple(map(self.condition, rows.filters)), joins=tuple(joins))

    def _on(self, condition: Expression) -> Expression:
        one_table = len({column.relation for column in condition.columns}) == 1
        return self.condition(condition) if one_table else condition

    def _codes(self, column: RelationColumn) -> list[tuple[str, RelationColumn, Domain]]:
        table = self.by_alias.get(column.relation)
        return [] if table is None else table.codes_of(column.relation)

    def _declaration_of(self, column: RelationColumn) -> CodedColumn | None:
        for name, code, domain in self._codes(column):
            if name == column.name and isinstance(domain, ValueDomain) and tells(domain, column.type_name):
                return CodedColumn(code, domain)
        return None

    def _replace_tables(self, source: Source) -> Source:
        joins = (replace(join, right=self._replace_tables(join.right)) for join in source.joins)
        return replace(source, first=self._first(source.first), joins=tuple(joins))

    def _first(self, first: First) -> First:
        if isinstance(first, Grouped):
            return first
        if isinstance(first, Stored):
            return replace(first, table=self._over.names.get(first.table, first.table))
        if isinstance(first, Units):
            level = _Level(first.source, self._over)
            counts = tuple((None if old is None else level.condition(old), name) for old, name in first.counts)
            return replace(first, source=level.rows(), unit=level.unit_column(first.unit) or first.unit, counts=counts)
        levels = [(branch, _Level(branch.source, self._over)) for branch in first.branches]
        branches = (
            replace(old, source=level.rows(), unit=level.unit_column(old.unit) or old.unit) for old, level in levels
        )
        return replace(first, branches=tuple(branches))


def _once(source: Source) -> bool:
    """Tells whether joins put each stored row into at most one row."""
    try:
        return row_copies(source) == 1
    except InternalError:
        return False


def _cuts(tables: Mapping[str, PreparedTable]) -> tuple[Cut, ...]:
    """Returns the columns that have a clamped copy in prepared rows. A copy is NULL where its column is NULL."""
    return tuple(
        clamped.clamped_columns(number, RelationColumn(alias, clamped.name, clamped.type_name))
        for alias, table in tables.items()
        for number, clamped in enumerate(table.cuts)
    )
