"""Reads rows, sends their inputs to a worker, and puts the worker's answers in place of the inputs (program.py).

Four files are sent unchanged to an engine's tasks (places/orders.py): reader, worker, workers and this one. They
import each other, and errors and child_process of values/, and nothing else of dpduck.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import Runner, WorkerProgram, Workers
from dpduck.values.errors import InternalError

KEEP = "dpduck_keep"
ROW = "dpduck_row"
RELATION = "dpduck_rows_of_worker"


@dataclass(frozen=True)
class Asking:
    """A SELECT of rows, and a worker's program for each row. inputs: the program's columns, which answers replace.

    program: None if no worker is needed. rows: number of rows at a time. stage: name of a table for the answers about
    one stored table, "" if the SELECT has the job's rows. kept: whether the worker decides which rows are kept. texts:
    whether there are texts or bytes among the columns.
    """

    sql: str
    inputs: tuple[str, ...] = ()
    program: WorkerProgram | None = None
    rows: int = 0
    stage: str = ""
    kept: bool = False
    parameters: Mapping[str, object] = field(default_factory=dict, repr=False)
    texts: bool = False

    @property
    def rows_with_answers(self) -> str:
        if self.program is None:
            return self.sql
        return f"SELECT * FROM {RELATION}{f' WHERE {KEEP}' if self.kept else ''}"


@contextmanager
def answer_rows(
    cursor: duckdb.DuckDBPyConnection, stages: Sequence[Asking], asking: Asking, workers: Workers
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Mapping[str, object]]]:
    """Yields a cursor that can run asking.rows_with_answers, and the parameters of that SQL."""
    with ExitStack() as stack:
        for stage in stages:
            _put_answers(cursor, stage, workers)
            stack.callback(cursor.unregister, stage.stage)
        if asking.program is None:
            yield cursor, asking.parameters
            return
        runner = stack.enter_context(workers.runner(asking.program))
        parts = _answers(cursor, asking, runner)
        first = next(parts)
        batches = (batch for part in chain([first], parts) for batch in part.to_batches())
        answers = pa.RecordBatchReader.from_batches(first.schema, batches)
        yield stack.enter_context(reader.beside(cursor, RELATION, answers)), {}


def _put_answers(cursor: duckdb.DuckDBPyConnection, stage: Asking, workers: Workers) -> None:
    """Registers the worker's answers about one stored table as a table with the row numbers."""
    if stage.program is None:
        raise InternalError("a stage without a program")
    with workers.runner(stage.program) as runner:
        parts = [part.filter(_some(part)) for part in _answers(cursor, stage, runner)]
    cursor.register(stage.stage, pa.concat_tables(parts))


def _some(part: pa.Table) -> pa.ChunkedArray:
    """Returns a mask of the rows with at least one answer: a flag that is true, or a value that is not NULL."""
    chosen = None
    for name in part.column_names[1:]:
        column = part.column(name)
        answered = pc.fill_null(column, False) if pa.types.is_boolean(column.type) else pc.is_valid(column)
        chosen = answered if chosen is None else pc.or_(chosen, answered)
    return chosen


def _answers(cursor: duckdb.DuckDBPyConnection, asking: Asking, runner: Runner) -> Iterator[pa.Table]:
    """Yields tables of answers and other columns than inputs. While the worker computes one, the next is read."""
    read = reader.text_batches if asking.texts else reader.batches
    batches = read(cursor, asking.sql, asking.parameters, asking.rows)
    empty = next(batches)
    inputs = asking.inputs
    others = [name for name in empty.column_names if name not in inputs]
    yield _zip_columns(empty.select(others), runner.check(chosen_inputs(empty, inputs)))
    pending: tuple[pa.Table, pa.Table] | None = None
    for table in batches:
        if not table.num_rows:
            continue
        inputs_of_batch = chosen_inputs(table, inputs)
        if pending is not None:
            answer = runner.finish(pending[1])
            runner.begin(inputs_of_batch)
            yield _zip_columns(pending[0], answer)
        else:
            runner.begin(inputs_of_batch)
        pending = (table.select(others), inputs_of_batch)
    if pending is not None:
        yield _zip_columns(pending[0], runner.finish(pending[1]))


def chosen_inputs(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the columns that a worker gets. If a worker needs none, it gets a column of NULLs."""
    if names:
        return table.select(list(names))
    return pa.Table.from_pydict({"dpduck_x": pa.nulls(table.num_rows, pa.int8())})


def _zip_columns(others: pa.Table, answer: pa.Table) -> pa.Table:
    if not others.num_columns:
        return answer
    if others.num_rows != answer.num_rows:
        raise InternalError("a worker answers every row once")
    for name in answer.column_names:
        others = others.append_column(answer.schema.field(name), answer.column(name))
    return others
