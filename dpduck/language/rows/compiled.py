"""Compiler from canonical SQL over one row to the kernel's expressions.

SQL that no class of expressions accepts becomes a program: a text that a worker process evaluates with DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from dpduck.kernel.columns.arithmetic import (
    CaseNumber,
    Clamped,
    Double,
    LiteralNumber,
    Negated,
    Number,
    Product,
    StoredNumber,
    Sum,
)
from dpduck.kernel.columns.comparisons import (
    Between,
    Comparison,
    Constant,
    Is,
    Junction,
    Like,
    Listed,
    Literal,
    Not,
    Operand,
    Truth,
)
from dpduck.kernel.columns.expressions import AnalystSql, Expression, NotPlain, RelationColumn
from dpduck.kernel.columns.stored import AsText
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

Columns = Mapping[str, RelationColumn]  # columns that an expression may read, by their SQL
_ANY_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"(?:\s*\.\s*"(?:[^"]|"")*")*)|(?P<other>[^'"]+)|(?P<odd>['"])""",
    re.ASCII,
)
SIGNS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">", exp.LTE: "<=", exp.GTE: ">=", exp.Add: "+", exp.Sub: "-",
    exp.And: "AND", exp.Or: "OR", exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
PARTS = frozenset(("this", "expression", "expressions", "low", "high", "negate"))
"""Parts that the node of a compiled comparison may have. BETWEEN SYMMETRIC has another part, so it is a program."""


def condition_of(text: str, columns: Columns) -> Expression:
    """Compiles a condition. If that is not possible, returns it as a program.

    >>> age = RelationColumn("r0", "age", "INTEGER")
    >>> condition_of('("r0"."age" BETWEEN 1 AND 9)', {age.quoted_name: age}).sql
    '"r0"."age" BETWEEN 1 AND 9'
    >>> condition_of('try(abs("r0"."age") > 1)', {age.quoted_name: age}).plain
    False
    """
    try:
        return _Compiler(columns).condition(_tree_of(text))
    except (NotPlain, RecursionError):
        return program_of(text, columns)


def number_of(text: str, columns: Columns) -> Expression:
    """Compiles a cast to DOUBLE. Returns any other SQL as a program."""
    try:
        return _Compiler(columns).double(_tree_of(text))
    except (NotPlain, RecursionError):
        return program_of(text, columns)


def value_of(text: str, columns: Columns) -> Expression:
    """Compiles a value that rows are grouped by: a column, a stored number as a DOUBLE, or a program."""
    column = columns.get(text)
    if column is not None:
        return column
    number = number_of(text, columns)
    return number if isinstance(number, Double) and number.is_narrow else program_of(text, columns)


def text_of(text: str, columns: Columns) -> Expression:
    """Compiles the cast of a column to VARCHAR. Returns any other SQL as a program."""
    try:
        return AsText(_Compiler(columns).stored_column(_cast(_tree_of(text), "TEXT")))
    except NotPlain:
        return program_of(text, columns)


def program_of(text: str, columns: Columns) -> AnalystSql:
    """Returns SQL as a program for a worker process: the text of an expression, split at its columns."""
    return AnalystSql(_pieces(text, columns))


def raw_program(text: str) -> AnalystSql | None:
    """Returns SQL as a program without resolved columns, which a worker refuses. None for an empty text."""
    return AnalystSql((text,)) if text else None


def _pieces(text: str, columns: Columns) -> tuple[str | RelationColumn, ...]:
    """Splits SQL at its columns. Text literals are never split."""
    pieces, left = list[str | RelationColumn](), ""
    for match in _ANY_TOKEN.finditer(text):
        column = columns.get(match[0]) if match["name"] else None
        if column is None:
            left += match[0]
            continue
        pieces += [left, column] if left else [column]
        left = ""
    return tuple([*pieces, left] if left else pieces)


def _refusal() -> NotPlain:
    return NotPlain("an expression that is not plain")


@lru_cache(maxsize=4096)
def _tree_of(text: str) -> exp.Expr:
    """Parses one expression, or raises NotPlain. The tree is cached, so no caller may change it."""
    try:
        trees = parse(text, dialect=PrivateDuckDB)
    except (SqlglotError, RecursionError):
        raise _refusal() from None
    if len(trees) != 1 or trees[0] is None:
        raise _refusal()
    return trees[0]


def _cast(node: exp.Expr, type_name: str) -> exp.Expr:
    """Returns the operand of a cast to this type. Refuses other nodes. sqlglot names VARCHAR `TEXT`."""
    if type(node) is not exp.Cast or node.to.sql(dialect="duckdb") != type_name:
        raise _refusal()
    operand: exp.Expr = node.this
    return operand


class _Compiler:
    """Compiler of trees over columns. It refuses a node of any class that its methods do not name."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def condition(self, node: exp.Expr) -> Expression:
        if (column := self._column(node)) is not None:
            return Truth(column)
        if isinstance(node, (exp.Paren, exp.Try)):
            return self.condition(node.this)
        if isinstance(node, exp.Not):
            return Not(self.condition(node.this))
        if isinstance(node, (exp.And, exp.Or)):
            return Junction(SIGNS[type(node)], tuple(map(self.condition, node.flatten(unnest=False))))
        if isinstance(node, (exp.Boolean, exp.Null)):
            return Constant(node.sql(dialect="duckdb"))
        return self._comparison(node)

    def _comparison(self, node: exp.Expr) -> Expression:
        if not isinstance(node, exp.Predicate) or not {name for name, value in node.args.items() if value} <= PARTS:
            raise _refusal()
        kind, column, sign = type(node), self._column(node.this), SIGNS.get(type(node))
        if sign is not None and column is None:
            return Comparison(self.stored_column(node.expression), TURNED.get(sign, sign), literal_of(node.this))
        column = self.stored_column(node.this)
        if sign is not None:
            return Comparison(column, sign, self._operand(node.expression))
        if kind is exp.Between:
            return Between(column, self._operand(node.args["low"]), self._operand(node.args["high"]))
        if kind is exp.In:
            return Listed(column, tuple(map(self._operand, node.expressions)))
        if kind is exp.Like:
            like = Like(column, literal_of(node.expression))
            return Not(like) if node.args.get("negate") else like
        if kind is exp.Is and not node.args.get("negate"):
            return Is(column, node.expression.sql(dialect="duckdb"))
        raise _refusal()

    def double(self, node: exp.Expr) -> Double:
        inside = _cast(node.this if isinstance(node, exp.Try) else node, "DOUBLE")
        column = self._column(inside)
        if column is None or sql_type(column.type_name).is_decimal:
            return Double(self._number(inside))
        return Double(column)

    def _number(self, node: exp.Expr) -> Number:
        if (column := self._column(node)) is not None:
            return StoredNumber(column)
        if isinstance(node, exp.Paren):
            return self._number(node.this)
        if isinstance(node, exp.Neg):
            return Negated(self._number(node.this))
        if isinstance(node, (exp.Add, exp.Sub)):
            return Sum(self._number(node.this), SIGNS[type(node)], self._number(node.expression))
        if isinstance(node, exp.Mul):
            return Product(self._number(node.this), self._number(node.expression))
        if isinstance(node, exp.Case) and node.this is None:
            return self._case(node)
        return LiteralNumber(literal_of(node))

    def _case(self, node: exp.Case) -> Number:
        conditions = tuple(self.condition(part.this) for part in node.args["ifs"])
        written = [*(part.args["true"] for part in node.args["ifs"]), node.args.get("default")]
        values = tuple(self._number(part) for part in written if part is not None)
        choice = CaseNumber(conditions, values)
        return _compile_clamp(choice) or choice

    def _column(self, node: exp.Expr) -> RelationColumn | None:
        """Returns a column, with or without brackets around it. None for other nodes."""
        node = node.unnest()
        if not isinstance(node, exp.Column) or not all(part.args.get("quoted") for part in node.parts):
            return None
        return self._columns.get(".".join(quote_identifier(part.name) for part in node.parts))

    def stored_column(self, node: exp.Expr) -> RelationColumn:
        """Returns a column, with or without brackets around it. Refuses other nodes."""
        column = self._column(node)
        if column is None:
            raise _refusal()
        return column

    def _operand(self, node: exp.Expr) -> Operand:
        return self._column(node) or literal_of(node)


def literal_of(node: exp.Expr) -> Literal:
    """Compiles a literal: a text, a number, a boolean, DATE or TIMESTAMP. Only a number may have a sign."""
    sign = "-" if isinstance(node, exp.Neg) else ""
    inside: exp.Expr = node.this if sign else node
    if isinstance(inside, exp.Boolean):
        return Literal("boolean", inside.sql(dialect="duckdb"), sign)
    written = inside.this if isinstance(inside, exp.Cast) else inside
    if not isinstance(written, exp.Literal) or (written is not inside and not written.is_string):
        raise _refusal()
    if written is not inside:
        return Literal(inside.args["to"].sql(dialect="duckdb"), written.name, sign)
    return Literal("text" if written.is_string else "number", written.name, sign)


def _compile_clamp(choice: CaseNumber) -> Clamped | None:
    """Compiles a CASE that clamps a column between two constants. None for any other CASE."""
    column, conditions = choice.values[-1], [test for test in choice.conditions if isinstance(test, Comparison)]
    ends = [test.other for test in conditions if isinstance(test.other, Literal)]
    if not isinstance(column, StoredNumber) or len(ends) != 2:
        return None
    try:
        clamped = Clamped(column, *ends)
    except NotPlain:
        return None
    return clamped if clamped.case == choice else None
