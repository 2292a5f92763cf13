"""DuckDB's own parser as a function: text to tree, tree to text. What it reads is what the public database will run."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from dpduck.frontend.text.tokens import position_in
from dpduck.values.errors import Position, Refusal

Tree = dict[str, Any]
ONE_SELECT = "one SELECT over private views, dp('..') and its kin"
DEEPEST = 60
"""Brackets inside brackets, and words like NOT in a row: no parser is given more than it can bear."""

_OURS = re.compile(
    r"\s*(SELECT\s+WITH\s+DIFFERENTIAL_PRIVACY|(CREATE|CREATE\s+OR\s+REPLACE|DROP|REFRESH)\s+PRIVATE|"
    r"(CREATE|ALTER|DROP)\s+PRIVACY\s+POLICY)\b",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"[()\[\]{}]|\bcase\b|\bend\b", re.IGNORECASE)
_PREFIXES = re.compile(r"(?:\bnot\b|[-+~@!*/|&<>=%^]|\s)+", re.IGNORECASE)
_LONGEST_PREFIX = 1000


_DESCRIBE = re.compile(
    r"\s*(?:DESCRIBE|DESC)\s+([A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2})\s*;?\s*", re.IGNORECASE | re.ASCII
)
_SHOW_TABLES = re.compile(r"\s*SHOW\s+TABLES\s*;?\s*", re.IGNORECASE | re.ASCII)
_COLUMNS = (
    """SELECT column_name, data_type AS column_type, 'YES' AS "null", CAST(NULL AS VARCHAR) AS "key", """
    """CAST(NULL AS VARCHAR) AS "default", concat_ws('; ', privacy_unit, domain, clamp) AS extra """
)
"""With the columns that DuckDB's own DESCRIBE has."""


def in_selects(text: str) -> str:
    """DESCRIBE name and SHOW TABLES as SELECTs over dp_columns; any other text as it is.

    >>> in_selects("SHOW TABLES")
    'SELECT DISTINCT table_name AS name FROM dp_columns() ORDER BY name'
    """
    described = _DESCRIBE.fullmatch(text)
    if described is not None and described[1].upper() != "SELECT":
        return f"{_COLUMNS}FROM dp_columns('{described[1]}')"
    if _SHOW_TABLES.fullmatch(text):
        return "SELECT DISTINCT table_name AS name FROM dp_columns() ORDER BY name"
    return text


class Syntax:
    """An empty DuckDB that only parses; safe to use from many threads."""

    def __init__(self) -> None:
        self._root = duckdb.connect(":memory:", config={"threads": 1})
        for setting in ("python_enable_replacements", "enable_external_access", "autoload_known_extensions"):
            self._root.execute(f"SET {setting} = false")
        self._root.execute("SET lock_configuration = true")
        self._lock = threading.Lock()
        self._idle: list[duckdb.DuckDBPyConnection] = []
        self._table = self.tree("FROM c.s.t")["from_table"]

    def tree(self, text: str, *, longest: int = 100_000) -> Tree:
        """Returns the one query that the text holds; a Refusal for anything else."""
        require_bounded(text, longest)
        with self._cursor() as cursor:
            try:
                row = cursor.execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchone()
            except (duckdb.Error, UnicodeError):
                raise Refusal("DuckDB cannot parse this", accepted=ONE_SELECT) from None
        try:
            parsed = json.loads(row[0]) if row is not None else {}
        except RecursionError:
            raise Refusal("the statement is nested too deeply", accepted="fewer levels") from None
        return _only_query(parsed, text)

    def text(self, tree: Tree) -> str:
        """Returns SQL for a tree, as DuckDB writes it."""
        whole = {"error": False, "statements": [{"node": tree, "named_param_map": []}]}
        with self._cursor() as cursor:
            try:
                row = cursor.execute("SELECT json_deserialize_sql($1::JSON)", [json.dumps(whole)]).fetchone()
            except (duckdb.Error, RecursionError):
                raise Refusal("the statement cannot be rewritten", accepted="a simpler statement") from None
        return "" if row is None else str(row[0])

    def named(self, table: Tree, catalog: str, schema: str, name: str) -> Tree:
        """Returns the same source of rows, its sample and aliases included, with its table's name in full."""
        made = table | {"catalog_name": catalog, "schema_name": schema, "table_name": name}
        if "qualified_name" in made:  # of DuckDB 2.0
            made["qualified_name"] = {"path": [catalog, schema, name]}
        return made

    def table(self, catalog: str, schema: str, name: str, alias: str, columns: Sequence[str]) -> Tree:
        """Returns a named table as a source of rows."""
        made = dict(self._table)
        made |= {"catalog_name": catalog, "schema_name": schema, "table_name": name, "alias": alias}
        if "qualified_name" in made:  # of DuckDB 2.0
            made["qualified_name"] = {"path": [part for part in (catalog, schema, name) if part]}
        return made | {"column_name_alias": list(columns)}

    def values(self, expressions: Sequence[Tree], names: Sequence[str], result_sql: str) -> Any:
        """Evaluates constant expressions under these names, and SQL over the names."""
        tree = self.tree("SELECT 1")
        given = [dict(expression, alias=name) for expression, name in zip(expressions, names, strict=True)]
        sql = self.text(dict(tree, select_list=given)) if given else "SELECT 1"
        with self._cursor() as cursor:
            try:
                row = cursor.execute(f"SELECT {result_sql} FROM ({sql})").fetchone()
            except duckdb.Error:
                raise Refusal("an argument is not of the type it should have", accepted="texts and numbers") from None
        return None if row is None else row[0]

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            cursor = self._idle.pop() if self._idle else self._root.cursor()
        try:
            yield cursor
        finally:
            with self._lock:
                self._idle.append(cursor)


def require_bounded(text: str, longest: int) -> None:
    """Refuses a text that is too long or too deep, in one pass and without recursion."""
    if len(text) > longest:
        raise Refusal(f"the statement has {len(text)} characters", accepted=f"at most {longest}")
    if "\x00" in text:
        raise Refusal("the statement has a NUL character", accepted="text without it")
    depth = 0
    for match in _BRACKETS.finditer(text):
        found = match[0].lower()
        depth += 1 if found in ("(", "[", "{", "case") else -1
        depth = max(depth, 0)
        if depth > DEEPEST:
            raise Refusal(
                "the statement is nested too deeply",
                accepted=f"at most {DEEPEST} levels",
                position=position_in(text, match.start()),
            )
    for match in _PREFIXES.finditer(text):
        if len("".join(match[0].split())) > _LONGEST_PREFIX:
            raise Refusal("too many signs in a row", accepted=f"at most {_LONGEST_PREFIX}")


def _only_query(parsed: Any, text: str) -> Tree:
    if parsed.get("error"):
        ours = _OURS.match(text)
        if ours:
            said = " ".join(ours[0].split()).upper()
            raise Refusal(f"{said} is a statement of dp()", accepted=f"it inside FROM dp($q$ {said} .. $q$)")
        raise Refusal(_complaint(parsed), accepted=ONE_SELECT, position=_position(parsed, text))
    statements = parsed.get("statements", [])
    if len(statements) != 1:
        what = "the statement is empty" if not statements else "two statements in one text"
        raise Refusal(what, accepted=ONE_SELECT)
    node: Tree = statements[0]["node"]
    return node


def _complaint(parsed: Any) -> str:
    """Says what is wrong in our words and DuckDB's: its own quote nothing but the statement."""
    if parsed.get("error_type") != "parser":
        return "this statement is refused"
    said = " ".join(str(parsed.get("error_message", "")).split())[:200]
    return f"DuckDB cannot parse this: {said}"


def _position(parsed: Any, text: str) -> Position | None:
    place = str(parsed.get("position", ""))
    return position_in(text, int(place)) if place.isascii() and place.isdigit() and int(place) <= len(text) else None
