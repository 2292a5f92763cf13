"""Exact facts of each privacy unit, for the owner of a table: the unit's contribution to each aggregate.

An owner who chooses a bound has the rows anyway. Nobody else gets an answer from here (engine/checks.py checks the
caller). Nothing is charged, no noise is drawn, and nothing is stored. The rows are those that the statement would
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import LIMB
from dpduck.kernel.counting.exact import attribute_cells, merge_rows, read_job, read_rows, unit_facts, word_cells
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.bounding import UNIT
from dpduck.kernel.stage import stage_sql, total_name
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

OWNER = "dpduck_owner"
"""Column with the unit of a row, as a key."""


@dataclass(frozen=True, eq=False)
class UnitContributions:
    """Each unit's sum of integers over all cells, and sum of their squares, by aggregate. They are for display."""

    added: FloatArray = field(repr=False)
    squares: FloatArray = field(repr=False)


def facts_of_units(
    cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers
) -> UnitContributions:
    """Returns what each unit with kept rows adds to a job without norms. Its only error has the reader's fixed text."""
    if job.unit is None or job.place.in_engine or any(aggregate.norm for aggregate in job.aggregates):
        raise InternalError("facts of no units")
    reading = read_job(job)
    with read_rows(cursor, reading, bounding_key, workers) as (rows, second, parameters):
        merged = not job.tells_keys_apart and bool(job.attributes)
        cells = attribute_cells(job) if merged else word_cells(reading)
        owned = f"SELECT *, {UNIT} AS {OWNER} FROM ({merge_rows(reading, rows) if merged else rows})"
        facts = unit_facts(reading)
        stage = stage_sql(owned, {**cells, OWNER: None}, job.aggregates, job.max_rows, facts=facts)
        sums = reader.columns(second, _by_unit_sql(stage, job.aggregates), parameters)
    columns = [np.ma.getdata(column).astype(float) for column in sums]
    return UnitContributions(np.array(columns[::2]), np.array(columns[1::2]))


def _by_unit_sql(stage: str, aggregates: Sequence[Contribution]) -> str:
    """Writes a row for each unit, with the sum of its integers and the sum of their squares for each aggregate."""
    integers = _integers(aggregates)
    named = ", ".join(f"{integer} AS dpduck_integer_{number}" for number, integer in enumerate(integers))
    sums = ", ".join(f"sum({sql}), sum({sql} * {sql})" for sql in (f"dpduck_integer_{n}" for n in range(len(integers))))
    return f"SELECT {sums} FROM (SELECT {OWNER}, {named} FROM ({stage})) GROUP BY {OWNER}"


def _integers(aggregates: Sequence[Contribution]) -> list[str]:
    integers, first = [], 0
    for aggregate in aggregates:
        counted_rows, valued, low, high = (f"CAST({total_name(first + place)} AS DOUBLE)" for place in range(4))
        squared_low, squared_high = (f"CAST({total_name(first + place)} AS DOUBLE)" for place in (4, 5))
        first += 1 if aggregate.form == "count" else 4 + 2 * aggregate.has_squares
        if aggregate.form == "count":
            integers.append(counted_rows)
        elif aggregate.form == "valued":
            integers.append(valued)
        elif aggregate.form == "sum":
            start, step = aggregate.of_steps
            integers.append(f"({valued} * {start} + ({high} * {LIMB} + {low}) * {step})")
        elif aggregate.form == "squares":
            start, step = aggregate.of_steps
            summed, squared = f"({high} * {LIMB} + {low})", f"({squared_high} * {LIMB} + {squared_low})"
            integers.append(f"({valued} * {start**2} + {summed} * {2 * start * step} + {squared} * {step**2})")
        else:
            raise InternalError("facts of several tables")
    return integers
