"""SQL of a row source: FROM with its joins, a row's privacy unit, and the columns that tell a unit's rows apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.kernel.columns.expressions import Expression, Lookup
from dpduck.kernel.columns.expressions import RelationColumn as RowColumn
from dpduck.kernel.relations import Join, Source, Units
from dpduck.kernel.units import Referenced, person_of
from dpduck.language.rows.compiled import condition_of, program_of
from dpduck.language.rows.expressions import safe_sql, sql_of
from dpduck.language.rows.facts import PublicFacts, RequestRows
from dpduck.language.rows.joins import ANTI, SEMI, PublicJoin
from dpduck.language.rows.relation import PrivateRelation, comparable
from dpduck.language.rows.tree import (
    MOST_BRANCHES,
    MOST_FOUND,
    PrivateJoin,
    RowSource,
    require_free_names,
)
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import quote_identifier, quote_text

MAX_ROW_BOUND = 10**9


def base(alias: str, name: str) -> str:
    """Writes the SQL of a column of the row source."""
    return f"{quote_identifier(alias)}.{quote_identifier(name)}"


def plain_sql(node: exp.Expr) -> str:
    """Writes a column or a text literal as SQL. Refuses any other expression."""
    if isinstance(node, exp.Column):
        return base(node.table, node.name)
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise refusal(node, "an expression is refused here", "a column or a text")
    return quote_text(node.name)


@dataclass(frozen=True)
class Compiled:
    """Row source as a kernel node, and as SQL for digests and for DuckDB's binder."""

    source: Source
    from_sql: str  # the SQL after FROM, with the hidden joins that find the unit
    filters: tuple[str, ...]  # the conditions of the rows

    @property
    def where(self) -> list[str]:
        """Returns the conditions on the rows, each in brackets, to be combined with other conditions."""
        return [f"({condition})" for condition in self.filters]


def compile_rows(source: RowSource) -> Compiled:
    """Compiles a row source with its conditions."""
    sql, node = _tree(source)
    filters = tuple(sorted({safe_sql(condition, source.types) for condition in source.filters}))
    conditions = tuple(condition_of(text, source.columns) for text in filters)
    return Compiled(replace(node, filters=conditions), " ".join((sql, *_chain_sql(source.unit))), filters)


def _tree(source: RowSource) -> tuple[str, Source]:
    parts, joins = [_relation_sql(source.first)], list[Join]()
    for number, join in enumerate(source.joins):
        text, node = _public(join, source.columns) if isinstance(join, PublicJoin) else _private(source, number, join)
        parts.append(text)
        joins.append(node)
    return " ".join(parts), Source(source.first.node, tuple(joins))


def _public(join: PublicJoin, columns: Mapping[str, RowColumn]) -> tuple[str, Join]:
    keys = tuple(columns[base(join.alias, public)] for _, public in join.pairs)
    pairs = [_pair(private, key, columns) for (private, _), key in zip(join.pairs, keys, strict=True)]
    on = " AND ".join(text for text, _ in pairs)
    copies = 0 if join.kind in (SEMI, ANTI) else join.multiplicity
    node = Join(join.kind, Source(join.stored), tuple(pair for _, pair in pairs), copies, keys)
    return f"{join.kind} {join.stored.sql} AS {quote_identifier(join.alias)} ON {on}", node


def _pair(private: exp.Expr, key: RowColumn, columns: Mapping[str, RowColumn]) -> tuple[str, Expression]:
    """Returns the equality of a private expression and a public column: as SQL, and as a kernel expression.

    The private side is cast to the public type. TRY is outermost, because some casts raise even in TRY_CAST.
    """
    text = sql_of(private)
    column = columns.get(plain_sql(private)) if isinstance(private, exp.Column) else None
    same = column is not None and column.type_name == key.type_name
    sql = f"{text if same else f'try(try_cast({text} AS {key.type_name}))'} = {key.quoted_name}"
    if column is not None and (same or comparable(column.type_name, key.type_name)):
        return sql, condition_of(f"{column.quoted_name} = {key.quoted_name}", columns)
    return sql, Lookup(program_of(text, columns) if column is None else column, key)


def _private(source: RowSource, number: int, join: PrivateJoin) -> tuple[str, Join]:
    inner, right = _tree(join.source)
    texts = [_condition_sql(condition, source.types) for condition in join.conditions]
    sql = f"{join.kind} {f'({inner})' if join.source.joins else inner} ON {' AND '.join(texts)}"
    remaining = (text for text, item in zip(texts, join.conditions, strict=True) if item not in join.within)
    on = [*(condition_of(text, source.columns) for text in remaining), *([] if join.period is None else [join.period])]
    nested, several = join.source.first.subquery_node, bool(join.source.private_joins)
    one_row = isinstance(nested, Units) and not nested.windowed
    if not source.multiplies(number) or (one_row and not several):
        return sql, Join(join.kind, right, tuple(on))
    cut = source.first if several else join.source.first
    by = (base(item.alias, name) for pair in join.equal for item, name in pair if item.alias == cut.alias)
    keys = tuple(source.columns[name] for name in dict.fromkeys(by))
    content = tuple(source.columns[base(cut.alias, column.name)] for column in cut.columns)
    return sql, Join(join.kind, right, tuple(on), source.rows_for_a_key, keys, content, several)


def _relation_sql(relation: PrivateRelation) -> str:
    return f"{relation.sql} AS {quote_identifier(relation.alias)}"


def _condition_sql(condition: exp.Expr, types: Mapping[str, str]) -> str:
    """Writes a condition of ON that cannot raise. An equality of keys stays plain, so that DuckDB can hash keys."""
    return " = ".join(equality_keys(condition, types)) or safe_sql(condition, types)


def equality_keys(condition: exp.Expr, types: Mapping[str, str]) -> list[str]:
    """Returns both columns of an equality of two columns with comparable types, an empty list for other conditions."""
    node = condition.unnest()
    sides = [side.unnest() for side in (node.left, node.right)] if isinstance(node, exp.EQ) else []
    columns = [plain_sql(side) for side in sides if isinstance(side, exp.Column)]
    return columns if len(columns) == 2 and comparable(*(types[column] for column in columns)) else []


def with_units_sql(relation: PrivateRelation) -> str:
    """Writes a relation with the unit of each of its rows. The unit is NULL for a row without a parent."""
    return " ".join([_relation_sql(relation), *(f"LEFT {part}" for part in _chain_sql(relation.unit))])


def _chain_sql(unit: Expression | None) -> list[str]:
    """Lists the joins along the references of a unit. Rows without a parent belong to nobody."""
    person, parts = person_of(unit), list[str]()
    if isinstance(person, Referenced):
        reference = person.reference
        for step in person.steps:
            alias = quote_identifier(step.key.relation)
            parts.append(f"JOIN {step.table} AS {alias} ON {reference.quoted_name} = {step.key.quoted_name}")
            reference = step.reference or reference
    return parts


def _content(source: RowSource) -> list[str]:
    """Lists the columns that tell the rows of a unit apart. Their values depend on the row alone.

    A public table with one row for each key adds no column. Nor does the table of a SEMI or ANTI JOIN.
    """
    columns = [base(source.first.alias, column) for column in source.first.row_key]
    for join in source.joins:
        if join.kind in (SEMI, ANTI):
            continue
        if isinstance(join, PrivateJoin):
            columns += _content(join.source)
        elif join.multiplicity > 1:
            columns += [base(join.alias, column.name) for column in join.columns]
    return columns


def places_sql(source: RowSource) -> list[str]:
    """Lists the SQL of every relation, private or public, under its alias and without joins."""
    named = [_relation_sql(relation) for relation in source.relations]
    return named + [f"{join.stored.sql} AS {quote_identifier(join.alias)}" for join in source.public_joins]


def bound_type(node: exp.Expr, source: RowSource, facts: PublicFacts) -> str:
    """Returns the type of an expression over the row source, as DuckDB binds it over empty tables."""
    sql = f"SELECT {sql_of(node)} FROM {', '.join(places_sql(source))}"
    (column,) = facts.bind(sql, source.every_table)
    return column.type_name


def written_conditions(source: RowSource) -> list[exp.Expr]:
    """Lists the statement's expressions over rows: in joins, in filters and in columns computed for each unit."""
    expressions = [*source.filters, *source.counted]
    for join in source.joins:
        if isinstance(join, PublicJoin):
            expressions += [private for private, _ in join.pairs]
        else:
            expressions += [*join.conditions, *written_conditions(join.source)]
    return expressions


def rows_of(source: RowSource, facts: PublicFacts, max_rows: int, place: exp.Expr) -> RequestRows:
    """Builds the RequestRows of a source, with at most `max_rows` rows of each unit. place: for refusals."""
    policy, compiled = source.policy, compile_rows(source)
    unit_bound = max_rows if policy.unit.column is not None else source.copies
    if source.join_factor > MOST_FOUND or source.leaves > MOST_BRANCHES:
        raise refusal(
            place, "too many tables are united, or joined inside of UNION ALL", f"at most {MOST_BRANCHES}, fewer joins"
        )
    if unit_bound > MAX_ROW_BOUND:
        raise refusal(
            place, f"one row may be multiplied {unit_bound} times by the joins", "joins on keys that repeat less"
        )
    for branch in (source, *source.all_branches):
        if branch.joins or isinstance(branch.first.person, Referenced) or branch.first.subquery_node is not None:
            require_free_names((column.name for column in branch.columns.values()), place)
    tables = dict.fromkeys((source.table, *(read.table for read in source.reads), *source.every_table))
    public = sorted({join.table for join in source.every_public_join}, key=lambda table: table.parts)
    return RequestRows(
        table=source.table,
        revision=policy.revision,
        epoch=policy.epoch,
        from_sql=compiled.from_sql,
        filters=compiled.filters,
        unit_key=policy.unit.key,
        max_rows=max_rows,
        unit_bound=unit_bound,
        content_sql=tuple(sorted(_content(source))),
        public_digests=tuple((table, facts.public_digest(table)) for table in public),
        reads=source.reads,
        shapes=tuple((table, facts.columns(table), facts.has_collations(table)) for table in tables),
        source=replace(compiled.source, filters=()),
        unit=source.unit,
        columns=source.columns,
    )
