"""Rows of prepared tables, which stand for the tables that a job reads (twin_writer.py).

The counts of a job stay those of the tables at the moment when these were prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import duckdb

from dpduck.kernel.columns.arithmetic import Cut
from dpduck.kernel.columns.expressions import Column, Expression, Lookup, Own
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import CountingJob, KeyColumn, row_copies
from dpduck.kernel.places.clamps import ClampedColumn
from dpduck.kernel.places.labels import Ask, Declared, asked_of_labels, coded_condition, tells
from dpduck.kernel.places.place import Opened, Place
from dpduck.kernel.places.rows import LIVE, LiveRows, NumberedRows
from dpduck.kernel.places.twin_writer import CODE, NUMBER, OPEN_ROWS, PLACE, ROWS_OF_UNIT, code_type
from dpduck.kernel.relations import First, Grouped, Source, Stored, Units, adds_nulls, tables_of
from dpduck.kernel.units import Referenced, Together
from dpduck.kernel.worker.workers import Workers
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier


@dataclass(frozen=True)
class PreparedTable:
    """A prepared table, which stands for a private one.

    sql: its name. codes: its DOMAIN columns, in the order of their numbers.
    unit: the column that holds the unit of each row, of DuckDB's type unit_type; None for PRIVACY UNIT ROW.
    own: whether the private table has it. cuts: columns with a CLAMP, in the order of their numbers. max_rows: of its
    policy. together: where several columns hold the unit, these, with their types: of the table itself, or of the last
    that its references lead to. keys: of several columns, which the private table had when it was written.
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
        """Returns the unit of its rows under an alias, None where rows are units."""
        if self.own and self.together:
            return Together(tuple(Column(alias, name, kind) for name, kind in self.together))
        return None if self.unit is None else Column(alias, self.unit, self.unit_type)

    def codes_of(self, alias: str) -> list[tuple[str, Column, Domain]]:
        """Lists its DOMAIN columns under an alias: the name of each, the column with its codes, and the domain."""
        listed = enumerate(self.codes)
        return [(name, Column(alias, CODE.format(n), code_type(domain)), domain) for n, (name, domain) in listed]


Beside = Callable[
    [duckdb.DuckDBPyConnection], AbstractContextManager[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]
]


@dataclass(frozen=True)
class PreparedPlace(Place):
    """The prepared tables that a statement is counted over, by the names in SQL of the tables that they stand for.

    beside: a cursor that reads them, in a transaction, and names of copies of public tables as the given one sees them.
    note_failure: says that something could not be counted.
    """

    tables: Mapping[str, PreparedTable]
    beside: Beside = field(repr=False)
    note_failure: Callable[[], None] = field(repr=False)
    moment: str = ""

    @contextmanager
    def opened(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> Iterator[Opened]:
        known: dict[int, tuple[CountingJob, CountingJob]] = {}
        with self.beside(cursor) as (second, public):

            def over(job: CountingJob) -> CountingJob:
                if id(job) not in known:
                    ask = partial(asked_of_labels, second, workers)
                    known[id(job)] = job, over_prepared(job, self.tables, public, ask)
                return known[id(job)][1]

            yield second, over

    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        """Tells whether a table had a key when it was written: its rows may be older than the table."""
        return table in self.tables and key in self.tables[table].keys

    def doubt(self) -> None:
        self.note_failure()


def over_prepared(
    job: CountingJob, tables: Mapping[str, PreparedTable], public: Mapping[str, str], ask: Ask
) -> CountingJob:
    """Returns the job over prepared tables, and over copies of its public ones.

    tables, public: by the names in SQL of the tables that they stand for. ask: of labels, in place of rows.
    """
    over = _Over({**{name: table.sql for name, table in tables.items()}, **public}, tables, ask)
    level = _Level(job.source, over)
    known, unit = level.known, level.held(job.unit)
    keys = tuple(map(level.key, job.keys))
    if not level.adds_nulls:
        level.inside = frozenset(one for key in keys for one in key.value.columns)
    source = replace(level.rows(), cuts=_cuts(known))
    first = "" if isinstance(source.first, Grouped) else source.first.alias
    place: LiveRows = LIVE
    if unit is not None and first in known and unit == known[first].unit_of(first) and _once(source):
        codes = frozenset[Expression](code for _, code, _ in known[first].codes_of(first))
        crowded = job.max_rows < known[first].max_rows
        rows_sql, open_sql, order_sql = (f"{quote_identifier(first)}.{one}" for one in (ROWS_OF_UNIT, OPEN_ROWS, PLACE))
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
        cell_key=(),  # of the table itself; the door has compared bounds before
    )


@dataclass(frozen=True)
class _Over:
    """The tables that stand for others. names: their names by those of the others. ask: of labels, in place of rows."""

    names: Mapping[str, str]
    tables: Mapping[str, PreparedTable]
    ask: Ask


class _Level:
    """One level of a statement over prepared tables, with codes in the place of declared columns.

    known: the prepared tables that it reads itself, by their aliases. inside: codes of which rows outside of a domain
    are left out anyway.
    """

    def __init__(self, source: Source, over: _Over) -> None:
        self._source, self._over, self.adds_nulls = source, over, adds_nulls(source)
        self.known = {one.alias: over.tables[one.table] for one in tables_of(source) if one.table in over.tables}
        self.inside = frozenset[Column]()
        self._coded: dict[Expression, Expression] = {}

    def held(self, unit: Expression | None) -> Expression | None:
        """Returns a unit as prepared rows hold it: beside each row that finds it by references."""
        if not isinstance(unit, Referenced):
            return unit
        alias = unit.reference.relation
        return self.known[alias].unit_of(alias)

    def key(self, key: KeyColumn) -> KeyColumn:
        """Returns the key as the codes of its domain, where it is a column of a prepared table.

        Where an outer join adds rows of NULLs, these have no code, and a value that may be in the domain.
        """
        column = key.value
        if self.adds_nulls or not isinstance(column, Column):
            return key
        found = (code for name, code, domain in self._codes(column) if (name, domain) == (column.name, key.domain))
        codes = tuple(map(str, range(key.domain.size)))
        return next((KeyColumn(code, ValueDomain(code.type_name, codes)) for code in found), key)

    def condition(self, condition: Expression) -> Expression:
        """Returns a condition over codes. Rows of NULLs have no code: about them, a program is asked as it is."""
        if isinstance(condition, Lookup) or (self.adds_nulls and not condition.plain):
            return condition
        if condition not in self._coded:
            columns = ((column, self._declared(column)) for column in condition.columns)
            declared = {column: one for column, one in columns if one is not None}
            self._coded[condition] = coded_condition(condition, declared, self.inside, self._over.ask)
        return self._coded[condition]

    def aggregate(self, aggregate: Contribution) -> Contribution:
        """Returns what a row adds, with its condition over codes, where the database reads it for rows outside."""
        coded = None if aggregate.condition is None else self.condition(aggregate.condition)
        return replace(aggregate, condition=coded) if coded is not None and coded.plain else aggregate

    def rows(self) -> Source:
        """Returns its rows, with its conditions over codes. What rows of two tables are joined by stays."""
        rows = self._renamed(self._source)
        joins = (replace(join, on=tuple(map(self._on, join.on))) for join in rows.joins)
        return replace(rows, filters=tuple(map(self.condition, rows.filters)), joins=tuple(joins))

    def _on(self, condition: Expression) -> Expression:
        one_table = len({column.relation for column in condition.columns}) == 1
        return self.condition(condition) if one_table else condition

    def _codes(self, column: Column) -> list[tuple[str, Column, Domain]]:
        table = self.known.get(column.relation)
        return [] if table is None else table.codes_of(column.relation)

    def _declared(self, column: Column) -> Declared | None:
        for name, code, domain in self._codes(column):
            if name == column.name and isinstance(domain, ValueDomain) and tells(domain, column.type_name):
                return Declared(code, domain)
        return None

    def _renamed(self, source: Source) -> Source:
        """Returns the source over other tables."""
        joins = (replace(join, right=self._renamed(join.right)) for join in source.joins)
        return replace(source, first=self._first(source.first), joins=tuple(joins))

    def _first(self, first: First) -> First:
        """Returns rows of prepared tables. Each part of a union, or of units, has the units that these hold."""
        if isinstance(first, Grouped):
            return first
        if isinstance(first, Stored):
            return replace(first, table=self._over.names.get(first.table, first.table))
        if isinstance(first, Units):
            level = _Level(first.source, self._over)
            counts = tuple((None if one is None else level.condition(one), name) for one, name in first.counts)
            return replace(first, source=level.rows(), unit=level.held(first.unit) or first.unit, counts=counts)
        levels = [(branch, _Level(branch.source, self._over)) for branch in first.branches]
        branches = (replace(one, source=level.rows(), unit=level.held(one.unit) or one.unit) for one, level in levels)
        return replace(first, branches=tuple(branches))


def _once(source: Source) -> bool:
    """Tells whether each row is there once at most."""
    try:
        return row_copies(source) == 1
    except InternalError:
        return False


def _cuts(known: Mapping[str, PreparedTable]) -> tuple[Cut, ...]:
    """Returns the columns that prepared rows hold cut, too: NULL wherever the column is."""
    return tuple(
        clamped.cut(number, Column(alias, clamped.name, clamped.type_name))
        for alias, table in known.items()
        for number, clamped in enumerate(table.cuts)
    )
