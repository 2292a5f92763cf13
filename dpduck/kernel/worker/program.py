"""Divides the expressions of a job: the database reads stored columns, and a worker computes all others.

The worker gets the columns that its expressions read, and neither the unit of a row nor its order. For every row it
returns a value of each output: a flag, a number of steps, a slot of a key, or bytes. NULL: it could not compute that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.columns.expressions import AnalystSql as Written
from dpduck.kernel.columns.expressions import Expression, Names, Own, RelationColumn, column_sql, columns_of
from dpduck.kernel.columns.stored import text_sql, without_sign
from dpduck.kernel.rows.held import REPEATED, SHORTEST_READ
from dpduck.kernel.rows.placed import Stage
from dpduck.kernel.worker.added_calls import with_results_of_their_own, with_whole_conditions
from dpduck.kernel.worker.answered import KEEP, ROW, Asking, chosen_inputs
from dpduck.kernel.worker.functions import require_row_local, texts_made
from dpduck.kernel.worker.worker import BATCH
from dpduck.kernel.worker.workers import Runner, WorkerProgram, Workers, row_texts
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

BATCH_ROWS, BATCH_TEXTS = 122_880, 30_720
"""Number of rows in a batch without texts, and in one with texts. At LONGEST_TEXT bytes each, a column of texts is
below the 2 GiB that Arrow allows."""

LONGEST_TEXT = 65_535
"""Most bytes of a text that is read, or of a unit. Rows with a longer one contribute nothing."""

LONGEST_REPEATED = 256
"""Most bytes of a text that rows are grouped by, if a worker computes it, or if a private join may repeat it in any
number of rows."""

MADE_AT_ONCE = 4096 * (LONGEST_TEXT + 1)
"""Most bytes of texts that a worker may compute for a batch."""

LONGEST_KEY = 4096
"""Most bytes of a text that rows look up among a public table's keys. The database's process holds these texts."""

GROWTH, LITERALS = 64, 1 << 16
"""A computed text has at most GROWTH times the bytes of the longest text of its row, plus LITERALS.
language/rows/functions.py refuses expressions that could exceed this. If that check were wrong, the worker's limits
would still hold."""

SHORTEST_BOUND = 1024
"""Fewest bytes that the texts of a row must be allowed to have. Programs that would need a lower limit are refused."""

_MADE: Mapping[str, str] = {"flag": "BOOLEAN", "integer": "BIGINT", "bytes": "BLOB"}
"""DuckDB's types of a worker's results, by the kind of an output."""


@dataclass(frozen=True)
class Output:
    """A column that a worker computes. kind: flag, integer, bytes or a type. then_sql: SQL with {} for the value."""

    kind: str
    value: Expression
    then_sql: str = ""


@dataclass(frozen=True)
class Division:
    """The outputs that a worker computes, by column name, and the conditions that it decides.

    copies: most joined rows that one row becomes. keys: number of texts that rows are grouped by. looked_up: most bytes
    of a text that is looked up among public keys.
    """

    outputs: Mapping[str, Output]
    conditions: tuple[Expression, ...]
    parameters: Mapping[str, object] = field(default_factory=dict, repr=False)
    copies: int = 1
    keys: int = 0
    looked_up: int = LONGEST_KEY

    @property
    def has_work(self) -> bool:
        return bool(self.outputs or self.conditions)

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return columns_of(self._expressions())

    def inputs(self, names: Names = column_sql) -> dict[str, str]:
        """Returns SQL of the worker's inputs, by name. A column that Arrow cannot carry unchanged is read as a text."""
        return {f"dpduck_x_{number}": _transfer_sql(column, names) for number, column in enumerate(self.columns)}

    def guards(self) -> list[str]:
        """Returns conditions that leave out rows with texts that are too long."""
        texts = [_transfer_sql(column) for column in self._texts()]
        return [f"{text} IS NULL OR strlen({text}) <= {self.longest_text}" for text in texts]

    @property
    def longest_text(self) -> int:
        """Returns the most bytes that a text of a row may have, so that computed texts stay below `row_texts`."""
        return min(self.longest_read, self._longest_of_made())

    @property
    def longest_read(self) -> int:
        """Returns the most bytes of each text that is read from a row, or that the row is grouped by."""
        read = len(self._texts()) + self.keys - sum(output.kind == "bytes" for output in self.outputs.values())
        return longest_read(max(read, self.keys), self.copies)

    @property
    def longest_made(self) -> int:
        return min(self.longest_read, longest_repeated(self.copies))

    def _longest_of_made(self) -> int:
        return (row_texts() // max(1, self._texts_made()) - LITERALS) // GROWTH

    def _texts(self) -> list[RelationColumn]:
        return [column for column in self.columns if not sql_type(column.type_name).has_fixed_size]

    def _texts_made(self) -> int:
        return sum(texts_made(expression.sql) for expression in self._expressions())

    def _expressions(self) -> Iterator[Expression]:
        return chain(self.conditions, (output.value for output in self.outputs.values()))

    def asking(self, sql: str, parameters: Mapping[str, object], other_texts: bool, stage: str = "") -> Asking:
        """Adds a worker's program to a SELECT. other_texts: whether its rows have texts or bytes besides inputs."""
        # a batch has so few rows that neither the texts it reads nor those it computes can fill the memory
        if not self.has_work:
            return Asking(sql, parameters=dict(parameters), stage=stage)
        texts = other_texts or bool(self._texts())
        kinds = [output.kind for output in self.outputs.values()]
        text_bytes = kinds.count("bytes") * self.longest_made + kinds.count("VARCHAR") * LONGEST_KEY
        rows = min(BATCH_TEXTS if texts else BATCH_ROWS, MADE_AT_ONCE // max(1, text_bytes))
        filtered = bool(self.conditions)
        return Asking(sql, tuple(self.inputs()), self.program(), rows, stage, filtered, dict(parameters), texts)

    def program(self) -> WorkerProgram:
        """Writes the program that a worker runs over a batch. Refuses an expression that is not over one row alone."""
        if self.longest_read < SHORTEST_READ:
            raise Refusal(
                f"joins make up to {self.copies} rows of one, of each of which many texts are held",
                accepted="fewer columns of texts in expressions and GROUP BY, or joins that repeat rows less",
            )
        if self._longest_of_made() < SHORTEST_BOUND:
            raise Refusal(
                f"the statement makes {self._texts_made()} texts of each row, more than a worker has memory for",
                accepted="fewer casts, concatenations and text functions in one statement, or several statements; "
                "where the process's memory is limited, a higher limit (dpduck serve .. --vault-memory 4GB)",
            )
        columns = {column: f"dpduck_x_{number}" for number, column in enumerate(self.columns)}
        restored = [_restore_column(x, column.type_name) for column, x in columns.items()]
        values, results = [], []
        if self.conditions:
            condition = " AND ".join(_worker_sql(expression, columns) for expression in self.conditions)
            values.append(f"coalesce(({condition}), FALSE) AS {KEEP}")
            results.append(KEEP)
        for name, output in self.outputs.items():
            values.append(f"{_worker_sql(output.value, columns)} AS {name}")
            results.append(f"{_result(name, output, self.longest_made, self.looked_up)} AS {name}")
        sql = (
            f"SELECT {with_whole_conditions(', '.join(results))} FROM (SELECT {', '.join(values)} FROM "
            f"(SELECT {', '.join(restored) or '1 AS dpduck_x'} FROM {BATCH}))"
        )
        fields = [pa.field(KEEP, pa.bool_())] if self.conditions else []
        fields += [pa.field(name, _arrow_type(output.kind)) for name, output in self.outputs.items()]
        return WorkerProgram(sql, pa.schema(fields), dict(self.parameters))


def _worker_sql(expression: Expression, columns: Mapping[RelationColumn, str]) -> str:
    """Writes an expression as the worker computes it. It is checked as it was written, and again as it will run."""
    # TRY is around all of it: if a row of a vector raises, DuckDB computes each row by itself
    names = frozenset(columns.values())
    written = expression.write(columns.__getitem__)
    require_row_local(written, names)
    sql = with_results_of_their_own(with_whole_conditions(f"try({written})"))
    require_row_local(sql, names)
    return sql


def _transfer_sql(column: RelationColumn, names: Names = column_sql) -> str:
    kind = sql_type(column.type_name)
    if kind.travels:
        return names(column)
    if kind.goes_as_text:
        return text_sql(names(column), column.type_name)
    raise Refusal(
        f"an expression over {quote_identifier(column.name)}, a {kind.word}, is refused",
        accepted="columns of numbers, texts, BOOLEAN, dates, times, intervals, ENUM and UUID in expressions",
    )


def longest_read(texts: int, copies: int) -> int:
    """Returns the most bytes of each of `texts` texts of a row that joins may turn into `copies` rows.

    All texts of a row together may have LONGEST_TEXT bytes. The texts of all its copies may have REPEATED times as
    many. The database's process holds the texts of some thousand rows. If rows are grouped by a text, it holds it for
    all rows of a unit. One person's texts filled it with 20 columns, 625 copies of each row, or a key 40,000 times in a
    sort.
    """
    return LONGEST_TEXT * REPEATED // max(REPEATED, copies) // max(1, texts)


def longest_repeated(copies: int) -> int:
    """Returns the most bytes of a text that is computed, or that a private join may repeat. copies: of a row."""
    return max(SHORTEST_READ, LONGEST_REPEATED * REPEATED // max(REPEATED, copies))


def longest_lookup(copies: int, repeated: bool) -> int:
    """Returns the most bytes of a text that each row looks up. repeated: whether any number of rows may have it."""
    longest = LONGEST_KEY * REPEATED // max(REPEATED, copies)
    return max(SHORTEST_READ, min(longest, LONGEST_REPEATED) if repeated else longest)


def _restore_column(x: str, type_name: str) -> str:
    kind = sql_type(type_name)
    if kind.is_float:
        return f"{without_sign(x, type_name)} AS {x}"
    return x if kind.travels else f"TRY_CAST({x} AS {type_name}) AS {x}"


def _result(name: str, output: Output, longest: int, looked_up: int) -> str:
    value = output.then_sql.replace("{}", name) if output.then_sql else name
    if output.kind == "flag":
        return f"coalesce(CAST({value} AS BOOLEAN), FALSE)"
    if output.kind == "integer":
        return f"CAST({value} AS BIGINT)"
    if output.kind == "VARCHAR":
        return f"CASE WHEN strlen({value}) <= {looked_up} THEN {value} END"
    if output.kind == "bytes":
        return f"CASE WHEN strlen({value}) <= {longest} THEN encode({value}) END"
    return value


def _arrow_type(kind: str) -> pa.DataType:
    column_type = sql_type(_MADE.get(kind, kind))
    if column_type.is_decimal:
        return pa.decimal128(column_type.digits, column_type.scale)
    return pa.type_for_alias(column_type.arrow)


def stage_question(stage: Stage, workers: Workers, looked_up: int = LONGEST_KEY) -> Asking:
    """Returns the Asking of a stage: expressions about one table, before the joins. looked_up: as in Division."""
    outputs = {name: Output("flag", condition) for condition, name in stage.flags.items()}
    for (value, type_name), name in stage.values.items():
        tried = _try_cast(value, type_name)
        outputs[name] = (
            Output(type_name, tried) if sql_type(type_name).travels else Output("VARCHAR", tried.cast("VARCHAR"))
        )
    longest = looked_up if stage.longest is None else min(looked_up, stage.longest)
    division = Division(outputs, (), looked_up=longest)
    alias = f'"{stage.stored.alias}"'
    columns = {ROW: f"{alias}.rowid", **division.inputs()}
    listed = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    where = where_sql([*([stage.where] if stage.where else []), *division.guards()])
    sql = f"SELECT {listed} FROM {stage.stored.sql} AS {alias}{where}"
    if stage.extended:
        with workers.runner(division.program()) as runner:
            _require_nothing_of_nulls(stage, division, runner)
    return division.asking(sql, {}, False, stage.name)


def _try_cast(value: Expression, type_name: str) -> Written:
    pieces = value.pieces if isinstance(value, Own) else value.columns
    return Written(("try(try_cast(", *pieces, f" AS {type_name}))"))


def _require_nothing_of_nulls(stage: Stage, division: Division, runner: Runner) -> None:
    """Refuses an expression that is not NULL for a row of NULLs. Outer joins add such rows, which have no answers."""
    # the refusal depends on the expression alone, and so reveals nothing
    # the refusal depends on the expression alone, and so reveals nothing
    types = (sql_type(column.type_name) for column in division.columns)
    columns = {
        name: pa.nulls(1, _arrow_type(kind.name if kind.travels else "VARCHAR"))
        for name, kind in zip(division.inputs(), types, strict=True)
    }
    batch = chosen_inputs(pa.Table.from_pydict(columns or {"x": pa.nulls(1)}), tuple(columns))
    answer = runner.compute(batch)
    answers = (answer.column(name)[0].as_py() for name in stage.extended)
    if any(value is not None and value is not False for value in answers):
        raise Refusal(
            "an expression that has a value for NULLs is asked of rows that an outer join made NULL",
            accepted="the condition in WHERE of SELECT WITH DIFFERENTIAL_PRIVACY, or IS NULL of a column",
        )


# Conditions of CASE inside a call. In a CASE, DuckDB evaluates AND and OR in an order that it adapts to the rows it has
# seen. A row that raises under TRY is evaluated alone, which counts as much as many rows. After some twenty such rows,
# the other operand comes first for all later rows. Inside a call, both operands are always evaluated.
