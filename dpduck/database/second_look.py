"""The second look, at a whole statement: DuckDB's own parse of it holds nothing but listed functions.

The first look (allowlist) is at sqlglot's tree. This one refuses early, and with a place, what trusted code would
refuse of the very expressions that run (trusted/rows/functions).
"""

from __future__ import annotations

from typing import Any

from dpduck.trusted.rows.functions import FUNCTIONS, check_parts, dicts, refused

_ROWS = frozenset(("BASE_TABLE", "JOIN", "EMPTY", "SUBQUERY"))
_NO_PARTS = ("having", "qualify", "sample")
_COUNTS = frozenset(("count", "count_star"))


def check_tree(tree: Any) -> None:
    """Refuses DuckDB's parse tree, as json_serialize_sql gives it, of anything but plain row-local expressions."""
    if not isinstance(tree, dict) or tree.get("error") or len(tree.get("statements", ())) != 1:
        raise refused("this SQL")
    node = tree["statements"][0]["node"]
    if node.get("type") != "SELECT_NODE" or node.get("cte_map", {}).get("map"):
        raise refused("this query")
    functions = FUNCTIONS | _COUNTS if _counts_by_unit(node) else FUNCTIONS
    check_parts(node, functions)
    for part in dicts(node):
        source = part.get("from_table")
        if source is not None:
            _check_source(source)


def _counts_by_unit(node: Any) -> bool:
    """Whether there are subqueries of one row for each value of a column, in which rows are counted."""
    sources = [part.get("subquery") for part in dicts(node) if part.get("type") == "SUBQUERY"]
    grouped = [_groups(source["node"]) for source in sources if isinstance(source, dict)]
    return any(len(keys) == 1 and keys[0].get("class") == "COLUMN_REF" for keys in grouped)


def _groups(node: Any) -> Any:
    return node.get("group_expressions") or ()


def _check_source(source: Any) -> None:
    if source.get("type") not in _ROWS or source.get("sample"):
        raise refused(str(source.get("type")))
    for side in ("left", "right"):
        if isinstance(source.get(side), dict):
            _check_source(source[side])
    if source["type"] == "SUBQUERY":
        _check_rows(source.get("subquery", {}).get("node", {}))


def _check_rows(node: Any) -> None:
    """Rows of tables one beside the other: UNION ALL of plain SELECTs, or the DISTINCT rows of a public table."""
    if node.get("cte_map", {}).get("map"):
        raise refused("a CTE")
    if node.get("type") == "SET_OPERATION_NODE":
        if node.get("setop_type") != "UNION" or not node.get("setop_all") or node.get("modifiers"):
            raise refused(str(node.get("setop_type")))
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
        or len(_groups(node)) > 1
        or any(node.get(part) for part in _NO_PARTS)
    ):
        raise refused("a subquery")
