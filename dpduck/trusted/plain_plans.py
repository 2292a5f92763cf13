"""DuckDB's plans over private rows keep every expression where it was written, and read no statistics of a column.

TRY catches what is computed inside it. Some passes of DuckDB's optimizer compute an expression elsewhere: IN with five
or more literals becomes a join below the TRY, what occurs twice is computed once below it. Another one computes the
range of a function from the exact least and largest value of a column, and raises while it plans where that range
cannot be: one row then decides whether the statement fails. So these passes are switched off.

DuckDB has one such setting for a whole database instance, and reads it without a lock while other connections plan:
to set it for a count and to restore it afterwards could crash a statement beside it. It is set when dpduck is loaded,
and stays. Whoever takes it back has it set again before the next count; where the configuration is locked meanwhile,
nothing is counted.
"""

from __future__ import annotations

import duckdb

from dpduck.errors import Refusal

MOVING = (
    "in_clause",  # IN (..) of many literals as a join below the expression
    "common_subexpressions",  # what occurs twice, computed once below
    "statistics_propagation",  # raises by the least and largest value of a column
    "extension",  # passes that nobody has looked at
    *("scalar_fn_pushdown", "type_pushdown", "remote_pushdown", "projection_pullup", "projection_placement"),  # of 2.0
)
_MISSING = (
    "SELECT name FROM duckdb_optimizers() WHERE list_contains($names, name) "
    "AND NOT list_contains(string_split(current_setting('disabled_optimizers'), ','), name)"
)


def keep_plans_plain(cursor: duckdb.DuckDBPyConnection) -> None:
    """Switches off the passes that are on; Refusal where they are on and the configuration is locked."""
    if not _running(cursor):
        return
    row = cursor.execute("SELECT current_setting('disabled_optimizers')").fetchone()
    known = [row[0]] if row is not None and row[0] else []
    try:
        cursor.execute(f"SET GLOBAL disabled_optimizers = '{','.join([*known, *_running(cursor)])}'")
    except duckdb.Error:
        raise Refusal(
            "DuckDB's configuration is locked with optimizer passes on that may raise on a private row",
            accepted="dpduck.load before SET lock_configuration, and disabled_optimizers left as it sets them",
        ) from None


def _running(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """The passes of this DuckDB that must be off and are on."""
    return [name for (name,) in cursor.execute(_MISSING, {"names": list(MOVING)}).fetchall()]
