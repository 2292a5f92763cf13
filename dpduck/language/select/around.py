"""Check of plain SQL around an annotated SELECT. It may read noisy answers and public tables only."""

from __future__ import annotations

from sqlglot import exp

from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import (
    FUNCTIONS,
    NAMED_FUNCTIONS,
    OPERATORS,
    STRUCTURE,
    check_arguments,
    check_row_local,
)
from dpduck.language.rows.relation import table_name
from dpduck.language.select.answers import WINDOW_FUNCTIONS
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold

_QUERIES = (
    exp.Select, exp.Union, exp.Except, exp.Intersect, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join, exp.Where,
    exp.Group, exp.Having, exp.Qualify, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Star,
    exp.Alias, exp.TableAlias, exp.Table, exp.Window, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets,
    exp.Grouping, exp.Filter, exp.Values, exp.Exists,
)  # fmt: skip
_AGGREGATES = (exp.CountIf, exp.StddevPop, exp.StddevSamp, exp.VariancePop, exp.ArgMax, exp.ArgMin)
_AROUND = STRUCTURE + OPERATORS + FUNCTIONS + _QUERIES + WINDOW_FUNCTIONS + _AGGREGATES


def drop_private_ctes(whole: exp.Expr, place: exp.Select, facts: PublicFacts) -> set[str]:
    """Removes the CTEs that only the annotated SELECT may read. Returns their names."""
    dropped: set[str] = set()
    for with_ in list(whole.find_all(exp.With)):
        remaining = []
        for cte in with_.expressions:
            if _reads_private(cte.this, place, dropped, facts):
                dropped.add(fold(cte.alias))
            else:
                remaining.append(cte)
        with_.set("expressions", remaining)
        if not remaining:
            with_.pop()
    return dropped


def _reads_private(query: exp.Expr, place: exp.Select, dropped: set[str], facts: PublicFacts) -> bool:
    if any(node is place for node in query.walk()):
        return False
    for table in query.find_all(exp.Table):
        name = table_name(table)
        resolved = facts.resolve(name)
        if fold(name.table) in dropped or (resolved is not None and not facts.is_public(resolved)):
            return True
    return False


def check_around(whole: exp.Expr, place: exp.Select, dropped: set[str], facts: PublicFacts) -> set[TableName]:
    """Refuses SQL that may not stand around the annotated SELECT. Gives public tables full names, and returns these."""
    inside = {id(node) for node in place.walk()}
    tables: set[TableName] = set()
    for node in list(whole.walk()):
        if id(node) in inside:
            continue
        check_arguments(node)
        if isinstance(node, exp.Table):
            if not _is_common_table(node):
                tables.add(_name_public_table(node, dropped, facts))
        elif type(node) not in _AROUND and not (
            isinstance(node, exp.Anonymous) and str(node.this).lower() in NAMED_FUNCTIONS
        ):
            check_row_local(node)
    return tables


def _is_common_table(node: exp.Table) -> bool:
    """Tells whether a table is a CTE of a query around it, or an earlier CTE of the same WITH."""
    if len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
        return False
    child: exp.Expr = node
    parent = node.parent
    while parent is not None:
        if isinstance(parent, exp.With):
            visible = parent.expressions[: next(at for at, cte in enumerate(parent.expressions) if cte is child)]
        else:
            with_ = parent.args.get("with_")
            visible = [] if with_ is None or with_ is child else with_.expressions
        if any(fold(cte.alias) == fold(node.name) for cte in visible):
            return True
        child, parent = parent, parent.parent
    return False


def _name_public_table(node: exp.Table, dropped: set[str], facts: PublicFacts) -> TableName:
    """Gives a public table its full name, so that DuckDB reads the checked table and no CTE of the same name."""
    if not isinstance(node.this, exp.Identifier):
        raise refusal(
            node, "a table function around SELECT WITH DIFFERENTIAL_PRIVACY is refused", "its answers and public tables"
        )
    name = table_name(node)
    resolved = None if len(name.parts) == 1 and fold(name.table) in dropped else facts.resolve(name)
    if resolved is None or not facts.is_public(resolved):
        raise refusal(
            node,
            f"{str(name)!r} is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY",
            "SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables",
        )
    for place, part in zip(("catalog", "db", "this"), resolved.parts, strict=True):
        node.set(place, exp.to_identifier(part, quoted=True))
    return resolved
