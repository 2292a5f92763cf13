"""A join of private rows with a declared public table, along equal keys, so that its multiplication is public."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.errors import Refusal
from dpduck.frontend.allowlist import check_row_local
from dpduck.frontend.common_tables import alias_columns
from dpduck.frontend.names import TableName, fold
from dpduck.frontend.positions import copy_position, position_of, refusal
from dpduck.frontend.public_facts import Column, PublicFacts
from dpduck.frontend.scope import Relation, Scope, base_column, resolve


@dataclass(frozen=True)
class PublicJoin:
    """alias: p1, p2, ... pairs: (expression over private rows, public column) that must be equal.

    outer: LEFT JOIN. multiplicity: the most rows of the public table for one key, at least 1.
    """

    table: TableName
    alias: str
    columns: tuple[Column, ...]
    outer: bool
    pairs: tuple[tuple[exp.Expr, str], ...]
    multiplicity: int


def read_join(
    join: exp.Join,
    public: exp.Expr,
    scope: Scope,
    number: int,
    private_on_right: bool,
    facts: PublicFacts,
) -> tuple[Relation, PublicJoin]:
    """The relation that a join adds to the scope, and the join itself."""
    outer = _outer(join, private_on_right)
    table, shown = _public_table(public, facts)
    alias = f"p{number}"
    columns = facts.columns(table)
    relation = Relation(shown, tuple((column.name, base_column(alias, column.name)) for column in columns))
    pairs = _pairs(join, scope, relation, alias)
    merged = frozenset(fold(item.name) for item in join.args.get("using") or ())
    relation = replace(relation, merged=merged)
    multiplicity = max(1, facts.multiplicity(table, [column for _, column in pairs]))
    return relation, PublicJoin(table, alias, columns, outer, pairs, multiplicity)


def _outer(join: exp.Join, private_on_right: bool) -> bool:
    side, kind, method = join.side.upper(), join.kind.upper(), str(join.args.get("method") or "").upper()
    position = position_of(join)
    accepted = "INNER or LEFT JOIN of the private table with a public table ON equal keys"
    if kind == "CROSS" or (
        not method and not side and not kind and not join.args.get("on") and not join.args.get("using")
    ):
        raise Refusal("a cross join is refused", accepted=accepted, position=position)
    if method or kind not in ("", "INNER", "OUTER") or side not in ("", "LEFT"):
        words = " ".join(word for word in (method, side, kind) if word)
        raise Refusal(f"{words} JOIN is refused", accepted=accepted, position=position)
    if side == "LEFT" and private_on_right:
        raise Refusal(
            "a LEFT JOIN that keeps public rows without private ones is refused", accepted=accepted, position=position
        )
    return side == "LEFT"


def _public_table(node: exp.Expr, facts: PublicFacts) -> tuple[TableName, str]:
    if not isinstance(node, exp.Table):
        raise Refusal(
            "a subquery on the public side of a join is refused",
            accepted="the name of a declared public table",
            position=position_of(node),
        )
    if {key for key, value in node.args.items() if value} - {"this", "db", "catalog", "alias"} or alias_columns(node):
        raise Refusal("this cannot follow a public table", accepted="an alias", position=position_of(node))
    name = TableName(tuple(part.name for part in node.parts))
    resolved = facts.resolve(name)
    if resolved is None or not facts.is_public(resolved):
        raise Refusal(
            f"{str(name)!r} is not declared public",
            accepted="a table after DECLARE PUBLIC TABLE",
            position=position_of(node),
        )
    return resolved, node.alias or name.table


def _pairs(join: exp.Join, scope: Scope, relation: Relation, alias: str) -> tuple[tuple[exp.Expr, str], ...]:
    using = join.args.get("using")
    if using:
        columns = [exp.column(exp.to_identifier(item.name)) for item in using]
        for item, column in zip(using, columns, strict=True):
            copy_position(item, column)
        both = [(resolve(column, scope), resolve(column, Scope((relation,)))) for column in columns]
    else:
        condition = join.args.get("on")
        if condition is None:
            raise Refusal(
                "a join without ON is refused", accepted="ON private.key = public.key", position=position_of(join)
            )
        whole = Scope((*scope.relations, relation))
        resolved = resolve(condition, whole)
        conjuncts = list(resolved.flatten()) if isinstance(resolved, exp.And) else [resolved]
        both = [_equal_sides(conjunct, alias) for conjunct in conjuncts]
    for private, _ in both:
        check_row_local(private)
    return tuple((private, public.name) for private, public in both)


def _equal_sides(condition: exp.Expr, alias: str) -> tuple[exp.Expr, exp.Expr]:
    if isinstance(condition, exp.Paren):
        return _equal_sides(condition.this, alias)
    if isinstance(condition, exp.EQ):
        for public, private in ((condition.left, condition.right), (condition.right, condition.left)):
            inside = {column.table for column in private.find_all(exp.Column)}
            if isinstance(public, exp.Column) and public.table == alias and inside and alias not in inside:
                return private, public
    raise refusal(
        condition,
        "this join condition is refused",
        "private.key = public.key, joined by AND; other conditions go to WHERE",
    )
