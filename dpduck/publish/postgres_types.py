"""PostgreSQL's types for DuckDB's types. Every value arrives, nested values as jsonb."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

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
    "HUGEINT": ("numeric(38,0)", "DECIMAL(38,0)"),  # the type of sums: without a cast it would arrive as a double
    "TIMESTAMP_S": ("timestamp without time zone", "TIMESTAMP"),
    "TIMESTAMP_MS": ("timestamp without time zone", "TIMESTAMP"),
    "TIMESTAMP_NS": ("timestamp without time zone", "TIMESTAMP"),
}


@dataclass(frozen=True)
class PostgresColumn:
    """A column in PostgreSQL. cast: the type that DuckDB casts values to before it sends them, None for no cast."""

    name: str
    type_name: str
    cast: str | None

    @property
    def name_and_type(self) -> tuple[str, str]:
        return self.name, self.type_name

    @property
    def select_sql(self) -> str:
        """Writes SQL of the value to send, from a row with the name `released`."""
        value = f"released.{quote_identifier(self.name)}"
        if self.cast is None:
            return value
        return f"CAST(to_json({value}) AS VARCHAR)" if self.cast == "JSON" else f"CAST({value} AS {self.cast})"


def postgres_column(name: str, type_name: str) -> PostgresColumn:
    """Returns the column for a DuckDB type. ENUM, and types that PostgreSQL lacks, become text.

    >>> postgres_column("n", "UBIGINT").select_sql
    'CAST(released."n" AS DECIMAL(20,0))'
    """
    if type_name in _SAME:
        return PostgresColumn(name, _SAME[type_name], None)
    if type_name in _CAST:
        return PostgresColumn(name, *_CAST[type_name])
    kind = sql_type(type_name)
    if kind.has_parts:
        return PostgresColumn(name, "jsonb", "JSON")
    if kind.is_decimal:
        return PostgresColumn(name, f"numeric({kind.digits},{kind.scale})", None)
    return PostgresColumn(name, "text", "VARCHAR")
