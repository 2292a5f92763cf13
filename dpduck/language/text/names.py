"""Names of tables and of released columns, with the names that dpduck reserves."""

from __future__ import annotations

import re
from collections.abc import Callable
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
"""Text in the column GROUPING_LEVEL for the total. In other rows of a view, the column lists the row's keys."""

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
    """Refuses names with a dot, because units, links and grants name columns as texts with dots between the parts.

    With dots, column "old.id" of orders and column "id" of "orders.old" would have one name. Rows of two people would
    be joined as rows of one person.
    """
    for name in names:
        if "." in name:
            raise Refusal(
                f"the name {name!r} has a dot, and cannot be told from others",
                accepted="a database, schema, table and privacy unit without one (ALTER TABLE .. RENAME ..)",
            )


def _numbered(word: str) -> Callable[[int], str]:
    """Returns a function that names an aggregate's column. Aggregates are numbered from 0, their columns from 1."""
    return lambda aggregate: f"{word}_{aggregate + 1}"


answer_column = _numbered("answer")  # noisy answers
stderr_column = _numbered("stderr")  # standard errors
margin_column = _numbered("margin")  # half the width of an interval, for the confidence of a read
low_column = _numbered("low")  # the lower end of an interval, for the confidence of a read
high_column = _numbered("high")  # the upper end of an interval, for the confidence of a read
lows_column = _numbered("lows")  # lower ends that depend on the answer, one for each interval of LEVELS
highs_column = _numbered("highs")  # upper ends that depend on the answer, one for each interval of LEVELS
raw_column = _numbered("raw")  # noisy counts before a summary's weights, or nonnegative, changed them
variance_column = _numbered("variance")  # in a summary, the variance that each row adds to a sum
chance_column = _numbered("chance")  # in a summary, the chance that a cell without rows would be as far from 0


def in_sql(listed: str) -> str:
    """Quotes the name of a listed table for SQL. A table with a policy has no dot in any part of its name."""
    return ".".join(map(quote_identifier, listed.split(".")))


def is_reserved(name: str) -> bool:
    """Tells whether a key of this name would be mistaken for a column that dpduck adds to a released table.

    >>> is_reserved("Answer_1"), is_reserved("answer")
    (True, False)
    """
    return _RESERVED.fullmatch(name) is not None
