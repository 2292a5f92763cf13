"""Check of words that are copied from a statement into SQL. They must be plain words, whatever the parser read."""

from __future__ import annotations

import re

from sqlglot import exp

from dpduck.language.rows.functions import CAST_TYPES, check_row_local
from dpduck.language.text.positions import refusal

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]*")
_NUMBER = re.compile(r"[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?")

MOST_LISTED, MOST_SETS = 1_000, 20_000
_OF_CONSTANTS = (exp.In, exp.Values, exp.Tuple, exp.Array)


def check_atoms(tree: exp.Expr) -> None:
    """Refuses a long list, and a leaf that is no plain word, number, allowed type, quoted name or quoted text."""
    for node in tree.walk():
        if any(isinstance(value, list) and len(value) > MOST_LISTED for value in node.args.values()):
            _check_lists(node)
        if isinstance(node, exp.DataType):
            _check_type(node)
        elif isinstance(node, exp.DataTypeParam):
            _check_parameter(node)
        elif isinstance(node, exp.Literal):
            if not node.is_string and not _NUMBER.fullmatch(node.name):
                raise refusal(node, f"{node.name[:20]!r} is no plain number", "digits, a point, an exponent")
        elif isinstance(node, exp.Var):
            if not _WORD.fullmatch(node.name):
                raise refusal(node, f"{node.name[:20]!r} is no plain word", "a word such as DAY or month")
        elif isinstance(node, (exp.Placeholder, exp.Parameter)):
            check_row_local(node)
        elif not isinstance(node, exp.Identifier):
            _check_texts(node)


def _check_lists(node: exp.Expr) -> None:
    """Refuses a list if DuckDB would plan too many parts. Constants in IN, VALUES, a tuple or an array do not count."""
    most = MOST_SETS if isinstance(node, exp.GroupingSets) else MOST_LISTED
    for listed in node.args.values():
        if not isinstance(listed, list) or len(listed) <= most:
            continue
        planned = listed
        if isinstance(node, _OF_CONSTANTS):
            planned = [part for part in listed if isinstance(part, exp.Expr) and part.find(exp.Column) is not None]
        if len(planned) > most:
            raise refusal(node, f"a list of {len(planned)} parts", f"at most {most}, or constants in x IN (1, 2, ..)")


def _check_type(node: exp.DataType) -> None:
    parameters = node.args.get("expressions") or []
    plain = all(isinstance(parameter, exp.DataTypeParam) for parameter in parameters)
    if node.this not in CAST_TYPES or not plain or node.args.get("nested") or node.args.get("kind"):
        written = node.sql(dialect="duckdb")[:40]
        raise refusal(node, f"a cast to {written} is refused", "numbers, BOOLEAN, VARCHAR, DATE, TIMESTAMP, INTERVAL")


def _check_parameter(node: exp.DataTypeParam) -> None:
    if not isinstance(node.this, exp.Literal) or not node.this.is_int or node.args.get("expression"):
        raise refusal(node, "the parameter of a type is no whole number", "DECIMAL(18, 3)")


def _check_texts(node: exp.Expr) -> None:
    for value in node.args.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and not _WORDS.fullmatch(text):
                raise refusal(node, f"{text[:20]!r} is no plain word", "plain words outside quotes")
