"""Completion in the owner's shell, from public facts alone: names, declared values, options and keywords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpduck.commands.shell.loop import HELP, is_dot_command
from dpduck.database.macros import MACROS
from dpduck.values.quoting import fold, quote_identifier

if TYPE_CHECKING:
    import duckdb

MOST_OFFERED = 200
"""Largest number of completions that are offered."""

KEYWORDS = (
    "ALTER PRIVACY POLICY ON", "AND", "AS", "BETWEEN", "BUDGET", "BY", "CASE", "CLAMP", "CREATE OR REPLACE",
    "CREATE PRIVACY POLICY ON", "CREATE PRIVATE STREAM", "CREATE PRIVATE TABLE", "CREATE PRIVATE VIEW", "CUBE",
    "DESCRIBE", "DIFFERENTIAL_PRIVACY", "DOMAIN", "DROP PRIVACY POLICY ON", "DROP PRIVATE VIEW", "ELSE", "END",
    "FROM", "GROUP BY", "GROUPING SETS", "HAVING", "IN", "IS NULL", "JOIN", "LIMIT", "MAX ROWS", "NOT", "NULL", "ON",
    "OPTIONS", "OR", "ORDER BY", "PIVOT", "PRIVACY UNIT", "REFRESH PRIVATE STREAM", "ROLLUP", "SELECT",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS", "SHOW TABLES", "SUMMARIZE", "THEN", "UNION ALL", "USING", "WHEN",
    "WHERE", "WITH",
)  # fmt: skip
AGGREGATES = ("avg(", "count(*)", "dp_interval_high(", "dp_interval_low(", "dp_stderr(", "median(", "sum(")

_WORD = re.compile(r"[\w.]*\Z")
_PHRASE = re.compile(r"\A\s*([A-Za-z_]+(?: [A-Za-z_]+)+)\Z")
"""Begin of a statement with several words, such as DROP PRIV. A keyword of several words may complete it."""
_BEFORE_TABLE = re.compile(
    r"(?:\b(?:FROM|JOIN|DESCRIBE|SUMMARIZE|PIVOT|POLICY\s+ON|PUBLIC\s+TABLE|PRIVATE\s+(?:VIEW|TABLE|STREAM))\s+"
    r"|\b(?:FROM|JOIN)\s[\w\s.,]*,\s*)\Z",
    re.IGNORECASE,
)
_OPTIONS = re.compile(r"\b(?:OPTIONS|BUDGET)\s*\([^()]*\Z", re.IGNORECASE)
_COMPARED = re.compile(r'(\w+|"[^"]+")\s*(?:=|<>|!=|\b(?:NOT\s+)?IN\s*\(|\bLIKE)[^()]*\Z', re.IGNORECASE)
_NEXT_VALUE = re.compile(r'(\w+|"[^"]+")\s*(?:=|<>|!=|\bIN\s*\((?:[^()]*,)?)\s*\Z', re.IGNORECASE)
_LITERAL = re.compile(r"'(?:[^']|'')*'|[^\s,()]+")


@dataclass(frozen=True)
class PublicNames:
    """Names and values that may be offered. columns: by table. values: literals of domains, by column in lower case."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Offer:
    """Completions. length: the number of characters before the cursor that a completion replaces."""

    texts: tuple[str, ...]
    length: int


def names_from(columns: duckdb.DuckDBPyRelation) -> PublicNames:
    """Returns the names and declared values that dp_columns() has. columns: its rows."""
    by_table: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for table, column, domain in columns.project("table_name, column_name, domain").fetchall():
        by_table.setdefault(str(table), []).append(str(column))
        if str(domain).startswith("IN ("):
            listed = str(domain)[len("IN (") :].rpartition(")")[0]
            values.setdefault(fold(str(column)), []).extend(_LITERAL.findall(listed))
    return PublicNames(
        {table: tuple(listed) for table, listed in by_table.items()},
        {column: tuple(dict.fromkeys(listed)) for column, listed in values.items()},
    )


def offer(before: str, names: PublicNames, options: Iterable[str]) -> Offer:
    """Returns the completions for the text before the cursor. options: the names of options of statements.

    >>> names = PublicNames({"visits": ("sex", "ward")}, {"sex": ("'female'", "'male'")})
    >>> offer("SELECT count(*) FROM v", names, ()), offer("FROM visits WHERE sex = 'fe", names, ()).texts
    (Offer(texts=('visits',), length=1), ("female'",))
    """
    stripped = before.lstrip()
    if is_dot_command(stripped) or stripped == ".":
        if " " not in stripped:
            return _fitting(stripped, [name.split()[0] for name in HELP])
        before = stripped.partition(" ")[2]
    statement = before.rpartition(";")[2] if before.count("'") % 2 == 0 else before
    if statement.count("'") % 2:
        return _values(statement, names)
    prefix = _WORD.search(statement)
    word = prefix[0] if prefix is not None else ""
    rest = statement[: len(statement) - len(word)]
    if "." in word:
        return _of_table(word, names)
    functions = [f"{name}(" for name in MACROS]
    if _BEFORE_TABLE.search(rest):
        return _fitting(word, [*map(_name, names.columns), *(functions if word else ())])
    if _OPTIONS.search(rest):
        return Offer((), 0) if rest.rstrip().endswith("=") else _fitting(word, options)
    compared = _NEXT_VALUE.search(rest)
    if compared is not None and fold(compared[1].strip('"')) in names.values:
        return _fitting(word, names.values[fold(compared[1].strip('"'))])
    mentioned = [table for table in names.columns if re.search(rf"\b{re.escape(fold(table))}\b", fold(statement))]
    columns = [_name(column) for table in mentioned or names.columns for column in names.columns[table]]
    if not word:
        return Offer((), 0) if not mentioned else _fitting(word, columns)
    phrase = _PHRASE.search(statement)
    longer = _fitting(phrase[1], KEYWORDS) if phrase is not None else Offer((), 0)
    if longer.texts:
        return longer
    return _fitting(word, [*columns, *map(_name, names.columns), *AGGREGATES, *functions, *KEYWORDS])


def _values(statement: str, names: PublicNames) -> Offer:
    """Offers the declared values of the column that is compared, or of all columns, with the closing quote."""
    rest, _, prefix = statement.rpartition("'")
    compared = _COMPARED.search(rest)
    column = fold(compared[1].strip('"')) if compared is not None else ""
    every = [text for listed in names.values.values() for text in listed]
    return _fitting(prefix, [text[1:] for text in names.values.get(column, every) if text.startswith("'")])


def _of_table(word: str, names: PublicNames) -> Offer:
    """Offers the tables after private. and the columns after a table's name."""
    owner, _, prefix = word.rpartition(".")
    if fold(owner) in ("private", "private.main"):
        return _fitting(prefix, map(_name, names.columns))
    table = fold(owner.rpartition(".")[2])
    columns = next((listed for name, listed in names.columns.items() if fold(name) == table), ())
    return _fitting(prefix, map(_name, columns))


def _fitting(prefix: str, texts: Iterable[str]) -> Offer:
    beginning = fold(prefix)
    offered = (text for text in dict.fromkeys(texts) if text != prefix)
    fitting = [text for text in offered if fold(text).lstrip('"').startswith(beginning)]
    return Offer(tuple(fitting[:MOST_OFFERED]), len(prefix))


def _name(name: str) -> str:
    """Returns a name as it can be typed: with quotes only if it needs them."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quote_identifier(name)
