"""Facts of stored tables that the kernel asks for itself, in the transaction that counts.

They are the privacy unit of each table as its policy in force says it, which tables are public, the types of columns,
and which columns are keys. Whatever the language claims of a statement's tables is compared with them (check.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier

RESERVED = "dpduck_"
"""No column begins so of a prepared table, or of one with numbered rows: what dpduck adds stands beside them."""

CHANGED = "a policy, a key or a public table changed meanwhile"


@dataclass(frozen=True)
class UnitFacts:
    """The privacy unit of a private table. key: its name in the ledger.

    columns: that hold it in each row, () where rows are units, or find it by a reference. reference: the column of a
    row, the table that it leads to, and the key there. period: the word and the column of PER, where the policy has it.
    """

    key: str
    columns: tuple[str, ...]
    reference: tuple[str, str, str] | None = None
    period: tuple[str, str] | None = None


@dataclass(frozen=True)
class TableFacts:
    """A stored table. unit: None of a public one. types: of its columns, by folded names. keys: of one column each.

    collated: whether a collation compares some of its texts. is_table: whether it is a table, and no view of others.
    is_numbered: whether rowid tells its rows apart, and neither a column of that name nor a worker's answer hides that.
    """

    unit: UnitFacts | None
    types: Mapping[str, str]
    keys: frozenset[str]
    collated: bool
    is_table: bool = True
    is_numbered: bool = True


Facts = Mapping[str, TableFacts]
"""Tables by their names in SQL."""


def read_facts(cursor: duckdb.DuckDBPyConnection, store: str, tables: Iterable[str]) -> Facts:
    """Returns the facts of tables, and of those that their references lead to. store: the name of the store."""
    declared = _declared(cursor, store)
    wanted, units = list(dict.fromkeys(tables)), dict[str, UnitFacts | None]()
    while wanted:
        table = wanted.pop()
        if table not in declared:
            raise Refusal(CHANGED, accepted="the same statement again")
        units[table] = unit = _unit(declared[table])
        if unit is not None and unit.reference is not None and unit.reference[1] not in units:
            wanted.append(unit.reference[1])
    listed, facts = _listed(cursor, units), dict[str, TableFacts]()
    for table, unit in units.items():
        types, (keys, collated, is_table, is_numbered) = _types(cursor, table), listed[fold(table)]
        is_numbered &= not any(name == "rowid" or is_reserved(name) for name in types)
        facts[table] = TableFacts(unit, types, keys, collated, is_table, is_numbered)
    return facts


def is_reserved(name: str) -> bool:
    """Tells whether a name is one of those that dpduck gives to what it adds."""
    return name.startswith(RESERVED)


def _declared(cursor: duckdb.DuckDBPyConnection, store: str) -> dict[str, str | None]:
    """Returns the policies in force, as they are stored, by their tables, and None for each public table."""
    dpduck = f"{quote_identifier(store)}.dpduck"
    public = cursor.execute(f"SELECT table_name FROM {dpduck}.public_tables").fetchall()
    private = cursor.execute(f"SELECT table_name, definition FROM {dpduck}.policies WHERE active").fetchall()
    return {str(table): None for (table,) in public} | {str(table): str(policy) for table, policy in private}


def _unit(definition: str | None) -> UnitFacts | None:
    """Reads the unit of a stored policy: key, column, MAX ROWS, nothing, PER, and several columns."""
    if definition is None:
        return None
    policy = json.loads(definition)
    key, column, _, _, period, several = (*policy["unit"], None, None, None)[:6]
    columns = tuple(map(str, several)) if isinstance(several, list) else (str(column),) if column else ()
    per = (str(period[0]), str(period[1])) if isinstance(period, list) else None
    if policy.get("reference") is None:
        return UnitFacts(str(key), columns, None, per)
    own, parent, parent_key = policy["reference"]
    if not isinstance(parent, list):
        raise Refusal(CHANGED, accepted="the same statement again")
    return UnitFacts(
        str(key), (), (str(own), ".".join(quote_identifier(str(part)) for part in parent), str(parent_key)), per
    )


def _types(cursor: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    return {fold(str(row[0])): str(row[1]) for row in cursor.execute(f"DESCRIBE {table}").fetchall()}


def _listed(
    cursor: duckdb.DuckDBPyConnection, tables: Iterable[str]
) -> dict[str, tuple[frozenset[str], bool, bool, bool]]:
    """Returns the columns that are keys of tables of DuckDB's own, and the last three facts of TableFacts.

    The catalog is read three times for all tables. One query over all of it would take three times as long.
    """
    select = "SELECT database_name, type, lower(current_setting('default_collation')) FROM duckdb_databases()"
    databases = {name: (kind, collation) for name, kind, collation in cursor.execute(select).fetchall()}
    listed = dict.fromkeys(map(fold, tables), (frozenset[str](), True, False, False))
    for table, database, is_collated in _named(cursor, "duckdb_tables()", "contains(upper(sql), ' COLLATE ')", listed):
        kind, default = databases.get(database, ("", ""))
        collated = is_collated is not False or default not in ("", "binary")
        listed[table] = frozenset(), collated, True, kind in ("duckdb", "ducklake")
    single = "CASE WHEN constraint_type IN ('PRIMARY KEY', 'UNIQUE') THEN constraint_column_names END"
    for table, database, columns in _named(cursor, "duckdb_constraints()", single, listed):
        if columns and len(columns) == 1 and databases.get(database, ("", ""))[0] == "duckdb":
            listed[table] = listed[table][0] | {fold(columns[0])}, *listed[table][1:]
    return listed


def _named(
    cursor: duckdb.DuckDBPyConnection, catalog: str, value: str, tables: Collection[str]
) -> list[tuple[str, str, Any]]:
    """Lists the rows of a catalog's function that are about tables: name of the table, its database, and a value."""
    plain = "translate(table_name, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ\"', 'abcdefghijklmnopqrstuvwxyz')"
    rows = cursor.execute(
        f"SELECT database_name, schema_name, table_name, {value} FROM {catalog} WHERE contains($1, {plain})",
        [" ".join(tables).replace('"', "")],
    ).fetchall()
    named = [(fold(".".join(map(quote_identifier, parts))), parts[0], found) for *parts, found in rows]
    return [row for row in named if row[0] in tables]
