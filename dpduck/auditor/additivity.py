"""Compares exact counts of all privacy units together with the sum of the counts of each unit alone.

The counted rows of a unit depend on that unit's rows alone. So the count of all units is the sum of the counts of each
unit, cell by cell. A scan may leave out rows because of other rows in the same part of a table. Such a defect breaks
this sum first.

The comparison uses a twin: a database with the same policies, and with a few units of made-up rows. One unit has NULL
in every column. One unit has the same row again and again. One unit has a value or NULL in each column.

Each statement is planned once, over all units. Then the tables get the rows of all units, and later the rows of each
unit alone. Each time the door counts, and answers with negligible noise. No private row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, sqrt
from typing import Any

import duckdb
import numpy as np

from dpduck.auditor.neighbours import require_engine, roomy
from dpduck.auditor.runs import AuditPlan, plan_statement
from dpduck.engine.connection import connect
from dpduck.engine.functions import OWNER
from dpduck.engine.twins import twin_database
from dpduck.kernel.door import Bill, open_door
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, price
from dpduck.kernel.queries.tables import Table, Total
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.language.text.names import TableName
from dpduck.store.catalog import Catalog
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import DpduckError
from dpduck.values.privacy import Charge
from dpduck.values.quoting import fold, quote_identifier, quote_text

UNITS, ROWS_OF_UNIT, MADE_UP_ROWS = 4, 24, 400
"""Number of units that stay in a twin, most rows of a unit in a table, and number of rows of the twin at first."""

FAR, MOST_OF_ASK, MOST_IN_ALL = 60, 4000, 900_000
"""FAR: noise exceeds its bound with probability 2 exp(-FAR), below 1e-25. MOST_OF_ASK: most epsilon or rho of one ask.
MOST_IN_ALL: most epsilon or rho of all asks together, from the budget of the twin.
"""

BRANCHES, MOST_COLUMNS = 6, 40
"""The most conditions of one statement, and the most columns of a table that get conditions."""

Policies = Mapping[TableName, Policy]


@dataclass(frozen=True)
class Sums:
    """The result of a comparison.

    statements: the number of statements.
    broken: the statements with counts that do not add up.
    """

    statements: int
    broken: tuple[str, ...]


def sums(source: duckdb.DuckDBPyConnection, given: Callable[[duckdb.DuckDBPyConnection], Sequence[str]]) -> Sums:
    """Compares the counts of all units of a twin with the sum of the counts of each unit alone.

    given: function from the twin to statements with {tag}. Statements that are refused are left out.
    """
    workers = Workers()
    with connect() as twin:
        twin.execute("SET threads = 1")
        for _ in twin_database(source, twin, MADE_UP_ROWS, roomy):
            pass
        lay_out(twin, set())
        stored = _kept_rows(twin)
        parts = [None, *_units(twin, stored)]
        plans = _affordable([ready for text in given(twin) for ready in _plans(twin, text)], len(parts))
        counted: list[list[IntegerArray]] = []
        for unit in parts:
            _give_rows(twin, stored, unit)
            counted.append(list(_answers(twin, plans, workers)))
        broken = [
            plan.planned.text
            for plan, all_of_them, *each in zip(plans, *counted, strict=True)
            if np.any(np.abs(all_of_them - sum(each)) > plan.slack * len(parts))
        ]
        return Sums(len(plans), tuple(broken))


# Tables with a few units.


def units_sql(private: Policies, table: TableName) -> str:
    """Returns SQL of a table's rows, each with its unit in a text column unit_of_row.

    If each row is a unit, unit_of_row is a group of several rows.
    """
    unit = private[table].unit
    if unit.reference is not None:
        parent = units_sql(private, TableName(unit.reference.parent))
        column, key = quote_identifier(unit.reference.column), quote_identifier(unit.reference.parent_column)
        owners = f"SELECT {key} AS parent_key, any_value(unit_of_row) AS unit_of_row FROM ({parent}) GROUP BY 1"
        return f"SELECT child.*, unit_of_row FROM {table.sql} AS child LEFT JOIN ({owners}) ON {column} = parent_key"
    columns = [quote_identifier(name) for name in unit.own_columns]
    if not columns:
        unit_text = f"'row ' || (row_number() OVER () // {ROWS_OF_UNIT}) % {UNITS}"
    else:
        absent = " OR ".join(f"{name} IS NULL" for name in columns)
        together = ", ".join(f"CAST({name} AS VARCHAR)" for name in columns)
        unit_text = f"CASE WHEN {absent} THEN NULL ELSE concat_ws(chr(31), {together}) END"
    return f"SELECT *, {unit_text} AS unit_of_row FROM {table.sql}"


def lay_out(twin: duckdb.DuckDBPyConnection, done: set[TableName]) -> None:
    """Leaves a few units in each private table that is not in `done`, and adds the table to `done`.

    The tables are created anew, so that statistics of removed rows disappear.
    """
    private = policies_of(twin)
    chosen_units = _chosen_units(twin, private)
    waiting = [table for table in private if table not in done]
    done.update(waiting)
    for number, table in enumerate(waiting):
        twin.execute(f"CREATE TEMP TABLE laid_{number} AS {_laid_sql(twin, private, table, chosen_units)}")
    for number, table in enumerate(waiting):
        create_anew(twin, table, f"FROM temp.laid_{number}")
        twin.execute(f"DROP TABLE temp.laid_{number}")


def policies_of(twin: duckdb.DuckDBPyConnection) -> Policies:
    """Returns the policies of a database, each under its table."""
    return {policy.table: policy for policy in require_engine(twin).about.policies.policies()}


def create_anew(twin: duckdb.DuckDBPyConnection, table: TableName, rows: str) -> None:
    """Creates a table anew with other rows. After a DELETE, the minima and maxima of the old rows would stay."""
    created = "SELECT sql FROM duckdb_tables() WHERE (database_name, schema_name, table_name) = ($1, $2, $3)"
    ((ddl,),) = twin.execute(created, list(table.parts)).fetchall()
    ((home,),) = twin.execute("SELECT current_database()").fetchall()
    twin.execute(f"DROP TABLE {table.sql}")
    twin.execute(f"USE {quote_identifier(table.parts[0])}")
    twin.execute(ddl)
    twin.execute(f"USE {quote_identifier(home)}")
    twin.execute(f"INSERT INTO {table.sql} {rows}")


def _chosen_units(twin: duckdb.DuckDBPyConnection, private: Policies) -> dict[str, list[str]]:
    """Returns the units that stay, as SQL literals, by the key of their privacy unit. A hash chooses them."""
    chosen: dict[str, list[str]] = {}
    for table, policy in private.items():
        if policy.unit.reference is None:
            listed = f"SELECT unit_of_row FROM ({units_sql(private, table)}) WHERE unit_of_row IS NOT NULL GROUP BY 1"
            rows = twin.execute(f"{listed} ORDER BY md5(unit_of_row) LIMIT {UNITS}").fetchall()
            chosen.setdefault(policy.unit.key, [quote_text(unit) for (unit,) in rows])
    return chosen


def _laid_sql(
    twin: duckdb.DuckDBPyConnection, private: Policies, table: TableName, chosen_units: Mapping[str, Sequence[str]]
) -> str:
    """Returns SQL of the rows of the units that stay.

    The first unit has NULLs, the second one has constants, and the third one has either.
    """
    units = ", ".join(chosen_units.get(private[table].unit.key, [])) or "NULL"
    rows = (
        f"SELECT *, list_position([{units}], unit_of_row) AS place, row_number() OVER (PARTITION BY unit_of_row) AS "
        f"number FROM ({units_sql(private, table)}) QUALIFY number <= {ROWS_OF_UNIT} AND place IS NOT NULL"
    )
    fixed, listed = _key_columns(twin, private, table), []
    for column in columns_of(twin, table):
        name = quote_identifier(column.name)
        first = f"first_value({name}) OVER (PARTITION BY unit_of_row ORDER BY number)"
        absent = "place = 1 OR place = 3 AND number % 3 > 0"
        laid = f"CASE WHEN {absent} THEN NULL WHEN place <= 3 THEN {first} ELSE {name} END AS {name}"
        listed.append(name if fold(column.name) in fixed else laid)
    return f"SELECT {', '.join(listed)} FROM ({rows}) ORDER BY place, number"


def _key_columns(twin: duckdb.DuckDBPyConnection, private: Policies, table: TableName) -> set[str]:
    """Returns the columns with the unit of a row, those that other tables refer to, and those of unique keys."""
    references = [policy.unit.reference for policy in private.values()]
    parents = [link.parent_column for link in references if link is not None and TableName(link.parent) == table]
    engine = require_engine(twin)
    with engine.connections.cursor() as cursor:
        unique = [name for key in Catalog(cursor, engine.about.policies).unique_keys(table) for name in key]
    return set(map(fold, [*parents, *unique, *private[table].unit.own_columns]))


def columns_of(twin: duckdb.DuckDBPyConnection, table: TableName) -> Sequence[CatalogColumn]:
    """Returns the columns of a table."""
    engine = require_engine(twin)
    with engine.connections.cursor() as cursor:
        return Catalog(cursor, engine.about.policies).columns(table)


def _kept_rows(twin: duckdb.DuckDBPyConnection) -> dict[TableName, str]:
    """Copies each table, with the unit of each row, to a temporary table. Returns the names of these by table."""
    private = policies_of(twin)
    stored = {table: f"temp.kept_{number}" for number, table in enumerate(private)}
    for table, name in stored.items():
        twin.execute(f"CREATE TEMP TABLE {name.removeprefix('temp.')} AS {units_sql(private, table)}")
    return stored


def _units(twin: duckdb.DuckDBPyConnection, stored: Mapping[TableName, str]) -> list[str]:
    """Returns the units of all tables, as SQL literals. The last entry "" is for rows without a unit."""
    rows = " UNION ALL ".join(f"SELECT unit_of_row FROM {name}" for name in stored.values())
    listed = f"SELECT DISTINCT unit_of_row FROM ({rows}) WHERE unit_of_row IS NOT NULL ORDER BY 1"
    return [*(quote_text(unit) for (unit,) in twin.execute(listed).fetchall()), ""]


def _give_rows(twin: duckdb.DuckDBPyConnection, stored: Mapping[TableName, str], unit: str | None) -> None:
    """Gives all tables the rows of one unit. unit: an SQL literal, "" for rows without a unit, None for all rows."""
    of_unit = f" WHERE unit_of_row {f'= {unit}' if unit else 'IS NULL'}" if unit is not None else ""
    for table, name in stored.items():
        create_anew(twin, table, f"SELECT * EXCLUDE (unit_of_row) FROM {name}{of_unit}")


# Plans of statements, each made once, and the nearly exact answers of the door.


@dataclass(frozen=True)
class _Plan:
    """A statement and its asks, with negligible noise. slack: the largest error that one answer may have."""

    planned: AuditPlan
    asks: tuple[Ask[Any], ...]
    slack: int


def _plans(twin: duckdb.DuckDBPyConnection, text: str) -> list[_Plan]:
    """Plans a statement. Returns nothing if it is refused, or asks for nothing that adds up."""
    results: list[AuditPlan] = []
    with suppress(DpduckError, duckdb.Error):
        results.append(plan_statement(twin, text))
    return [plan for each in results for plan in _nearly_exact(each)]


def _nearly_exact(statement: AuditPlan) -> list[_Plan]:
    """Plans the asks for tables of numbers. For a scan without one, it plans an ask for the number of rows.

    Asks for selected keys are left out, because the set of published keys does not add up.
    """
    kind = NoiseKind.LAPLACE if statement.claim.epsilon is not None else NoiseKind.GAUSSIAN
    linear = [ask for ask in statement.asks if isinstance(ask.query, Table)]
    covered = {id(ask.scan) for ask in linear}
    for ask in statement.asks:
        if id(ask.scan) not in covered and not ask.scan.job.selected:
            covered.add(id(ask.scan))
            if len(ask.scan.tables) == 1:
                linear.append(Ask(ask.scan, Total(), Noise(kind, Fraction(1))))
    cheap = [replace(ask, noise=_nearly_none(ask, kind), times=1) for ask in linear]
    return [_Plan(statement, tuple(cheap), max(_slack(ask.noise) for ask in cheap))] if cheap else []


def _nearly_none(ask: Ask[Any], kind: NoiseKind) -> Noise:
    """Returns noise that is 0 except with probability 2 exp(-FAR), or as little noise as MOST_OF_ASK buys."""
    l1, l2_squared, _ = ask.moves or (1, 1, 1)
    if kind is NoiseKind.LAPLACE:
        return Noise(kind, max(Fraction(1, FAR + 1), Fraction(l1, MOST_OF_ASK)))
    return Noise(kind, max(Fraction(1, 2 * FAR + 1), Fraction(l2_squared, 2 * MOST_OF_ASK)))


def _slack(noise: Noise | None) -> int:
    """Returns a bound that the absolute value of noise exceeds with probability 2 exp(-FAR) at most."""
    if noise is None:
        return 0
    return floor(FAR * noise.parameter if noise.kind is NoiseKind.LAPLACE else sqrt(2 * FAR * noise.parameter))


def _affordable(plans: Sequence[_Plan], times: int) -> list[_Plan]:
    """Returns the first plans that the budgets of the twin can pay for. times: how often each plan is paid for."""
    spent, affordable = dict[str, Fraction](), []
    for plan in plans:
        key, cost = plan.planned.plan.request.rows.unit_key, price(plan.asks)
        total = spent.get(key, Fraction(0)) + times * (cost.rho if cost.epsilon is None else cost.epsilon)
        if total <= MOST_IN_ALL:
            spent[key] = total
            affordable.append(plan)
    return affordable


def _answers(twin: duckdb.DuckDBPyConnection, plans: Sequence[_Plan], workers: Workers) -> Iterator[IntegerArray]:
    """Yields the door's answers to each plan, over the present rows of the tables."""
    engine = require_engine(twin)
    for plan in plans:
        rows, cost = plan.planned.plan.request.rows, price(plan.asks)
        periods = None if rows.periods is None else rows.periods.periods
        charge, name = Charge(cost.epsilon, cost.rho, cost.delta), plan.planned.mechanism.name
        bill = Bill(rows.unit_key, str(rows.table), charge, OWNER.name, plan.planned.text, name, None, periods)
        with open_door(
            plan.asks, bill, engine.ledger, engine.connections.cursor, lambda cursor: None, operating_system_entropy(),
            no_step, workers,
        ) as door:  # fmt: skip
            answers = [door.answer(ask) for ask in plan.asks]
        yield np.concatenate([np.ravel(part) for answer in answers for part in _arrays(answer)])


def _arrays(answer: object) -> list[IntegerArray]:
    return list(answer) if isinstance(answer, tuple) else [np.array([answer], np.int64)]
