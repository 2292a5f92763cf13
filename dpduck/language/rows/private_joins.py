"""Joins of private rows with private rows of the same unit. Equal values in columns of one link prove the unit."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.units import Referenced, SamePeriod, UnitTuple, first_of, period_of, person_of, unit_type
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.joins import using_columns
from dpduck.language.rows.moments import is_exactly, moments_of
from dpduck.language.rows.relation import PrivateRelation, comparable
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.rows.tree import Pair, PrivateJoin, RowSource, equal_columns, require_few_copies, require_one_unit
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold

ACCEPTED = "INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of tables with one privacy unit ON equal units or references"
_KINDS = {
    ("", ""): "JOIN", ("", "INNER"): "JOIN", ("LEFT", ""): "LEFT JOIN", ("RIGHT", ""): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN", ("", "SEMI"): "SEMI JOIN", ("", "ANTI"): "ANTI JOIN",
}  # fmt: skip


def join_private(left: RowSource, right: RowSource, join: exp.Join, facts: PublicFacts) -> RowSource:
    """Joins both sides into one source. Refuses a join that does not prove that both rows are of one unit."""
    kind = _kind(join)
    _require_one_unit(left, right, join, facts)
    conditions = _conditions(join, left, right)
    pairs = [pair for condition in conditions if (pair := equal_columns(condition, left, right)) is not None]
    equal = tuple(pair for pair in pairs if comparable(*_types(pair)))
    if not _are_of_one_unit(equal, left, right):
        linked = [_types(pair) for pair in pairs if _is_linked(pair)]
        what = "joins between tables containing private data must join on the privacy unit column in each table"
        accepted = _links_of(left, right) + ", joined by AND with other conditions"
        if linked:
            what = f"units of the types {' and '.join(linked[0])} are not compared"
            accepted = "one type in both tables, not FLOAT or DOUBLE"
        raise refusal(join.args.get("on") or join, what, accepted)
    left_where, right_where, on = _place_filters(kind, left, right, join)
    merged = frozenset(fold(column.name) for column in using_columns(join))
    units, scope = _units(kind, left, right, join), _scope(kind, left, right, merged)
    inside, period = replace(right, filters=()), left.first.policy.unit.period
    private = PrivateJoin(kind, inside, (*conditions, *on), equal)
    if period is not None:
        ours, theirs = (moments_of(side.always_there) for side in (left, right))
        within = tuple(condition for condition in conditions if is_exactly(condition, ours, theirs, period.word))
        private = replace(private, period=_same_period(left, right), within=within)
    source = replace(left, joins=(*left.joins, private), scope=scope, filters=(*left_where, *right_where), units=units)
    require_few_copies(source, join.this)
    return source


def _kind(join: exp.Join) -> str:
    side, kind, method = join.side.upper(), join.kind.upper(), str(join.args.get("method") or "").upper()
    if kind == "CROSS" or not (join.args.get("on") or join.args.get("using") or method):
        raise refusal(join, "a cross join is refused", ACCEPTED)
    name = _KINDS.get((side, "" if kind == "OUTER" else kind))
    if method or name is None:
        raise refusal(join, f"{' '.join(filter(None, (method, side, kind)))} JOIN is refused", ACCEPTED)
    return name


def _require_one_unit(left: RowSource, right: RowSource, join: exp.Join, facts: PublicFacts) -> None:
    accepted = "one private table with public tables, or policies with PRIVACY UNIT column"
    require_one_unit((left, right), (join.this, join.this), "a second reference to private rows", accepted)
    if any(facts.has_collations(table) for table in (*left.tables, *right.tables)):
        raise refusal(join, "a COLLATION makes keys equal that are different texts", "a join of tables without COLLATE")


def _conditions(join: exp.Join, left: RowSource, right: RowSource) -> tuple[exp.Expr, ...]:
    using = using_columns(join)
    if not using:
        resolved = resolve(join.args["on"], Scope((*left.scope.relations, *right.scope.relations)))
        check_row_local(resolved)
        return tuple(resolved.flatten()) if isinstance(resolved, exp.And) else (resolved,)
    equalities = []
    for column in using:
        equalities.append(exp.EQ(this=resolve(column, left.scope), expression=resolve(column, right.scope)))
        check_row_local(equalities[-1])
    return tuple(equalities)


def _are_of_one_unit(equal: tuple[Pair, ...], left: RowSource, right: RowSource) -> bool:
    """Tells whether equal columns prove that both sides are of one unit."""
    pairs = set(map(_pair_key, equal))
    return any(map(_is_linked, equal)) or any(set(map(_pair_key, parts)) <= pairs for parts in _together(left, right))


def _same_period(left: RowSource, right: RowSource) -> SamePeriod | None:
    ours, theirs = (period_of(first_of(side.units[0])) for side in (left, right))
    return None if ours is None or theirs is None else SamePeriod(ours, theirs)


def _types(pair: Pair) -> tuple[str, str]:
    (left, name), (right, partner) = pair
    return left.type_of(name), right.type_of(partner)


def _is_linked(pair: Pair) -> bool:
    (left, name), (right, partner) = pair
    link = left.link(name)
    return link is not None and link == right.link(partner)


def _pair_key(pair: Pair) -> tuple[tuple[str, str], ...]:
    return tuple((relation.alias, fold(name)) for relation, name in pair)


def _together(left: RowSource, right: RowSource) -> list[list[Pair]]:
    """Lists groups of column pairs for units of several columns. If all pairs of a group are equal, units are equal."""
    candidates = [(ours, theirs) for ours in left.relations for theirs in right.relations]
    return [
        [((ours, column.name), (theirs, column.name)) for column in ours.person.parts]
        for ours, theirs in candidates
        if isinstance(ours.person, UnitTuple) and isinstance(theirs.person, UnitTuple)
        if [(part.name, part.type_name) for part in ours.person.parts]
        == [(part.name, part.type_name) for part in theirs.person.parts]
        if ours.policy.unit.key == theirs.policy.unit.key
        if all(comparable(part.type_name, part.type_name) for part in ours.person.parts)
    ]


def _links_of(left: RowSource, right: RowSource) -> str:
    """Writes the ON clause that a refusal suggests: columns of both sides that prove one unit, if there are any."""
    equalities = [
        f"{_column_name(left, ours, column)} = {_column_name(right, theirs, partner)}"
        for ours in left.relations
        for theirs in right.relations
        for column, link in ours.links
        for partner, other_link in theirs.links
        if link == other_link
    ]
    for parts in _together(left, right):
        pairs = ((_column_name(left, *ours), _column_name(right, *theirs)) for ours, theirs in parts)
        equalities.append(" AND ".join(f"{ours} = {theirs}" for ours, theirs in pairs))
    return "ON " + (" or ".join(dict.fromkeys(equalities)) or "columns that hold the privacy unit or refer to it")


def _column_name(source: RowSource, relation: PrivateRelation, column: str) -> str:
    """Returns the name of a column as the statement writes it. A column that is not in scope gets its table's name."""
    for shown in source.scope.relations:
        for name, expression in shown.columns:
            base = isinstance(expression, exp.Column) and expression.table == relation.alias
            if base and shown.alias and fold(expression.name) == fold(column):
                return f"{shown.alias}.{name}"
    return f"{relation.table.table}.{column}"


def _place_filters(
    kind: str, left: RowSource, right: RowSource, join: exp.Join
) -> tuple[tuple[exp.Expr, ...], tuple[exp.Expr, ...], tuple[exp.Expr, ...]]:
    """Returns the left side's and the right side's conditions for WHERE, and the conditions for ON.

    A condition on a side that may be missing in a joined row moves to ON, so that it holds before the join.
    """
    if kind == "JOIN":
        return left.filters, right.filters, ()
    if kind == "RIGHT JOIN":
        return (), right.filters, left.filters
    if kind == "FULL JOIN" and (left.filters or right.filters):
        raise refusal(join, "a FULL JOIN of filtered subqueries is refused", "WHERE after the join, or a LEFT JOIN")
    return left.filters, (), right.filters


def _units(kind: str, left: RowSource, right: RowSource, join: exp.Join) -> tuple[tuple[Expression, ...], ...]:
    if kind == "JOIN":
        return left.units + right.units
    if kind == "RIGHT JOIN":
        return right.units
    if kind != "FULL JOIN":
        return left.units
    both = [ours + theirs for ours in left.units for theirs in right.units]
    direct = tuple(
        choice
        for choice in both
        if not any(isinstance(person_of(unit), Referenced) for unit in choice)
        and all(comparable(unit_type(choice[0]), unit_type(unit)) for unit in choice)
    )
    if not direct:
        raise refusal(join, "a FULL JOIN of tables without a column of the unit is refused", "LEFT JOIN or JOIN")
    return direct


def _scope(kind: str, left: RowSource, right: RowSource, merged: frozenset[str]) -> Scope:
    """Builds a join's scope. A USING column is of the side that keeps all rows, and ambiguous after a FULL JOIN."""
    if kind in ("SEMI JOIN", "ANTI JOIN"):
        return left.scope
    ours, theirs = left.scope.relations, right.scope.relations
    if kind == "RIGHT JOIN":
        ours = tuple(replace(relation, merged=relation.merged | merged) for relation in ours)
    elif kind != "FULL JOIN":
        theirs = tuple(replace(relation, merged=relation.merged | merged) for relation in theirs)
    return Scope((*ours, *theirs))
