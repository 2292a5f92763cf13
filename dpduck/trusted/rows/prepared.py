"""Counting over prepared tables: twins stand in the place of the tables that a job reads (rows/twin_writer.py).

What is counted stays what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import duckdb

from dpduck.frontend.rows.parts import Join, Source, Stored, Union, Units
from dpduck.trusted.private.jobs import CountingJob, KeyColumn, KeyedJob, KeyJob, Prepared, row_copies
from dpduck.trusted.rows.elsewhere import Apart, Elsewhere
from dpduck.trusted.rows.plain import renamed
from dpduck.trusted.rows.twin_writer import NUMBER, OPEN_ROWS, PLACE, ROWS_OF_UNIT, code_name, code_type, quoted
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError

_HIDDEN = re.compile(r"(r\d+)_\d+")
First = Stored | Union | Units


@dataclass(frozen=True)
class Twin:
    """A table that stands for a private one. sql: its name. codes: its DOMAIN columns, in the order of their numbers.

    unit: the column that holds the unit of each row, of DuckDB's type unit_type; None for PRIVACY UNIT ROW.
    own: whether the private table has it.
    """

    sql: str
    codes: tuple[tuple[str, Domain], ...] = field(repr=False)
    unit: str | None
    unit_type: str
    own: bool = True


Beside = Callable[
    [duckdb.DuckDBPyConnection], AbstractContextManager[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]
]


@dataclass(frozen=True)
class Twins:
    """The twins that a statement is counted over, by the names in SQL of the tables that they stand for.

    beside: a cursor that reads them, in a transaction, and names of copies of public tables as the given one sees them.
    doubt: says that something could not be counted.
    """

    tables: Mapping[str, Twin]
    beside: Beside = field(repr=False)
    doubt: Callable[[], None] = field(repr=False)


@contextmanager
def counted_over(
    cursor: duckdb.DuckDBPyConnection, twins: Twins | Apart | None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Callable[[object], object]]]:
    """Where to count, and what becomes of each job: the tables themselves, if not prepared or elsewhere."""
    if twins is None:
        yield cursor, lambda job: job
        return
    if isinstance(twins, Apart):
        elsewhere = twins.open(cursor)
        yield cursor, lambda job: _in_engine(job, elsewhere)
        return
    with twins.beside(cursor) as (second, public):
        yield second, lambda job: over_twins(job, twins.tables, public)


def _in_engine(job: object, elsewhere: Elsewhere) -> object:
    """The job over tables that an engine has."""
    if isinstance(job, (KeyedJob, KeyJob)):
        return replace(job, rows=replace(job.rows, elsewhere=elsewhere))
    if isinstance(job, CountingJob):
        return replace(job, elsewhere=elsewhere)
    raise InternalError("nobody can count this")


def over_twins(job: object, twins: Mapping[str, Twin], public: Mapping[str, str]) -> object:
    """The job over twins of its private tables, and over copies of its public ones, by their names in SQL."""
    if isinstance(job, KeyedJob):
        # fewer groups than rows are chosen by a hash of the unit itself
        return replace(job, rows=_over_twins(job.rows, twins, public, job.groups >= job.rows.max_rows))
    if isinstance(job, KeyJob):
        return replace(job, rows=_over_twins(job.rows, twins, public, True))
    if isinstance(job, CountingJob):
        return _over_twins(job, twins, public, True)
    raise InternalError("nobody can count this")


def _over_twins(job: CountingJob, twins: Mapping[str, Twin], public: Mapping[str, str], numbered: bool) -> CountingJob:
    if job.source is None:
        raise InternalError("rows of no known table")
    known = _tables(job.source, twins)
    if job.lookup is None:
        unit_sql, source = _own_unit(job.unit_sql, job.source, twins)
    else:
        unit_sql, source = _unit_of(job.lookup.reference_sql.partition(".")[0], known), job.source
    source = _renamed(_typed(source, known), twins, public)
    first = f'"{source.first.alias}"'
    prepared, unit_type = None, job.unit_type
    if unit_sql is not None and first in known and unit_sql == _unit_of(first, known) and _once(source):
        codes = frozenset(f"{first}.{code_name(number)}" for number in range(len(known[first].codes)))
        prepared = Prepared(f"{first}.{ROWS_OF_UNIT}", f"{first}.{OPEN_ROWS}", f"{first}.{PLACE}", codes)
        if numbered:
            unit_sql, unit_type = f"{first}.{NUMBER}", "BIGINT"
    return replace(
        job,
        source=source,
        keys=tuple(_coded(key, known) for key in job.keys),
        unit_sql=unit_sql,
        unit_type=unit_type,
        lookup=None,
        prepared=prepared,
    )


def _once(source: Source) -> bool:
    """Whether each row is there once at most."""
    try:
        return row_copies(source) == 1
    except InternalError:
        return False


def _tables(source: Source, twins: Mapping[str, Twin]) -> dict[str, Twin]:
    """The twins that a source reads itself, by their quoted aliases."""
    found = {}
    for one in (source, *(join.right for join in source.joins)):
        if isinstance(one.first, Stored) and one.first.sql in twins:
            found[f'"{one.first.alias}"'] = twins[one.first.sql]
        if one is not source:
            found |= _tables(one, twins) if one.joins else {}
    return found


def _unit_of(alias: str, known: Mapping[str, Twin]) -> str | None:
    twin = known[alias]
    return None if twin.unit is None else f"{alias}.{quoted(twin.unit)}"


def _typed(source: Source, known: Mapping[str, Twin]) -> Source:
    """The source with the types of what its twins have besides the columns of their tables."""
    types = dict(source.types)
    for alias, twin in known.items():
        types |= {f"{alias}.{code_name(n)}": code_type(domain) for n, (_, domain) in enumerate(twin.codes)}
        types |= {} if twin.own or twin.unit is None else {f"{alias}.{quoted(twin.unit)}": twin.unit_type}
    return replace(source, types=tuple(types.items()))


def _own_unit(unit_sql: str | None, source: Source, twins: Mapping[str, Twin]) -> tuple[str | None, Source]:
    """The unit as twins hold it, and the source without the joins that looked for it."""
    if unit_sql is None:
        return None, source
    known = _tables(source, twins)
    units, joins = dict[str, str](), list[Join]()
    for join in source.joins:
        hidden = isinstance(join.right.first, Stored) and _HIDDEN.fullmatch(join.right.first.alias)
        if not hidden:
            joins.append(join)
            continue
        text = f'"{hidden[0]}".'
        units |= {name: str(_unit_of(f'"{hidden[1]}"', known)) for name in _columns(unit_sql) if name.startswith(text)}
    return renamed(unit_sql, units), replace(source, joins=tuple(joins))


def _columns(sql: str) -> list[str]:
    return re.findall(r'"(?:[^"]|"")*"\."(?:[^"]|"")*"', sql)


def _coded(key: KeyColumn, known: Mapping[str, Twin]) -> KeyColumn:
    """The key as the codes of its domain, where it is a column of a twin that has them."""
    alias, _, column = key.sql.partition(".")
    for number, (name, domain) in enumerate(known[alias].codes if alias in known else ()):
        if column == quoted(name) and domain == key.domain:
            return KeyColumn(f"{alias}.{code_name(number)}", _codes_of(domain))
    return key


def _codes_of(domain: Domain) -> ValueDomain:
    """The codes of a domain as a domain."""
    return ValueDomain(code_type(domain), tuple(map(str, range(domain.size))))


def _renamed(source: Source, twins: Mapping[str, Twin], public: Mapping[str, str]) -> Source:
    """The source over other tables."""
    return replace(
        source,
        first=_first(source.first, twins, public),
        joins=tuple(replace(join, right=_renamed(join.right, twins, public)) for join in source.joins),
    )


def _first(first: First, twins: Mapping[str, Twin], public: Mapping[str, str]) -> First:
    """Rows of a twin; of a union or of units, each part with the units that its twins hold."""
    if isinstance(first, Stored):
        return replace(first, sql=renamed(first.sql, {**{name: twin.sql for name, twin in twins.items()}, **public}))
    if isinstance(first, Units):
        unit_sql, source = _own_unit(first.unit_sql, first.source, twins)
        inner = _renamed(_typed(source, _tables(source, twins)), twins, public)
        return replace(
            first, source=inner, unit_sql=str(unit_sql), outputs=_outputs(first.outputs, first.source, twins)
        )
    branches = []
    for branch in first.branches:
        _, source = _own_unit("", branch.source, twins)
        inner = _renamed(_typed(source, _tables(source, twins)), twins, public)
        branches.append(replace(branch, source=inner, outputs=_outputs(branch.outputs, branch.source, twins)))
    return replace(first, branches=tuple(branches))


def _outputs(
    outputs: tuple[tuple[str, str], ...], source: Source, twins: Mapping[str, Twin]
) -> tuple[tuple[str, str], ...]:
    """Outputs, one of which may be the unit."""
    return tuple((str(_own_unit(sql, source, twins)[0]), name) for sql, name in outputs)
