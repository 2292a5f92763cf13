"""Finds keys of stored tables by which a unit has one row in a cell at most, as UNIQUE (unit, day) by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpduck.frontend.rows.facts import PublicFacts, SourceColumn
from dpduck.frontend.rows.relation import PrivateRelation
from dpduck.frontend.rows.sql import base
from dpduck.frontend.rows.tree import RowSource
from dpduck.frontend.select.request import Request
from dpduck.values.domain import has_one_form, tells_values_apart


def with_cell_key(request: Request, source: RowSource, facts: PublicFacts) -> Request:
    """Returns the request with the shortest key of its table that holds the unit, and else grouping columns alone.

    UNIQUE lets NULL repeat. Rows without a unit are dropped, and so are rows with a NULL key, since no column of the
    key has a DOMAIN with NULL here. A bin of a range holds several values, and so it is no such column.
    """
    relation = source.first
    unit = relation.unit
    apart = unit is not None and not source.joins and relation.nested is None and not relation.together
    if unit is None or not apart or not request.question.tells_keys_apart or facts.has_collations(relation.table):
        return request
    told = {unit, *_columns_told_apart(relation, request.question.sources)}
    found = [key for key in relation.keys if unit in key and told.issuperset(key)]
    if not found or not has_one_form(relation.type_of(unit)):
        return request
    return replace(request, rows=replace(request.rows, cell_key=min(found, key=len)))


def _columns_told_apart(relation: PrivateRelation, keys: Sequence[SourceColumn]) -> set[str]:
    """Returns the columns of a table that are grouping columns with one value in each group."""
    domains = {key.sql: key.domain for key in keys}
    columns = ((column, domains.get(base(relation.alias, column.name))) for column in relation.columns)
    return {
        column.name for column, domain in columns if domain is not None and tells_values_apart(domain, column.type_name)
    }
