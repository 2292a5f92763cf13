"""Integers to counts: the one constant stage, with no word of an analyst's in it. What one unit adds is a theorem here.

Rows come as integers: a cell, a flag and a number of steps for each aggregate, a unit and an order. They may be any
integers, or NULL. Let m be max_rows. A row takes part if its unit is not NULL and each of its cells is from 0 up to
the capacity; its steps count as at least 0 and at most K (for a unit's sums: from -2^45 to 2^45), and only if its
flag is true. Of the rows of one unit that take part, the first m by (order, cells, flags, steps) are kept.

Theorem. Two inputs that differ by all rows of one unit have tables that differ by at most Contribution.unit_bound(m,
cells) in all, absolutely, for each aggregate, and by no more in any one cell.
Proof. What is kept of a unit is a function of that unit's rows: the window partitions by unit, and ties are between
rows that are alike in all that is used of them. So both inputs keep the same rows of every other unit, and tables are
sums over kept rows (over units and cells, where bounds are by group). The unit itself adds at most m rows, each to one
cell, and each adds at most Contribution.bound there: 1 for counts; |low + k step| / u <= bound for 0 <= k <= K;
for moments the Bernstein basis at k, which is not negative and adds up to K^d, plus K^d of `rest` only without a value.
By group it adds in at most min(m, cells) cells, in each once, after clamping. Without a unit, m is the number of copies
that public joins make of a row, which the join itself bounds. Sums are HUGEINT, taken modulo 2^64 afterwards: they
neither overflow nor fail for any integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpduck.trusted.bounding_sql import ORDER, UNIT, bounded_rows_sql
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.contribution_sql import by_cell, by_unit, checked_columns, flag, value


def stage_sql(rows_sql: str, cells: Mapping[str, int], aggregates: Sequence[Contribution], max_rows: int | None) -> str:
    """One row per occupied cell: its columns, then those of by_cell.

    cells: the capacity of each cell's column. max_rows: m; None without a unit.
    """
    by_group = any(aggregate.per_group for aggregate in aggregates)
    units = [UNIT] if by_group and max_rows is not None else []
    checked = _checked(rows_sql, cells, aggregates, max_rows is not None)
    if max_rows is not None:
        used = [name for number, one in enumerate(aggregates) for name in _columns(number, one)]
        checked = bounded_rows_sql(checked, [*cells, *used, *units], max_rows)
    return cells_sql(checked, list(cells), aggregates, units)


def _columns(number: int, aggregate: Contribution) -> list[str]:
    flags = [flag(number)] if aggregate.condition else []
    return [*flags, value(number)] if aggregate.value_sql else flags


def _checked(rows_sql: str, cells: Mapping[str, int], aggregates: Sequence[Contribution], bounded: bool) -> str:
    """The rows that take part."""
    listed = [*cells, *checked_columns(aggregates), *([UNIT, ORDER] if bounded else [])]
    inside = [f"{cell} BETWEEN 0 AND {int(capacity) - 1}" for cell, capacity in cells.items()]
    inside += [f"{UNIT} IS NOT NULL"] if bounded else []
    where = f" WHERE {' AND '.join(inside)}" if inside else ""
    return f"SELECT {', '.join(listed) or '1 AS dpduck_one'} FROM ({rows_sql}){where}"


def cells_sql(
    rows_sql: str, cells: Sequence[str], aggregates: Sequence[Contribution], units: Sequence[str] = ()
) -> str:
    """Kept rows to units, where bounds are by group, to cells."""
    sql = rows_sql
    if units:
        grouping = ", ".join([*cells, *units])
        sql = f"SELECT {', '.join([*cells, *by_unit(aggregates)])} FROM ({sql}) GROUP BY {grouping}"
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    outputs = [f"{total} AS dpduck_total_{number}" for number, total in enumerate(by_cell(aggregates, bool(units)))]
    return f"SELECT {', '.join([*cells, *outputs])} FROM ({sql}){grouping}"
