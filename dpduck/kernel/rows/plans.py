"""Switches off passes of DuckDB's optimizer that move an expression, or that read statistics of a private column.

TRY catches errors of the expression inside it. Some passes compute an expression outside of its TRY: IN with five or
more literals becomes a join below the TRY, and an expression that occurs twice is computed once below it. Another pass
computes the range of a function from the least and largest value of a column, and raises if that range cannot exist:
one row then decides whether the statement fails.

DuckDB has one such setting for a whole database instance, and reads it without a lock while other connections plan. To
set it for each count could crash a concurrent statement. So it is set when dpduck is loaded, and stays. If somebody
resets it, it is set again before the next count. If the configuration is locked meanwhile, nothing is counted.
"""

from __future__ import annotations

import duckdb

from dpduck.values.errors import InternalError, Refusal

STAY = """expression_rewriter filter_pullup filter_pushdown empty_result_pullup cte_filter_pusher regex_range join_order
    deliminator unnest_rewriter unused_columns common_aggregate column_lifetime limit_pushdown top_n
    build_side_probe_side duplicate_groups reorder_filter
    sampling_pushdown materialized_cte late_materialization cte_inlining common_subplan
    join_elimination window_self_join sum_rewriter aggregate_function_rewriter outer_join_simplification
    window_rewriter partitioned_execution partial_aggregate_pushdown grouping_sets distinct_aggregate_rewrite
    aggregate_reuse redundant_order_keys"""
"""Passes of 1.5 and 2.0 that stay on. All others are off, also unknown ones. in_clause turns a list into a join below
the expression. common_subexpressions computes a repeated part once below. statistics_propagation may raise by the least
and largest value of a column. compressed_materialization packs values by these two. row_group_pruner and
join_filter_pushdown leave out parts of a table by the same two (conditions.py). top_n_window_elimination raises if a
row has a rank of a million. Also off are `extension`, and passes of 2.0 that move projections or casts."""


def keep_plans_plain(cursor: duckdb.DuckDBPyConnection) -> str:
    """Switches off the passes that must be off, or refuses. Returns the value of disabled_optimizers after that."""
    running = _running(cursor)
    row = cursor.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    if not running:
        return str(row[0][0])
    names = [row[0][0]] if row[0][0] else []
    setting = ",".join([*names, *running])
    try:
        cursor.execute(f"SET GLOBAL disabled_optimizers = '{setting}'")
    except duckdb.Error:
        raise Refusal(
            "DuckDB's configuration is locked with optimizer passes on that may raise on a private row",
            accepted="dpduck.load before SET lock_configuration, and disabled_optimizers left as it sets them",
        ) from None
    return setting


def passes_that_are_off(cursor: duckdb.DuckDBPyConnection) -> str:
    """Returns the passes that are off, for a DuckDB in another process. Raises if a pass is on that must be off."""
    if _running(cursor):
        raise InternalError("plans are not plain")
    row = cursor.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    return str(row[0][0])


def _running(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    listed = ", ".join(f"'{name}'" for name in STAY.split())  # a parameter costs 0.1 ms if pandas is not installed
    rows = cursor.execute(
        f"SELECT name FROM duckdb_optimizers() WHERE name NOT IN ({listed}) "
        "AND NOT list_contains(string_split(current_setting('disabled_optimizers'), ','), name)"
    ).fetchall()
    return [name for (name,) in rows]
