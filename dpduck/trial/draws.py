"""Draws of a release over the true rows, through the kernel's door, into a database in memory that nobody else sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import duckdb

from dpduck.kernel.door import compute_charge
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.trials import open_trial
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.analyse import Analysis
from dpduck.language.select.outer import OuterQuery
from dpduck.language.text.names import (
    GROUPING_SET,
    HOLE,
    RELEASED,
    TableName,
    answer_column,
    high_column,
    low_column,
)
from dpduck.mechanisms.answers_sql import margins_sql
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.registry import mechanism_of
from dpduck.mechanisms.rehearsal import rehearse_asks
from dpduck.mechanisms.release import PlaceOf, ReleasedTable
from dpduck.store.cursors import OpenCursor, SandboxAnswers
from dpduck.store.sandbox import Sandbox
from dpduck.trial.figures import CELLS, SHOWN
from dpduck.values.quoting import quote_identifier


@dataclass(frozen=True)
class Drawing:
    """Tools of draws. unchanged: refuses rows if their public facts changed since the analysis."""

    open_cursor: OpenCursor
    ledger: Ledger
    workers: Workers
    place_of: PlaceOf
    answered: SandboxAnswers
    unchanged: Callable[[RequestRows, duckdb.DuckDBPyConnection], None]

    @contextmanager
    def releases(self, question: Any, rows: RequestRows) -> Iterator[Callable[[], tuple[ReleasedTable, Any]]]:
        """Yields a function that makes one more release of a question, over the same exact counts, with its plan."""
        mechanism = mechanism_of(question)
        with Sandbox(self.answered) as box:
            tools = Tools(box, self.ledger.secrets, no_step)
            plan = mechanism.plan(question)
            asks, price = mechanism.asks(plan), plan.request.price
            charge = compute_charge(price.charge, asks, price.least_rho)
            rehearse_asks(asks, rows.shapes, self.answered, self.workers)
            with open_trial(
                asks, charge, rows.unit_key, self.ledger, self.open_cursor, partial(self.unchanged, rows),
                operating_system_entropy(), self.workers, self.place_of(rows),
            ) as new_door:  # fmt: skip

                def release() -> tuple[ReleasedTable, Any]:
                    door = new_door()
                    try:
                        door.count()
                        return mechanism.recover(plan, mechanism.measure(plan, door, tools), tools), plan
                    finally:
                        door.close()

                yield release

    def draw_runs(self, analysis: Analysis, runs: int, scratch: duckdb.DuckDBPyConnection, prefix: str) -> None:
        """Makes releases, and writes their cells and the rows that the statement shows to tables of `scratch`.

        prefix: the start of the tables' names. Each row has the number of its run, and a shown row also its place.
        """
        mechanism, request = mechanism_of(analysis.request), analysis.request
        self._copy_public(analysis.outer.tables, scratch)
        with self.releases(request, request.rows) as release:
            for run in range(runs):
                table, plan = release()
                _load(scratch, table)
                header = mechanism.header(plan)
                laws = header.laws if table.laws is None else table.laws
                names = [name for name, _ in table.columns]
                for kind, outer in ((CELLS, _every_cell(analysis, names)), (SHOWN, analysis.outer)):
                    seen = replace(analysis, outer=outer)
                    rows_sql = outer.over(margins_sql("released_now", laws, seen, names, plan.request.price.charge))
                    order = f"SELECT {run} AS dpduck_run, row_number() OVER () AS dpduck_place, * FROM ({rows_sql})"
                    begin = f"CREATE TABLE {prefix}{kind} AS" if run == 0 else f"INSERT INTO {prefix}{kind}"
                    scratch.execute(f"{begin} {order}")

    def _copy_public(self, tables: tuple[TableName, ...], scratch: duckdb.DuckDBPyConnection) -> None:
        """Copies the public tables that the SQL around a release reads, under the same names."""
        for table in tables:
            database, schema, _ = map(quote_identifier, table.parts)
            with self.open_cursor() as cursor:
                rows = cursor.execute(f"FROM {table.sql}").to_arrow_table()
            known = scratch.execute("SELECT list(database_name) FROM duckdb_databases()").fetchone()
            if known is None or table.parts[0] not in known[0]:
                scratch.execute(f"ATTACH ':memory:' AS {database}")
            scratch.execute(f"CREATE SCHEMA IF NOT EXISTS {database}.{schema}")
            scratch.register("public_rows", rows)
            scratch.execute(f"CREATE TABLE IF NOT EXISTS {table.sql} AS FROM public_rows")
            scratch.unregister("public_rows")


def open_scratch() -> duckdb.DuckDBPyConnection:
    """Opens a database in memory that writes nothing to disk, not even if memory runs out."""
    scratch = duckdb.connect(":memory:")
    scratch.execute("SET temp_directory = ''")
    scratch.execute("SET preserve_insertion_order = true")
    return scratch


def _load(scratch: duckdb.DuckDBPyConnection, table: ReleasedTable) -> None:
    listed = ", ".join(f"{quote_identifier(name)} {type_name}" for name, type_name in table.columns)
    scratch.execute(f"CREATE OR REPLACE TABLE released_now ({listed})")
    scratch.register("dpduck_rows_now", table.rows)
    scratch.execute("INSERT INTO released_now FROM dpduck_rows_now")
    scratch.unregister("dpduck_rows_now")


def _every_cell(analysis: Analysis, names: list[str]) -> OuterQuery:
    """Returns a query for the key of each released cell, and for each aggregate's answer and interval."""
    question = analysis.request.question
    keys = [key.name for key in question.keys if key.name in names]
    level = [GROUPING_SET] if GROUPING_SET in names else []
    parts = [f"CAST({_column(name)} AS VARCHAR)" for name in (*level, *keys)]
    ends = [
        f"{_column(name)} AS {name}"
        for number in range(len(question.aggregates))
        for name in (answer_column(number), low_column(number), high_column(number))
    ]
    cell = f"CAST([{', '.join(parts)}] AS VARCHAR[]) AS cell"
    sql = f"SELECT {', '.join([cell, *ends])} FROM {quote_identifier(HOLE)} AS {quote_identifier(RELEASED)}"
    return OuterQuery(sql, ("cell",))


def _column(name: str) -> str:
    return f"{quote_identifier(RELEASED)}.{quote_identifier(name)}"
