"""SELECT unit, count(..) .. GROUP BY unit inside FROM: one row of each privacy unit, with counts of its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.frontend.rows.expressions import safe_sql, sql_of
from dpduck.frontend.rows.facts import Clamp, Column
from dpduck.frontend.rows.functions import check_row_local
from dpduck.frontend.rows.parts import Units
from dpduck.frontend.rows.relation import PrivateRelation, Reading
from dpduck.frontend.rows.scope import Relation, Scope, base_column, resolve
from dpduck.frontend.rows.sql import base, column_types, from_sql, source_of, stored_sql, unit_sql
from dpduck.frontend.rows.tree import RowSource
from dpduck.frontend.text.names import fold, quote_identifier
from dpduck.frontend.text.positions import refusal
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.privacy import PrivacyUnit

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
    """The rows of units as a relation; a unit is one row in it, made of its own rows alone."""
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
    """The unit's column and counts. A count's domain is 0 .. m, and larger ones are in the last bin."""
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
    """The column of GROUP BY, which holds the unit of every row."""
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
    """The condition of the rows that a count counts, "" for all."""
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
