"""FROM and WHERE flattened: one private table, its joins with public tables, and the conditions its rows must meet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.errors import Refusal
from dpduck.frontend.allowlist import check_row_local
from dpduck.frontend.common_tables import CommonTables, alias_columns, tables_of
from dpduck.frontend.conditions import sql_of
from dpduck.frontend.join import PublicJoin, read_join
from dpduck.frontend.names import TableName, fold
from dpduck.frontend.policy import Policy
from dpduck.frontend.positions import refusal
from dpduck.frontend.public_facts import PublicFacts
from dpduck.frontend.scope import Relation, Scope, base_column, resolve

PRIVATE_ALIAS = "r0"
_PLAIN_SELECT = {"expressions", "from_", "joins", "where", "with_"}
_REFUSED_PARTS = {
    "group": ("GROUP BY over private rows inside a subquery", "GROUP BY of the annotated SELECT"),
    "having": ("HAVING inside a subquery", "HAVING of the annotated SELECT"),
    "qualify": ("QUALIFY over private rows", "QUALIFY over the noisy answers of the annotated SELECT"),
    "distinct": ("DISTINCT over private rows", "count(*), count(column) and count(*) FILTER (WHERE ..)"),
    "limit": ("LIMIT over private rows", "LIMIT of the annotated SELECT"),
    "offset": ("OFFSET over private rows", "OFFSET of the annotated SELECT"),
    "order": ("ORDER BY over private rows", "ORDER BY of the annotated SELECT"),
    "sample": ("SAMPLE over private rows", "all rows: sampling is not a guarantee"),
    "windows": ("WINDOW over private rows", "windows over the noisy answers"),
    "laterals": ("LATERAL over private rows", "a join with a declared public table"),
    "pivots": ("PIVOT over private rows", "GROUP BY"),
    "joins": ("a join in parentheses", "joins without parentheses"),
    "kind": ("SELECT AS STRUCT or VALUE", "a list of columns"),
}


@dataclass(frozen=True)
class RowSource:
    """One private table with its joins, its scope and its conditions (resolved, not yet made safe)."""

    table: TableName
    policy: Policy
    joins: tuple[PublicJoin, ...]
    scope: Scope
    filters: tuple[exp.Expr, ...]


def read_row_source(select: exp.Select, facts: PublicFacts, common: CommonTables) -> RowSource:
    """The row source of a SELECT over private rows, its own CTEs included."""
    common = tables_of(select.args.get("with_"), common)
    from_ = select.args.get("from_")
    if from_ is None:
        raise refusal(select, "there is no FROM", "FROM a table with a privacy policy")
    joins = select.args.get("joins") or []
    relations = [from_.this, *(join.this for join in joins)]
    private = [node for node in relations if not _is_public(node, facts, common)]
    if not private:
        raise _nothing_private(relations[0])
    if len(private) > 1:
        raise _second_private(private[1], facts, common)
    source = _read_relation(private[0], facts, common)
    for join in joins:
        other = from_.this if join.this is private[0] else join.this
        source = _add_join(source, join, other, join.this is private[0], facts)
    return _add_where(source, select)


def table_name(node: exp.Table) -> TableName:
    """The table as written."""
    return TableName(tuple(part.name for part in node.parts))


def _common(node: exp.Expr, common: CommonTables) -> str | None:
    """The folded name of the CTE that a table reference stands for, None where it is no CTE."""
    if not isinstance(node, exp.Table) or len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
        return None
    name = fold(node.name)
    return name if name in common else None


def _is_public(node: exp.Expr, facts: PublicFacts, common: CommonTables) -> bool:
    """Whether this is the name of a declared public table; unknown names and subqueries fail closed later."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or _common(node, common):
        return False
    resolved = facts.resolve(table_name(node))
    return resolved is not None and facts.is_public(resolved) and facts.policy(resolved) is None


def _nothing_private(node: exp.Expr) -> Refusal:
    return refusal(
        node,
        f"{str(table_name(node))!r} is public: there is nothing to protect" if isinstance(node, exp.Table) else "",
        "plain SQL without WITH DIFFERENTIAL_PRIVACY",
    )


def _second_private(node: exp.Expr, facts: PublicFacts, common: CommonTables) -> Refusal:
    accepted = "one private table, joined with declared public tables by their names"
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not _common(node, common):
        name = table_name(node)
        resolved = facts.resolve(name)
        if resolved is None:
            return refusal(node, f"there is no table {str(name)!r}", accepted)
        if facts.policy(resolved) is None:
            return refusal(node, f"{str(name)!r} is not declared public", "a table after DECLARE PUBLIC TABLE")
    elif not isinstance(node, (exp.Table, exp.Subquery)):
        return refusal(node, f"{node.key.upper()} in FROM is refused", accepted)
    elif isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        return refusal(node, "a table function is refused", accepted)
    elif _reads_public_alone(node, facts, common):
        return refusal(node, "a subquery on the public side of a join is refused", accepted)
    return refusal(node, "a second reference to private rows", accepted)


def _reads_public_alone(node: exp.Expr, facts: PublicFacts, common: CommonTables) -> bool:
    """Whether a subquery or CTE reads declared public tables only."""
    name = _common(node, common)
    if name is not None:
        return not common[name].recursive and _reads_public_alone(common[name].query, facts, common[name].visible)
    if isinstance(node, exp.Table):
        return _is_public(node, facts, common)
    return all(_reads_public_alone(table, facts, common) for table in node.find_all(exp.Table))


def _read_relation(node: exp.Expr, facts: PublicFacts, common: CommonTables) -> RowSource:
    if isinstance(node, exp.Subquery):
        _refuse_parts(node, {"this", "alias"})
        return _aliased(_read_subquery(node.this, facts, common), node.alias, alias_columns(node), node)
    if not isinstance(node, exp.Table):
        raise refusal(node, f"{node.key.upper()} in FROM is refused", "a table, a subquery or a CTE that filters")
    if not isinstance(node.this, exp.Identifier):
        raise refusal(node, "a table function is refused", "a table with a policy")
    _refuse_parts(node, {"this", "db", "catalog", "alias"})
    name = _common(node, common)
    if name is not None:
        table = common[name]
        if table.recursive:
            raise refusal(node, "WITH RECURSIVE over private rows is refused", "plain CTEs that filter or project")
        source = _aliased(_read_subquery(table.query, facts, table.visible), node.name, table.columns, node)
    else:
        source = _read_private_table(node, facts)
    return _aliased(source, node.alias or node.name, alias_columns(node), node)


def _aliased(source: RowSource, alias: str, names: tuple[str, ...], place: exp.Expr) -> RowSource:
    """The source as one relation of this name, its first columns renamed."""
    relation = Relation(alias, tuple(source.scope.columns())).renamed(names, place)
    return replace(source, scope=Scope((relation,)))


def _read_private_table(node: exp.Table, facts: PublicFacts) -> RowSource:
    name = table_name(node)
    resolved = facts.resolve(name)
    if resolved is None:
        raise refusal(node, f"there is no table {str(name)!r}", "a table with a policy")
    policy = facts.policy(resolved)
    if policy is None:
        kind = "view" if facts.is_view(resolved) else "table"
        raise refusal(
            node,
            f"the {kind} {str(name)!r} has no privacy policy, so nothing is answered from it",
            "a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public",
        )
    columns = tuple((column.name, base_column(PRIVATE_ALIAS, column.name)) for column in facts.columns(resolved))
    return RowSource(resolved, policy, (), Scope((Relation(name.table, columns),)), ())


def _read_subquery(query: exp.Expr, facts: PublicFacts, common: CommonTables) -> RowSource:
    """A SELECT that filters and projects private rows, its columns as one relation without a name."""
    if isinstance(query, exp.SetOperation):
        raise refusal(query, f"{query.key.upper()} over private rows is refused", "one SELECT that filters or projects")
    if isinstance(query, exp.Subquery):
        _refuse_parts(query, {"this", "alias"})
        return _read_subquery(query.this, facts, common)
    if isinstance(query, exp.Table):
        raise refusal(query, "a join in parentheses is refused", "joins without parentheses")
    if not isinstance(query, exp.Select):
        raise refusal(query, f"{query.key.upper()} in FROM is refused", "a SELECT that filters or projects")
    if query.args.get("hint") is not None:
        raise refusal(
            query,
            "an annotated SELECT inside another annotated SELECT",
            "one annotated SELECT, with plain SELECTs around it",
        )
    _refuse_parts(query, _PLAIN_SELECT)
    source = read_row_source(query, facts, common)
    return replace(source, scope=Scope((Relation("", _project(query, source.scope)),)))


def _refuse_parts(node: exp.Expr, plain: set[str]) -> None:
    for part, value in node.args.items():
        if value and part not in plain:
            what, accepted = _REFUSED_PARTS.get(
                part, (f"{part.strip('_').upper()} over private rows", "WHERE and columns")
            )
            first = value[0] if isinstance(value, list) else value
            raise refusal(first if isinstance(first, exp.Expr) else node, f"{what} is refused", accepted)


def _project(query: exp.Select, scope: Scope) -> tuple[tuple[str, exp.Expr], ...]:
    columns: list[tuple[str, exp.Expr]] = []
    if not query.expressions:
        raise refusal(query, "nothing is selected", "* or a list of columns")
    for item in query.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star) and not any(star.args.values()):
            table = item.table if isinstance(item, exp.Column) else ""
            found = list(scope.columns(table))
            if not found:
                raise refusal(item, f"there is no table {table!r} in FROM", "a table of FROM before .*")
            columns.extend(found)
        else:
            expression = resolve(item.unalias(), scope)
            check_row_local(expression)
            columns.append((item.alias_or_name or sql_of(item), expression))
    return tuple(columns)


def _add_join(
    source: RowSource, join: exp.Join, other: exp.Expr, private_on_right: bool, facts: PublicFacts
) -> RowSource:
    relation, public_join = read_join(join, other, source.scope, len(source.joins) + 1, private_on_right, facts)
    if any(facts.has_collations(table) for table in (source.table, public_join.table)):
        raise refusal(join, "a COLLATION makes keys equal that are different texts", "a join of tables without COLLATE")
    return replace(source, joins=(*source.joins, public_join), scope=Scope((*source.scope.relations, relation)))


def _add_where(source: RowSource, select: exp.Select) -> RowSource:
    where = select.args.get("where")
    if where is None:
        return source
    condition = resolve(where.this, source.scope)
    check_row_local(condition)
    conjuncts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    return replace(source, filters=(*source.filters, *conjuncts))
