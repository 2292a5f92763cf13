"""Writer of prepared tables, which also hold values that every statement would otherwise compute anew.

`write_prepared` copies a private table and adds four columns about the unit of each row: the unit as a number, the
number of its rows, the number of those outside of some domain, and the row's place in the keyed order in which a unit's
rows are kept. One column for each DOMAIN holds codes, NULL outside of the domain. A prepared table is sorted by unit:
units inside of every domain first, then by number of rows. Different rows of a unit may tie in the keyed order, as 0
and -0 do. Such rows have one place. The unit is then treated as if it had rows outside, so its rows are ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb

from dpduck.kernel.columns.expressions import Expression, Own, RelationColumn
from dpduck.kernel.counting.jobs import GroupKey
from dpduck.kernel.places.clamps import STEPS, UNITS, ClampedColumn, steps_sql, units_sql
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.binning import code_expression
from dpduck.kernel.rows.bins import texts_parameter, texts_sql
from dpduck.kernel.rows.bounding import KEY, key_integer, order_sql, rank_sql
from dpduck.kernel.worker.program import LONGEST_TEXT
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

NUMBER, PERSON = '"dpduck_unit"', '"dpduck_person"'
ROWS_OF_UNIT, OPEN_ROWS, PLACE = '"dpduck_rows_of_unit"', '"dpduck_open_rows"', '"dpduck_place"'
TIED = '"dpduck_tied"'

_LARGEST = (1 << 32) - 1
_ORDER, _REST = '"dpduck_order"', '"dpduck_rest"'
Steps = Callable[[str], None]
BATCH = 6_144
"""Rows that are sent at a time. With texts of LONGEST_TEXT + 1 characters of four bytes, Arrow's buffers hold them."""


@dataclass(frozen=True)
class Layout:
    """Layout of a prepared table.

    from_sql: FROM of the private table as "r0", with a LEFT JOIN for each reference to its unit.

    columns: names and types. content: SQL of the columns that the keyed order hashes. held: SQL of the unit over
    from_sql, None for PRIVACY UNIT ROW. unit: the unit's column in the prepared table. domains: by column. links:
    columns that hold a unit or a reference. cuts: columns with a CLAMP.
    """

    from_sql: str
    columns: tuple[tuple[str, str], ...]
    content: tuple[str, ...]
    held: Expression | None
    unit_type: str
    unit: str | None
    domains: tuple[tuple[str, Domain], ...]
    links: frozenset[str]
    cuts: tuple[ClampedColumn, ...] = ()


def sent_sql(value: str, type_name: str) -> str:
    """Writes a value in a form that Arrow carries to another database. It is cast back to its type there."""
    return f"CAST({value} AS VARCHAR)" if sql_type(type_name).is_carried_as_text else value


CODE = "dpduck_code_{}"
"""The column of a prepared table with the codes of its n-th domain."""


def code_name(number: int) -> str:
    """Returns the name in SQL of the column with the codes of the n-th domain."""
    return f'"{CODE.format(number)}"'


def code_type(domain: Domain) -> str:
    """Returns the type of a domain's codes."""
    return next((name for name, bits in (("UTINYINT", 8), ("USMALLINT", 16)) if domain.size <= 1 << bits), "UINTEGER")


def quote_column(name: str | None) -> str:
    """Returns the name of a column in SQL, "" for none."""
    return "" if name is None else quote_identifier(name)


def write_prepared(
    cursor: duckdb.DuckDBPyConnection,
    second: duckdb.DuckDBPyConnection,
    layout: Layout,
    table_sql: str,
    bounding_key: bytes,
    steps: Steps,
) -> None:
    """Writes the prepared table. Errors have fixed texts. cursor: reads the rows. steps: called before each step."""
    steps("reading rows")
    keyed = {KEY: key_integer(bounding_key)} if layout.held is not None else {}
    batches = reader.record_batches(cursor, _sent_rows(layout), keyed, BATCH)
    parameters: dict[str, object] = {}
    coded = _rows_with_codes(layout, parameters)
    if layout.held is None:
        reader.pour_rows(second, f"CREATE TABLE {table_sql} AS {coded}", parameters, _POURED, batches)
        return
    reader.pour_rows(second, f"CREATE TEMP TABLE dpduck_rows AS {coded}", parameters, _POURED, batches)
    steps("numbering units")
    reader.run(second, f"CREATE TEMP TABLE dpduck_units AS {_units(layout)}")
    steps("sorting rows")
    labels: dict[str, object] = {}
    reader.run(second, f"CREATE TABLE {table_sql} AS {_sort_rows(layout, labels)}", labels)
    steps("counting again")
    reader.run(second, "DROP TABLE dpduck_rows")
    reader.run(second, "DROP TABLE dpduck_units")
    _rank_again(second, layout, table_sql)
    ((miscounted,),) = reader.columns(second, false_facts_sql(table_sql), {})
    if int(miscounted):
        raise InternalError("a prepared table does not say of its units what it holds")


_POURED = "dpduck_poured"


def _sent_rows(layout: Layout) -> str:
    listed = []
    for name, type_name in _columns_and_unit(layout):
        whole = layout.held.sql if name == PERSON and layout.held is not None else f'"r0".{name}'
        sql = _short(whole, type_name, cut=name != PERSON and name not in map(quote_column, layout.links))
        listed.append(f"{sent_sql(sql, type_name)} AS {name}")
    if layout.held is not None:
        listed.append(f"{order_sql(sorted(layout.content))} AS {_ORDER}")
    return f"SELECT {', '.join(listed)} FROM {layout.from_sql}"


def _short(value: str, type_name: str, *, cut: bool) -> str:
    """Writes a text with LONGEST_TEXT characters at most. Statements compare longer texts by their start alone.

    A few long texts of one unit could fill a batch. A failure to prepare the table would then reveal them. cut: False
    for a text that identifies a unit. Such a text becomes NULL if it is too long.
    """
    if not sql_type(type_name).is_shortened:
        return value
    begin = f"left({value}, {LONGEST_TEXT + 1})" if type_name == "VARCHAR" else f"{value}[:{LONGEST_TEXT + 1}]"
    length = f"{sql_type(type_name).length_function}({value})"
    return f"CASE WHEN {length} <= {LONGEST_TEXT} THEN {value}{f' ELSE {begin}' if cut else ''} END"


def _rows_with_codes(layout: Layout, parameters: dict[str, object]) -> str:
    typed = [f"CAST({name} AS {type_name}) AS {name}" for name, type_name in _columns_and_unit(layout)]
    typed += [_ORDER] if layout.held is not None else []
    codes = []
    for number, (column, domain) in enumerate(layout.domains):
        code = code_expression(GroupKey(Own((f"t.{quote_column(column)}",)), domain), number)
        parameters.update(code.parameters)
        codes.append(f"CAST({code.sql} AS {code_type(domain)}) AS {code_name(number)}")
    rows = f"SELECT {', '.join(['t.*', *codes])} FROM (SELECT {', '.join(typed)} FROM {_POURED}) AS t"
    texts = _label_texts(layout)
    if not texts:
        return rows
    names = [text.name for text in texts]
    condition = " AND ".join(f"({text.code} < {len(text.values)} OR {text.name} IS NULL)" for text in texts)
    rest = f"CASE WHEN {condition} THEN NULL ELSE [{', '.join(names)}] END AS {_REST}"
    return f"SELECT * EXCLUDE ({', '.join(names)}), {rest} FROM ({rows})"


@dataclass(frozen=True)
class _Told:
    """A column of texts and its code, both in SQL. values: labels by code. parameter: name of their SQL parameter."""

    name: str
    code: str
    values: tuple[str, ...]
    parameter: str


def _label_texts(layout: Layout) -> list[_Told]:
    """Returns the columns of texts that are left out while rows are sorted. Labels of codes restore the texts."""
    # so rows are narrow: texts without a label stay in one list for the row, which is NULL for most rows
    types = dict(layout.columns)
    return [
        _Told(quote_column(column), code_name(number), domain.values, f"dpduck_labels_{number}")
        for number, (column, domain) in enumerate(layout.domains)
        if isinstance(domain, ValueDomain)
        and types.get(column) == domain.type_name == "VARCHAR"
        and layout.unit not in (None, column)
    ]


def _units(layout: Layout) -> str:
    """Writes SQL that numbers units: first units inside all domains, then other units, each from few rows to many."""
    outside = " OR ".join(f"{code_name(number)} IS NULL" for number in range(len(layout.domains))) or "FALSE"
    counted = (
        f"SELECT {quote_column(layout.unit)} AS dpduck_of, count(*) AS dpduck_n, "
        f"count(CASE WHEN {outside} THEN 1 END) AS dpduck_o FROM dpduck_rows "
        f"WHERE {quote_column(layout.unit)} IS NOT NULL GROUP BY {quote_column(layout.unit)}"
    )
    least = ", ".join(f"CAST(least({n}, {_LARGEST}) AS UINTEGER) AS {n}" for n in ("dpduck_n", "dpduck_o"))
    number = rank_sql((), ["dpduck_o > 0", "dpduck_n"])
    return f"SELECT dpduck_of, {least}, {number} AS dpduck_number FROM ({counted})"


def _sort_rows(layout: Layout, parameters: dict[str, object]) -> str:
    """Writes the rows sorted by unit and place."""
    # columns that most statements read are adjacent, since DuckDB packs columns into blocks in their order
    window = f"(PARTITION BY dpduck_number ORDER BY {_ORDER})"
    place, rank = (f"CAST(least({name}() OVER {window}, {_LARGEST}) AS UINTEGER)" for name in ("row_number", "rank"))
    codes = [code_name(number) for number in range(len(layout.domains))]
    numbers = [
        f"dpduck_number AS {NUMBER}",
        f"nullif({rank}, {place}) AS {TIED}",
        f"{place} AS {PLACE}",
        f"dpduck_n AS {ROWS_OF_UNIT}",
        f"dpduck_o AS {OPEN_ROWS}",
    ]
    own = f"dpduck_rows.* EXCLUDE ({', '.join([_ORDER, *codes])})"
    rows = (
        f"SELECT {', '.join([own, *numbers, *codes])} "
        f"FROM dpduck_rows LEFT JOIN dpduck_units ON {quote_column(layout.unit)} = dpduck_of ORDER BY {NUMBER}, {PLACE}"
    )
    texts = {text.name: (place, text) for place, text in enumerate(_label_texts(layout), start=1)}
    parameters.update({text.parameter: texts_parameter(text.values) for _, text in texts.values()})
    read = [_restore_text(name, *texts[name]) if name in texts else name for name, _ in _columns_and_unit(layout)]
    last = [NUMBER, TIED, PLACE, ROWS_OF_UNIT, OPEN_ROWS, *codes]
    return f"SELECT {', '.join([*read, *_cut_columns(layout), *last])} FROM ({rows}) AS t"


def _restore_text(name: str, place: int, text: _Told) -> str:
    label = f"{texts_sql(text.parameter, 'VARCHAR')}[CAST({text.code} AS INTEGER) + 1]"
    return f"CASE WHEN {text.code} < {len(text.values)} THEN {label} ELSE {_REST}[{place}] END AS {name}"


def _cut_columns(layout: Layout) -> Iterator[str]:
    """Yields SQL of the clamped copies of columns, as whole numbers (clamps.py). No value makes it raise an error."""
    for number, cut in enumerate(layout.cuts):
        column = RelationColumn("t", cut.name, cut.type_name)
        yield f'{units_sql(cut, column)} AS "{UNITS.format(number)}"'
        if cut.steps is not None and not cut.alike:
            yield f'{steps_sql(cut, column)} AS "{STEPS.format(number)}"'


def _rank_again(second: duckdb.DuckDBPyConnection, layout: Layout, table_sql: str) -> None:
    """Marks units as open if different rows have one hash: a statement's columns decide which row is kept."""
    tied = f"SELECT DISTINCT {NUMBER} AS dpduck_n, {TIED} AS dpduck_r FROM {table_sql} WHERE {TIED} IS NOT NULL"
    alike = [_alike(name, type_name) for name, type_name in _columns_and_unit(layout)]
    reader.run(
        second,
        f"CREATE TEMP TABLE dpduck_unlike AS SELECT dpduck_n FROM {table_sql} JOIN ({tied}) "
        f"ON {NUMBER} = dpduck_n AND ifnull({TIED}, {PLACE}) = dpduck_r "
        f"GROUP BY dpduck_n, dpduck_r HAVING NOT ({' AND '.join(alike)})",
    )
    reader.run(
        second,
        f"UPDATE {table_sql} SET {OPEN_ROWS} = greatest({OPEN_ROWS}, 1), {PLACE} = ifnull({TIED}, {PLACE}) "
        f"WHERE {NUMBER} IN (FROM dpduck_unlike)",
    )
    reader.run(second, "DROP TABLE dpduck_unlike")
    reader.run(second, f"ALTER TABLE {table_sql} DROP COLUMN {TIED}")


def _alike(name: str, type_name: str) -> str:
    """Writes an aggregate: true if a group's values are equal bit by bit. For 0 and -0, or a NaN, it is false."""
    if sql_type(type_name).is_float:
        text = f"CAST({name} AS VARCHAR)"
        return f"NOT ifnull(bool_or(isnan({name})), FALSE) AND {_alike(text, '')}"
    return f"count({name}) IN (0, count(*)) AND min({name}) IS NOT DISTINCT FROM max({name})"


def false_facts_sql(table_sql: str) -> str:
    """Writes a count of the rows with a false fact about their unit, or with a wrong place. The count must be 0.

    All rows of a unit state the same facts. If rows are ordered by place, the n-th row states at least n rows. Unless
    the unit is open, its place is at least n, so at most m rows have places up to m. Rows without a unit state no fact.
    """
    window = f"(PARTITION BY {NUMBER} ORDER BY {PLACE})"
    same = " AND ".join(f"{term} = lag({term}, 1, {term}) OVER {window}" for term in (ROWS_OF_UNIT, OPEN_ROWS))
    stored = ", ".join((NUMBER, PLACE, ROWS_OF_UNIT, OPEN_ROWS))
    selected = f"{rank_sql([NUMBER], [PLACE])} AS dpduck_n, {same} AS dpduck_same, {stored}"
    rows = f"SELECT {selected} FROM {table_sql} WHERE coalesce({NUMBER}, {ROWS_OF_UNIT}, {OPEN_ROWS}) IS NOT NULL"
    enough = " AND ".join(
        f"ifnull({term}, FALSE)"
        for term in (
            f"{NUMBER} IS NOT NULL AND dpduck_same",
            f"{ROWS_OF_UNIT} >= least(dpduck_n, {_LARGEST})",
            f"{OPEN_ROWS} > 0 OR {PLACE} >= least(dpduck_n, {_LARGEST})",
        )
    )
    return f"SELECT count(*) FROM ({rows}) WHERE NOT ({enough})"


def _columns_and_unit(layout: Layout) -> list[tuple[str, str]]:
    """Returns the columns in SQL with their types. PERSON is among them if a column holds just the unit."""
    person = [(PERSON, layout.unit_type)] if quote_column(layout.unit) == PERSON else []
    return [*((quote_column(name), type_name) for name, type_name in layout.columns), *person]
