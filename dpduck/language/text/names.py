"""Names of tables and of released columns, with the names that dpduck reserves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier

PRICE_EPSILON, PRICE_RHO = "price_epsilon", "price_rho"
HOLE = "dpduck_released_table"
RELEASED = "released"
GROUPING_ID = "grouping_id"
GROUPING_SET = "grouping_set"
GROUPING_LEVEL = "grouping_level"
TOTAL = "()"
"""GROUPING_LEVEL lists a row's keys as text, in a private view over several grouping sets. TOTAL marks the total."""

KNOWN_FROM = "known_from"
_RESERVED = re.compile(
    r"grouping_(id|set)|known_from|price_(epsilon|rho)|(answer|stderr|margin|raw|variance|chance|lows?|highs?)_\d+",
    re.IGNORECASE | re.ASCII,
)


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


def answer_column(aggregate: int) -> str:
    """Returns the name of the column with the noisy answers of an aggregate. Aggregates are counted from 0."""
    return f"answer_{aggregate + 1}"


def stderr_column(aggregate: int) -> str:
    """Returns the name of the column with an aggregate's standard errors."""
    return f"stderr_{aggregate + 1}"


def margin_column(aggregate: int) -> str:
    """Returns the name of the column with half an interval's width, computed for the confidence of each read."""
    return f"margin_{aggregate + 1}"


def lows_column(aggregate: int) -> str:
    """Returns the name of the column with lower ends that depend on the answer: one for each interval of LEVELS."""
    return f"lows_{aggregate + 1}"


def highs_column(aggregate: int) -> str:
    """Returns the name of the column with upper ends that depend on the answer: one for each interval of LEVELS."""
    return f"highs_{aggregate + 1}"


def low_column(aggregate: int) -> str:
    """Returns the name of the column with the lower end of an interval, for the confidence of a read."""
    return f"low_{aggregate + 1}"


def high_column(aggregate: int) -> str:
    """Returns the name of the column with the upper end of an interval, for the confidence of a read."""
    return f"high_{aggregate + 1}"


def raw_column(aggregate: int) -> str:
    """Returns the name of the column with noisy counts before a summary's weights, or nonnegative, changed them."""
    return f"raw_{aggregate + 1}"


def variance_column(aggregate: int) -> str:
    """Returns the name of a summary's column with the variance that each row adds to a sum."""
    return f"variance_{aggregate + 1}"


def chance_column(aggregate: int) -> str:
    """Returns the name of a summary's column with the chance that a cell without rows would be as far from 0."""
    return f"chance_{aggregate + 1}"


def in_sql(listed: str) -> str:
    """Quotes a table's name from a listing for SQL. A table with a policy has no dot in any part of its name."""
    return ".".join(map(quote_identifier, listed.split(".")))


def is_reserved(name: str) -> bool:
    """Tells whether a key of this name would be mistaken for one of the columns above.

    >>> is_reserved("Answer_1"), is_reserved("answer")
    (True, False)
    """
    return _RESERVED.fullmatch(name) is not None
