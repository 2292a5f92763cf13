"""Facts of stored tables. The kernel reads them itself, in the transaction that counts.

The language's claims about a statement's tables are compared with these facts (check.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from dpduck.kernel.rows.stand_ins import TABLES
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier

RESERVED = "dpduck_"
"""Prefix of columns that dpduck adds. Prepared tables, and tables with numbered rows, have no such column else."""

CHANGED = "a policy, a key or a public table changed meanwhile"


@dataclass(frozen=True)
class PolicyUnit:
    """Privacy unit of a private table. key: its name in the ledger.

    columns: columns that hold the unit, () if each row is a unit or finds its unit by a reference. reference: the
    column of a row, the table that it leads to, and the key there. period: word and column of PER, None without PER.
    """

    key: str
    columns: tuple[str, ...]
    reference: tuple[str, str, str] | None = None
    period: tuple[str, str] | None = None


@dataclass(frozen=True)
class TableFacts:
    """Stored table. unit: None if it is public. types: types of columns by folded names. keys: keys of one column each.

    collated: whether a collation compares some of its texts. is_table: whether it is a table and not a view.
    is_numbered: whether rowid identifies its rows, and no column has the name rowid or a reserved name.
    """

    unit: PolicyUnit | None
    types: Mapping[str, str]
    keys: frozenset[str]
    collated: bool
    is_table: bool = True
    is_numbered: bool = True


Facts = Mapping[str, TableFacts]
"""Tables by their names in SQL."""


def read_facts(cursor: duckdb.DuckDBPyConnection, store: str, tables: Iterable[str]) -> Facts:
    """Reads the facts of tables, and of the tables that their references lead to. store: name of the store."""
    declared = _read_policies(cursor, store)
    wanted, units = list(dict.fromkeys(tables)), dict[str, PolicyUnit | None]()
    while wanted:
        table = wanted.pop()
        if table not in declared:
            raise Refusal(CHANGED, accepted="the same statement again")
        units[table] = unit = _unit(declared[table])
        if unit is not None and unit.reference is not None and unit.reference[1] not in units:
            wanted.append(unit.reference[1])
    catalog, facts = _read_catalog(cursor, units), dict[str, TableFacts]()
    for table, unit in units.items():
        types, (keys, collated, is_table, is_numbered) = _types(cursor, table), catalog[fold(table)]
        is_numbered &= not any(name == "rowid" or is_reserved(name) for name in types)
        facts[table] = TableFacts(unit, types, keys, collated, is_table, is_numbered)
    return facts


def is_reserved(name: str) -> bool:
    """Tells whether a name begins like the columns that dpduck adds."""
    return name.startswith(RESERVED)


def _read_policies(cursor: duckdb.DuckDBPyConnection, store: str) -> dict[str, str | None]:
    """Reads the stored text of each table's policy in force, and None for each public table."""
    dpduck = f"{quote_identifier(store)}.dpduck"
    rows = cursor.execute(
        f"SELECT table_name, definition FROM {dpduck}.policies WHERE active "
        f"UNION ALL SELECT table_name, NULL FROM {dpduck}.public_tables"
    ).fetchall()
    public = {str(table): None for table, definition in rows if definition is None}
    return public | {str(table): str(definition) for table, definition in rows if definition is not None}


def _unit(definition: str | None) -> PolicyUnit | None:
    """Reads the unit of a stored policy. Its parts: key, column, MAX ROWS, one unused, PER, a list of columns."""
    if definition is None:
        return None
    policy = json.loads(definition)
    key, column, _, _, period, several = (*policy["unit"], None, None, None)[:6]
    columns = tuple(map(str, several)) if isinstance(several, list) else (str(column),) if column else ()
    per = (str(period[0]), str(period[1])) if isinstance(period, list) else None
    if policy.get("reference") is None:
        return PolicyUnit(str(key), columns, None, per)
    start, parent, parent_key = policy["reference"]
    if not isinstance(parent, list):
        raise Refusal(CHANGED, accepted="the same statement again")
    return PolicyUnit(
        str(key), (), (str(start), ".".join(quote_identifier(str(part)) for part in parent), str(parent_key)), per
    )


def _types(cursor: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    return {fold(str(row[0])): str(row[1]) for row in cursor.execute(f"DESCRIBE {table}").fetchall()}


def _read_catalog(
    cursor: duckdb.DuckDBPyConnection, tables: Iterable[str]
) -> dict[str, tuple[frozenset[str], bool, bool, bool]]:
    """Reads keys of tables and the last three fields of TableFacts. One query with joins would take thrice as long."""
    select = "SELECT database_name, type, lower(current_setting('default_collation')) FROM duckdb_databases()"
    databases = {name: (kind, collation) for name, kind, collation in cursor.execute(select).fetchall()}
    listed = dict.fromkeys(map(fold, tables), (frozenset[str](), True, False, False))
    collations = _catalog_rows(cursor, TABLES, "contains(upper(sql), ' COLLATE ')", listed)
    for table, database, is_collated in collations:
        kind, default = databases.get(database, ("", "unknown"))
        collated = is_collated is not False or default not in ("", "binary")
        listed[table] = frozenset(), collated, True, kind in ("duckdb", "ducklake")
    single = "CASE WHEN constraint_type IN ('PRIMARY KEY', 'UNIQUE') THEN constraint_column_names END"
    for table, database, columns in _catalog_rows(cursor, "duckdb_constraints()", single, listed):
        if columns and len(columns) == 1 and databases.get(database, ("", "unknown"))[0] == "duckdb":
            listed[table] = listed[table][0] | {fold(columns[0])}, *listed[table][1:]
    return listed


def _catalog_rows(
    cursor: duckdb.DuckDBPyConnection, catalog: str, expression: str, tables: Collection[str]
) -> list[tuple[str, str, Any]]:
    plain = "translate(table_name, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ\"', 'abcdefghijklmnopqrstuvwxyz')"
    rows = cursor.execute(
        f"SELECT database_name, schema_name, table_name, {expression} FROM {catalog} WHERE contains($1, {plain})",
        [" ".join(tables).replace('"', "")],
    ).fetchall()
    named = [(fold(".".join(map(quote_identifier, parts))), parts[0], fact) for *parts, fact in rows]
    return [row for row in named if row[0] in tables]
