"""FROM and WHERE flattened: private tables of one privacy unit, joins with public ones, and conditions of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.frontend.rows.expressions import safe_sql, sql_of
from dpduck.frontend.rows.facts import Clamp, Column, PublicFacts
from dpduck.frontend.rows.functions import check_row_local
from dpduck.frontend.rows.joins import read_join
from dpduck.frontend.rows.parts import Units
from dpduck.frontend.rows.private_joins import join_private
from dpduck.frontend.rows.relation import PrivateRelation, Reading, read_private_table, table_name
from dpduck.frontend.rows.scope import Relation, Scope, base_column, resolve
from dpduck.frontend.rows.sql import base, column_types, from_sql, source_of, stored_sql, unit_sql
from dpduck.frontend.rows.subqueries import CommonTables, alias_columns, as_join, read_public_table, tables_of
from dpduck.frontend.rows.tree import RowSource, of_relation, require_few_copies
from dpduck.frontend.rows.unions import read_union
from dpduck.frontend.text.names import fold, quote_identifier
from dpduck.frontend.text.positions import refusal
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.privacy import PrivacyUnit

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


def read_row_source(select: exp.Select, facts: PublicFacts, common: CommonTables) -> RowSource:
    """Returns the row source of a SELECT over private rows, its own CTEs included."""
    return _read_select(select, Reading(facts, common))


def _read_select(select: exp.Select, reading: Reading) -> RowSource:
    reading = replace(reading, common=tables_of(select.args.get("with_"), reading.common))
    from_ = select.args.get("from_")
    if from_ is None:
        raise refusal(select, "there is no FROM", "FROM a table with a privacy policy")
    joins = select.args.get("joins") or []
    nodes = [from_.this, *(join.this for join in joins)]
    private = [not _reads_public_alone(node, reading.facts, reading.common) for node in nodes]
    if not any(private):
        raise _nothing_private(nodes[0])
    start = private.index(True)  # 1 where FROM names a public table first: its join is then turned round
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
    """Returns the folded name of the CTE that a table reference stands for, None where it is no CTE."""
    if not isinstance(node, exp.Table) or len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
        return None
    name = fold(node.name)
    return name if name in common else None


def _reads_public_alone(node: exp.Expr, facts: PublicFacts, common: CommonTables) -> bool:
    """Tells whether a relation reads declared public tables only; unknown names fail closed later."""
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


def _read_relation(node: exp.Expr, reading: Reading) -> RowSource:
    if isinstance(node, exp.Subquery):
        _refuse_parts(node, {"this", "alias"})
        return _aliased(_read_subquery(node.this, reading), node.alias, alias_columns(node), node)
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
        source = _aliased(inside, node.name, table.columns, node)
    else:
        source = of_relation(read_private_table(node, reading))
    return _aliased(source, node.alias or node.name, alias_columns(node), node)


def _aliased(source: RowSource, alias: str, names: tuple[str, ...], place: exp.Expr) -> RowSource:
    """Returns the source as one relation of this name, its first columns renamed."""
    relation = Relation(alias, tuple(source.scope.columns())).renamed(names, place)
    return replace(source, scope=Scope((relation,)))


def _read_subquery(query: exp.Expr, reading: Reading) -> RowSource:
    """Returns a SELECT that filters and projects private rows, or a UNION ALL of such, as one relation without
    a name.
    """
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
            "an annotated SELECT inside another annotated SELECT",
            "one annotated SELECT, with plain SELECTs around it",
        )
    if query.args.get("group") is not None:
        _refuse_parts(query, {*_PLAIN_SELECT, "group"})
        return read_per_unit(query, _read_select(query, Reading(reading.facts, reading.common)), reading)
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


def _join_public(source: RowSource, join: exp.Join, other: exp.Expr, turned: bool, reading: Reading) -> RowSource:
    """turned: FROM public JOIN private, so that what is left and right in the statement is the other way round."""
    table = read_public_table(other, reading.common, reading.facts)
    if any(reading.facts.has_collations(name) for name in (*source.tables, table.table)):
        raise refusal(join, "a COLLATION makes keys equal that are different texts", "a join of tables without COLLATE")
    scope, joined = read_join(join, table, source.scope, next(reading.public), turned, reading.facts)
    found = replace(source, joins=(*source.joins, joined), scope=scope)
    require_few_copies(found, join.this if isinstance(join.this, exp.Expr) else join)
    return found


def _add_where(source: RowSource, select: exp.Select, reading: Reading) -> RowSource:
    """Returns the conditions of WHERE; those that look into public tables are joins."""
    where = select.args.get("where")
    if where is None:
        return source
    written = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    plain = []
    for number, one in enumerate(written, start=1):
        join = as_join(one, number)
        if join is not None and _reads_public_alone(join.this, reading.facts, reading.common):
            source = _join_public(source, join, join.this, False, reading)
        else:
            plain.append(one)
    if not plain:
        return source
    condition = resolve(where.this if len(plain) == len(written) else exp.and_(*plain), source.scope)
    check_row_local(condition)
    conjuncts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    return replace(source, filters=(*source.filters, *conjuncts))


# SELECT unit, count(..) .. GROUP BY unit inside FROM: one row of each privacy unit, with counts of its own rows.


PER_UNIT = "dpduck_unit"
_ACCEPTED = "GROUP BY the privacy unit's column alone, with it and counts selected"
_LARGEST_COUNT = 10_000


@dataclass(frozen=True)
class _Output:
    """A selected column: its SQL over the rows, and the public domain of its values.

    counted: what must not be NULL in the rows that are counted; None for all rows, and for the unit's column.
    condition: the same as SQL, "" for all rows.
    """

    column: Column
    sql: str
    domain: Domain | None
    counts: bool
    counted: exp.Expr | None = None
    condition: str = ""


def read_per_unit(query: exp.Select, source: RowSource, reading: Reading) -> RowSource:
    """Returns the rows of units as a relation; a unit is one row in it, made of its own rows alone."""
    unit = _unit_column(query, source)
    outputs = _outputs(query, source, unit)
    names = [fold(output.column.name) for output in outputs]
    if len(set(names)) < len(names) or PER_UNIT in names:
        raise refusal(query, "two columns of a subquery have one name", "a name for each column")
    alias, policy, unit_type = f"r{next(reading.private)}", source.policy, column_types(source)[sql_of(unit)]
    columns = tuple(output.column for output in outputs)
    relation = PrivateRelation(
        alias,
        source.table,
        _sql(source, outputs),
        replace(
            policy,
            unit=PrivacyUnit(policy.unit.key, PER_UNIT, 1),
            domains=tuple((output.column.name, output.domain) for output in outputs if output.domain is not None),
            clamps=tuple(Clamp(one.column.name, "0", str(_most(source)), "1") for one in outputs if one.counts),
            expect_rows=None,
        ),
        (*columns, Column(PER_UNIT, unit_type)),
        PER_UNIT,
        unit_type,
        tuple((fold(output.column.name), policy.unit.key) for output in outputs if not output.counts),
        (PER_UNIT,),
        source.reads,
        unit_names=tuple(name for relation in source.relations for name in relation.unit_columns),
        nested=_units(source, outputs, alias),
    )
    shown = tuple((column.name, base_column(alias, column.name)) for column in columns)
    branch = replace(source, counted=tuple(output.counted for output in outputs if output.counted is not None))
    return RowSource(relation, (), Scope((Relation("", shown),)), (), ((relation,),), (branch,))


def _most(source: RowSource) -> int:
    """The largest count that has a bin of its own: the rows of a unit that the source may have."""
    return min(source.usual_rows, _LARGEST_COUNT)


def _outputs(query: exp.Select, source: RowSource, unit: exp.Column) -> list[_Output]:
    """Returns the unit's column and counts. A count's domain is 0 .. m, and larger ones are in the last bin."""
    most, types = _most(source), column_types(source)
    counts = RangeDomain("BIGINT", tuple(map(str, range(most + 1))), str(most + 1), "1", "", 1, with_edges=True)
    found = []
    for item in query.expressions:
        name, expression = item.alias_or_name or sql_of(item), item.unalias()
        if not isinstance(expression, exp.Column):
            counted = _counted(expression, source)
            condition = _present_sql(counted, types)
            sql = f"count(CASE WHEN {condition} THEN 1 END)" if condition else "count(*)"
            found.append(_Output(Column(name, "BIGINT"), sql, counts, True, counted, condition))
        elif sql_of(resolve(expression, source.scope)) == sql_of(unit):
            column = Column(name, types[sql_of(unit)])
            found.append(_Output(column, stored_sql(unit), source.domain(unit), counts=False))
        else:
            raise refusal(item, "a column that is not the privacy unit's", _ACCEPTED)
    return found


def _unit_column(query: exp.Select, source: RowSource) -> exp.Column:
    """Returns the column of GROUP BY, which holds the unit of every row."""
    group = query.args["group"]
    keys = group.expressions
    other = {part for part, value in group.args.items() if value} - {"expressions"}
    if other or len(keys) != 1 or not isinstance(keys[0], exp.Column):
        raise refusal(group, "GROUP BY over private rows inside a subquery is refused", _ACCEPTED)
    column = resolve(keys[0], source.scope)
    held = {base(choice[0].alias, choice[0].unit) for choice in source.units if len(choice) == 1 and choice[0].unit}
    if not isinstance(column, exp.Column) or sql_of(column) not in held:
        raise refusal(keys[0], "GROUP BY over private rows inside a subquery is refused", _ACCEPTED)
    return column


def _counted(node: exp.Expr, source: RowSource) -> exp.Expr | None:
    if not isinstance(node, exp.Count) or node.expressions or isinstance(node.this, exp.Distinct):
        raise refusal(node, "this is refused in a subquery with a row for each privacy unit", _ACCEPTED)
    if node.this is None or isinstance(node.this, (exp.Star, exp.Literal)):
        return None
    expression = resolve(node.this, source.scope)
    check_row_local(expression)
    return expression


def _present_sql(counted: exp.Expr | None, types: Mapping[str, str]) -> str:
    """Returns the condition of the rows that a count counts, "" for all."""
    if counted is None:
        return ""
    return safe_sql(exp.Is(this=exp.Paren(this=counted.copy()), expression=exp.Null()).not_(), types)


def _units(source: RowSource, selected: list[_Output], alias: str) -> Units:
    outputs = tuple((one.sql, quote_identifier(one.column.name)) for one in selected if not one.counts)
    counts = tuple((one.condition, quote_identifier(one.column.name)) for one in selected if one.counts)
    unit = str(unit_sql(source))
    return Units(source_of(source, filtered=True), unit, (*outputs, (unit, PER_UNIT)), counts, alias)


def _sql(source: RowSource, selected: list[_Output]) -> str:
    types, unit = column_types(source), unit_sql(source)
    where = sorted({f"({safe_sql(condition, types)})" for condition in source.filters})
    conditions = " AND ".join((*where, f"{unit} IS NOT NULL"))
    listed = [f"{output.sql} AS {quote_identifier(output.column.name)}" for output in selected]
    outputs = ", ".join((*listed, f"{unit} AS {PER_UNIT}"))
    return f"(SELECT {outputs} FROM {from_sql(source)} WHERE {conditions} GROUP BY {unit})"
