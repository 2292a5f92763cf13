"""The options nonnegative and integer, applied after recovery; both bias sums of many cells, and are never silent."""

from __future__ import annotations

from collections.abc import Sequence

from dpduck.arrays import FloatArray
from dpduck.planning.plan import Plan
from dpduck.recovery.nonnegative import integer_table, nonnegative_consistent, nonnegative_table


def treated(plan: Plan, answers: Sequence[FloatArray], *, nonnegative: bool, integer: bool) -> tuple[FloatArray, ...]:
    """Answers after the options: tables stay consistent if they were, unless they are rounded too.

    Totals are kept: a table's sum stays what it was (0 if it was negative), rounded under `integer`.
    """
    tables = tuple(answers)
    if nonnegative and plan.consistency == "none":
        tables = tuple(nonnegative_table(table) for table in tables)
    elif nonnegative:
        tables = nonnegative_consistent(plan.workload, tables, plan.variances)
    return tuple(integer_table(table) for table in tables) if integer else tables
