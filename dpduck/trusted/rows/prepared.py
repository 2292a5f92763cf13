"""Counting over prepared tables: twins stand in the place of the tables that a job reads (rows/twin_writer.py).

What is counted stays what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import duckdb

from dpduck.frontend.rows.parts import Join, Source, Stored, Union, Units, together_sql
from dpduck.frontend.text.names import quote_text
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.jobs import CountingJob, KeyColumn, KeyedJob, KeyJob, Prepared, row_copies
from dpduck.trusted.rows import reader
from dpduck.trusted.rows.elsewhere import Apart, Elsewhere
from dpduck.trusted.rows.labels import Ask, Declared, asked_of_labels, coded_source, tells
from dpduck.trusted.rows.placed import outer
from dpduck.trusted.rows.plain import is_plain, renamed
from dpduck.trusted.rows.twin_writer import NUMBER, OPEN_ROWS, PLACE, ROWS_OF_UNIT, code_name, code_type, quoted
from dpduck.trusted.rows.whole_numbers import Clamped
from dpduck.trusted.rows.workers import Workers
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError, Refusal

_HIDDEN = re.compile(r"(r\d+)_\d+")
First = Stored | Union | Units


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
    cuts: tuple[Clamped, ...] = field(default=(), repr=False)
    max_rows: int = 0
    together: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()

    def written(self, alias: str) -> str:
        """Returns the unit as it is written where several columns under an alias hold it."""
        return together_sql([(f"{alias}.{quoted(name)}", kind) for name, kind in self.together])


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
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Callable[[object], object]]]:
    """Tells where to count, and what becomes of each job: the tables themselves, if not prepared or elsewhere."""
    if twins is None:
        yield cursor, lambda job: job
        return
    if isinstance(twins, Apart):
        elsewhere = twins.open(cursor)
        yield cursor, lambda job: _in_engine(job, elsewhere)
        return
    known: dict[int, tuple[object, object]] = {}
    with twins.beside(cursor) as (second, public):

        def prepared(job: object) -> object:
            if id(job) not in known:
                ask = partial(asked_of_labels, second, workers)
                known[id(job)] = job, over_twins(job, twins.tables, public, ask)
            return known[id(job)][1]

        yield second, prepared


def _in_engine(job: object, elsewhere: Elsewhere) -> object:
    """Returns the job over tables that an engine has."""
    if isinstance(job, (KeyedJob, KeyJob)):
        return replace(job, rows=replace(job.rows, elsewhere=elsewhere))
    if isinstance(job, CountingJob):
        return replace(job, elsewhere=elsewhere)
    raise InternalError("nobody can count this")


def over_twins(job: object, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> object:
    """Returns the job over twins of its private tables, and over copies of its public ones, by their names in SQL.

    ask: of labels, in place of rows.
    """
    if isinstance(job, KeyedJob):
        # fewer groups than rows are chosen by a hash of the unit itself
        return replace(job, rows=_over_twins(job.rows, twins, public, job.groups >= job.rows.max_rows, ask))
    if isinstance(job, KeyJob):
        return replace(job, rows=_over_twins(job.rows, twins, public, True, ask))
    if isinstance(job, CountingJob):
        return _over_twins(job, twins, public, not 0 < job.groups < job.max_rows, ask)
    raise InternalError("nobody can count this")


def _over_twins(
    job: CountingJob, twins: Mapping[str, Twin], public: Mapping[str, str], numbered: bool, ask: Ask
) -> CountingJob:
    if job.source is None:
        raise InternalError("rows of no known table")
    known = _tables(job.source, twins)
    if job.lookup is None:
        unit_sql, source = _own_unit(job.unit_sql, job.source, twins)
    else:
        unit_sql, source = _unit_of(job.lookup.reference_sql.partition(".")[0], known), job.source
    keys = tuple(_coded(key, known, source) for key in job.keys)
    inside = frozenset() if outer(source) else frozenset(key.sql for key in keys)
    conditions = [*job.filters, *(one.condition for one in job.aggregates if one.condition)]
    source = _of_codes(_typed(source, known), conditions, known, inside, ask)
    source = _renamed(_with_cuts(source, known), twins, public, ask)
    first = f'"{source.first.alias}"'
    prepared, unit_type = None, job.unit_type
    if unit_sql is not None and first in known and unit_sql == _unit_of(first, known) and _once(source):
        codes = frozenset(f"{first}.{code_name(number)}" for number in range(len(known[first].codes)))
        crowded = job.max_rows < known[first].max_rows
        prepared = Prepared(f"{first}.{ROWS_OF_UNIT}", f"{first}.{OPEN_ROWS}", f"{first}.{PLACE}", codes, crowded)
        if numbered:
            unit_sql, unit_type = f"{first}.{NUMBER}", "BIGINT"
    return replace(
        job,
        source=source,
        keys=keys,
        aggregates=tuple(_of_label(one, source) for one in job.aggregates),
        beside=tuple(_of_label(one, source) for one in job.beside),
        unit_sql=unit_sql,
        unit_type=unit_type,
        lookup=None,
        prepared=prepared,
        cell_key=(),  # of the table itself; the door has compared bounds before
    )


def _of_label(aggregate: Contribution, source: Source) -> Contribution:
    """Returns what a row adds, with its condition over codes, where the database reads it for rows outside."""
    coded = dict(source.coded).get(aggregate.condition)
    if coded is None or (coded.outside and not is_plain(aggregate.condition, dict(source.types))):
        return aggregate
    return replace(aggregate, condition=coded.condition(aggregate.condition))


def _once(source: Source) -> bool:
    """Tells whether each row is there once at most."""
    try:
        return row_copies(source) == 1
    except InternalError:
        return False


def _tables(source: Source, twins: Mapping[str, Twin]) -> dict[str, Twin]:
    """Returns the twins that a source reads itself, by their quoted aliases."""
    found = {}
    for one in (source, *(join.right for join in source.joins)):
        if isinstance(one.first, Stored) and one.first.sql in twins:
            found[f'"{one.first.alias}"'] = twins[one.first.sql]
        if one is not source:
            found |= _tables(one, twins) if one.joins else {}
    return found


def _unit_of(alias: str, known: Mapping[str, Twin]) -> str | None:
    twin = known[alias]
    if twin.own and twin.together:
        return twin.written(alias)
    return None if twin.unit is None else f"{alias}.{quoted(twin.unit)}"


def _typed(source: Source, known: Mapping[str, Twin]) -> Source:
    """Returns the source with the types of what its twins have besides the columns of their tables."""
    types = dict(source.types)
    for alias, twin in known.items():
        types |= {f"{alias}.{code_name(n)}": code_type(domain) for n, (_, domain) in enumerate(twin.codes)}
        types |= {} if twin.own or twin.unit is None else {f"{alias}.{quoted(twin.unit)}": twin.unit_type}
    return replace(source, types=tuple(types.items()))


def _with_cuts(source: Source, known: Mapping[str, Twin]) -> Source:
    """Returns the source with the columns that its twins hold cut, too: NULL wherever the column is."""
    cuts = tuple(
        clamped.cut(number, alias, f"{alias}.{quoted(clamped.name)}")
        for alias, twin in known.items()
        for number, clamped in enumerate(twin.cuts)
    )
    return replace(source, cuts=cuts)


def _own_unit(unit_sql: str | None, source: Source, twins: Mapping[str, Twin]) -> tuple[str | None, Source]:
    """Returns the unit as twins hold it, and the source without the joins that looked for it."""
    if unit_sql is None:
        return None, source
    known = _tables(source, twins)
    units, joins = dict[str, str](), list[Join]()
    for join in source.joins:
        hidden = isinstance(join.right.first, Stored) and _HIDDEN.fullmatch(join.right.first.alias)
        if not hidden:
            joins.append(join)
            continue
        text, twin = f'"{hidden[0]}".', known[f'"{hidden[1]}"']
        if twin.together:
            unit_sql = unit_sql.replace(twin.written(f'"{hidden[0]}"'), str(_unit_of(f'"{hidden[1]}"', known)))
        units |= {name: str(_unit_of(f'"{hidden[1]}"', known)) for name in _columns(unit_sql) if name.startswith(text)}
    return renamed(unit_sql, units), replace(source, joins=tuple(joins))


def _columns(sql: str) -> list[str]:
    return re.findall(r'"(?:[^"]|"")*"\."(?:[^"]|"")*"', sql)


def _coded(key: KeyColumn, known: Mapping[str, Twin], source: Source) -> KeyColumn:
    """Returns the key as the codes of its domain, where it is a column of a twin that has them.

    Where an outer join adds rows of NULLs, these have no code, and a value that may be in the domain.
    """
    alias, _, column = key.sql.partition(".")
    if outer(source):
        return key
    for number, (name, domain) in enumerate(known[alias].codes if alias in known else ()):
        if column == quoted(name) and domain == key.domain:
            return KeyColumn(f"{alias}.{code_name(number)}", _codes_of(domain))
    return key


def _codes_of(domain: Domain) -> ValueDomain:
    """Returns the codes of a domain as a domain."""
    return ValueDomain(code_type(domain), tuple(map(str, range(domain.size))))


def _of_codes(
    source: Source, filters: Sequence[str], known: Mapping[str, Twin], inside: frozenset[str], ask: Ask
) -> Source:
    """Returns the source whose conditions over declared columns are over their codes."""
    types = dict(source.types)
    declared = {
        f"{alias}.{quoted(name)}": Declared(f"{alias}.{code_name(number)}", domain)
        for alias, twin in known.items()
        for number, (name, domain) in enumerate(twin.codes)
        if isinstance(domain, ValueDomain) and tells(domain, types.get(f"{alias}.{quoted(name)}", ""))
    }
    return coded_source(source, filters, declared, inside, ask)


def _renamed(source: Source, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> Source:
    """Returns the source over other tables."""
    return replace(
        source,
        first=_first(source.first, twins, public, ask),
        joins=tuple(replace(join, right=_renamed(join.right, twins, public, ask)) for join in source.joins),
    )


def _level(
    source: Source, more: Sequence[str], twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask
) -> Source:
    """Returns a source inside another one, over other tables. more: conditions of its rows beside its own."""
    known = _tables(source, twins)
    return _renamed(_of_codes(_typed(source, known), more, known, frozenset(), ask), twins, public, ask)


def _first(first: First, twins: Mapping[str, Twin], public: Mapping[str, str], ask: Ask) -> First:
    """Returns rows of a twin; of a union or of units, each part with the units that its twins hold."""
    if isinstance(first, Stored):
        names = {**{name: twin.sql for name, twin in twins.items()}, **public}
        return replace(first, sql=renamed(first.sql, names))
    if isinstance(first, Units):
        unit_sql, source = _own_unit(first.unit_sql, first.source, twins)
        inner = _level(source, [condition for condition, _ in first.counts if condition], twins, public, ask)
        return replace(
            first, source=inner, unit_sql=str(unit_sql), outputs=_outputs(first.outputs, first.source, twins)
        )
    branches = []
    for branch in first.branches:
        _, source = _own_unit("", branch.source, twins)
        inner = _level(source, (), twins, public, ask)
        branches.append(replace(branch, source=inner, outputs=_outputs(branch.outputs, branch.source, twins)))
    return replace(first, branches=tuple(branches))


def _outputs(
    outputs: tuple[tuple[str, str], ...], source: Source, twins: Mapping[str, Twin]
) -> tuple[tuple[str, str], ...]:
    """Returns outputs, one of which may be the unit."""
    return tuple((str(_own_unit(sql, source, twins)[0]), name) for sql, name in outputs)


def require_cell_key(cursor: duckdb.DuckDBPyConnection, job: CountingJob, twins: Twins | Apart | None) -> None:
    """Refuses a job where the stored table lacks the key of its bounds. cursor: in the transaction that will count.

    DuckDB keeps a key for all rows of a transaction. Prepared rows are older, so that their own record of keys counts.
    """
    table = job.source.first.sql if job.source is not None and isinstance(job.source.first, Stored) else ""
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
