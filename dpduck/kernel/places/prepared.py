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
from dpduck.kernel.relations import Branch, First, Grouped, Source, Stored, Units, adds_nulls, tables_of
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

    def code(self, alias: str, number: int) -> Column:
        """Returns the column with the codes of its n-th domain, under an alias."""
        return Column(alias, CODE.format(number), code_type(self.codes[number][1]))


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
    known, source = _tables(job.source, tables), job.source
    unit = _held(job.unit, known)
    keys = tuple(_coded(key, known, source) for key in job.keys)
    inside = frozenset() if adds_nulls(source) else frozenset(one for key in keys for one in key.value.columns)
    coder = _Coder(source, known, inside, ask)
    source = replace(_renamed(coder.source(source), tables, public, ask), cuts=_cuts(known))
    first = "" if isinstance(source.first, Grouped) else source.first.alias
    place: LiveRows = LIVE
    if unit is not None and first in known and unit == known[first].unit_of(first) and _once(source):
        codes = frozenset[Expression](known[first].code(first, number) for number in range(len(known[first].codes)))
        crowded = job.max_rows < known[first].max_rows
        rows_sql, open_sql, order_sql = (f"{quote_identifier(first)}.{one}" for one in (ROWS_OF_UNIT, OPEN_ROWS, PLACE))
        place = NumberedRows(rows_sql, open_sql, order_sql, codes, crowded)
        if not 0 < job.groups < job.max_rows:  # fewer groups are chosen by a hash of the unit itself
            unit = Own((f"{quote_identifier(first)}.{NUMBER}",), "BIGINT")
    return replace(
        job,
        source=source,
        filters=tuple(map(coder.condition, job.filters)),
        keys=keys,
        aggregates=tuple(map(coder.aggregate, job.aggregates)),
        beside=tuple(map(coder.aggregate, job.beside)),
        unit=unit,
        place=place,
        cell_key=(),  # of the table itself; the door has compared bounds before
    )


class _Coder:
    """Puts codes in the place of declared columns, in the conditions of one level of a statement.

    inside: codes of which rows outside of a domain are left out anyway.
    """

    def __init__(self, source: Source, known: Mapping[str, PreparedTable], inside: frozenset[Column], ask: Ask) -> None:
        self._known, self._inside, self._ask, self._nulls = known, inside, ask, adds_nulls(source)
        self._coded: dict[Expression, Expression] = {}

    def condition(self, condition: Expression) -> Expression:
        """Returns a condition over codes. Rows of NULLs have no code: about them, a program is asked as it is."""
        if isinstance(condition, Lookup) or (self._nulls and not condition.plain):
            return condition
        if condition not in self._coded:
            columns = ((column, self._declared(column)) for column in condition.columns)
            declared = {column: one for column, one in columns if one is not None}
            self._coded[condition] = coded_condition(condition, declared, self._inside, self._ask)
        return self._coded[condition]

    def aggregate(self, aggregate: Contribution) -> Contribution:
        """Returns what a row adds, with its condition over codes, where the database reads it for rows outside."""
        coded = None if aggregate.condition is None else self.condition(aggregate.condition)
        return replace(aggregate, condition=coded) if coded is not None and coded.plain else aggregate

    def source(self, source: Source) -> Source:
        """Returns the source with its conditions over codes. What rows of two tables are joined by stays."""
        joins = (replace(join, on=tuple(map(self._on, join.on))) for join in source.joins)
        return replace(source, filters=tuple(map(self.condition, source.filters)), joins=tuple(joins))

    def _on(self, condition: Expression) -> Expression:
        one_table = len({column.relation for column in condition.columns}) == 1
        return self.condition(condition) if one_table else condition

    def _declared(self, column: Column) -> Declared | None:
        table = self._known.get(column.relation)
        for number, (name, domain) in enumerate(table.codes if table is not None else ()):
            if table is not None and name == column.name and isinstance(domain, ValueDomain):
                told = tells(domain, column.type_name)
                return Declared(table.code(column.relation, number), domain) if told else None
        return None


def _once(source: Source) -> bool:
    """Tells whether each row is there once at most."""
    try:
        return row_copies(source) == 1
    except InternalError:
        return False


def _tables(source: Source, tables: Mapping[str, PreparedTable]) -> dict[str, PreparedTable]:
    """Returns the prepared tables that a source reads itself, by their aliases."""
    return {one.alias: tables[one.table] for one in tables_of(source) if one.table in tables}


def _cuts(known: Mapping[str, PreparedTable]) -> tuple[Cut, ...]:
    """Returns the columns that prepared rows hold cut, too: NULL wherever the column is."""
    return tuple(
        clamped.cut(number, Column(alias, clamped.name, clamped.type_name))
        for alias, table in known.items()
        for number, clamped in enumerate(table.cuts)
    )


def _held(unit: Expression | None, known: Mapping[str, PreparedTable]) -> Expression | None:
    """Returns a unit as prepared rows hold it: beside each row that finds it by references."""
    if not isinstance(unit, Referenced):
        return unit
    alias = unit.reference.relation
    return known[alias].unit_of(alias)


def _coded(key: KeyColumn, known: Mapping[str, PreparedTable], source: Source) -> KeyColumn:
    """Returns the key as the codes of its domain, where it is a column of a prepared table.

    Where an outer join adds rows of NULLs, these have no code, and a value that may be in the domain.
    """
    column = key.value
    table = known.get(column.relation) if isinstance(column, Column) else None
    if adds_nulls(source) or table is None or not isinstance(column, Column):
        return key
    for number, (name, domain) in enumerate(table.codes):
        if column.name == name and domain == key.domain:
            return KeyColumn(table.code(column.relation, number), _codes_of(domain))
    return key


def _codes_of(domain: Domain) -> ValueDomain:
    """Returns the codes of a domain as a domain."""
    return ValueDomain(code_type(domain), tuple(map(str, range(domain.size))))


def _renamed(source: Source, tables: Mapping[str, PreparedTable], public: Mapping[str, str], ask: Ask) -> Source:
    """Returns the source over other tables."""
    return replace(
        source,
        first=_first(source.first, tables, public, ask),
        joins=tuple(replace(join, right=_renamed(join.right, tables, public, ask)) for join in source.joins),
    )


def _first(first: First, tables: Mapping[str, PreparedTable], public: Mapping[str, str], ask: Ask) -> First:
    """Returns rows of prepared tables. Each part of a union, or of units, has the units that these hold."""
    if isinstance(first, Stored):
        names = {**{name: table.sql for name, table in tables.items()}, **public}
        return replace(first, table=names.get(first.table, first.table))
    if isinstance(first, Units):
        known = _tables(first.source, tables)
        coder = _Coder(first.source, known, frozenset(), ask)
        counts = tuple((None if one is None else coder.condition(one), name) for one, name in first.counts)
        inner = _renamed(coder.source(first.source), tables, public, ask)
        return replace(first, source=inner, unit=_held(first.unit, known) or first.unit, counts=counts)
    if isinstance(first, Grouped):
        return first
    return replace(first, branches=tuple(_branch(branch, tables, public, ask) for branch in first.branches))


def _branch(branch: Branch, tables: Mapping[str, PreparedTable], public: Mapping[str, str], ask: Ask) -> Branch:
    known = _tables(branch.source, tables)
    inner = _renamed(_Coder(branch.source, known, frozenset(), ask).source(branch.source), tables, public, ask)
    return replace(branch, source=inner, unit=_held(branch.unit, known) or branch.unit)
