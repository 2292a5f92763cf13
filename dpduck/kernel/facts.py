"""Facts of stored tables that the kernel asks for itself, in the transaction that counts.

They are the privacy unit of each table as its policy in force says it, which tables are public, the types of columns,
and which columns are keys. Whatever the language claims of a statement's tables is compared with them (check.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    wanted, found = list(dict.fromkeys(tables)), dict[str, TableFacts]()
    while wanted:
        table = wanted.pop()
        unit = declared.get(table)
        if table in found:
            continue
        if table not in declared:
            raise Refusal(CHANGED, accepted="the same statement again")
        if unit is not None and unit.reference is not None:
            wanted.append(unit.reference[1])
        types, (keys, collated, is_table, is_numbered) = _types(cursor, table), _constraints(cursor, table)
        is_numbered &= not any(name == "rowid" or is_reserved(name) for name in types)
        found[table] = TableFacts(unit, types, keys, collated, is_table, is_numbered)
    return found


def is_reserved(name: str) -> bool:
    """Tells whether a name is one of those that dpduck gives to what it adds."""
    return name.startswith(RESERVED)


def _declared(cursor: duckdb.DuckDBPyConnection, store: str) -> dict[str, UnitFacts | None]:
    """Returns the privacy units of all policies in force, by their tables, and None for each public table."""
    dpduck = f"{quote_identifier(store)}.dpduck"
    rows = cursor.execute(
        "SELECT table_name, true, json_extract(definition, '$.unit'), json_extract(definition, '$.reference') "
        f"FROM {dpduck}.policies WHERE active "
        f"UNION ALL SELECT table_name, false, NULL, NULL FROM {dpduck}.public_tables"
    ).fetchall()
    public: dict[str, UnitFacts | None] = {str(table): None for table, private, *_ in rows if not private}
    policies = [row for row in rows if row[1]]
    return public | {
        str(table): _unit(json.loads(unit), json.loads(reference or "null")) for table, _, unit, reference in policies
    }


def _unit(unit: list[object], reference: list[object] | None) -> UnitFacts:
    """Reads a unit as policies are stored: key, column, MAX ROWS, nothing, PER, and several columns."""
    key, column, _, _, period, several = (*unit, None, None, None)[:6]
    columns = tuple(map(str, several)) if isinstance(several, list) else (str(column),) if column else ()
    per = (str(period[0]), str(period[1])) if isinstance(period, list) else None
    if reference is None:
        return UnitFacts(str(key), columns, None, per)
    own, parent, parent_key = reference
    if not isinstance(parent, list):
        raise Refusal(CHANGED, accepted="the same statement again")
    return UnitFacts(
        str(key), (), (str(own), ".".join(quote_identifier(str(part)) for part in parent), str(parent_key)), per
    )


def _types(cursor: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    return {fold(str(row[0])): str(row[1]) for row in cursor.execute(f"DESCRIBE {table}").fetchall()}


def _constraints(cursor: duckdb.DuckDBPyConnection, table: str) -> tuple[frozenset[str], bool, bool, bool]:
    """Returns the columns that are keys of a table of DuckDB's own, and the last three facts of TableFacts."""
    parts = (f"""'"' || replace({part}_name, '"', '""') || '"'""" for part in ("database", "schema", "table"))
    named = " || '.' || ".join(parts)
    ascii_folded = "translate({}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')".format
    numbering = "SELECT database_name FROM duckdb_databases() WHERE type IN ('duckdb', 'ducklake')"
    of_this = f"{ascii_folded(named)} = {ascii_folded('$1')}"
    told = cursor.execute(
        "SELECT (SELECT list(constraint_column_names[1]) FROM duckdb_constraints() WHERE "
        f"{of_this} AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND len(constraint_column_names) = 1 AND "
        "database_name IN (SELECT database_name FROM duckdb_databases() WHERE type = 'duckdb')), "
        f"(SELECT bool_or(contains(upper(sql), ' COLLATE ')) FROM duckdb_tables() WHERE {of_this}), "
        "lower(current_setting('default_collation')) IN ('', 'binary'), "
        f"(SELECT bool_and(database_name IN ({numbering})) FROM duckdb_tables() WHERE {of_this})",
        [table],
    ).fetchone()
    keys, collated, binary, is_numbered = told or (None, None, False, None)
    known = frozenset(fold(str(name)) for name in keys or ())
    return known, collated is not False or not binary, is_numbered is not None, bool(is_numbered)
