"""Prepared tables: rows of an epoch, written once with what every statement would compute of them anew.

`write_twin` copies a private table, its twin, with four columns about the privacy unit of each row and one for each
DOMAIN: the unit as a number; how many rows the unit has; how many of these are outside of some domain; the row's place
among them in the keyed order in which rows of a unit are kept; codes, NULL outside of the domain. A twin is sorted by
unit: first the units that are inside of every domain, those of few rows first.
`over_twins` puts twins into the place of the tables that a job reads. What is counted stays what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import duckdb

from dpduck.frontend.rows.parts import Source, Stored, Union, Units
from dpduck.trusted.private.contributions import KEY, key_integer, order_sql
from dpduck.trusted.private.jobs import CountingJob, KeyColumn, KeyedJob, KeyJob, Prepared, row_copies
from dpduck.trusted.rows import reader
from dpduck.trusted.rows.binning import code_expression
from dpduck.trusted.rows.plain import renamed
from dpduck.trusted.rows.program import BATCH_TEXTS
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError

NUMBER, PERSON = '"dpduck_unit"', '"dpduck_person"'
ROWS_OF_UNIT, OPEN_ROWS, PLACE = '"dpduck_rows_of_unit"', '"dpduck_open_rows"', '"dpduck_place"'
RESERVED = "dpduck_"
"""No column of a table that is prepared begins so."""

_AS_TEXT = re.compile(r"U?HUGEINT|UUID|ENUM\(.*", re.DOTALL)
_CARRIED = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR|BLOB|UUID|DATE|TIME(_NS)?|"
    r"TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?|INTERVAL|ENUM\(.*\)",
    re.DOTALL,
)
_HIDDEN = re.compile(r"(r\d+)_\d+")
_LARGEST = (1 << 32) - 1
_ORDER = '"dpduck_order"'
Steps = Callable[[str], None]


@dataclass(frozen=True)
class Twin:
    """A table that stands for a private one. sql: its name. codes: its DOMAIN columns, in the order of their numbers.

    unit: the column that holds the unit of each row; None for PRIVACY UNIT ROW. own: whether the private table has it.
    """

    sql: str
    codes: tuple[tuple[str, Domain], ...] = field(repr=False)
    unit: str | None
    own: bool = True


@dataclass(frozen=True)
class Layout:
    """What is written of a private table. from_sql: the table as "r0", with the joins that find units, each LEFT.

    columns: names and types. content: the columns that tell rows of a unit apart. unit_sql: None for PRIVACY UNIT ROW.
    unit: the unit's column in the twin. domains: by column.
    """

    from_sql: str
    columns: tuple[tuple[str, str], ...]
    content: tuple[str, ...]
    unit_sql: str | None
    unit_type: str
    unit: str | None
    domains: tuple[tuple[str, Domain], ...]


Beside = Callable[
    [duckdb.DuckDBPyConnection], AbstractContextManager[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]
]


@dataclass(frozen=True)
class Twins:
    """The twins that a statement is counted over, by the names in SQL of the tables that they stand for.

    beside: a cursor that reads them, in a transaction, and names of copies of public tables as the given one sees them.
    """

    tables: Mapping[str, Twin]
    beside: Beside = field(repr=False)


@contextmanager
def counted_over(
    cursor: duckdb.DuckDBPyConnection, twins: Twins | None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Callable[[object], object]]]:
    """Where to count, and what becomes of each job: the tables themselves, where nothing was prepared."""
    if twins is None:
        yield cursor, lambda job: job
        return
    with twins.beside(cursor) as (second, public):
        yield second, lambda job: over_twins(job, twins.tables, public)


def carried(type_name: str) -> bool:
    """Whether values of a type are the same after they went from one database to another."""
    return _CARRIED.fullmatch(type_name) is not None


def sent_sql(value: str, type_name: str) -> str:
    """A value as it goes from one database to another through Arrow, where it is cast to its type again."""
    return f"CAST({value} AS VARCHAR)" if _AS_TEXT.fullmatch(type_name) else value


def code_name(number: int) -> str:
    """The column of a twin with the codes of its table's n-th domain."""
    return f'"dpduck_code_{number}"'


def _code_type(domain: Domain) -> str:
    return next((name for name, bits in (("UTINYINT", 8), ("USMALLINT", 16)) if domain.size <= 1 << bits), "UINTEGER")


# Writing


def write_twin(
    cursor: duckdb.DuckDBPyConnection,
    second: duckdb.DuckDBPyConnection,
    layout: Layout,
    twin_sql: str,
    bounding_key: bytes,
    steps: Steps,
) -> None:
    """Writes the twin; its only error has one fixed text. cursor: of the private rows. second: of where the twin lies.

    steps: called with the name of each step before it is begun. Temporary tables are left to the second cursor's end.
    """
    steps("reading rows")
    keyed = {KEY: key_integer(bounding_key)} if layout.unit_sql is not None else {}
    batches = reader.record_batches(cursor, _sent_rows(layout), keyed, BATCH_TEXTS)
    parameters: dict[str, object] = {}
    coded = _coded_rows(layout, parameters)
    if layout.unit_sql is None:
        reader.poured(second, f"CREATE TABLE {twin_sql} AS {coded}", parameters, _POURED, batches)
        return
    reader.poured(second, f"CREATE TEMP TABLE dpduck_rows AS {coded}", parameters, _POURED, batches)
    steps("numbering units")
    reader.run(second, f"CREATE TEMP TABLE dpduck_units AS {_units(layout)}")
    steps("sorting rows")
    reader.run(second, f"CREATE TABLE {twin_sql} AS {_sorted_rows(layout)}")
    steps("counting again")
    reader.run(second, "DROP TABLE dpduck_rows")
    reader.run(second, "DROP TABLE dpduck_units")
    ((miscounted,),) = reader.columns(second, miscounted_sql(twin_sql), {})
    if int(miscounted):
        raise InternalError(reader.FAILED)


_POURED = "dpduck_poured"


def _sent_rows(layout: Layout) -> str:
    own = [f'"r0"."{name}"' for name, _ in layout.columns]
    listed = [
        f'{sent_sql(sql, type_name)} AS "{name}"' for sql, (name, type_name) in zip(own, layout.columns, strict=True)
    ]
    if layout.unit_sql is not None:
        listed.append(f"{order_sql(sorted(layout.content))} AS {_ORDER}")
    if _quoted(layout.unit) == PERSON:
        listed.append(f"{sent_sql(str(layout.unit_sql), layout.unit_type)} AS {PERSON}")
    return f"SELECT {', '.join(listed)} FROM {layout.from_sql}"


def _coded_rows(layout: Layout, parameters: dict[str, object]) -> str:
    typed = [f'CAST("{name}" AS {type_name}) AS "{name}"' for name, type_name in layout.columns]
    typed += [f"CAST({PERSON} AS {layout.unit_type}) AS {PERSON}"] if _quoted(layout.unit) == PERSON else []
    typed += [_ORDER] if layout.unit_sql is not None else []
    codes = []
    for number, (column, domain) in enumerate(layout.domains):
        code = code_expression(KeyColumn(f't."{column}"', domain), number)
        parameters.update(code.parameters)
        codes.append(f"CAST({code.sql} AS {_code_type(domain)}) AS {code_name(number)}")
    return f"SELECT {', '.join(['t.*', *codes])} FROM (SELECT {', '.join(typed)} FROM {_POURED}) AS t"


def _units(layout: Layout) -> str:
    """Each unit once, with its number: units inside of all domains first, then those of few rows."""
    outside = " OR ".join(f"{code_name(number)} IS NULL" for number in range(len(layout.domains))) or "FALSE"
    counted = (
        f"SELECT {_quoted(layout.unit)} AS dpduck_of, count(*) AS dpduck_n, "
        f"count(CASE WHEN {outside} THEN 1 END) AS dpduck_o FROM dpduck_rows "
        f"WHERE {_quoted(layout.unit)} IS NOT NULL GROUP BY {_quoted(layout.unit)}"
    )
    least = ", ".join(f"CAST(least({n}, {_LARGEST}) AS UINTEGER) AS {n}" for n in ("dpduck_n", "dpduck_o"))
    number = "row_number() OVER (ORDER BY dpduck_o > 0, dpduck_n)"
    return f"SELECT dpduck_of, {least}, {number} AS dpduck_number FROM ({counted})"


def _sorted_rows(layout: Layout) -> str:
    place = f"row_number() OVER (PARTITION BY dpduck_number ORDER BY {_ORDER})"
    return (
        f"SELECT dpduck_rows.* EXCLUDE ({_ORDER}), dpduck_number AS {NUMBER}, dpduck_n AS {ROWS_OF_UNIT}, "
        f"dpduck_o AS {OPEN_ROWS}, CAST(least({place}, {_LARGEST}) AS UINTEGER) AS {PLACE} "
        f"FROM dpduck_rows LEFT JOIN dpduck_units ON {_quoted(layout.unit)} = dpduck_of ORDER BY {NUMBER}, {PLACE}"
    )


def miscounted_sql(twin_sql: str) -> str:
    """How many rows say of their unit what is not so: none but the first m places are below m, for every m.

    Of a unit's rows in the order of their places, the n-th has a place and a number of rows of n at least.
    """
    number = f"row_number() OVER (PARTITION BY {NUMBER} ORDER BY {PLACE})"
    rows = f"SELECT {number} AS dpduck_n, {PLACE}, {ROWS_OF_UNIT} FROM {twin_sql} WHERE {NUMBER} IS NOT NULL"
    enough = " AND ".join(f"ifnull({said} >= least(dpduck_n, {_LARGEST}), FALSE)" for said in (PLACE, ROWS_OF_UNIT))
    return f"SELECT count(*) FROM ({rows}) WHERE NOT ({enough})"


def _quoted(name: str | None) -> str:
    return "" if name is None else '"' + name.replace('"', '""') + '"'


# Reading


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
    source = _renamed(job.source, {**{name: twin.sql for name, twin in twins.items()}, **public})
    unit_sql, source = _own_units(job, source, known)
    types = dict(source.types)
    for alias, twin in known.items():
        types |= {f"{alias}.{code_name(n)}": _code_type(domain) for n, (_, domain) in enumerate(twin.codes)}
        types |= {} if twin.own or twin.unit is None else {f"{alias}.{_quoted(twin.unit)}": job.unit_type}
    first = f'"{source.first.alias}"'
    prepared, unit_type = None, job.unit_type
    if first in known and unit_sql == f"{first}.{_quoted(known[first].unit)}" and _once(source):
        codes = frozenset(f"{first}.{code_name(number)}" for number in range(len(known[first].codes)))
        prepared = Prepared(f"{first}.{ROWS_OF_UNIT}", f"{first}.{OPEN_ROWS}", f"{first}.{PLACE}", codes)
        if numbered:
            unit_sql, unit_type = f"{first}.{NUMBER}", "BIGINT"
    return replace(
        job,
        source=replace(source, types=tuple(types.items())),
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
            found |= _tables(replace(one, first=one.first), twins) if one.joins else {}
    return found


def _own_units(job: CountingJob, source: Source, known: Mapping[str, Twin]) -> tuple[str | None, Source]:
    """The unit as twins hold it, and the source without the joins that looked for it."""
    if job.unit_sql is None:
        return None, source
    units: dict[str, str] = {}
    if job.lookup is not None:
        alias = job.lookup.reference_sql.partition(".")[0]
        units[job.unit_sql] = f"{alias}.{_quoted(known[alias].unit)}"
        return units[job.unit_sql], source
    joins = []
    for join in source.joins:
        hidden = isinstance(join.right.first, Stored) and _HIDDEN.fullmatch(join.right.first.alias)
        if not hidden:
            joins.append(join)
            continue
        alias = f'"{hidden[1]}"'
        text = f'"{hidden[0]}".'
        units |= {
            name: f"{alias}.{_quoted(known[alias].unit)}" for name in _columns(job.unit_sql) if name.startswith(text)
        }
    return renamed(job.unit_sql, units), replace(source, joins=tuple(joins))


def _columns(sql: str) -> list[str]:
    return re.findall(r'"(?:[^"]|"")*"\."(?:[^"]|"")*"', sql)


def _coded(key: KeyColumn, known: Mapping[str, Twin]) -> KeyColumn:
    """The key as the codes of its domain, where it is a column of a twin that has them."""
    alias, _, column = key.sql.partition(".")
    for number, (name, domain) in enumerate(known[alias].codes if alias in known else ()):
        if column == _quoted(name) and domain == key.domain:
            return KeyColumn(f"{alias}.{code_name(number)}", _codes_of(domain))
    return key


def _codes_of(domain: Domain) -> ValueDomain:
    """The codes of a domain as a domain."""
    return ValueDomain(_code_type(domain), tuple(map(str, range(domain.size))))


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    """The source over other tables."""
    return replace(
        source,
        first=_first(source.first, names),
        joins=tuple(replace(join, right=_renamed(join.right, names)) for join in source.joins),
    )


def _first(first: Stored | Union | Units, names: Mapping[str, str]) -> Stored | Union | Units:
    if isinstance(first, Stored):
        return replace(first, sql=renamed(first.sql, names))
    if isinstance(first, Units):
        return replace(first, source=_renamed(first.source, names))
    branches = tuple(replace(branch, source=_renamed(branch.source, names)) for branch in first.branches)
    return replace(first, branches=branches)
