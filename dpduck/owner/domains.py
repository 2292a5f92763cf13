"""Builds the domains and clamps of a policy from its clauses, and checks them against the columns' types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import duckdb

from dpduck.language.rows.facts import CatalogColumn, Clamp
from dpduck.language.select.options import LARGEST_EPSILON
from dpduck.language.statements.kinds import ClampClause, DomainClause, PolicyClauses
from dpduck.language.statements.policy import EVERY
from dpduck.language.text.dialect import exact_number
from dpduck.language.text.names import TableName
from dpduck.language.text.unknown_options import nearest
from dpduck.store.catalog import Catalog
from dpduck.store.sandbox import cast_texts, sandbox
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import Refusal
from dpduck.values.grids import Grid, decimal_step, divisor
from dpduck.values.quoting import fold, quote_text
from dpduck.values.sqltypes import sql_type

MAX_DOMAIN = 10_000_000
_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


def column_of(name: str, columns: tuple[CatalogColumn, ...], clause: object) -> CatalogColumn:
    """Returns the column that a clause names."""
    match = next((column for column in columns if fold(column.name) == fold(name)), None)
    if match is None:
        raise Refusal(
            f"there is no column {name!r}",
            accepted=nearest(name, [column.name for column in columns]),
            position=getattr(clause, "position", None),
        )
    return match


def build_domain(clause: DomainClause, type_name: str, catalog: Catalog) -> Domain:
    """Returns the domain that a clause declares for a column of this type."""
    try:
        if clause.kind == "range":
            return _range_domain(clause, type_name)
        return _value_domain(clause, type_name, catalog)
    except Refusal as error:
        raise error.at(clause.position) from None


def spread(clauses: Sequence[DomainClause], columns: Sequence[CatalogColumn]) -> list[DomainClause]:
    """Expands DOMAIN ALL BOOLEAN, or ENUM, to one clause for every such column without a clause of its own."""
    named = {fold(clause.column) for clause in clauses}
    column_clauses: list[DomainClause] = []
    for clause in clauses:
        if clause.column != EVERY:
            column_clauses.append(clause)
            continue
        typed = [column for column in columns if sql_type(column.type_name).kind == clause.kind.upper()]
        if not typed:
            raise Refusal(
                f"no column is of type {clause.kind.upper()}",
                accepted="DOMAIN column IN (..) for the columns that there are",
                position=clause.position,
            )
        column_clauses += [replace(clause, column=column.name) for column in typed if fold(column.name) not in named]
    return column_clauses


def _value_domain(clause: DomainClause, type_name: str, catalog: Catalog) -> ValueDomain:
    kind = sql_type(type_name)
    if not kind.is_listable:
        raise Refusal(
            f"a column of type {type_name} cannot have a domain",
            accepted="numbers, VARCHAR, BOOLEAN, DATE, TIME, TIMESTAMP, UUID and ENUM columns",
        )
    values = tuple(
        "0.0" if value == "-0.0" and kind.is_float else value for value in _values(clause, type_name, catalog)
    )
    if len(set(values)) != len(values):
        raise Refusal("a value of the domain is listed twice", accepted="each value once")
    if not 1 <= len(values) <= MAX_DOMAIN:
        raise Refusal(f"the domain has {len(values)} values", accepted=f"from 1 to {MAX_DOMAIN}")
    if clause.other is not None and type_name != "VARCHAR":
        raise Refusal(
            f"WITH OTHER needs a label of the column's type, and {clause.column} is of type {type_name}",
            accepted="WITH OTHER on VARCHAR columns; here "
            + ("RANGE .. WITH EDGES, which keeps other values, or " if kind.is_numeric or kind.is_moment else "")
            + "IN (..) by itself, where rows with others are in no group",
        )
    if clause.other in values:
        raise Refusal("the label of OTHER is one of the values", accepted="WITH OTHER 'another label'")
    return ValueDomain(type_name, values, clause.with_null, clause.other)


def _values(clause: DomainClause, type_name: str, catalog: Catalog) -> tuple[str, ...]:
    if clause.kind == "boolean":
        if type_name != "BOOLEAN":
            raise Refusal(f"the column {clause.column} is of type {type_name}", accepted="BOOLEAN on a BOOLEAN column")
        return ("false", "true")
    if clause.kind == "enum":
        return _enum_values(clause, type_name)
    if clause.source is not None:
        return _public_values(clause, type_name, catalog)
    if clause.bare and type_name == "VARCHAR":
        quoted = ", ".join(quote_text(value) for value in clause.values[:3])
        more = ", .." if len(clause.values) > 3 else ""
        raise Refusal(f"{clause.column} is VARCHAR", accepted=f"quoted texts, as in IN ({quoted}{more})")
    return cast_texts(clause.values, type_name)


def _enum_values(clause: DomainClause, type_name: str) -> tuple[str, ...]:
    if not sql_type(type_name).is_enum:
        raise Refusal(f"the column {clause.column} is of type {type_name}", accepted="ENUM on a column of an ENUM type")
    with sandbox() as connection:
        rows = connection.execute(f"SELECT unnest(enum_range(CAST(NULL AS {type_name})))").fetchall()
    return tuple(row[0] for row in rows)


def _public_values(clause: DomainClause, type_name: str, catalog: Catalog) -> tuple[str, ...]:
    if clause.source is None:
        return ()
    written, column = clause.source
    table = catalog.resolve(written)
    if table is None:
        raise Refusal(f"there is no table {str(written)!r}", accepted="a table after DECLARE PUBLIC TABLE")
    if not catalog.is_public(table):
        raise Refusal(
            f"{str(written)!r} is not declared public: a domain is never read from protected data",
            accepted="a table after DECLARE PUBLIC TABLE, or IN (..)",
        )
    if not any(fold(public_column.name) == fold(column) for public_column in catalog.columns(table)):
        raise Refusal(f"{str(written)!r} has no column {column!r}", accepted="table.column of a public table")
    values = tuple(value for value in catalog.public_values(table, column) if value is not None)
    return tuple(dict.fromkeys(cast_texts(values, type_name)))


def _range_domain(clause: DomainClause, type_name: str) -> RangeDomain:
    kind = sql_type(type_name)
    if kind.is_moment:
        if type_name == "DATE" and not clause.unit:
            clause = replace(clause, unit="day")
        edges, upper, count = _temporal_edges(clause, type_name)
        return RangeDomain(type_name, edges, upper, "", clause.unit, count, clause.with_null, clause.with_edges)
    if type_name == "TIMESTAMP WITH TIME ZONE":
        column = clause.column
        raise Refusal(
            f"{column} is of type {type_name}: the bin of a value would depend on the session's time zone",
            accepted=f"RANGE after ALTER TABLE .. ALTER {column} TYPE TIMESTAMP USING {column} AT TIME ZONE 'UTC'",
        )
    if not kind.is_numeric:
        other = f"; or DOMAIN {clause.column} IN ('..', '..')" if kind.is_text else ""
        if clause.unit and kind.is_text:
            other = (
                f": ALTER TABLE .. ALTER {clause.column} TYPE DATE USING CAST(try_strptime({clause.column}, "
                "'%d.%m.%Y') AS DATE), by its format"
            )
        raise Refusal(
            f"RANGE needs an ordered column, and {clause.column} is of type {type_name}",
            accepted=f"numbers, DATE and TIMESTAMP columns{other}",
        )
    if clause.unit:
        raise Refusal("an INTERVAL step on a column of numbers", accepted="STEP and a number")
    low, high, step = (_number(text) for text in (clause.low, clause.high, clause.step))
    if step <= 0:
        raise Refusal(f"STEP {clause.step} is not above 0", accepted="a step above 0")
    if high <= low or (high - low) % step != 0:
        ends = f": {clause.low} TO {decimal_text(low + ((high - low) // step + 1) * step)}" if high > low else ""
        raise Refusal(
            "RANGE low TO high is not a whole number of steps", accepted=f"high = low + k * step, k at least 1{ends}"
        )
    if kind.is_whole and (low.denominator != 1 or step.denominator != 1):
        raise Refusal(f"the column {clause.column} holds whole numbers", accepted="whole numbers in RANGE and STEP")
    bins = (high - low) / step
    if bins > MAX_DOMAIN:
        raise Refusal(f"the range has more than {MAX_DOMAIN} bins", accepted="a larger STEP")
    texts = [decimal_text(low + number * step) for number in range(int(bins) + 1)]
    edges = cast_texts(texts, type_name)
    if len(set(edges)) != len(edges):
        raise Refusal(f"two edges are one value of {type_name}", accepted="a step that the column's type can hold")
    return RangeDomain(type_name, edges[:-1], edges[-1], clause.step, "", 1, clause.with_null, clause.with_edges)


def _number(text: str) -> Fraction:
    try:
        return exact_number(text)
    except ValueError:
        raise Refusal("a bound of RANGE is not a number", accepted="numbers") from None


def decimal_text(value: Fraction) -> str:
    """Returns the exact decimal text of a number that has one, such as a step, a bound or their sum."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    scaled = int(value * 10**digits)
    sign, body = ("-" if scaled < 0 else ""), str(abs(scaled)).rjust(digits + 1, "0")
    return sign + (f"{body[:-digits]}.{body[-digits:]}" if digits else body)


@contextmanager
def _in_range() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, OverflowError):
        raise Refusal(
            "these bounds and this step give no list of bins",
            accepted=f"bounds in the range of TIMESTAMP, at most {MAX_DOMAIN} steps",
        ) from None


def _temporal_edges(clause: DomainClause, type_name: str) -> tuple[tuple[str, ...], str, int]:
    if clause.unit not in _UNITS:
        raise Refusal(
            "RANGE over dates steps by an interval", accepted="STEP DAY, WEEK, MONTH, YEAR, HOUR .., or 7 DAYS"
        )
    count = _number(clause.step)
    if count.denominator != 1 or count < 1:
        raise Refusal("the interval is not a whole number", accepted=f"STEP INTERVAL 1 {clause.unit.upper()}")
    low, high = cast_texts((clause.low, clause.high), type_name)
    step = f"INTERVAL {int(count)} {clause.unit.upper()}"
    bounds = f"TIMESTAMP {quote_text(low)}, TIMESTAMP {quote_text(high)}"
    with sandbox() as connection, _in_range():
        rows = connection.execute(
            f"SELECT CAST(CAST(edge AS {type_name}) AS VARCHAR), CAST(edge AS VARCHAR) FROM (SELECT unnest("
            f"generate_series({bounds}, {step})) AS edge LIMIT {MAX_DOMAIN + 2})"
        ).fetchall()
        beyond = _next_edge(connection, rows[-1][1], step, type_name) if rows else ""
    edges = [row[0] for row in rows]
    if len(edges) < 2 or edges[-1] != high or len(edges) > MAX_DOMAIN or len(set(edges)) != len(edges):
        raise Refusal(
            "RANGE low TO high is not a whole number of steps",
            accepted=f"high = low + k * step, k at least 1{f': {low} TO {beyond}' if beyond > high else ''}",
        )
    return tuple(edges[:-1]), edges[-1], int(count)


def _next_edge(connection: duckdb.DuckDBPyConnection, edge: str, step: str, type_name: str) -> str:
    query = f"SELECT CAST(CAST(TIMESTAMP {quote_text(edge)} + {step} AS {type_name}) AS VARCHAR)"
    row = connection.execute(query).fetchone()
    return "" if row is None else str(row[0])


def build_clamp(clause: ClampClause, type_name: str) -> Clamp:
    """Returns the clamp of a numeric column. Its step divides the range, so that sums are whole numbers of steps."""
    low, high = (exact_number(text) for text in (clause.low, clause.high))
    if not sql_type(type_name).is_numeric:
        raise Refusal(
            f"CLAMP needs a column of numbers, and {clause.column} is of type {type_name}",
            accepted="a numeric column; or no CLAMP, and bounds where it is asked: "
            f"sum(TRY_CAST({clause.column} AS DOUBLE), contribution_bounds_per_row => ({clause.low}, {clause.high}))",
            position=clause.position,
        )
    if high <= low:
        raise Refusal(
            f"CLAMP {clause.column}: the bounds are in the wrong order",
            accepted=f"BETWEEN {clause.high} AND {clause.low}" if high < low else "a low bound below the high one",
            position=clause.position,
        )
    step = exact_number(clause.step) if clause.step else _usual_step(low, high, type_name)
    if step <= 0:
        raise Refusal(f"STEP {clause.step} is not above 0", accepted="a step above 0", position=clause.position)
    if (high - low) % step != 0:
        raise Refusal(
            "CLAMP low AND high is not a whole number of steps",
            accepted=f"high = low + k * step, k at least 1: BETWEEN {clause.low} AND "
            f"{decimal_text(low + ((high - low) // step + 1) * step)}",
            position=clause.position,
        )
    return Clamp(clause.column, clause.low, clause.high, clause.step or decimal_text(step))


def _usual_step(low: Fraction, high: Fraction, type_name: str) -> Fraction:
    """Returns the step of a clamp without STEP. Stored policies keep their stored step."""
    kind = sql_type(type_name)
    if kind.is_whole:
        return Fraction(1)
    step = Fraction(1, 10**kind.scale) if kind.is_decimal else decimal_step(high - low)
    return divisor(divisor(step, low), high)


def _rounding_note(clause: ClampClause, clamp: Clamp, type_name: str) -> str:
    """Returns a note for the owner if values are rounded to a step that the clause does not have, otherwise ""."""
    grid = Grid(*(exact_number(text) for text in (clamp.low, clamp.high, clamp.step))).align()
    written = exact_number(clause.step) if clause.step else None
    exact = not sql_type(type_name).is_float and grid.step == exact_number(clamp.step)
    if grid.step == written or (written is None and exact):
        return ""
    shown = decimal_text(grid.step) if _is_decimal(grid.step) else str(grid.step)
    return f"values of {clamp.column} are rounded to multiples of {shown}"


def _is_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def notes(clauses: PolicyClauses, columns: tuple[CatalogColumn, ...], table: TableName) -> str:
    """Returns notes for the outcome: on a large budget, and on clamps that round values to an unwritten step."""
    noted, rounded = list[str](), list[str]()
    epsilon = None if clauses.budget is None else clauses.budget.epsilon
    if epsilon is not None and epsilon > LARGEST_EPSILON:
        noted.append(
            f"budget: epsilon = {float(epsilon):g}, more than the largest price of one statement, "
            f"{float(LARGEST_EPSILON):g}; budgets of 1 to 10 are usual"
        )
    for clause in clauses.clamps:
        column = column_of(clause.column, columns, clause)
        clamp = build_clamp(replace(clause, column=column.name), column.type_name)
        rounded.append(_rounding_note(clause, clamp, column.type_name))
    if (several := len(rounded) - rounded.count("")) > 1:
        rounded = [f"values of {several} columns are rounded, to the STEP that dp_columns('{table.table}') shows"]
    return "".join(f"; {note}" for note in [*noted, *rounded] if note)
