"""SQL that turns rows of integers into counts. It contains no text of an analyst.

docs/privacy.md, section 4, has the theorem about one unit's contribution, and its proof. Rows come as integers: a cell,
a flag and a number of steps for each aggregate, a unit and an order. Each may be any integer, or NULL. A cell may be
bytes.

Let m be the most rows that are kept of one unit. Prepared rows (BoundingFacts) bring two more numbers, OF_UNIT and
OPEN, which depend on the rows of their unit alone. No row without a unit is kept. OF_UNIT is at least the unit's number
of rows here. So a unit with OF_UNIT <= m keeps all rows without a rank. Where OPEN is 0, ORDER numbers a unit's rows
from 1, each once, so m rows at most have ORDER <= m. places/prepared_writer.false_facts_sql counts these rows again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import by_cell, by_unit, by_weighed_cell, clamp_columns, flag, value
from dpduck.kernel.loss import levels_sql, light_rows, together_sql, type_for, unit_columns, weigh_cells_sql
from dpduck.kernel.places.orders import CROWDED
from dpduck.kernel.rows.bounding import (
    KEY,
    NO_FACTS,
    OF_UNIT,
    ORDER,
    UNIT,
    UNIT_HASH,
    BoundingFacts,
    Crowds,
    bound_rows_sql,
    rank_sql,
    unit_hash_sql,
)
from dpduck.values.errors import InternalError

UNITS = "dpduck_units"
STREAM_PERIOD, KEPT = "dpduck_period", "dpduck_kept"
"""Columns of a stream's rows: the place of the row's period among all periods, and the unit's number of kept rows."""
LONGEST_UNIT = 65_535
"""Most bytes of a unit's text in a stream, as in worker/program.LONGEST_TEXT."""

IN_CELL = 1
"""Constant that separates the hash for the order of a unit's cells from the hash for the order of its rows."""


def total_name(number: int) -> str:
    """Returns the column name of the n-th sum."""
    return f"dpduck_total_{number}"


def stage_sql(
    rows_sql: str,
    cells: Mapping[str, int | None],
    aggregates: Sequence[Contribution],
    max_rows: int | None,
    groups: int | None = None,
    facts: BoundingFacts = NO_FACTS,
    crowds: Crowds | None = None,
    levels: tuple[int, int] | None = None,
    codes: Sequence[str] | None = None,
    together: bool = False,
) -> str:
    """Writes SQL for one row per occupied cell: the cell's columns, then the columns of by_cell.

    cells: number of values of each column of a cell, None for any value. max_rows, groups: most rows and most cells of
    a unit, None for no limit. facts: facts of prepared rows. crowds: if rows are not prepared, the units that may have
    too many rows. levels: levels and spread of jobs.CountingJob. With levels, there is one row per level. together:
    whether all cells count as one. codes: SQL over a cell's columns. Their hash orders a unit's cells, in place of the
    columns. With groups but no codes, the last column is the number of units in each cell. Without a unit, it is the
    number of rows.
    """
    selecting = groups is not None and codes is None
    by_group, weighed = any(agg.per_group for agg in aggregates), any(agg.norm for agg in aggregates)
    if together and not weighed and levels is None:
        raise InternalError("cells together of no norm")
    if weighed:
        _require_weights(aggregates, max_rows, groups is None or (crowds is None and selecting))
    unit = [UNIT] if (by_group or weighed or levels is not None or selecting) and max_rows is not None else []
    bounded = [] if max_rows is None else [UNIT, ORDER, *facts.columns]
    checked = _check_rows_sql(rows_sql, cells, aggregates, bounded, facts.of_anybody)
    if max_rows is not None:
        if crowds is not None and crowds.table:
            crowds = replace(crowds, rows_sql=_check_rows_sql(crowds.rows_sql, cells, aggregates, bounded, True))
        if groups is not None and groups < max_rows and crowds is None:
            checked = _in_groups_sql(checked, list(cells), groups, codes)
            facts = facts.weaken_for_groups()
        elif groups is not None and groups < max_rows and crowds is not None and crowds.table:
            crowds = replace(crowds, rows_sql=_in_groups_sql(crowds.rows_sql, list(cells), groups, codes))
        used = [name for number, agg in enumerate(aggregates) for name in _columns(number, agg)]
        if weighed and crowds is not None:
            return _told_apart_sql(checked, crowds, list(cells), aggregates, used, max_rows, together)
        if weighed and not (facts.counted or selecting) and light_rows(aggregates) > 0:
            return _count_first_sql(checked, list(cells), aggregates, used, max_rows, together)
        checked = bound_rows_sql(checked, [*cells, *used, *unit], max_rows, facts, crowds)
    if (weighed or levels is not None) and max_rows is not None:
        return _weigh_sql(checked, list(cells), aggregates, levels, max_rows, together=together, units=selecting)
    several = max_rows not in (None, 1) and not by_group  # by group, a unit has one row in a cell by then
    counted = "" if not selecting else f"count(DISTINCT {UNIT})" if several else "count(*)"
    return cells_sql(checked, list(cells), aggregates, unit if by_group else (), counted)


def _require_weights(aggregates: Sequence[Contribution], max_rows: int | None, apart: bool) -> None:
    """Refuses weights of only some aggregates, of rows that are units, and of groups that are not told apart."""
    if max_rows is None or not all(aggregate.norm for aggregate in aggregates):
        raise InternalError("weights of some counts, or of rows")
    if not apart:
        raise InternalError("units of groups that are not all told apart")


def cut_sql(
    rows_sql: str,
    cells: Mapping[str, int | None],
    aggregates: Sequence[Contribution],
    max_rows: int,
    groups: int | None = None,
    codes: Sequence[str] | None = None,
) -> tuple[str, str]:
    """Writes two queries over a part of the rows: for all its rows, and for those that stage_sql could keep.

    If `groups` limits cells, the first query equals the second. The second leaves no unit more rows than a task can
    hold. A unit's first m rows are among its first m rows of each part. With C groups, a kept row is among the first m
    rows of one of the unit's first C cells in the part. So stage_sql over all parts equals stage_sql over all rows.
    """
    rows = f"SELECT {', '.join([*cells, *clamp_columns(aggregates), UNIT, ORDER])} FROM ({rows_sql})"
    checked = _check_rows_sql(rows_sql, cells, aggregates, [UNIT, ORDER], True)
    used = [name for number, aggregate in enumerate(aggregates) for name in _columns(number, aggregate)]
    if groups is None or groups >= max_rows:
        return rows, bound_rows_sql(checked, [*cells, *used, UNIT, ORDER], max(max_rows, CROWDED))
    window = rank_sql([UNIT, *cells], [ORDER, *used])
    cut = f"SELECT * FROM ({_in_groups_sql(checked, list(cells), groups, codes)}) QUALIFY {window} <= {int(max_rows)}"
    return cut, cut  # both are cut: keys may be long texts, and no unit may send more of them than could count


def arrivals_sql(
    rows_sql: str,
    cells: Mapping[str, int | None],
    aggregates: Sequence[Contribution],
    period: str,
    first: int,
    last: int,
    *,
    units: bool = True,
) -> str:
    """Writes the rows that take part and lie in these periods, with the unit, the order and the period of each.

    period: SQL of a row's period as an integer, over the columns of its cell. Rows of a unit with a text longer than
    LONGEST_UNIT take no part. units: False if each row is a unit. Then no row has a unit, an order or a period.
    """
    checked = _check_rows_sql(rows_sql, cells, aggregates, [UNIT, ORDER] if units else [], True)
    inside = f"{period} BETWEEN {int(first)} AND {int(last)}"
    if not units:
        return f"SELECT * FROM ({checked}){where_sql([inside])}"
    short = f"strlen(CAST({UNIT} AS VARCHAR)) <= {LONGEST_UNIT}"
    return f"SELECT *, {period} AS {STREAM_PERIOD} FROM ({checked}){where_sql([inside, short])}"


def taken_sql(source: str, past: str, cells: Sequence[str], aggregates: Sequence[Contribution], max_rows: int) -> str:
    """Writes the rows of each unit that come first by (period, order, cells, flags, steps), max_rows in all.

    past: table of UNIT and KEPT, the number of a unit's rows that each earlier count kept. That many fewer rows are
    kept now. The kept rows depend on the unit's own rows alone, now and before. If only units are counted, rows of one
    unit, period and cell become one, with every flag of any of them. Then max_rows limits the cells of a unit and not
    its rows. A merged row adds as much as all its rows would.
    """
    used, arrived = [name for number, agg in enumerate(aggregates) for name in _columns(number, agg)], source
    if aggregates and all(_is_presence(agg) for agg in aggregates):
        flags = [f"count(CASE WHEN {name} THEN 1 END) > 0 AS {name}" for name in used]
        counted = where_sql([" OR ".join(used)]) if len(used) == len(aggregates) else ""
        alike = ", ".join([UNIT, STREAM_PERIOD, *cells])
        listed = ", ".join([alike, *flags, f"min({ORDER}) AS {ORDER}"])
        arrived = f"(SELECT {listed} FROM {arrived}{counted} GROUP BY {alike})"
    ranked = rank_sql([UNIT], [STREAM_PERIOD, ORDER, *cells, *used])
    before = f"SELECT {UNIT}, sum({KEPT}) AS {KEPT} FROM {past} SEMI JOIN {source} USING ({UNIT}) GROUP BY {UNIT}"
    return (
        f"SELECT {', '.join([UNIT, *cells, *used])} FROM (SELECT *, {ranked} AS dpduck_place FROM {arrived}) "
        f"LEFT JOIN ({before}) USING ({UNIT}){where_sql([f'dpduck_place + ifnull({KEPT}, 0) <= {int(max_rows)}'])}"
    )


def _told_apart_sql(
    rows_sql: str,
    crowds: Crowds,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    used: Sequence[str],
    max_rows: int,
    together: bool,
) -> str:
    """Writes one row per occupied cell, given a list of units that may need a weight. All rows have been checked."""
    # other units have at most loss.light_rows rows, no more than max_rows, and are counted whole
    none = f"SELECT * FROM ({rows_sql}){where_sql(['FALSE'])}"
    crowded = bound_rows_sql(crowds.rows_sql if crowds.table else none, [*cells, *used, UNIT], max_rows)
    others = f"SELECT * FROM ({rows_sql})"
    if crowds.table:
        others += f" ANTI JOIN {crowds.table} ON {unit_hash_sql(UNIT)} = {UNIT_HASH}"
    return _light_apart_sql(others, crowded, cells, aggregates, max_rows, together)


def _count_first_sql(
    rows_sql: str,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    used: Sequence[str],
    max_rows: int,
    together: bool,
) -> str:
    """Writes one row per occupied cell, after a count of each unit's checked rows to find units that need a weight."""
    few = min(light_rows(aggregates), max_rows)
    many = f"SELECT {UNIT}, count(*) AS {OF_UNIT} FROM dpduck_rows GROUP BY {UNIT} HAVING count(*) > {int(few)}"
    first = (
        f"dpduck_rows AS MATERIALIZED ({rows_sql}), dpduck_heavy AS MATERIALIZED ({many}), "
        f"dpduck_heavy_rows AS MATERIALIZED (SELECT * FROM dpduck_rows JOIN dpduck_heavy USING ({UNIT})), "
    )
    counted = BoundingFacts(once=False, placed=False)
    heavy = bound_rows_sql("SELECT * FROM dpduck_heavy_rows", [*cells, *used, UNIT], max_rows, counted)
    others = f"SELECT * FROM dpduck_rows ANTI JOIN dpduck_heavy USING ({UNIT})"
    return _light_apart_sql(others, heavy, cells, aggregates, max_rows, together, first)


def _light_apart_sql(
    others: str,
    heavy: str,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    max_rows: int,
    together: bool,
    first: str = "",
) -> str:
    """Writes one row per occupied cell. others: rows of units that are counted whole. heavy: kept rows of the rest."""
    kind = type_for(aggregates, max_rows)
    columns = unit_columns(aggregates, by_unit(aggregates))
    cells = () if together else cells  # no bound is by group: a unit's sums over all cells are sums of its rows
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    light = f"SELECT {', '.join([*cells, *columns])} FROM ({others}){grouping}"
    columns = unit_columns(aggregates, by_unit(aggregates, kind))
    units = f"SELECT {', '.join([*cells, UNIT, *columns])} FROM ({heavy}) GROUP BY {', '.join([*cells, UNIT])}"
    totals = [f"{total} AS {total_name(number)}" for number, total in enumerate(by_weighed_cell(aggregates))]
    return weigh_cells_sql(units, cells, aggregates, totals, light, kind, first)


def _weigh_sql(
    rows_sql: str,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    levels: tuple[int, int] | None,
    max_rows: int,
    *,
    together: bool,
    units: bool,
) -> str:
    """Writes one row per occupied cell or per level, from kept rows of units with weights. units: counts units, too."""
    kind = type_for(aggregates, max_rows)
    columns = unit_columns(aggregates, by_unit(aggregates, kind))
    if together and not any(aggregate.per_group for aggregate in aggregates):
        cells = ()  # a unit's sums over all cells are sums of its rows
    of_units = f"SELECT {', '.join([*cells, UNIT, *columns])} FROM ({rows_sql}) GROUP BY {', '.join([*cells, UNIT])}"
    if together:
        of_units, cells = together_sql(of_units, aggregates, kind), ()
    if levels is not None:
        return levels_sql(of_units, aggregates[0], *levels, kind)
    totals = [f"{total} AS {total_name(number)}" for number, total in enumerate(by_weighed_cell(aggregates))]
    counted = [f"count(*) AS {UNITS}"] if units else []
    return weigh_cells_sql(of_units, cells, aggregates, [*totals, *counted], kind=kind)


def unit_cells_sql(
    rows_sql: str,
    cells: Mapping[str, int | None],
    aggregates: Sequence[Contribution],
    max_rows: int,
    facts: BoundingFacts = NO_FACTS,
) -> str:
    """Writes the contribution of each unit to each cell, in the columns of loss.unit_columns, as in stage_sql."""
    bounded = [UNIT, ORDER, *facts.columns]
    checked = _check_rows_sql(rows_sql, cells, aggregates, bounded, facts.of_anybody)
    used = [name for number, aggregate in enumerate(aggregates) for name in _columns(number, aggregate)]
    selection = bound_rows_sql(checked, [*cells, *used, UNIT], max_rows, facts)
    columns = unit_columns(aggregates, by_unit(aggregates, "BIGINT"))
    return f"SELECT {', '.join([*cells, UNIT, *columns])} FROM ({selection}) GROUP BY {', '.join([*cells, UNIT])}"


def _is_presence(aggregate: Contribution) -> bool:
    """Tells whether a unit adds 1 to each cell in which it has rows, whatever their number."""
    is_zero_or_one = aggregate.low == 0 and aggregate.high == aggregate.steps == 1
    return aggregate.per_group == "sum" and aggregate.value is None and is_zero_or_one


def _in_groups_sql(rows_sql: str, cells: Sequence[str], most: int, codes: Sequence[str] | None) -> str:
    """Writes the rows in the first `most` cells of each unit, ordered by a keyed hash of unit and cell alone."""
    order = f"hash(CAST(${KEY} AS UBIGINT), {IN_CELL}, {UNIT}, {', '.join(cells if codes is None else codes)})"
    window = f"dense_rank() OVER (PARTITION BY {UNIT} ORDER BY {order}, {', '.join(cells)})"
    return f"SELECT * FROM ({rows_sql}) QUALIFY {window} <= {int(most)}"


def _columns(number: int, aggregate: Contribution) -> list[str]:
    flags = [flag(number)] if aggregate.condition is not None else []
    return flags if aggregate.value is None else [*flags, value(number)]


def _check_rows_sql(
    rows_sql: str,
    cells: Mapping[str, int | None],
    aggregates: Sequence[Contribution],
    bounded: Sequence[str],
    any_unit: bool,
) -> str:
    """Writes the rows with a unit, and a cell within its capacity. any_unit: whether a filter must drop NULL units."""
    listed = [*cells, *clamp_columns(aggregates), *bounded]
    bounded_cells = {cell: capacity for cell, capacity in cells.items() if capacity is not None}
    inside = [f"{cell} BETWEEN 0 AND {int(capacity) - 1}" for cell, capacity in bounded_cells.items()]
    inside += [f"{UNIT} IS NOT NULL"] if bounded and any_unit else []
    return f"SELECT {', '.join(listed) or '1 AS dpduck_one'} FROM ({rows_sql}){where_sql(inside)}"


def cells_sql(
    rows_sql: str,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    units: Sequence[str] = (),
    counted: str = "",
) -> str:
    """Writes the sums of kept rows by cell. units: the unit's column, if a unit's rows in a cell are merged first."""
    sql = rows_sql
    if units:
        grouping = ", ".join([*cells, *units])
        sql = f"SELECT {', '.join([*cells, *by_unit(aggregates)])} FROM ({sql}) GROUP BY {grouping}"
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    outputs = [f"{total} AS {total_name(number)}" for number, total in enumerate(by_cell(aggregates, bool(units)))]
    outputs += [f"{counted} AS {UNITS}"] if counted else []
    return f"SELECT {', '.join([*cells, *outputs])} FROM ({sql}){grouping}"
