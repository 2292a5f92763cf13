"""The second check of a whole statement: DuckDB's own parse tree holds only listed functions.

The first check (allowlist) reads sqlglot's tree. This one refuses early, and with a place, the expressions that trusted
code would refuse when it runs them (kernel/worker/functions).
"""

from __future__ import annotations

from typing import Any

from dpduck.kernel.worker.functions import CLASSES, FUNCTIONS, check_parts, dicts, refusal_of

_ROWS = frozenset(("BASE_TABLE", "JOIN", "EMPTY", "SUBQUERY"))
_NO_PARTS = ("having", "qualify", "sample")
_COUNTS = frozenset(("count", "count_star", "min", "max", "sum", "bool_or", "bool_and", "first"))
_OF_UNITS = frozenset(("sha256",))
"""Function for the digest of a long part of a unit of several columns. Branches and counts name the unit by it."""
_WINDOWS = _COUNTS | {"row_number", "rank", "dense_rank", "lag", "lead", "first_value"}


def check_tree(tree: Any) -> None:
    """Refuses a parse tree of json_serialize_sql that has anything except plain row-local expressions."""
    if not isinstance(tree, dict) or tree.get("error") or len(tree.get("statements", ())) != 1:
        raise refusal_of("this SQL")
    node = tree["statements"][0]["node"]
    if node.get("type") != "SELECT_NODE" or node.get("cte_map", {}).get("map"):
        raise refusal_of("this query")
    if _has_windows(node):
        check_parts(node, FUNCTIONS | _OF_UNITS | _WINDOWS, CLASSES | {"WINDOW"})
    else:
        functions = FUNCTIONS | _OF_UNITS if node["from_table"].get("type") != "BASE_TABLE" else FUNCTIONS
        check_parts(node, functions | _COUNTS if _counts_by_unit(node) else functions)
    for part in dicts(node):
        source = part.get("from_table")
        if source is not None:
            _check_source(source)


def _counts_by_unit(node: Any) -> bool:
    """Tells whether some subquery counts rows by unit: it has one row for each unit."""
    sources = [part.get("subquery") for part in dicts(node) if part.get("type") == "SUBQUERY"]
    grouped = [source["node"].get("group_expressions") or () for source in sources if isinstance(source, dict)]
    return any(map(_is_a_unit, grouped))


def _has_windows(node: Any) -> bool:
    """Tells whether subqueries have windows, and all windows are partitioned by the unit."""
    sources = [part["subquery"] for part in dicts(node) if part.get("type") == "SUBQUERY" and part.get("subquery")]
    windows = [part for source in sources for part in dicts(source) if part.get("class") == "WINDOW"]
    by: list[Any] = [window.get("partitions") or () for window in windows]
    return bool(by) and all(map(_is_a_unit, by))


def _is_a_unit(keys: Any) -> bool:
    """Tells whether the keys can be a unit: one column, or one text of the columns that form it."""
    return len(keys) == 1 and keys[0].get("class") in ("COLUMN_REF", "CASE", "FUNCTION")


def _check_source(source: Any) -> None:
    if source.get("type") not in _ROWS or source.get("sample"):
        raise refusal_of(str(source.get("type")))
    for side in ("left", "right"):
        if isinstance(source.get(side), dict):
            _check_source(source[side])
    if source["type"] == "SUBQUERY":
        _check_rows(source.get("subquery", {}).get("node", {}))


def _check_rows(node: Any) -> None:
    """Refuses rows, except those of plain SELECTs, of a UNION ALL of these, and the DISTINCT rows of a public table."""
    if node.get("cte_map", {}).get("map"):
        raise refusal_of("a CTE")
    if node.get("type") == "SET_OPERATION_NODE":
        if node.get("setop_type") != "UNION" or not node.get("setop_all") or node.get("modifiers"):
            raise refusal_of(str(node.get("setop_type")))
        sides = [node.get("left"), node.get("right"), *(node.get("children") or ())]  # the last is DuckDB 2.0's
        for side in sides:
            if isinstance(side, dict):
                _check_rows(side)
        return
    modifiers = node.get("modifiers") or ()
    plain = all(part.get("type") == "DISTINCT_MODIFIER" and not part.get("distinct_on_targets") for part in modifiers)
    rows = node.get("from_table", {}).get("type") not in (None, "EMPTY")
    if (
        node.get("type") != "SELECT_NODE"
        or not rows
        or not plain
        or len(node.get("group_expressions") or ()) > 1
        or any(node.get(part) for part in _NO_PARTS)
    ):
        raise refusal_of("a subquery")
