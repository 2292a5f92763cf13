"""Ranges of the values of an expression over a row, from clamps and literals: interval arithmetic on public bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import Clamp
from dpduck.language.rows.predicates import literal
from dpduck.language.text.dialect import exact_number
from dpduck.values.grids import Grid, constant, union
from dpduck.values.sqltypes import sql_type

ClampOf = Callable[[exp.Column], Clamp | None]

_TYPE = exp.DataType.Type
_WHOLE_TYPES = frozenset((_TYPE.TINYINT, _TYPE.SMALLINT, _TYPE.INT, _TYPE.BIGINT, _TYPE.INT128))
_REAL_TYPES = frozenset((_TYPE.DOUBLE,))
_ROUNDINGS = (exp.Floor, exp.Ceil, exp.Trunc)
_CONDITIONS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like,
    exp.Boolean,
)  # fmt: skip


def grid_of(node: exp.Expr, clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    """Returns bounds and step of a resolved expression over clamped columns. None if nothing public bounds it."""
    node = node.unnest()
    value = literal(node)
    if value is not None:
        return constant(value)
    if isinstance(node, exp.Column):
        clamp = clamp_of(node)
        return None if clamp is None else Grid(*(exact_number(text) for text in (clamp.low, clamp.high, clamp.step)))
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return _arithmetic(node, clamp_of, types)
    if isinstance(node, (exp.Greatest, exp.Least)):
        return _extremum_grid(node, clamp_of, types)
    inner = grid_of(node.this, clamp_of, types) if isinstance(node.this, exp.Expr) else None
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _cast(node, inner, types)
    if isinstance(node, exp.Case):
        return _union([*(if_.args.get("true") for if_ in node.args["ifs"]), node.args.get("default")], clamp_of, types)
    if isinstance(node, exp.If):
        return _union([node.args.get("true"), node.args.get("false")], clamp_of, types)
    if isinstance(node, exp.Coalesce):
        return _union([node.this, *node.expressions], clamp_of, types)
    if inner is None:
        return None
    if isinstance(node, exp.Neg):
        return -inner
    if isinstance(node, exp.Abs):
        return inner.absolute()
    if isinstance(node, _ROUNDINGS) or (isinstance(node, exp.Round) and not node.args.get("decimals")):
        return inner.to_integers()
    return inner if isinstance(node, exp.Nullif) else None


def _arithmetic(node: exp.Expr, clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    left, right = grid_of(node.this, clamp_of, types), grid_of(node.args["expression"], clamp_of, types)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Add):
        return left + right
    if isinstance(node, exp.Sub):
        return left + -right
    if isinstance(node, exp.Mul):
        return left * right
    if right.low != right.high or right.low == 0:
        return None
    return left * constant(1 / right.low)


def _union(parts: list[exp.Expr | None], clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    """Returns the union of the parts' ranges. A NULL part contributes nothing."""
    given = [part for part in parts if part is not None and not isinstance(part.unnest(), exp.Null)]
    grids = [grid_of(part, clamp_of, types) for part in given]
    bounded = [grid for grid in grids if grid is not None]
    return union(bounded) if bounded and len(bounded) == len(grids) else None


def _extremum_grid(node: exp.Greatest | exp.Least, clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    """Returns the grid of greatest or least. An inline clamp bounds even a value without other bounds."""
    parts = [node.this, *node.expressions]
    grids = [grid_of(part, clamp_of, types) for part in parts]
    bounded = [grid for grid in grids if grid is not None]
    if len(bounded) == len(parts):
        grid, pick = union(bounded), max if isinstance(node, exp.Greatest) else min
        return Grid(pick(member.low for member in bounded), pick(member.high for member in bounded), grid.unit)
    return _inline_clamp(node)


def _inline_clamp(node: exp.Greatest | exp.Least) -> Grid | None:
    """Returns the grid of least(greatest(x, low), high), or of greatest(least(x, high), low), for any x."""
    outer, inner = _literal_and_rest(node)
    if outer is None or inner is None or type(inner) not in {exp.Greatest, exp.Least} - {type(node)}:
        return None
    other, rest = _literal_and_rest(inner)
    if other is None or rest is None:
        return None
    low, high = (other, outer) if isinstance(node, exp.Least) else (outer, other)
    return Grid(low, high, Fraction(0)) if low < high else None


def _literal_and_rest(node: exp.Expr) -> tuple[Fraction | None, exp.Expr | None]:
    parts = [node.this, *node.expressions]
    if len(parts) != 2:
        return None, None
    for position in (0, 1):
        value = literal(parts[position])
        if value is not None:
            return value, parts[1 - position].unnest()
    return None, None


def _cast(node: exp.Cast | exp.TryCast, inner: Grid | None, types: Mapping[str, str]) -> Grid | None:
    target = node.to.this
    if inner is None:
        boolean = _is_condition(node.this, types) and target in _WHOLE_TYPES | _REAL_TYPES
        return Grid(Fraction(0), Fraction(1), Fraction(1)) if boolean else None
    if target in _WHOLE_TYPES:
        return inner if inner.unit.denominator == 1 and inner.unit > 0 else inner.to_integers()
    return inner if target in _REAL_TYPES else None


def _is_condition(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tells whether a value is TRUE, FALSE or NULL: a condition, a BOOLEAN column, or coalesce over these."""
    node = node.unnest()
    if isinstance(node, exp.Coalesce):
        return all(_is_condition(part, types) for part in (node.this, *node.expressions))
    return isinstance(node, _CONDITIONS) or (isinstance(node, exp.Column) and types.get(sql_of(node)) == "BOOLEAN")


def with_clamped_columns(expression: exp.Expr, clamp_of: ClampOf, types: Mapping[str, str]) -> exp.Expr:
    """Clamps each column of an expression to its bounds. Conditions see the columns without clamps.

    NaN and infinities become NULL. Inside greatest and least, which would ignore NULL, they become a bound.
    """
    root = exp.Paren(this=expression.copy())
    for node in [nullif for nullif in root.find_all(exp.Nullif) if nullif.this.find(exp.Nullif) is None]:
        same = exp.EQ(this=node.this.copy(), expression=node.expression.copy())
        node.replace(exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=node.this.copy()))
    for column in list(root.find_all(exp.Column)):
        clamp = None if _in_condition(column) else clamp_of(column)
        if clamp is not None:
            low, high = _number(clamp.low), _number(clamp.high)
            branches = [
                exp.If(this=exp.LTE(this=column.copy(), expression=low), true=low.copy()),
                exp.If(this=exp.GTE(this=column.copy(), expression=high), true=high.copy()),
            ]
            if sql_type(types.get(sql_of(column), "")).is_float and not column.find_ancestor(exp.Greatest, exp.Least):
                finite = exp.Anonymous(this="isfinite", expressions=[column.copy()])
                branches.insert(0, exp.If(this=finite.not_(), true=exp.Null()))
            column.replace(exp.Case(ifs=branches, default=column.copy()))
    return root


def _in_condition(node: exp.Expr) -> bool:
    """Tells whether a column only decides which value is taken, and is not the value itself."""
    parent = node.parent
    if parent is None:
        return False
    of_choice = isinstance(parent, (exp.If, exp.Case)) and node.arg_key == "this"
    return of_choice or isinstance(parent, _CONDITIONS) or _in_condition(parent)


def _number(text: str) -> exp.Expr:
    return exp.Neg(this=exp.Literal.number(text[1:])) if text.startswith("-") else exp.Literal.number(text)
