"""Draft of a privacy policy from the schema alone: names, types, keys, checks and public tables.

No row is read, and no statistics that DuckDB keeps about rows. A fact that only the owner can know becomes a TODO with
a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.language.text.names import TableName
from dpduck.owner.policy_text import Home, name_text, table_text
from dpduck.store.catalog import Catalog
from dpduck.values.quoting import fold, quote_text
from dpduck.values.sqltypes import sql_type

TODO = "TODO"
_WIDTH = 100
_PERSON = re.compile(
    r"(person|people|patient|customer|client|user|member|employee|student|pupil|household|subscriber|citizen|resident|"
    r"passenger|voter|taxpayer|patron|donor|tenant|guest|driver|rider|player|visitor|respondent|participant)s?"
    r"(_?(id|key|no|nr|num|number|code|uuid))?|ssn|pid|uid|nino",
    re.IGNORECASE,
)
"""Names of columns that often identify the protected person."""

_MANY = 40
"""Most columns that one remark names."""

WHO = (
    "who is protected? All rows with one value of this column are protected together: name the column that "
    "identifies a person. PRIVACY UNIT ROW, without MAX ROWS, protects single rows: take it only if no person has two."
)
MOST = (
    "MAX ROWS is the most rows of one unit that an answer sees; others are left out. Be generous, as with 100 or 1000, "
    "if the budget has a delta or is in rho: max_norm_contributed bounds the noise of a statement there, not MAX "
    "ROWS. Type it in OPTIONS if a statement has fewer than 20 groups. In a budget of epsilon alone more rows add "
    "noise to every answer. dp_check tells the owner what several would drop, and with a statement what norms leave "
    "out; do not copy the data's own maximum."
)
BUDGET = (
    "epsilon is all that answers together may ever reveal of one unit. 1 is strong, 10 is weak; with "
    "delta = 1e-6 beside it many answers cost less than their sum. What is spent does not come back."
)
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

TEXTS = "Dates and amounts that are texts take no RANGE and no CLAMP: convert them in the file first."

ROWS = "EXPECT ROWS: a guess at the number of rows that may be public; dp_explain compares noise with it."


@dataclass(frozen=True)
class Constraint:
    """Constraint of a table. kind: 'PRIMARY KEY', 'UNIQUE', 'NOT NULL', 'FOREIGN KEY' or 'CHECK'.

    references, referenced: for a FOREIGN KEY, the other table in the same schema, and its columns. check: CHECK's SQL.
    """

    kind: str
    columns: tuple[str, ...]
    references: str
    referenced: tuple[str, ...]
    check: str


def constraints(cursor: duckdb.DuckDBPyConnection, table: TableName) -> list[Constraint]:
    """Returns the constraints that DuckDB has for the columns of a table, in the order of their declaration."""
    names = ", ".join(map(quote_text, table.parts))
    rows = cursor.execute(
        "SELECT constraint_type, constraint_column_names, coalesce(referenced_table, ''), "
        "coalesce(referenced_column_names, []), coalesce(expression, '') FROM duckdb_constraints() WHERE "
        f"(lower(database_name), lower(schema_name), lower(table_name)) = ({names.lower()}) ORDER BY constraint_index"
    ).fetchall()
    return [Constraint(row[0], tuple(row[1]), row[2], tuple(row[3]), row[4]) for row in rows]


@dataclass(frozen=True)
class Schema:
    """Declared facts of one table. links: FOREIGN KEYs of one column: the column, the other table, and its column."""

    table: TableName
    columns: tuple[CatalogColumn, ...]
    keys: frozenset[str]
    required: frozenset[str]
    checks: tuple[Constraint, ...]
    links: tuple[tuple[str, TableName, str], ...]
    home: Home

    def is_key(self, column: str) -> bool:
        """Tells whether the values of a column are unique."""
        return fold(column) in self.keys

    def null(self, column: str) -> str:
        """Returns " WITH NULL" if a column may hold NULL, so that rows with NULL are in a cell. Otherwise ""."""
        return "" if fold(column) in self.required else " WITH NULL"


@dataclass(frozen=True)
class Suggested:
    """Suggestions in place of items that would be TODOs. said: their basis and their cost.

    unit, budget: clauses. columns: by name, a remark and items, or a remark why there are none. rows: EXPECT ROWS.
    """

    said: str
    unit_why: str
    unit: str
    unit_column: str
    budget: str
    columns: Mapping[str, tuple[str, Sequence[str]]]
    rows: int | None


def open_columns(
    cursor: duckdb.DuckDBPyConnection, table: TableName, catalog: Catalog, public: Sequence[TableName], home: Home
) -> list[tuple[CatalogColumn, str]]:
    """Returns the columns that the schema declares nothing about, each with the result of Schema.null."""
    schema = _schema(table, catalog, constraints(cursor, table), home)
    declared = dict(_find_declarations(schema, catalog, public))
    return [
        (column, schema.null(column.name))
        for column in schema.columns
        if column.name not in declared and any(_open_items(column, schema))
    ]


def draft_lines(
    cursor: duckdb.DuckDBPyConnection,
    table: TableName,
    catalog: Catalog,
    public: Sequence[TableName],
    home: Home,
    given: Suggested | None = None,
) -> list[str]:
    """Returns the lines of CREATE PRIVACY POLICY. public: tables that are declared public. given: suggestions."""
    schema = _schema(table, catalog, constraints(cursor, table), home)
    unit, column = _unit(schema, catalog) if given is None else _unit_given(given)
    declared = dict(_find_declarations(schema, catalog, public))
    declared.pop(column, None)
    replacing = "OR REPLACE " if catalog.policy(table) is not None else ""
    alone = f"A draft from the schema of {table.table} alone: no row was read. Fill in what is marked {TODO}."
    budget = [*_remark(f"{TODO}: {BUDGET}"), f"    BUDGET (epsilon = {TODO})"]
    return [
        *_remark(alone if given is None else given.said, ""),
        f"CREATE {replacing}PRIVACY POLICY ON {table_text(table, home)} (",
        *unit,
        *_of_types(schema, {column, *declared}),
        *(line for items in declared.values() for line in items),
        *_left_to_owner(schema, {column, *declared}, given),
        *(budget if given is None else [f"    {given.budget}"]),
        ")",
    ]


def _unit_given(given: Suggested) -> tuple[list[str], str]:
    return [*_remark(given.unit_why), f"    {given.unit},"], given.unit_column


def _schema(table: TableName, catalog: Catalog, rules: Sequence[Constraint], home: Home) -> Schema:
    single = [rule for rule in rules if len(rule.columns) == 1]
    keys = {fold(rule.columns[0]) for rule in single if rule.kind in ("PRIMARY KEY", "UNIQUE")}
    required = {fold(name) for rule in rules if rule.kind in ("PRIMARY KEY", "NOT NULL") for name in rule.columns}
    links = []
    for rule in single:
        other = catalog.resolve(TableName((*table.parts[:2], rule.references))) if rule.kind == "FOREIGN KEY" else None
        if other is not None:
            links.append((rule.columns[0], other, rule.referenced[0]))
    checks = tuple(rule for rule in single if rule.kind == "CHECK")
    return Schema(table, catalog.columns(table), frozenset(keys), frozenset(required), checks, tuple(links), home)


def _remark(text: str, indent: str = "    ") -> Iterator[str]:
    """Yields the lines of an SQL comment with this text. Line breaks in the text, as in names, cannot end it."""
    line = f"{indent}--"
    for word in text.split():
        if len(line) + len(word) >= _WIDTH:
            yield line
            line = f"{indent}--"
        line += f" {word}"
    yield line


def _comment_text(name: str) -> str:
    """Returns a name without line breaks, for a comment, which a line break would end.

    >>> _comment_text("of" + chr(10) + "birth")
    '"of birth"'
    """
    return " ".join(name_text(name).split())


# The privacy unit.


def _unit(schema: Schema, catalog: Catalog) -> tuple[list[str], str]:
    """Returns the lines of PRIVACY UNIT and the unit's column, which is "" if nothing suggests one."""
    column, reference, why = _find_unit(schema, catalog)
    if not column:
        kinds = ((candidate.name, sql_type(candidate.type_name)) for candidate in schema.columns)
        others = [name for name, kind in kinds if kind.is_whole or kind.is_unit_part][:_MANY]
        asked = f" Its columns of numbers and texts: {', '.join(map(_comment_text, others))}." if others else ""
        lines = [*_remark(f"{TODO}: {WHO}{asked}"), *_remark(f"{TODO}: {MOST}")]
        return [*lines, f"    PRIVACY UNIT {TODO} MAX ROWS {TODO},"], ""
    written = name_text(column) + reference
    if schema.is_key(column):
        return [*_remark(f"{why} No two rows share a value of it."), f"    PRIVACY UNIT {written} MAX ROWS 1,"], column
    return [*_remark(why), *_remark(f"{TODO}: {MOST}"), f"    PRIVACY UNIT {written} MAX ROWS {TODO},"], column


def _find_unit(schema: Schema, catalog: Catalog) -> tuple[str, str, str]:
    """Returns the column that most likely identifies a row's person, its REFERENCES clause, and a remark why."""
    private = [link for link in schema.links if not catalog.is_public(link[1])]
    for column, other, key in private:
        policy = catalog.policy(other)
        if policy is not None and policy.unit.column is not None and _leads(policy, key, catalog):
            reference = f" REFERENCES {table_text(other, schema.home)}.{name_text(key)}"
            return column, reference, f"A foreign key leads to {_comment_text(other.table)}, and shares its budget."
    for column, other, key in private:
        reference = f" REFERENCES {table_text(other, schema.home)}.{name_text(key)}"
        parent = _comment_text(other.table)
        why = f"{TODO}: a foreign key leads to {parent}: is a row of that table whom you protect? Otherwise: "
        return column, reference, why + WHO
    named = [candidate.name for candidate in schema.columns if _PERSON.fullmatch(candidate.name)]
    if named:
        more = f" It may also be {', '.join(map(_comment_text, named[1:_MANY]))}." if len(named) > 1 else ""
        return named[0], "", f"{TODO}: the name of {_comment_text(named[0])} suggests it; {WHO}{more}"
    keys = [candidate.name for candidate in schema.columns if schema.is_key(candidate.name)]
    if keys:
        return (
            keys[0],
            "",
            f"{TODO}: {_comment_text(keys[0])} is the table's key, right where one row is one person; {WHO}",
        )
    return "", "", ""


def _leads(policy: Policy, key: str, catalog: Catalog) -> bool:
    """Tells whether the column `key` of a policy's table is its unit, or a unique key, so that references work."""
    return fold(policy.unit.column or "") == fold(key) or (key,) in catalog.unique_keys(policy.table)


# Items from types, checks, keys and public tables.


def _of_types(schema: Schema, done: set[str]) -> Iterator[str]:
    """Yields DOMAIN items of BOOLEAN and ENUM columns: one item for all columns of a kind with, or without, NULL."""
    for kind in ("BOOLEAN", "ENUM"):
        typed = [column.name for column in schema.columns if sql_type(column.type_name).kind == kind]
        free = [name for name in typed if name not in done]
        for null in dict.fromkeys(map(schema.null, free)):
            alike = [name for name in free if schema.null(name) == null]
            names = ", ".join(map(name_text, alike))
            target = "ALL" if alike == typed and len(alike) > 1 else f"({names})" if len(alike) > 1 else names
            yield f"    DOMAIN {target} {kind}{null},"


def _find_declarations(
    schema: Schema, catalog: Catalog, public: Sequence[TableName]
) -> Iterator[tuple[str, list[str]]]:
    """Yields columns with their items, if a CHECK lists or bounds the values, or a public table has them."""
    checked = {fold(check.columns[0]): check for check in schema.checks}
    links = {fold(column): (other, key) for column, other, key in schema.links if catalog.is_public(other)}
    for column in schema.columns:
        name, null = name_text(column.name), schema.null(column.name)
        lines = _read_check(checked[fold(column.name)], column, null) if fold(column.name) in checked else []
        if fold(column.name) in links:
            other, key = links[fold(column.name)]
            lines = [f"    DOMAIN {name} FROM {table_text(other, schema.home)}.{name_text(key)}{null},"]
        elif not lines and not sql_type(column.type_name).lists_its_values:
            lines = _namesakes(column, catalog, public, schema)
        if lines:
            yield column.name, lines


def _read_check(constraint: Constraint, column: CatalogColumn, null: str) -> list[str]:
    """Returns the items of a column from CHECK (column IN (..)) or CHECK (column BETWEEN a AND b)."""
    try:
        check = parse_one(constraint.check, read="duckdb").unnest()
    except SqlglotError:
        return []
    name = name_text(column.name)
    if isinstance(check, exp.In) and isinstance(check.this, exp.Column):
        values = [_literal(value) for value in check.expressions]
        texts = [value for value in values if value is not None]
        return [f"    DOMAIN {name} IN ({', '.join(texts)}){null},"] if texts and len(texts) == len(values) else []
    if isinstance(check, exp.Between) and sql_type(column.type_name).is_numeric:
        low, high = (_literal(check.args[side]) for side in ("low", "high"))
        if low is None or high is None or low.startswith("'") or high.startswith("'"):
            return []
        wide = f"-- DOMAIN {name} RANGE {low} TO {TODO} STEP {TODO}{null} WITH EDGES,"
        return [f"    CLAMP {name} BETWEEN {low} AND {high},", f"    {wide}"]
    return []


def _literal(value: exp.Expr) -> str | None:
    """Returns a literal as a policy writes it, with its sign and without DuckDB's casts. None for other expressions."""
    value = value.unnest()
    while isinstance(value, exp.Cast):
        value = value.this
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal) and not value.this.is_string:
        return f"-{value.this.this}"
    if isinstance(value, exp.Literal):
        return quote_text(value.this) if value.is_string else str(value.this)
    return None


def _namesakes(column: CatalogColumn, catalog: Catalog, public: Sequence[TableName], schema: Schema) -> list[str]:
    """Returns a DOMAIN from a public table with a column of the same name, or with the column's name or its plural."""
    plural = {fold(column.name), fold(column.name) + "s", fold(column.name) + "es"}
    for table in public:
        if not catalog.is_public(table):
            continue
        for other in catalog.columns(table):
            is_named = fold(table.table) in plural and fold(other.name) in (
                "name",
                "code",
                "id",
                "key",
                fold(column.name),
            )
            if other.type_name == column.type_name and (is_named or fold(other.name) == fold(column.name)):
                source = f"{table_text(table, schema.home)}.{name_text(other.name)}"
                domain = f"DOMAIN {name_text(column.name)} FROM {source}{schema.null(column.name)},"
                remark = f"by its name: {_comment_text(table.table)} is public. Take it out if it means otherwise."
                return [*_remark(remark), f"    {domain}"]
    return []


# Items that are left to the owner.


def _left_to_owner(schema: Schema, done: set[str], given: Suggested | None) -> Iterator[str]:
    """Yields items for each column without a declaration: suggestions, or comments with TODO in them."""
    listed = any(sql_type(candidate.type_name).is_whole and candidate.name not in done for candidate in schema.columns)
    texts = any(candidate.type_name == "VARCHAR" and candidate.name not in done for candidate in schema.columns)
    yield from _remark(" ".join([LISTS, *([NUMBERS] if listed else []), *([TEXTS] if texts else [])]))
    suggested = {} if given is None else given.columns
    unused = list[tuple[str, bool]]()
    for column in schema.columns:
        if column.name in done or sql_type(column.type_name).lists_its_values:
            continue
        items = list(_open_items(column, schema))
        unused += [] if items else [(column.name, sql_type(column.type_name).is_plain)]
        why, offers = suggested.get(column.name, ("", ()))
        yield from _remark(f"{_comment_text(column.name)}: {why}") if why else ()
        yield from (f"    {item}" for item in offers)
        yield from () if offers else (f"    -- {item}" for item in items)
    yield from _remark(ROWS)
    yield f"    EXPECT ROWS {given.rows}," if given is not None and given.rows else f"    -- EXPECT ROWS {TODO},"
    compared = [name for name, comparable in unused if comparable]
    others = [name for name, comparable in unused if not comparable]
    if compared:
        yield from _remark(f"{COMPARED} {_names(compared)}.")
    if others:
        yield from _remark(f"{OTHERS} {_names(others)}.")


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(_comment_text, columns[:_MANY])) + (", .." if len(columns) > _MANY else "")


def _open_items(column: CatalogColumn, schema: Schema) -> Iterator[str]:
    """Yields the items that a column of this type can have, with TODO in them. Keys and references have none."""
    name, null = _comment_text(column.name), schema.null(column.name)
    if schema.is_key(column.name) or any(fold(column.name) == fold(link[0]) for link in schema.links):
        return
    if column.type_name == "VARCHAR":
        yield f"DOMAIN {name} IN ('{TODO}', '{TODO}'){null} WITH OTHER,"
    elif sql_type(column.type_name).is_moment:
        yield f"DOMAIN {name} RANGE {TODO} TO {TODO} STEP MONTH{null} WITH EDGES,"
    elif sql_type(column.type_name).is_numeric:
        yield f"DOMAIN {name} RANGE {TODO} TO {TODO} STEP {TODO}{null} WITH EDGES,"
        yield f"CLAMP {name} BETWEEN {TODO} AND {TODO},"
