"""DuckDB's types as PostgreSQL's: every value arrives, nested ones as jsonb."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpduck.frontend.names import quote_identifier

_SAME = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "UTINYINT": "smallint",
    "SMALLINT": "smallint",
    "USMALLINT": "integer",
    "INTEGER": "integer",
    "UINTEGER": "bigint",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "JSON": "jsonb",
    "BLOB": "bytea",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "INTERVAL": "interval",
    "UUID": "uuid",
}
_CAST = {
    "UBIGINT": ("numeric(20,0)", "DECIMAL(20,0)"),
    "HUGEINT": ("numeric(38,0)", "DECIMAL(38,0)"),  # the type of sums; as it is, it would arrive as a double
    "TIMESTAMP_S": ("timestamp without time zone", "TIMESTAMP"),
    "TIMESTAMP_MS": ("timestamp without time zone", "TIMESTAMP"),
    "TIMESTAMP_NS": ("timestamp without time zone", "TIMESTAMP"),
}
_NESTED = re.compile(r"^(STRUCT|MAP|UNION)\(|\[\d*\]$")
_DECIMAL = re.compile(r"^DECIMAL\((\d+),\s*(\d+)\)$")


@dataclass(frozen=True)
class PostgresColumn:
    """A column as it is in PostgreSQL. cast: what DuckDB makes of a value before it is sent; None for nothing."""

    name: str
    type_name: str
    cast: str | None

    @property
    def stored(self) -> tuple[str, str]:
        """What PostgreSQL knows of it."""
        return self.name, self.type_name

    @property
    def select_sql(self) -> str:
        """The value as it is sent, from a row that is named `released`."""
        value = f"released.{quote_identifier(self.name)}"
        if self.cast is None:
            return value
        return f"CAST(to_json({value}) AS VARCHAR)" if self.cast == "JSON" else f"CAST({value} AS {self.cast})"


def postgres_column(name: str, type_name: str) -> PostgresColumn:
    """The column for a DuckDB type; ENUM and what PostgreSQL lacks becomes text.

    >>> postgres_column("n", "UBIGINT").select_sql
    'CAST(released."n" AS DECIMAL(20,0))'
    """
    if type_name in _SAME:
        return PostgresColumn(name, _SAME[type_name], None)
    if type_name in _CAST:
        return PostgresColumn(name, *_CAST[type_name])
    if _NESTED.search(type_name):
        return PostgresColumn(name, "jsonb", "JSON")
    decimal = _DECIMAL.match(type_name)
    if decimal is not None:
        return PostgresColumn(name, f"numeric({decimal[1]},{decimal[2]})", None)
    return PostgresColumn(name, "text", "VARCHAR")
