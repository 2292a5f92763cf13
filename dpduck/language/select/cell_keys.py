"""Keys of stored tables, such as UNIQUE (unit, day): in a statement by day, a unit has at most one row in a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpduck.language.rows.facts import PublicFacts, SourceColumn
from dpduck.language.rows.relation import PrivateRelation
from dpduck.language.rows.sql import base
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.request import SelectRequest
from dpduck.values.domain import tells_values_apart
from dpduck.values.sqltypes import sql_type


def with_cell_key(request: SelectRequest, source: RowSource, facts: PublicFacts) -> SelectRequest:
    """Adds the shortest UNIQUE key of the table that consists of the unit and of grouping columns alone.

    UNIQUE lets NULL repeat, but a row without a unit, or with a NULL in the key, is dropped: no column of the key has a
    DOMAIN with NULL here. A column with bins does not qualify, because a bin holds several values.
    """
    relation, question = source.first, request.question
    unit = relation.unit_column
    keys = [] if unit is None or relation.subquery_node is not None else [key for key in relation.keys if unit in key]
    plain = not source.joins and question.selection is None and question.summary is None
    if unit is None or not keys or not plain or not question.tells_keys_apart or facts.has_collations(relation.table):
        return request
    columns = {unit, *_columns_told_apart(relation, question.sources)}
    cell_keys = [key for key in keys if columns.issuperset(key)]
    if not cell_keys or not sql_type(relation.type_of(unit)).has_one_form:
        return request
    return replace(request, rows=replace(request.rows, cell_key=min(cell_keys, key=len)))


def _columns_told_apart(relation: PrivateRelation, keys: Sequence[SourceColumn]) -> set[str]:
    """Returns the names of a table's grouping columns that have one value in each group."""
    domains = {key.sql: key.domain for key in keys}
    columns = ((column, domains.get(base(relation.alias, column.name))) for column in relation.columns)
    return {
        column.name for column, domain in columns if domain is not None and tells_values_apart(domain, column.type_name)
    }
