"""Items of a draft that are left to the owner: suggestions, or comments to fill in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpduck.language.rows.facts import CatalogColumn
from dpduck.owner.draft_remarks import MOST_NAMES, TODO, name_in_comment, remark_lines
from dpduck.owner.draft_schema import Schema
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

LISTS = (
    "A column can be grouped by once its values are declared. Only what anybody could know without the rows: code "
    "books, laws, calendars. Fill in, take the -- off, or leave out."
)
COMPARED = (
    "Neither grouped by nor added up, being keys or of other types. WHERE can compare them, as in id = 7, or ask for "
    "IS NULL:"
)
OTHERS = (
    "Of types that statements cannot look into. Only IS NULL in WHERE and count(column) take them; a part of them "
    "needs a column of its own:"
)
NUMBERS = "Whole numbers that are codes take a list, too: IN (1, 2) in place of RANGE."

TEXTS = (
    "Dates and amounts that are texts take no RANGE and no CLAMP. Before there is a policy, dp_check names their "
    "format and the ALTER TABLE that converts them."
)

ROWS = "EXPECT ROWS: a guess at the number of rows that may be public; dp_explain compares noise with it."


@dataclass(frozen=True)
class Suggested:
    """Suggestions in place of items that would be TODOs. said: their basis and their cost.

    unit, budget: clauses. columns: for each name, a remark and items, or a remark why there are no items. rows: EXPECT
    ROWS.
    """

    said: str
    unit_why: str
    unit: str
    unit_column: str
    budget: str
    columns: Mapping[str, tuple[str, Sequence[str]]]
    rows: int | None


def items_for_owner(schema: Schema, done: set[str], given: Suggested | None) -> Iterator[str]:
    """Yields items for each column without a declaration: suggestions, or comments with TODO in them."""
    listed = any(sql_type(candidate.type_name).is_whole and candidate.name not in done for candidate in schema.columns)
    texts = any(candidate.type_name == "VARCHAR" and candidate.name not in done for candidate in schema.columns)
    yield from remark_lines(" ".join([LISTS, *([NUMBERS] if listed else []), *([TEXTS] if texts else [])]))
    suggested = {} if given is None else given.columns
    unused = list[tuple[str, bool]]()
    for column in schema.columns:
        if column.name in done or sql_type(column.type_name).lists_its_values:
            continue
        items = list(open_items(column, schema))
        unused += [] if items else [(column.name, sql_type(column.type_name).is_plain)]
        why, offers = suggested.get(column.name, ("", ()))
        yield from remark_lines(f"{name_in_comment(column.name)}: {why}") if why else ()
        yield from (f"    {item}" for item in offers)
        yield from () if offers else (f"    -- {item}" for item in items)
    yield from remark_lines(ROWS)
    yield f"    EXPECT ROWS {given.rows}," if given is not None and given.rows else f"    -- EXPECT ROWS {TODO},"
    compared = [name for name, comparable in unused if comparable]
    others = [name for name, comparable in unused if not comparable]
    if compared:
        yield from remark_lines(f"{COMPARED} {_names(compared)}.")
    if others:
        yield from remark_lines(f"{OTHERS} {_names(others)}.")


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(name_in_comment, columns[:MOST_NAMES])) + (", .." if len(columns) > MOST_NAMES else "")


def open_items(column: CatalogColumn, schema: Schema) -> Iterator[str]:
    """Yields the items that a column of this type can have, with TODO in them. Keys and references have none."""
    name, null = name_in_comment(column.name), schema.null(column.name)
    if schema.is_key(column.name) or any(fold(column.name) == fold(link[0]) for link in schema.links):
        return
    if column.type_name == "VARCHAR":
        yield f"DOMAIN {name} IN ('{TODO}', '{TODO}'){null} WITH OTHER,"
    elif sql_type(column.type_name).is_moment:
        yield f"DOMAIN {name} RANGE {TODO} TO {TODO} STEP MONTH{null} WITH EDGES,"
    elif sql_type(column.type_name).is_numeric:
        yield f"DOMAIN {name} RANGE {TODO} TO {TODO} STEP {TODO}{null} WITH EDGES,"
        yield f"CLAMP {name} BETWEEN {TODO} AND {TODO},"
