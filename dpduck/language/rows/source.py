"""Reader of FROM and WHERE: private tables of one unit, joins with public tables, and conditions of the rows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpduck.language.rows.common_tables import CommonTables, alias_columns, tables_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.joins import read_join
from dpduck.language.rows.per_unit import has_windows, read_per_unit, read_windowed, resolve_selection
from dpduck.language.rows.private_joins import join_private
from dpduck.language.rows.public_tables import read_public_table
from dpduck.language.rows.relation import RowReading, read_private_table, table_name
from dpduck.language.rows.scope import Relation, Scope, resolve
from dpduck.language.rows.subqueries import as_join
from dpduck.language.rows.tree import RowSource, of_relation, require_few_copies
from dpduck.language.rows.unions import read_union
from dpduck.language.text.positions import refusal
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

_PLAIN_SELECT = {"expressions", "from_", "joins", "where", "with_"}
_REFUSED_PARTS = {
    "group": ("GROUP BY over private rows inside a subquery", "GROUP BY of SELECT WITH DIFFERENTIAL_PRIVACY"),
    "having": ("HAVING inside a subquery", "HAVING of SELECT WITH DIFFERENTIAL_PRIVACY"),
    "qualify": ("QUALIFY over private rows", "QUALIFY over the noisy answers of SELECT WITH DIFFERENTIAL_PRIVACY"),
    "distinct": ("DISTINCT over private rows", "count(*), count(column) and count(*) FILTER (WHERE ..)"),
    "limit": ("LIMIT over private rows", "LIMIT of SELECT WITH DIFFERENTIAL_PRIVACY"),
    "offset": ("OFFSET over private rows", "OFFSET of SELECT WITH DIFFERENTIAL_PRIVACY"),
    "order": ("ORDER BY over private rows", "ORDER BY of SELECT WITH DIFFERENTIAL_PRIVACY"),
    "sample": ("SAMPLE over private rows", "all rows: sampling is not a guarantee"),
    "windows": ("WINDOW over private rows", "windows over the noisy answers"),
    "laterals": ("LATERAL over private rows", "a join with a declared public table"),
    "pivots": ("PIVOT over private rows", "GROUP BY"),
    "joins": ("a join in parentheses", "joins without parentheses"),
    "kind": ("SELECT AS STRUCT or VALUE", "a list of columns"),
}


def read_row_source(select: exp.Select, facts: PublicFacts, common: CommonTables) -> RowSource:
    """Reads WITH, FROM and WHERE of a SELECT over private rows. common: the CTEs around the SELECT."""
    return _read_select(select, RowReading(facts, common))


def _read_select(select: exp.Select, reading: RowReading) -> RowSource:
    reading = replace(reading, common=tables_of(select.args.get("with_"), reading.common))
    from_ = select.args.get("from_")
    if from_ is None:
        raise refusal(select, "there is no FROM", "FROM a table with a privacy policy")
    joins = select.args.get("joins") or []
    nodes = [from_.this, *(join.this for join in joins)]
    private = [not _reads_public_alone(node, reading.facts, reading.common) for node in nodes]
    if not any(private):
        raise _nothing_private(nodes[0])
    start = private.index(True)  # 1 if FROM names a public table first: the join is then turned round
    source = _read_relation(nodes[start], reading)
    for number, join in enumerate(joins, start=1):
        turned = number == start
        other, is_private = (nodes[0], private[0]) if turned else (join.this, private[number])
        if is_private:
            source = join_private(source, _read_relation(other, reading), join, reading.facts)
        else:
            source = _join_public(source, join, other, turned, reading)
    return _add_where(source, select, reading)


def _common(node: exp.Expr, common: CommonTables) -> str | None:
    """Returns the lower-case name of the CTE that a table in FROM stands for, None for other relations."""
    if not isinstance(node, exp.Table) or len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
        return None
    name = fold(node.name)
    return name if name in common else None


def _reads_public_alone(node: exp.Expr, facts: PublicFacts, common: CommonTables) -> bool:
    """Tells whether a relation reads only declared public tables. Unknown names are refused later."""
    name = _common(node, common)
    if name is not None:
        return not common[name].recursive and _reads_public_alone(common[name].query, facts, common[name].visible)
    if isinstance(node, exp.Table):
        resolved = facts.resolve(table_name(node)) if isinstance(node.this, exp.Identifier) else None
        return resolved is not None and facts.is_public(resolved) and facts.policy(resolved) is None
    tables = list(node.find_all(exp.Table))
    return bool(tables) and all(_reads_public_alone(table, facts, common) for table in tables)


def _nothing_private(node: exp.Expr) -> Refusal:
    return refusal(
        node,
        f"{str(table_name(node))!r} is public: there is nothing to protect"
        if isinstance(node, exp.Table)
        else "this reads public tables only: there is nothing to protect",
        "plain SQL without WITH DIFFERENTIAL_PRIVACY",
    )


def _read_relation(node: exp.Expr, reading: RowReading) -> RowSource:
    if isinstance(node, exp.Subquery):
        _refuse_parts(node, {"this", "alias"})
        return _alias_source(_read_subquery(node.this, reading), node.alias, alias_columns(node), node)
    if not isinstance(node, exp.Table):
        raise refusal(node, f"{node.key.upper()} in FROM is refused", "a table, a subquery or a CTE that filters")
    if not isinstance(node.this, exp.Identifier):
        raise refusal(node, "a table function is refused", "a table with a policy")
    _refuse_parts(node, {"this", "db", "catalog", "alias"})
    name = _common(node, reading.common)
    if name is not None:
        table = reading.common[name]
        if table.recursive:
            raise refusal(node, "WITH RECURSIVE over private rows is refused", "plain CTEs that filter or project")
        inside = _read_subquery(table.query, replace(reading, common=table.visible))
        source = _alias_source(inside, node.name, table.columns, node)
    else:
        source = of_relation(read_private_table(node, reading))
    return _alias_source(source, node.alias or node.name, alias_columns(node), node)


def _alias_source(source: RowSource, alias: str, names: tuple[str, ...], place: exp.Expr) -> RowSource:
    """Returns the source as one relation under this alias, with `names` for its first columns."""
    relation = Relation(alias, tuple(source.scope.columns())).rename_columns(names, place)
    return replace(source, scope=Scope((relation,)))


def _read_subquery(query: exp.Expr, reading: RowReading) -> RowSource:
    """Reads a SELECT over private rows, or a UNION ALL of such SELECTs, as a relation without a name."""
    if isinstance(query, exp.SetOperation):
        return read_union(query, reading, _read_subquery)
    if isinstance(query, exp.Subquery):
        _refuse_parts(query, {"this", "alias"})
        return _read_subquery(query.this, reading)
    if isinstance(query, exp.Table):
        raise refusal(query, "a join in parentheses is refused", "joins without parentheses")
    if not isinstance(query, exp.Select):
        raise refusal(query, f"{query.key.upper()} in FROM is refused", "a SELECT that filters or projects")
    if query.args.get("hint") is not None:
        raise refusal(
            query,
            "SELECT WITH DIFFERENTIAL_PRIVACY inside another one",
            "one SELECT WITH DIFFERENTIAL_PRIVACY, with plain SELECTs around it",
        )
    if query.args.get("group") is not None:
        _refuse_parts(query, {*_PLAIN_SELECT, "group"})
        return read_per_unit(query, _read_select(query, RowReading(reading.facts, reading.common)), reading)
    if has_windows(query):
        _refuse_parts(query, {*_PLAIN_SELECT, "qualify"})
        return read_windowed(query, _read_select(query, RowReading(reading.facts, reading.common)), reading)
    _refuse_parts(query, _PLAIN_SELECT)
    source = _read_select(query, reading)
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
    columns = resolve_selection(query, scope)
    for _, expression in columns:
        if not isinstance(expression, exp.Column):
            check_row_local(expression)
    return columns


def _join_public(source: RowSource, join: exp.Join, other: exp.Expr, turned: bool, reading: RowReading) -> RowSource:
    """Joins a public table. turned: whether the statement names the public table first, so that sides are swapped."""
    table = read_public_table(other, reading.common, reading.facts)
    if any(reading.facts.has_collations(name) for name in (*source.tables, table.table)):
        raise refusal(join, "a COLLATION makes keys equal that are different texts", "a join of tables without COLLATE")
    scope, joined = read_join(join, table, source.scope, next(reading.public), turned, reading.facts)
    result = replace(source, joins=(*source.joins, joined), scope=scope)
    require_few_copies(result, join.this if isinstance(join.this, exp.Expr) else join)
    return result


def _add_where(source: RowSource, select: exp.Select, reading: RowReading) -> RowSource:
    """Adds the conditions of WHERE to a source. Conditions with subqueries over public tables become joins."""
    where = select.args.get("where")
    if where is None:
        return source
    written = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    plain = []
    for number, conjunct in enumerate(written, start=1):
        join = as_join(conjunct, number)
        if join is not None and _reads_public_alone(join.this, reading.facts, reading.common):
            source = _join_public(source, join, join.this, False, reading)
        else:
            plain.append(conjunct)
    if not plain:
        return source
    condition = resolve(where.this if len(plain) == len(written) else exp.and_(*plain), source.scope)
    check_row_local(condition)
    conjuncts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    return replace(source, filters=(*source.filters, *conjuncts))
