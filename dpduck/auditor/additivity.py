"""Compares exact counts of all privacy units together with the sum of the counts of each unit alone.

The counted rows of a unit depend on its own rows alone, so both are equal. They differ if a scan leaves out rows
because of other rows in the same part of a table. So some units have NULLs or constants (see few_units).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from dpduck.auditor.few_units import MADE_UP_ROWS, copy_rows, give_rows, lay_out, units_of
from dpduck.auditor.nearly_exact import affordable_plans, nearly_exact_answers, plans_of_statement
from dpduck.auditor.neighbours import roomy
from dpduck.database.connection import connect
from dpduck.database.twins import twin_database
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import IntegerArray


@dataclass(frozen=True)
class Sums:
    """Result of a comparison. statements: the number of statements. broken: those with counts that do not add up."""

    statements: int
    broken: tuple[str, ...]


def sums(source: duckdb.DuckDBPyConnection, given: Callable[[duckdb.DuckDBPyConnection], Sequence[str]]) -> Sums:
    """Compares the counts of all units of a twin with the sum of the counts of each unit alone.

    given: returns statements with {tag} for the twin. Statements that are refused are left out.
    """
    workers = Workers()
    with connect() as twin:
        twin.execute("SET threads = 1")
        for _ in twin_database(source, twin, MADE_UP_ROWS, roomy):
            pass
        lay_out(twin, set())
        stored = copy_rows(twin)
        parts = [None, *units_of(twin, stored)]
        plans = affordable_plans(
            [ready for text in given(twin) for ready in plans_of_statement(twin, text)], len(parts)
        )
        counted: list[list[IntegerArray]] = []
        for unit in parts:
            give_rows(twin, stored, unit)
            counted.append(list(nearly_exact_answers(plans, workers)))
        broken = [
            plan.planned.text
            for plan, all_of_them, *each in zip(plans, *counted, strict=True)
            if np.any(np.abs(all_of_them - sum(each)) > plan.slack * len(parts))
        ]
        return Sums(len(plans), tuple(broken))
