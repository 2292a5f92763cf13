"""The statement around the released table: SQL with one hole, the table itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpduck.frontend.answers import ERROR_BARS, AnswerReader, released
from dpduck.frontend.dialect import PrivateDuckDB
from dpduck.frontend.names import TableName, fold, quote_identifier
from dpduck.frontend.positions import refusal
from dpduck.frontend.released_columns import GROUPING_SET, HOLE, RELEASED
from dpduck.frontend.scope import Scope


@dataclass(frozen=True)
class OuterQuery:
    """sql: the whole statement over a table named HOLE. columns: output names. tables: public ones that it reads."""

    sql: str
    columns: tuple[str, ...]
    tables: tuple[TableName, ...] = ()

    def over(self, table_sql: str) -> str:
        """The statement over a table, subquery or carrier."""
        return self.sql.replace(quote_identifier(HOLE), table_sql)


@dataclass(frozen=True)
class SelectItem:
    """An item of the select list with its output name."""

    name: str
    expression: exp.Expr


def select_items(select: exp.Select, scope: Scope) -> tuple[SelectItem, ...]:
    """The items of an annotated SELECT; stars are refused, since rows are not released."""
    items = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise refusal(item, "* is refused: rows are not released", "columns of GROUP BY and count(*)")
        expression = item.unalias()
        items.append(
            SelectItem(item.alias if isinstance(item, exp.Alias) else _default_name(expression, scope), expression)
        )
    _check_aliases(items, scope)
    return tuple(items)


def _check_aliases(items: Sequence[SelectItem], scope: Scope) -> None:
    """Refuses an item that reads another one's alias like a column; dp_stderr(n) and its kin do take aliases."""
    written = {fold(item.name): item.expression for item in items}
    for column in (column for item in items for column in item.expression.find_all(exp.Column)):
        meant = written.get(fold(column.name))
        if column.table or meant is None or scope.find(column):
            continue
        holder = column.parent
        while isinstance(holder, exp.Paren):
            holder = holder.parent
        error_bar = isinstance(holder, exp.Anonymous) and holder.name.lower() in ERROR_BARS
        if not error_bar and not (isinstance(meant, exp.Column) and fold(meant.name) == fold(column.name)):
            raise refusal(
                column,
                f"{column.name!r} is an alias of this SELECT, not a column",
                "what it stands for, written again; or a SELECT around this one",
            )


def _default_name(expression: exp.Expr, scope: Scope) -> str:
    if isinstance(expression, exp.Column):
        return scope.name_of(expression)
    if isinstance(expression, exp.Count) and isinstance(expression.this, (exp.Star, type(None))):
        return "count_star()"
    return expression.sql(dialect=PrivateDuckDB, comments=False, normalize_functions="lower")


def released_select(
    select: exp.Select,
    items: Sequence[SelectItem],
    answers: AnswerReader,
    repeated_sets: Sequence[int] | None,
    possible: exp.Expr | None = None,
) -> exp.Select:
    """The annotated SELECT over the released table. repeated_sets: where a grouping set is listed more than once.

    possible: what cells meet that WHERE does not rule out, where it rules out some.
    """
    outer = exp.Select()
    outer.set(
        "expressions",
        [exp.alias_(answers.rewrite(item.expression), exp.to_identifier(item.name, quoted=True)) for item in items],
    )
    hole = exp.alias_(exp.table_(exp.to_identifier(HOLE, quoted=True)), RELEASED, table=True, quoted=True)
    outer.set("from_", exp.From(this=hole))
    if repeated_sets is not None:
        _repeat(outer, repeated_sets)
    having = select.args.get("having")
    conditions = [] if possible is None else [possible]
    if having is not None:
        conditions.append(exp.Paren(this=answers.rewrite(having.this, use_aliases=True)))
    if conditions:
        outer.set("where", exp.Where(this=exp.and_(*conditions, wrap=False)))
    qualify = select.args.get("qualify")
    if qualify is not None:
        outer.set("qualify", exp.Qualify(this=answers.rewrite(qualify.this, use_aliases=True)))
    order = select.args.get("order")
    if order is not None:
        outer.set("order", _order(order, items, answers))
    for part in ("limit", "offset"):
        _add_bound(outer, select, part)
    return outer


def _repeat(outer: exp.Select, repeated_sets: Sequence[int]) -> None:
    rows = ", ".join(f"({number})" for number in repeated_sets)
    condition = exp.EQ(this=released(GROUPING_SET), expression=exp.column("number", table="repeated"))
    outer.join(f"(VALUES {rows}) AS repeated(number)", on=condition, dialect="duckdb", copy=False)


def _order(order: exp.Order, items: Sequence[SelectItem], answers: AnswerReader) -> exp.Order:
    """ORDER BY over the released table; positions of ENUM keys are spelled out: they have an order of their own."""
    elements: list[exp.Expr] = []
    for element in order.expressions:
        target = element.this
        if isinstance(target, exp.Var) and target.name.upper() == "ALL":
            chosen = list(items) if any(answers.is_enum(item.expression) for item in items) else []
        elif isinstance(target, exp.Literal):
            if not target.is_int or not 1 <= int(target.name[:6]) <= len(items):
                raise refusal(target, "ORDER BY has no such position", f"1 .. {len(items)}")
            item = items[int(target.name[:6]) - 1]
            chosen = [item] if answers.is_enum(item.expression) else []
        else:
            elements.append(answers.rewrite(element, use_aliases=True))
            continue
        elements += [_ordered_by(element, item, answers) for item in chosen] or [element.copy()]
    rewritten = order.copy()
    rewritten.set("expressions", elements)
    return rewritten


def _ordered_by(element: exp.Expr, item: SelectItem, answers: AnswerReader) -> exp.Expr:
    """The element with an item's expression in place of ALL or a position."""
    spelled = element.copy()
    spelled.set("this", item.expression.copy())
    return answers.rewrite(spelled)


def _add_bound(outer: exp.Select, select: exp.Select, part: str) -> None:
    node = select.args.get(part)
    if node is None:
        return
    value = node.expression
    if not isinstance(value, exp.Literal) or not value.is_int or node.args.get("limit_options"):
        raise refusal(node, f"{part.upper()} takes a whole number", f"{part.upper()} 10")
    outer.set(part, node.copy())
