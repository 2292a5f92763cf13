"""The second check of a whole statement: in DuckDB's own parse tree, all functions must be listed.

The first check (allowlist) reads sqlglot's tree. Trusted code would refuse the same expressions when it runs them
(kernel/worker/functions). This check refuses them earlier, and names the place.
"""

from __future__ import annotations

from typing import Any

from dpduck.kernel.worker.functions import CLASSES, FUNCTIONS, check_parts, dicts, refusal_of

_ROWS = frozenset(("BASE_TABLE", "JOIN", "EMPTY", "SUBQUERY"))
_NO_PARTS = ("having", "qualify", "sample")
_COUNTS = frozenset(("count", "count_star", "min", "max", "sum", "bool_or", "bool_and", "first"))
_OF_UNITS = frozenset(("sha256",))
"""Function for the digest of a unit's long text, in a unit of several columns. Branches and counts use the digest."""
_WINDOWS = _COUNTS | {"row_number", "rank", "dense_rank", "lag", "lead", "first_value"}


def check_tree(tree: Any) -> None:
    """Refuses a parse tree of json_serialize_sql with anything except plain expressions over one row."""
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
    """Tells whether a subquery counts rows by unit, so that it has one row for each unit."""
    sources = [part.get("subquery") for part in dicts(node) if part.get("type") == "SUBQUERY"]
    grouped = [source["node"].get("group_expressions") or () for source in sources if isinstance(source, dict)]
    return any(map(_is_a_unit, grouped))


def _has_windows(node: Any) -> bool:
    """Tells whether subqueries have windows, all of which are partitioned by the unit."""
    sources = [part["subquery"] for part in dicts(node) if part.get("type") == "SUBQUERY" and part.get("subquery")]
    windows = [part for source in sources for part in dicts(source) if part.get("class") == "WINDOW"]
    by: list[Any] = [window.get("partitions") or () for window in windows]
    return bool(by) and all(map(_is_a_unit, by))


def _is_a_unit(keys: Any) -> bool:
    """Tells whether the keys can be a unit: one column, or one text of several columns."""
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
    """Refuses rows, except from a plain SELECT, from UNION ALL of such SELECTs, or DISTINCT from a public table."""
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
