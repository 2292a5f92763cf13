"""SQL around a release: a statement with a hole for the released table.

The statement reads nothing private. But it runs in the process with private rows, so it may not use too much time or
memory, or end that process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpduck.language.rows.common_tables import CommonTables, tables_around
from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import MAX_BUILT, MAX_GROWTH, length_of
from dpduck.language.rows.scope import Scope
from dpduck.language.select.answers import ERROR_BARS, AnswerReader, alias_item, column_of_release
from dpduck.language.select.around import check_around, drop_private_ctes
from dpduck.language.text.dialect import DifferentialPrivacy, PrivateDuckDB
from dpduck.language.text.names import GROUPING_SET, HOLE, RELEASED, TableName
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold, quote_identifier

MOST_QUERIES = 200  # the most SELECTs, VALUES, set operations and joins of one statement
MOST_ROWS_AWAY = 1_000_000
_OFFSETS: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Lag, "offset"), (exp.Lead, "offset"), (exp.NthValue, "offset"), (exp.Ntile, "this"),
)  # fmt: skip
"""Window functions with an offset. For one at the end of a BIGINT, DuckDB 1.5 terminates, or writes out of bounds."""


@dataclass(frozen=True)
class OuterQuery:
    """Statement over a table named HOLE."""

    sql: str
    columns: tuple[str, ...]  # output names
    tables: tuple[TableName, ...] = ()  # the public tables that the statement reads

    def over(self, table_sql: str) -> str:
        """Returns the statement with SQL of a table or a subquery in the hole."""
        return self.sql.replace(quote_identifier(HOLE), table_sql)


@dataclass(frozen=True)
class SelectItem:
    """Item of the select list with its output name."""

    name: str
    expression: exp.Expr


def select_items(select: exp.Select, scope: Scope) -> tuple[SelectItem, ...]:
    """Returns the items of an annotated SELECT. Refuses stars, since rows are not released."""
    items = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise refusal(item, "* is refused: rows are not released", "columns of GROUP BY and count(*)")
        expression = item.unalias()
        items.append(
            SelectItem(item.alias if isinstance(item, exp.Alias) else default_name(expression, scope), expression)
        )
    _check_aliases(items, scope)
    return tuple(items)


def _check_aliases(items: Sequence[SelectItem], scope: Scope) -> None:
    """Refuses an item that reads another item's alias as a column. Only dp_stderr(n) and the like take aliases."""
    written = {fold(item.name): item.expression for item in items}
    for column in (column for item in items for column in item.expression.find_all(exp.Column)):
        meant = written.get(fold(column.name))
        if column.table or meant is None or scope.find(column):
            continue
        holder = column.parent
        while isinstance(holder, exp.Paren):
            holder = holder.parent
        called = holder.name.lower() if isinstance(holder, exp.Anonymous) else ""
        if f"dp_{called}" in ERROR_BARS:
            raise refusal(column, f"there is no function {called!r}", f"dp_{called}({column.name})")
        error_bar = called in ERROR_BARS
        if not error_bar and not (isinstance(meant, exp.Column) and fold(meant.name) == fold(column.name)):
            raise refusal(
                column,
                f"{column.name!r} is an alias of this SELECT, not a column",
                "what it stands for, written again; or a SELECT around this one",
            )


def default_name(expression: exp.Expr, scope: Scope | None = None) -> str:
    """Returns DuckDB's name for an item without an alias. A column keeps the name that its relation gives it."""
    if scope is not None and isinstance(expression, exp.Column):
        return scope.name_of(expression)
    if isinstance(expression, exp.Count) and isinstance(expression.this, (exp.Star, type(None))):
        return "count_star()"
    return expression.sql(dialect=PrivateDuckDB, comments=False, normalize_functions="lower")


def select_over_release(
    select: exp.Select,
    items: Sequence[SelectItem],
    answers: AnswerReader,
    repeated_sets: Sequence[int] | None,
    possible: exp.Expr | None = None,
) -> exp.Select:
    """Rewrites the annotated SELECT into a SELECT over the released table.

    repeated_sets: if a grouping set is repeated, the number of each listed set.
    possible: a condition for the cells that may hold rows, None if all cells may.
    """
    outer = exp.Select()
    outer.set("expressions", [alias_item(answers.rewrite(item.expression), item.name) for item in items])
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
    condition = exp.EQ(this=column_of_release(GROUPING_SET), expression=exp.column("number", table="repeated"))
    outer.join(f"(VALUES {rows}) AS repeated(number)", on=condition, dialect="duckdb", copy=False)


def _order(order: exp.Order, items: Sequence[SelectItem], answers: AnswerReader) -> exp.Order:
    """Rewrites ORDER BY over the released table. Positions of ENUM keys are spelled out: ENUMs have their own order."""
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
        elements += [_spell_out(element, item, answers) for item in chosen] or [element.copy()]
    rewritten = order.copy()
    rewritten.set("expressions", elements)
    return rewritten


def _spell_out(element: exp.Expr, item: SelectItem, answers: AnswerReader) -> exp.Expr:
    """Returns an element of ORDER BY with an item's expression in place of ALL or a position."""
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


def find_annotated(query: exp.Query) -> tuple[exp.Select, CommonTables]:
    """Returns the one SELECT WITH DIFFERENTIAL_PRIVACY of a statement, and the surrounding CTEs that it may read."""
    annotated = [
        select for select in query.find_all(exp.Select) if isinstance(select.args.get("hint"), DifferentialPrivacy)
    ]
    if len(annotated) != 1:
        place = annotated[1] if len(annotated) > 1 else query
        raise refusal(
            place,
            f"{len(annotated)} SELECTs WITH DIFFERENTIAL_PRIVACY in one statement",
            "one; two calls of dp() can be joined",
        )
    return annotated[0], tables_around(annotated[0])


def surround(
    query: exp.Query, select: exp.Select, released: exp.Select, columns: tuple[str, ...], facts: PublicFacts
) -> OuterQuery:
    """Returns the statement with the annotated SELECT replaced by a SELECT over the released table."""
    _check_cost(query)
    if query is select:
        return OuterQuery(sql_of(released), columns)
    whole = exp.Subquery(this=query.copy())
    place = next(node for node in whole.find_all(exp.Select) if isinstance(node.args.get("hint"), DifferentialPrivacy))
    private = drop_private_ctes(whole, place, facts)
    tables = check_around(whole, place, private, facts)
    place.replace(released)
    inner = whole.this
    names = tuple(inner.named_selects) if isinstance(inner, exp.Query) else columns
    return OuterQuery(sql_of(inner), names, tuple(sorted(tables, key=str)))


def _check_cost(query: exp.Query) -> None:
    """Refuses too many queries, texts that grow from query to query, and windows that look at rows too far away."""
    parts = list(query.find_all(exp.Select, exp.SetOperation, exp.Join, exp.Values))
    if len(parts) > MOST_QUERIES:
        raise refusal(parts[-1], f"a statement of {len(parts)} queries and joins", f"at most {MOST_QUERIES}")
    times = more = 1
    for select in (part for part in parts if isinstance(part, exp.Select)):
        lengths = [length_of(item) for item in select.expressions]
        grown = max([1, *(length for length, _ in lengths)])
        times, more = times * grown, more * grown + sum(length for _, length in lengths)
        if times > MAX_GROWTH or more > MAX_BUILT:
            raise refusal(
                select,
                f"this makes texts more than {MAX_GROWTH} times as long, or longer by {MAX_BUILT} bytes",
                "fewer concatenations, shorter literals",
            )
    for kind, part in _OFFSETS:
        for node in query.find_all(kind):
            offset = node.args.get(part)
            near = isinstance(offset, exp.Literal) and offset.name.isdigit() and int(offset.name) <= MOST_ROWS_AWAY
            if offset is not None and not near:
                raise refusal(
                    node, "a window that may look too far", f"lag(n, 1): a whole number, at most {MOST_ROWS_AWAY}"
                )
