"""The second look: DuckDB's own parse of what will run over private rows holds nothing but listed functions.

The first look (allowlist) is at sqlglot's tree; what runs is DuckDB's reading of the SQL that sqlglot writes. This
one holds even where the two disagree about a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpduck.errors import Refusal

CLASSES = frozenset(
    ("COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR", "COMPARISON", "CONJUNCTION", "CAST", "CASE", "BETWEEN", "TYPE")
)
FUNCTIONS = frozenset(
    ("+", "-", "*", "/", "//", "%", "&", "|", "~", "<<", ">>", "||", "**", "^", "~~", "!~~", "~~*", "!~~*", "~~~",
     "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape", "regexp_full_match", "regexp_matches",
     "abs", "ceil", "floor", "round", "trunc", "sign", "sqrt", "ln", "log", "log2", "log10", "exp", "cbrt", "power",
     "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "isnan", "isinf", "isfinite", "signbit", "even", "gcd",
     "lcm", "xor", "greatest", "least", "nullif", "row", "struct_pack",
     "upper", "lower", "length", "len", "strlen", "substring", "left", "right", "trim", "ltrim", "rtrim", "concat",
     "replace", "reverse", "starts_with", "ends_with", "prefix", "suffix", "contains", "strpos", "split_part",
     "strip_accents", "unicode", "ascii", "regexp_extract", "regexp_replace",
     "year", "month", "day", "dayofweek", "dayofyear", "weekofyear", "week", "quarter", "hour", "minute", "second",
     "isodow", "weekday", "decade", "century", "dayname", "monthname", "last_day", "date_part", "date_trunc",
     "date_diff", "date_add", "make_date", "strftime", "to_years", "to_months", "to_days", "to_hours", "to_minutes",
     "to_seconds", "to_weeks", "to_quarters", "to_milliseconds", "to_microseconds", "to_decades", "to_centuries",
     "to_millennia")
)  # fmt: skip
_ROWS = frozenset(("BASE_TABLE", "JOIN", "EMPTY", "SUBQUERY"))
_NO_PARTS = ("having", "qualify", "sample")
_COUNTS = frozenset(("count", "count_star"))


def check_tree(tree: Any) -> None:
    """Refuses DuckDB's parse tree, as json_serialize_sql gives it, of anything but plain row-local expressions."""
    if not isinstance(tree, dict) or tree.get("error") or len(tree.get("statements", ())) != 1:
        raise _refused("this SQL")
    node = tree["statements"][0]["node"]
    if node.get("type") != "SELECT_NODE" or node.get("cte_map", {}).get("map"):
        raise _refused("this query")
    functions = FUNCTIONS | _COUNTS if _counts_by_unit(node) else FUNCTIONS
    for part in _dicts(node):
        kind = part.get("class")
        if kind is not None and kind not in CLASSES:
            raise _refused(str(kind))
        name = part.get("function_name")
        if name is not None and (name not in functions or part.get("schema") not in ("", "main", None)):
            raise _refused(str(name))
        source = part.get("from_table")
        if source is not None:
            _check_source(source)


def _counts_by_unit(node: Any) -> bool:
    """Whether there are subqueries of one row for each value of a column, in which rows are counted."""
    sources = [part.get("subquery") for part in _dicts(node) if part.get("type") == "SUBQUERY"]
    grouped = [_groups(source["node"]) for source in sources if isinstance(source, dict)]
    return any(len(keys) == 1 and keys[0].get("class") == "COLUMN_REF" for keys in grouped)


def _groups(node: Any) -> Any:
    return node.get("group_expressions") or ()


def _check_source(source: Any) -> None:
    if source.get("type") not in _ROWS or source.get("sample"):
        raise _refused(str(source.get("type")))
    for side in ("left", "right"):
        if isinstance(source.get(side), dict):
            _check_source(source[side])
    if source["type"] == "SUBQUERY":
        _check_rows(source.get("subquery", {}).get("node", {}))


def _check_rows(node: Any) -> None:
    """Rows of tables one beside the other: UNION ALL of plain SELECTs, or the DISTINCT rows of a public table."""
    if node.get("cte_map", {}).get("map"):
        raise _refused("a CTE")
    if node.get("type") == "SET_OPERATION_NODE":
        if node.get("setop_type") != "UNION" or not node.get("setop_all") or node.get("modifiers"):
            raise _refused(str(node.get("setop_type")))
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
        raise _refused("a subquery")


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            yield current
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)


def _refused(what: str) -> Refusal:
    return Refusal(
        f"DuckDB reads {what} in this statement, which is not on the list of deterministic row functions",
        accepted="arithmetic, comparison, CASE, CAST, text and date functions over columns",
    )
