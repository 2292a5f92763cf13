"""Statements with conditions that the database's own process evaluates."""

from __future__ import annotations

import re

import duckdb

from dpduck.auditor.few_units import policies_of
from dpduck.auditor.neighbours import catalog_columns
from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.values.quoting import fold, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

_COMPARED = (
    "{c} = {v} OR {c} IS DISTINCT FROM {w}", "{c} >= {v} OR {c} IS DISTINCT FROM {v}", "{c} <> {v} OR {c} IS NULL",
    "{c} IS DISTINCT FROM {w} OR {c} < {v}", "NOT ({c} = {v}) OR {c} IS NOT DISTINCT FROM {w}", "NOT ({c} > {v})",
    "{c} BETWEEN {v} AND {w} OR {c} > {w}", "{c} IN ({v}, {w}) OR {c} IS NULL", "{c} <= {v}", "{c} = {v}",
    "({c} IS DISTINCT FROM {v} OR {c} < {w}) AND {c} IS NOT NULL", "NOT ({c} IS NOT DISTINCT FROM {v} AND {c} <= {w})",
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_TOLD = (
    "{c} IS NOT TRUE OR {c} IS FALSE", "{c} IS NOT FALSE OR {c}", "NOT {c} OR {c} IS NULL", "{c}", "NOT {c}",
    "{c} IS TRUE OR {c} IS DISTINCT FROM FALSE",
)  # fmt: skip

BRANCHES, MOST_COLUMNS = 6, 40
"""The most conditions of one statement, and the most columns of a table that get conditions."""


def condition_statements(twin: duckdb.DuckDBPyConnection, price_text: str) -> list[str]:
    """Lists statements with several conditions each, over every column of every table of a twin, at this price."""
    texts = []
    for table, policy in policies_of(twin).items():
        hidden = set(map(fold, policy.unit.own_columns))
        listed = ", ".join(map(quote_identifier, policy.unit.own_columns))
        for column in [item for item in catalog_columns(twin, table) if fold(item.name) not in hidden][:MOST_COLUMNS]:
            conditions = _conditions(twin, table, column)
            if listed:
                rows = [f"SELECT {listed} FROM {table.sql} WHERE {item}" for item in conditions]
                starts = range(0, len(rows), BRANCHES)
                texts += [f"FROM ({' UNION ALL '.join(rows[at : at + BRANCHES])})" for at in starts]
            else:  # a table with its rows as units stands in no UNION ALL
                texts += [f"FROM {table.sql} WHERE {item}" for item in conditions]
    clause = f"WITH DIFFERENTIAL_PRIVACY OPTIONS ({price_text}, refresh = '{{tag}}')"
    return [f"SELECT {clause} count(*) AS n {text}" for text in texts]


def _conditions(twin: duckdb.DuckDBPyConnection, table: TableName, column: CatalogColumn) -> list[str]:
    """Returns conditions that compare a column with its most frequent values among the made-up rows."""
    name = quote_identifier(column.name)
    if column.type_name == "BOOLEAN":
        return [form.format(c=name) for form in _TOLD]
    quoted = {"VARCHAR": "", "DATE": "DATE ", "TIMESTAMP": "TIMESTAMP "}.get(column.type_name)
    if quoted is None and not sql_type(column.type_name).is_numeric:
        return []
    common = f"SELECT CAST({name} AS VARCHAR) FROM {table.sql} WHERE {name} IS NOT NULL GROUP BY 1"
    rows = twin.execute(f"{common} ORDER BY count(*) DESC, 1 LIMIT 2").fetchall()
    numbers = [value for (value,) in rows if _NUMBER.fullmatch(value)]
    values = numbers if quoted is None else [quoted + quote_text(value) for (value,) in rows]
    return [form.format(c=name, v=values[0], w=values[-1]) for form in _COMPARED] if values else []
