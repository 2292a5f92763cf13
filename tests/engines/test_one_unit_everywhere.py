"""A unit counts as often as MAX ROWS says, wherever its rows lie. No unit changes the kept rows of another."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dpduck.database.functions import database_of
from tests.engines.conftest import Lake

ASK = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = {m}, refresh = '{tag}') "
    "kind, count(*) FROM lake.db.{table} {where} GROUP BY kind"
)
POLICY = (
    "CREATE PRIVACY POLICY ON lake.db.{table} (PRIVACY UNIT unit MAX ROWS 40, BUDGET (epsilon = 1000), "
    "DOMAIN kind IN (0, 1, 2, 3, 4, 5, 6))"
)


def crowd(unit: str, count: int) -> pa.Table:
    """One unit with so many rows, and a hundred others with two each."""
    units = [unit] * count + [f"u{number % 100}" for number in range(200)]
    return pa.table({"unit": units, "kind": pa.array([number % 7 for number in range(len(units))], pa.int32()),
                     "more": list(range(len(units)))})  # fmt: skip


def use(lake: Lake, buckets: int) -> None:
    loaded = database_of(lake.con)
    assert loaded is not None
    engine, _ = loaded.engines._engines["lake"]
    loaded.engines._engines["lake"] = engine, buckets


def total(counts: Any) -> int:
    return sum(values[0] for values in counts.values())


@pytest.mark.slow
@pytest.mark.parametrize("where", ["WHERE more % 2 < 2"])
def test_one_unit_in_twenty_files(lake: Lake, where: str) -> None:
    """Twenty files, 1, 7 and 200 buckets, MAX ROWS 1, 3 and 40: never more, and the rows that DuckDB keeps.

    It fails where tasks are given parts of units: by mapInArrow, or by a repartition that is a hint.
    """
    table = f"crowd{len(where)}"
    lake.put(1, files=20, **{table: crowd("everywhere", 2000)})
    lake.dp(POLICY.format(table=table))
    for buckets, most in ((1, (1, 3, 40)), (7, (3,)), (200, (40,))):
        use(lake, buckets)
        for m in most:
            found = lake.same(ASK.format(m=m, tag=buckets, where=where, table=table))
            assert total(found) == m + 100 * min(m, 2)


def test_neighbours(lake: Lake) -> None:
    """Without one unit, the counts are smaller by that unit's kept rows, and nothing else changes."""
    whole = crowd("one", 50)
    lake.put(5, whole=whole, without=whole.slice(50), alone=whole.slice(0, 50))
    counts = []
    for table in ("whole", "without", "alone"):
        lake.dp(POLICY.format(table=table))
        found: Any = lake.same(ASK.format(m=3, tag="once", where="", table=table))
        counts.append(found)
    both = {cell: counts[1].get(cell, [0])[0] + counts[2].get(cell, [0])[0] for cell in counts[0]}
    assert {cell: values[0] for cell, values in counts[0].items()} == both
    assert total(counts[2]) == 3
