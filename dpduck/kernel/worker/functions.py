"""Checks, by DuckDB's own parse, that the text which a worker will run is one expression over one row.

A worker holds rows of several people. An aggregate, a window or a subquery would look at more than one row, and a
sequence or a setting would remember rows. So everything that is not on these lists is refused, before the charge and
again before it runs. The check does not trust how the language read the statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import duckdb

from dpduck.values.errors import Refusal
from dpduck.values.functions import ROW_LOCAL_FUNCTIONS, is_date_format

CLASSES = frozenset(
    ("COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR", "COMPARISON", "CONJUNCTION", "CAST", "CASE", "BETWEEN", "TYPE")
)
FUNCTIONS = frozenset(function.name for function in ROW_LOCAL_FUNCTIONS if function.row_local)
TUPLES = ("row", "struct_pack")
TEXTS = frozenset(function.name for function in ROW_LOCAL_FUNCTIONS if function.makes_text)
"""Functions with a new text as result. A CAST may have one, too."""


@lru_cache(maxsize=4096)
def require_row_local(sql: str, columns: frozenset[str]) -> None:
    """Refuses SQL that is more than one expression over one row and these columns. Brackets are put around it."""
    tree, plain = _parse_sql(f"SELECT ({sql})"), _parse_sql("SELECT 1")
    listed = tree.pop("select_list", ())
    if len(listed) != 1 or tree != {name: value for name, value in plain.items() if name != "select_list"}:
        raise refusal_of("this SQL")
    check_parts(listed, FUNCTIONS)
    compared = {id(part) for whole in dicts(listed) for part in _tuples_in_comparison(whole)}
    for part in dicts(listed):
        if part.get("function_name") in TUPLES and id(part) not in compared:
            raise refusal_of("a tuple that is not compared with tuples")
        name = str(part.get("function_name", ""))
        if name.startswith(("regexp_", "try_strptime")) and not _is_safe_pattern(part):
            raise refusal_of("this regular expression or format of dates")
        if "column_names" in part and (len(part["column_names"]) != 1 or part["column_names"][0] not in columns):
            raise refusal_of("another column")


def _tuples_in_comparison(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the operands of a comparison, BETWEEN or IN, if all of them are tuples. All other tuples are refused."""
    # a cast of a tuple to a text doubles its quotes, so its length would have no bound
    sides = {"COMPARISON": ("left", "right"), "BETWEEN": ("input", "lower", "upper")}.get(part.get("class", ""), ())
    beside = part["children"] if part.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN") else [part[arg] for arg in sides]
    return beside if all(arg.get("function_name") in TUPLES for arg in beside) else []


def _is_safe_pattern(call: dict[str, Any]) -> bool:
    r"""Tells whether a pattern is a literal without \C, which matches one byte, or a format of dates for any text."""
    # DuckDB 1.5 makes an invalid text of half a character, which becomes NULL once any row has raised
    arguments = call.get("children") or [argument["expression"] for argument in call.get("arguments", ())]
    pattern = arguments[1] if len(arguments) > 1 else {}
    text = pattern.get("value", pattern.get("literal", {}))  # in DuckDB 1.5, in 2.0
    text = text.get("value", text.get("text"))
    is_date = call["function_name"] == "try_strptime"
    return isinstance(text, str) and (is_date_format(text) if is_date else "\\C" not in text)


def check_parts(tree: Any, functions: frozenset[str], classes: frozenset[str] = CLASSES) -> None:
    """Refuses a parsed tree with a class of expression that is not in `classes`, or a function not in `functions`."""
    for part in dicts(tree):
        kind, name = part.get("class"), part.get("function_name")
        if kind is not None and kind not in classes:
            raise refusal_of(str(kind))
        if name is not None and (name not in functions or part.get("schema") not in ("", "main", None)):
            raise refusal_of(str(name))


@lru_cache(maxsize=4096)
def texts_made(sql: str) -> int:
    """Returns the number of calls in an expression that may compute a new text from one row."""
    return sum(
        part.get("class") == "CAST" or part.get("function_name") in TEXTS
        for part in dicts(_parse_sql(f"SELECT ({sql})").get("select_list"))
    )


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every dictionary in a tree of JSON."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            yield current
        if isinstance(current, (dict, list)):
            pending.extend(current.values() if isinstance(current, dict) else current)


def refusal_of(what: str) -> Refusal:
    """Returns the refusal of a construct that DuckDB's parse of a statement contains."""
    return Refusal(
        f"DuckDB reads {what} in this statement, which is not on the list of deterministic row functions",
        accepted="arithmetic, comparison, CASE, CAST, text and date functions over columns",
    )


def _parse_sql(sql: str) -> dict[str, Any]:
    with _parser().cursor() as cursor:
        row = cursor.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    result: dict[str, Any] = json.loads(row[0]) if row is not None else {"error": True}
    if result.get("error") or len(result["statements"]) != 1:
        raise refusal_of("this SQL")
    node: dict[str, Any] = result["statements"][0]["node"]
    return node


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": "false"})
