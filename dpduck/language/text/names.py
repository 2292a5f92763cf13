"""Names of tables and of released columns, with the names that dpduck reserves."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier


@dataclass(frozen=True)
class TableName:
    """Name of a table as written, with one to three parts. Resolved names have all three.

    >>> TableName(("clinic", "main", "visits")).sql
    '"clinic"."main"."visits"'
    """

    parts: tuple[str, ...]

    @property
    def sql(self) -> str:
        return ".".join(quote_identifier(part) for part in self.parts)

    @property
    def table(self) -> str:
        return self.parts[-1]

    def __str__(self) -> str:
        return ".".join(self.parts)


def require_plain_names(*names: str) -> None:
    """Refuses names with a dot: units, links and grants name columns as texts with dots between the parts.

    With dots, column "old.id" of orders and column "id" of "orders.old" would have one name. Rows of two people would
    be joined as rows of one person.
    """
    for name in names:
        if "." in name:
            raise Refusal(
                f"the name {name!r} has a dot, and cannot be told from others",
                accepted="a database, schema, table and privacy unit without one (ALTER TABLE .. RENAME ..)",
            )
