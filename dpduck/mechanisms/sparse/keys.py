"""Keys of unbounded universes: one canonical text for each, computed by the same SQL for rows and for questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpduck.kernel.columns.keys import FOLDS
from dpduck.kernel.columns.keys import canonical_sql as canonical_text
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True)
class KeyPart:
    """One column of a key. sql: its SQL over the row source. collation: its collation, '' for plain texts."""

    sql: str
    name: str
    type_name: str
    collation: str = ""

    @property
    def folds(self) -> tuple[str, ...]:
        return tuple(rule for rule in self.collation.lower().split(".") if rule)


def require_type(name: str, type_name: str) -> None:
    """Refuses types in which equal values have different texts, or values have no exact text."""
    if not sql_type(type_name).has_canonical_text:
        raise Refusal(
            f"the column {name!r} is a {sql_type(type_name).word}, which has no canonical text",
            accepted="a key of texts, booleans, whole or decimal numbers, dates, times, timestamps without zone, "
            "UUIDs or ENUMs",
        )


def require_collation(part: KeyPart) -> None:
    """Refuses a collation unless a known function maps all texts that the collation treats as equal to one text."""
    if not set(part.folds) <= set(FOLDS):
        raise Refusal(
            f"the column {part.name!r} compares texts by the collation {part.collation!r}",
            accepted="a column without COLLATE, or with NOCASE or NOACCENT",
        )


def canonical_sql(values: Sequence[str], parts: Sequence[KeyPart]) -> str:
    """Returns SQL for a key's canonical text, from SQL for its values in the columns' own types."""
    listed = zip(values, parts, strict=True)
    return canonical_text([(value, part.type_name, part.folds) for value, part in listed])
