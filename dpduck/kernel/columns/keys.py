"""Keys without a declared domain. Each has one canonical text. The same SQL writes it for rows and for questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpduck.kernel.columns.expressions import Expression, Names, RelationColumn, columns_of, require
from dpduck.kernel.columns.stored import text_sql

FOLDS = {"nocase": "lower", "noaccent": "strip_accents"}
"""Functions that turn all texts that a collation equates into one text."""


@dataclass(frozen=True)
class KeyTextPart:
    """A column of a key. folds: the parts of its collation, () for plain texts."""

    column: RelationColumn
    folds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(all(fold in FOLDS for fold in self.folds))


@dataclass(frozen=True)
class KeyText(Expression):
    """The canonical text of a row's key, NULL if a part is NULL."""

    parts: tuple[KeyTextPart, ...]

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return columns_of(part.column for part in self.parts)

    def write(self, names: Names) -> str:
        return canonical_sql([(names(part.column), part.column.type_name, part.folds) for part in self.parts])


def canonical_sql(values: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """Writes the text of a key, NULL if a value is NULL. Several values form netstrings: no two keys share a text."""
    texts = [_text(*value) for value in values]
    if len(texts) == 1:
        return texts[0]
    return " || ',' || ".join(f"strlen({text}) || ':' || {text}" for text in texts)


def _text(value: str, type_name: str, folds: Sequence[str]) -> str:
    text = value if type_name == "VARCHAR" else text_sql(value, type_name)
    for fold in folds:
        text = f"{FOLDS[fold]}({text})"
    return f"({text})"
