"""Counting over prepared tables: twins stand in the place of the tables that a job reads (twin_writer.py).

What is counted stays what it was.
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
from dpduck.kernel.counting.jobs import CountingJob, KeyColumn, Prepared, row_copies
from dpduck.kernel.places.clamps import ClampedColumn
from dpduck.kernel.places.elsewhere import Apart
from dpduck.kernel.places.labels import Ask, Declared, asked_of_labels, coded_condition, tells
from dpduck.kernel.places.twin_writer import CODE, NUMBER, OPEN_ROWS, PLACE, ROWS_OF_UNIT, code_type
from dpduck.kernel.relations import Branch, First, Grouped, Source, Stored, Units, adds_nulls, tables_of
from dpduck.kernel.rows import reader
from dpduck.kernel.units import Referenced, Together
from dpduck.kernel.worker.workers import Workers
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.quoting import quote_identifier, quote_text


@dataclass(frozen=True)
class Twin:
    """A table that stands for a private one. sql: its name. codes: its DOMAIN columns, in the order of their numbers.

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
class Twins:
    """The twins that a statement is counted over, by the names in SQL of the tables that they stand for.

    beside: a cursor that reads them, in a transaction, and names of copies of public tables as the given one sees them.
    doubt: says that something could not be counted. moment: of the rows, equal for twins that were written together.
    """

    tables: Mapping[str, Twin]
    beside: Beside = field(repr=False)
    doubt: Callable[[], None] = field(repr=False)
    moment: str = ""


@contextmanager
def counted_over(
    cursor: duckdb.DuckDBPyConnection, twins: Twins | Apart | None, workers: Workers
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Callable[[CountingJob], CountingJob]]]:
    """Tells where to count, and what becomes of each job: the tables themselves, if not prepared or elsewhere."""
    if twins is None:
        yield cursor, lambda job: job
        return
    if isinstance(twins, Apart):
        elsewhere = twins.open(cursor)
        yield cursor, lambda job: replace(job, elsewhere=elsewhere)
        return
    known: dict[int, tuple[CountingJob, CountingJob]] = {}
    with twins.beside(cursor) as (second, public):

        def prepared(job: CountingJob) -> CountingJob:
            if id(job) not in known:
                ask = partial(asked_of_labels, second, workers)
                known[id(job)] = job, over_twins(job, twins.tables, public, ask)
            return known[id(job)][1]

        yield second, prepared


def over_twins(job: CountingJob, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> CountingJob:
    """Returns the job over twins of its private tables, and over copies of its public ones, by their names in SQL.

    ask: of labels, in place of rows.
    """
    known, source = _tables(job.source, twins), job.source
    unit = _held(job.unit, known)
    keys = tuple(_coded(key, known, source) for key in job.keys)
    inside = frozenset() if adds_nulls(source) else frozenset(one for key in keys for one in key.value.columns)
    coder = _Coder(source, known, inside, ask)
    source = replace(_renamed(coder.source(source), twins, public, ask), cuts=_cuts(known))
    first = "" if isinstance(source.first, Grouped) else source.first.alias
    prepared = None
    if unit is not None and first in known and unit == known[first].unit_of(first) and _once(source):
        codes = frozenset[Expression](known[first].code(first, number) for number in range(len(known[first].codes)))
        crowded = job.max_rows < known[first].max_rows
        rows, outside, place = (f"{quote_identifier(first)}.{name}" for name in (ROWS_OF_UNIT, OPEN_ROWS, PLACE))
        prepared = Prepared(rows, outside, place, codes, crowded)
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
        prepared=prepared,
        cell_key=(),  # of the table itself; the door has compared bounds before
    )


class _Coder:
    """Puts codes in the place of declared columns, in the conditions of one level of a statement.

    inside: codes of which rows outside of a domain are left out anyway.
    """

    def __init__(self, source: Source, known: Mapping[str, Twin], inside: frozenset[Column], ask: Ask) -> None:
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
        twin = self._known.get(column.relation)
        for number, (name, domain) in enumerate(twin.codes if twin is not None else ()):
            if twin is not None and name == column.name and isinstance(domain, ValueDomain):
                return Declared(twin.code(column.relation, number), domain) if tells(domain, column.type_name) else None
        return None


def _once(source: Source) -> bool:
    """Tells whether each row is there once at most."""
    try:
        return row_copies(source) == 1
    except InternalError:
        return False


def _tables(source: Source, twins: Mapping[str, Twin]) -> dict[str, Twin]:
    """Returns the twins that a source reads itself, by their aliases."""
    return {one.alias: twins[one.table] for one in tables_of(source) if one.table in twins}


def _cuts(known: Mapping[str, Twin]) -> tuple[Cut, ...]:
    """Returns the columns that twins hold cut, too: NULL wherever the column is."""
    return tuple(
        clamped.cut(number, Column(alias, clamped.name, clamped.type_name))
        for alias, twin in known.items()
        for number, clamped in enumerate(twin.cuts)
    )


def _held(unit: Expression | None, known: Mapping[str, Twin]) -> Expression | None:
    """Returns a unit as twins hold it: beside each row that finds it by references."""
    if not isinstance(unit, Referenced):
        return unit
    alias = unit.reference.relation
    return known[alias].unit_of(alias)


def _coded(key: KeyColumn, known: Mapping[str, Twin], source: Source) -> KeyColumn:
    """Returns the key as the codes of its domain, where it is a column of a twin that has them.

    Where an outer join adds rows of NULLs, these have no code, and a value that may be in the domain.
    """
    column = key.value
    twin = known.get(column.relation) if isinstance(column, Column) else None
    if adds_nulls(source) or twin is None or not isinstance(column, Column):
        return key
    for number, (name, domain) in enumerate(twin.codes):
        if column.name == name and domain == key.domain:
            return KeyColumn(twin.code(column.relation, number), _codes_of(domain))
    return key


def _codes_of(domain: Domain) -> ValueDomain:
    """Returns the codes of a domain as a domain."""
    return ValueDomain(code_type(domain), tuple(map(str, range(domain.size))))


def _renamed(source: Source, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> Source:
    """Returns the source over other tables."""
    return replace(
        source,
        first=_first(source.first, twins, public, ask),
        joins=tuple(replace(join, right=_renamed(join.right, twins, public, ask)) for join in source.joins),
    )


def _first(first: First, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> First:
    """Returns rows of a twin; of a union or of units, each part with the units that its twins hold."""
    if isinstance(first, Stored):
        names = {**{name: twin.sql for name, twin in twins.items()}, **public}
        return replace(first, table=names.get(first.table, first.table))
    if isinstance(first, Units):
        known = _tables(first.source, twins)
        coder = _Coder(first.source, known, frozenset(), ask)
        counts = tuple((None if one is None else coder.condition(one), name) for one, name in first.counts)
        inner = _renamed(coder.source(first.source), twins, public, ask)
        return replace(first, source=inner, unit=_held(first.unit, known) or first.unit, counts=counts)
    if isinstance(first, Grouped):
        return first
    return replace(first, branches=tuple(_branch(branch, twins, public, ask) for branch in first.branches))


def _branch(branch: Branch, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> Branch:
    known = _tables(branch.source, twins)
    inner = _renamed(_Coder(branch.source, known, frozenset(), ask).source(branch.source), twins, public, ask)
    return replace(branch, source=inner, unit=_held(branch.unit, known) or branch.unit)


def require_cell_key(cursor: duckdb.DuckDBPyConnection, job: CountingJob, twins: Twins | Apart | None) -> None:
    """Refuses a job where the stored table lacks the key of its bounds. cursor: in the transaction that will count.

    DuckDB keeps a key for all rows of a transaction. Prepared rows are older, so that their own record of keys counts.
    """
    table = job.source.first.table if isinstance(job.source.first, Stored) else ""
    twin = None if twins is None or isinstance(twins, Apart) else twins.tables.get(table)
    kept = twin is not None and job.cell_key in twin.keys
    if twins is None:
        kept = _has_key(cursor, table, job.cell_key)
    if not kept:
        raise Refusal("a key changed meanwhile", accepted="the same statement again")


def _has_key(cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
    """Tells whether a table of DuckDB's own has these columns as a key, and no text that a collation compares."""
    parts = (f"""'"' || replace({part}_name, '"', '""') || '"'""" for part in ("database", "schema", "table"))
    named, columns = " || '.' || ".join(parts), ", ".join(map(quote_text, key))
    own = "database_name IN (SELECT database_name FROM duckdb_databases() WHERE type = 'duckdb')"
    own += f" AND {named} = {quote_text(table)}"
    keys = f"constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND constraint_column_names = [{columns}]"
    keyed = f"(SELECT count(*) FROM duckdb_constraints() WHERE {own} AND {keys}) > 0"
    tables = f"(SELECT count(*) FROM duckdb_tables() WHERE {own} AND NOT contains(upper(sql), ' COLLATE '))"
    (found,) = reader.columns(cursor, f"SELECT {keyed} AND {tables} = 1", {})
    return bool(found[0])
