"""Exact facts of each privacy unit, for the owner of a table: the unit's part of each aggregate.

An owner who chooses a bound has the rows anyway. Nobody else is answered from here (engine/checks.py asks who calls).
Nothing is charged, no noise is drawn, and nothing is stored. The rows are those that the statement would count. Its job
is read as a count reads it, and the constant stage adds up the kept rows with the unit as one more key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np

from dpduck.kernel.contributions import UNIT, Contribution
from dpduck.kernel.counting.contribution_sql import LIMB
from dpduck.kernel.counting.exact import known_units, merged_cells, merged_rows, packed_cells, read_job, read_rows
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.rows import reader
from dpduck.kernel.stage import stage_sql, total_name
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

OWNER = "dpduck_owner"
"""The unit of a row, as a key."""


@dataclass(frozen=True, eq=False)
class UnitFacts:
    """What units add to aggregates: a row for each aggregate, and in it a number for each unit.

    added: the sum of a unit's integers over all cells. squares: the sum of their squares. Both are as doubles have
    them: weights of answers are computed in whole numbers (loss.py), and these figures are for eyes.
    """

    added: FloatArray = field(repr=False)
    squares: FloatArray = field(repr=False)


def facts_of_units(
    cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers
) -> UnitFacts:
    """Returns what each unit with kept rows adds to each aggregate of a job without norms.

    cursor: in the transaction in which public facts were looked at. Its only error has the one text of the reader.
    """
    if job.unit is None or job.place.in_engine or any(one.norm for one in job.aggregates):
        raise InternalError("facts of no units")
    reading = read_job(job)
    with read_rows(cursor, reading, bounding_key, workers) as (rows, second, given):
        merged = not job.tells_keys_apart and bool(job.attributes)
        cells = merged_cells(job) if merged else packed_cells(reading)
        owned = f"SELECT *, {UNIT} AS {OWNER} FROM ({merged_rows(reading, rows) if merged else rows})"
        known = known_units(reading)
        stage = stage_sql(owned, {**cells, OWNER: None}, job.aggregates, job.max_rows, known=known)
        found = reader.columns(second, _by_unit_sql(stage, job.aggregates), given)
    columns = [np.ma.getdata(column).astype(float) for column in found]
    return UnitFacts(np.array(columns[::2]), np.array(columns[1::2]))


def _by_unit_sql(stage: str, aggregates: Sequence[Contribution]) -> str:
    """Returns a row for each unit, with the sum of its integers and that of their squares for each aggregate."""
    integers = _integers(aggregates)
    named = ", ".join(f"{integer} AS dpduck_integer_{number}" for number, integer in enumerate(integers))
    sums = ", ".join(f"sum({one}), sum({one} * {one})" for one in (f"dpduck_integer_{n}" for n in range(len(integers))))
    return f"SELECT {sums} FROM (SELECT {OWNER}, {named} FROM ({stage})) GROUP BY {OWNER}"


def _integers(aggregates: Sequence[Contribution]) -> list[str]:
    """Writes a unit's integer in a cell for each aggregate, from the columns of contribution_sql.by_cell."""
    found, first = [], 0
    for one in aggregates:
        counted_rows, valued, low, high = (f"CAST({total_name(first + place)} AS DOUBLE)" for place in range(4))
        squared_low, squared_high = (f"CAST({total_name(first + place)} AS DOUBLE)" for place in (4, 5))
        first += 1 if one.form == "count" else 4 + 2 * one.has_squares
        if one.form == "count":
            found.append(counted_rows)
        elif one.form == "valued":
            found.append(valued)
        elif one.form == "sum":
            start, step = one.of_steps
            found.append(f"({valued} * {start} + ({high} * {LIMB} + {low}) * {step})")
        elif one.form == "squares":
            start, step = one.of_steps
            summed, squared = f"({high} * {LIMB} + {low})", f"({squared_high} * {LIMB} + {squared_low})"
            found.append(f"({valued} * {start**2} + {summed} * {2 * start * step} + {squared} * {step**2})")
        else:
            raise InternalError("facts of several tables")
    return found
