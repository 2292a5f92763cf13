"""Names of tables and of released columns, with the names that dpduck reserves."""

from __future__ import annotations

import re
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

    Columns "old.id" of orders and "id" of "orders.old" would have one name, and rows of two people would be joined as
    rows of one person.
    """
    for name in names:
        if "." in name:
            raise Refusal(
                f"the name {name!r} has a dot, and cannot be told from others",
                accepted="a database, schema, table and privacy unit without one (ALTER TABLE .. RENAME ..)",
            )


# Names of a released table's columns, shared by the SQL that reads it and by the code that writes it.

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


def answer_column(aggregate: int) -> str:
    """Names the column with the noisy answer of an aggregate. Aggregates are counted from 0."""
    return f"answer_{aggregate + 1}"


def stderr_column(aggregate: int) -> str:
    """Names the column with an aggregate's standard errors."""
    return f"stderr_{aggregate + 1}"


def margin_column(aggregate: int) -> str:
    """Names the column with half an interval's width, computed at each read for the requested confidence."""
    return f"margin_{aggregate + 1}"


def lows_column(aggregate: int) -> str:
    """Names the lower ends of an aggregate's intervals if they depend on the answer, one for each of LEVELS."""
    return f"lows_{aggregate + 1}"


def highs_column(aggregate: int) -> str:
    """Names the upper ends of an aggregate's intervals if they depend on the answer, one for each of LEVELS."""
    return f"highs_{aggregate + 1}"


def low_column(aggregate: int) -> str:
    """Names the lower end of an aggregate's interval for the requested confidence."""
    return f"low_{aggregate + 1}"


def high_column(aggregate: int) -> str:
    """Names the upper end of an aggregate's interval for the requested confidence."""
    return f"high_{aggregate + 1}"


def raw_column(aggregate: int) -> str:
    """Names the column with the noisy count before a summary's estimator, or the option nonnegative, moved it."""
    return f"raw_{aggregate + 1}"


def variance_column(aggregate: int) -> str:
    """Names a summary's column with the variance that a row adds to a sum."""
    return f"variance_{aggregate + 1}"


def chance_column(aggregate: int) -> str:
    """Names a summary's column with the chance that a row of an empty cell would be as far from 0."""
    return f"chance_{aggregate + 1}"


def in_sql(listed: str) -> str:
    """Writes the listed name of a table in SQL. A table with a policy has no dot in any part of its name."""
    return ".".join(map(quote_identifier, listed.split(".")))


def is_reserved(name: str) -> bool:
    """Tells whether a key of this name would be mistaken for one of the columns above.

    >>> is_reserved("Answer_1"), is_reserved("answer")
    (True, False)
    """
    return _RESERVED.fullmatch(name) is not None
