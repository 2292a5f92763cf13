"""Names tables and released columns, and tells which names DuckDB reserves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier


@dataclass(frozen=True)
class TableName:
    """A table as written, one to three parts; `resolved` names have all three.

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
    if they were one's.
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
"""Of a private view over several grouping sets: the columns that a row is grouped by, as text; of the total."""

KNOWN_FROM = "known_from"
_RESERVED = re.compile(
    r"grouping_(id|set)|known_from|price_(epsilon|rho)|(answer|stderr|margin|raw|variance|chance|lows?|highs?)_\d+",
    re.IGNORECASE | re.ASCII,
)


def answer_column(aggregate: int) -> str:
    """Returns the noisy answer of an aggregate, counted from 0."""
    return f"answer_{aggregate + 1}"


def stderr_column(aggregate: int) -> str:
    """Names the column with an aggregate's standard errors."""
    return f"stderr_{aggregate + 1}"


def margin_column(aggregate: int) -> str:
    """Returns half the width of its interval; computed when the release is read, for the confidence that was asked."""
    return f"margin_{aggregate + 1}"


def lows_column(aggregate: int) -> str:
    """Names the lower ends of its intervals, where they depend on the answer: one for each of LEVELS."""
    return f"lows_{aggregate + 1}"


def highs_column(aggregate: int) -> str:
    """Names the upper ends of the same."""
    return f"highs_{aggregate + 1}"


def low_column(aggregate: int) -> str:
    """Returns the lower end for the confidence that was asked."""
    return f"low_{aggregate + 1}"


def high_column(aggregate: int) -> str:
    """Returns the upper end of the same."""
    return f"high_{aggregate + 1}"


def raw_column(aggregate: int) -> str:
    """Names the noisy count before it was moved: by a summary's estimator, or by the option nonnegative."""
    return f"raw_{aggregate + 1}"


def variance_column(aggregate: int) -> str:
    """Names a summary's column with what a row adds to the variance of a sum."""
    return f"variance_{aggregate + 1}"


def chance_column(aggregate: int) -> str:
    """Names a summary's column with the chance that a row of an empty cell is as far from 0."""
    return f"chance_{aggregate + 1}"


def in_sql(listed: str) -> str:
    """Returns the name of a table, as a listing shows it, in SQL: no part of one that has a policy has a dot."""
    return ".".join(map(quote_identifier, listed.split(".")))


def is_reserved(name: str) -> bool:
    """Tells whether a key of this name would be taken for one of the columns above.

    >>> is_reserved("Answer_1"), is_reserved("answer")
    (True, False)
    """
    return _RESERVED.fullmatch(name) is not None
