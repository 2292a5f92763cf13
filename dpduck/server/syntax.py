"""Parses SQL with DuckDB's own parser, writes trees as SQL, and lists the allowed parts of statements.

The lists do not protect private rows, since the public database has released tables alone. They keep a client from
files, the network, settings, the catalog of others' answers, and unbounded memory.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from dpduck.language.text.words import position_in
from dpduck.server.bare_statements import refuse_inside
from dpduck.server.parse_tree import Tree
from dpduck.values.errors import Position, Refusal
from dpduck.values.served_functions import TABLE

ONE_SELECT = "one SELECT over private views, dp('..') and its kin, or SELECT WITH DIFFERENTIAL_PRIVACY .."
DEEPEST = 60
"""The largest depth of brackets and CASE, so that no parser runs out of stack."""

_PIVOT = re.compile(r"\bPIVOT\b", re.IGNORECASE)
_BRACKETS = re.compile(r"[()\[\]{}]|\bcase\b|\bend\b", re.IGNORECASE)
_PREFIXES = re.compile(r"(?:\bnot\b|[-+~@!*/|&<>=%^]|\s)+", re.IGNORECASE)
_LONGEST_PREFIX = 1000
"""The largest number of signs and NOTs in a row, since these are nested, too."""


_DESCRIBE = re.compile(
    r"\s*(?:DESCRIBE|DESC)\s+([A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2})\s*;?\s*", re.IGNORECASE | re.ASCII
)
_SHOW_TABLES = re.compile(r"\s*SHOW\s+(ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE | re.ASCII)
_COLUMNS = (
    """SELECT column_name, data_type AS column_type, 'YES' AS "null", CAST(NULL AS VARCHAR) AS "key", """
    """CAST(NULL AS VARCHAR) AS "default", concat_ws('; ', privacy_unit, domain, clamp) AS extra """
)
"""The SELECT list for DESCRIBE name, with the columns of DuckDB's own DESCRIBE."""


_TABLES = "SELECT DISTINCT table_name AS name, kind FROM dp_columns() ORDER BY name"
_ALL_TABLES = (
    """SELECT CASE kind WHEN 'private view' THEN 'private' END AS "database", 'main' AS "schema", """
    "table_name AS name, list(column_name) AS column_names, list(data_type) AS column_types, false AS temporary, kind "
    "FROM dp_columns() GROUP BY table_name, kind ORDER BY name"
)
"""SHOW TABLES and SHOW ALL TABLES, with the columns of DuckDB's own and the kind of each table."""


def in_selects(text: str) -> str:
    """Rewrites DESCRIBE name and SHOW [ALL] TABLES as SELECTs over dp_columns. Leaves other texts unchanged.

    >>> in_selects("SHOW TABLES")
    'SELECT DISTINCT table_name AS name, kind FROM dp_columns() ORDER BY name'
    """
    described = _DESCRIBE.fullmatch(text)
    if described is not None and described[1].upper() != "SELECT":
        return f"{_COLUMNS}FROM dp_columns('{described[1]}')"
    shown = _SHOW_TABLES.fullmatch(text)
    return text if shown is None else _ALL_TABLES if shown[1] else _TABLES


class Syntax:
    """DuckDB instance without tables, which only parses. Many threads may use it."""

    def __init__(self) -> None:
        self._root = duckdb.connect(":memory:", config={"threads": 1})
        for setting in ("python_enable_replacements", "enable_external_access", "autoload_known_extensions"):
            self._root.execute(f"SET {setting} = false")
        self._root.execute("SET lock_configuration = true")
        self._lock = threading.Lock()
        self._idle: list[duckdb.DuckDBPyConnection] = []
        self._table = self.tree("FROM c.s.t")["from_table"]

    def tree(self, text: str, *, longest: int = 100_000) -> Tree:
        """Returns the parse tree of a text with one query. Refuses any other text."""
        require_bounded(text, longest)
        with self._cursor() as cursor:
            try:
                row = cursor.execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchone()
            except (duckdb.Error, UnicodeError, RuntimeError):  # RuntimeError: half of a pair of surrogates
                raise Refusal("DuckDB cannot parse this", accepted=ONE_SELECT) from None
        try:
            parsed = json.loads(row[0]) if row is not None else {}
        except RecursionError:
            raise Refusal("the statement is nested too deeply", accepted="fewer levels") from None
        return _only_query(parsed, text)

    def text(self, tree: Tree) -> str:
        whole = {"error": False, "statements": [{"node": tree, "named_param_map": []}]}
        with self._cursor() as cursor:
            try:
                row = cursor.execute("SELECT json_deserialize_sql($1::JSON)", [json.dumps(whole)]).fetchone()
            except (duckdb.Error, RecursionError):
                raise Refusal("the statement cannot be rewritten", accepted="a simpler statement") from None
        return "" if row is None else str(row[0])

    def qualify(self, table: Tree, catalog: str, schema: str, name: str) -> Tree:
        """Returns a source of rows with its table's name in full. Its sample and its aliases stay."""
        source = table | {"catalog_name": catalog, "schema_name": schema, "table_name": name}
        if "qualified_name" in source:  # in DuckDB 2.0
            source["qualified_name"] = {"path": [catalog, schema, name]}
        return source

    def table(self, catalog: str, schema: str, name: str, alias: str, columns: Sequence[str]) -> Tree:
        source = self.qualify(self._table, catalog, schema, name)
        return source | {"alias": alias, "column_name_alias": list(columns)}

    def values(self, expressions: Sequence[Tree], names: Sequence[str], result_sql: str) -> Any:
        """Evaluates constant expressions under these names, and returns the value of `result_sql` over the names."""
        tree = self.tree("SELECT 1")
        given = [dict(expression, alias=name) for expression, name in zip(expressions, names, strict=True)]
        sql = self.text(dict(tree, select_list=given)) if given else "SELECT 1"
        with self._cursor() as cursor:
            try:
                row = cursor.execute(f"SELECT {result_sql} FROM ({sql})").fetchone()
            except duckdb.Error:
                raise Refusal("an argument has another type than its parameter", accepted="texts and numbers") from None
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


def require_short(text: str, longest: int) -> None:
    """Refuses a text that is too long, before anything reads it."""
    if len(text) > longest:
        raise Refusal(f"the statement has {len(text)} characters", accepted=f"at most {longest}")


def require_bounded(text: str, longest: int) -> None:
    """Refuses a text that is too long or nested too deeply, in linear time and without recursion."""
    require_short(text, longest)
    if "\x00" in text:
        raise Refusal("the statement has a NUL character", accepted="text without it")
    depth = 0
    for match in _BRACKETS.finditer(text):
        bracket = match[0].lower()
        depth += 1 if bracket in ("(", "[", "{", "case") else -1
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
        refuse_inside(text)
        if _PIVOT.search(text) and parsed.get("error_type") != "parser":
            raise Refusal("PIVOT names its columns here", accepted="PIVOT .. ON sex IN ('F', 'M') USING first(n) ..")
        raise Refusal(_complaint(parsed), accepted=ONE_SELECT, position=_position(parsed, text))
    statements = parsed.get("statements", [])
    if len(statements) != 1:
        what = "the statement is empty" if not statements else "two statements in one text"
        raise Refusal(what, accepted=ONE_SELECT)
    node: Tree = statements[0]["node"]
    return node


def _complaint(parsed: Any) -> str:
    """Returns a reason why DuckDB refuses a text. DuckDB's own words quote only the text, so they may be shown."""
    if parsed.get("error_type") != "parser":
        return "this statement is refused"
    said = " ".join(str(parsed.get("error_message", "")).split())[:200]
    return f"DuckDB cannot parse this: {said}"


def _position(parsed: Any, text: str) -> Position | None:
    place = str(parsed.get("position", ""))
    return position_in(text, int(place)) if place.isascii() and place.isdigit() and int(place) <= len(text) else None


SCALAR = frozenset(function.name for function in TABLE if function.served and not function.aggregate)
AGGREGATE = frozenset(function.name for function in TABLE if function.served and function.aggregate)
ANALYST_MACROS = frozenset(
    (
        "dp_cells_stderr",
        "dp_grouping_id",
        "dp_range_estimate",
        "dp_range_share",
        "dp_subset_estimate",
        "dp_sum_interval",
    )
)
"""Macros of sql/macros.sql, which the public database has. The table macro dp_margin is named separately."""

SHIPPED_MACROS = frozenset(
    ("dp_conjunction", "dp_disjunction", "dp_haar_weight", "dp_in_range", "dp_key", "dp_label_number", "dp_parity",
     "dp_shared", "dp_sketch_hash", "dp_sum_stderr")
)  # fmt: skip
"""Macros of sql/macros, for released projections and summaries. dp_released is not for clients."""

MARGIN = "dp_margin"
TABLE_MACROS = {
    MARGIN: (3, 1, "'name_of_view', ['kept'], ['rolled_up']"),
    "dp_decode": (3, 3, "'name_of_projection', 'name_of_questions', 'name_of_keys'"),
    "dp_project": (2, 2, "'name_of_projection', 'name_of_question'"),
    "dp_project_all": (2, 2, "'name_of_projection', 'name_of_questions'"),
    "dp_sketch_estimates": (2, 1, "'name_of_sketch', ['label']"),
    "dp_sketch_point": (2, 1, "'name_of_sketch', ['label']"),
}
"""Macros that read tables by name: the number of arguments, how many of the first are names, and an example."""

SEEDED = frozenset(("dp_decode", "dp_project", "dp_project_all"))
"""Macros that also read a second table. Its name is the first table's name with SEED at the end."""

SEED = "_seed"
FUNCTIONS = SCALAR | AGGREGATE | ANALYST_MACROS | SHIPPED_MACROS
STREAMED = frozenset(function.name for function in TABLE if function.served and function.streams)
"""Functions that a statement may use without a runner. Each takes constant time for a row, apart from the length of its
texts, and returns no text longer than its inputs. Statements with other functions run in a runner."""

CONSTANT_FUNCTIONS = frozenset(("-", "array_value", "list_value", "row"))
"""Functions in the arguments of dp functions: signs of numbers, and lists with keys and tuples."""

ROW_FUNCTIONS = frozenset(("range", "generate_series", "unnest"))
"""Table functions that read no table."""

CATALOG_FUNCTIONS = {f"duckdb_{name}": name for name in ("tables", "views", "columns", "schemas", "databases")}
"""Table functions that list the catalog for stock clients, each with the view of private views that replaces it."""

CATALOG_TABLES = {
    **{(schema, f"duckdb_{name}"): name for schema in ("", "main") for name in ("tables", "views", "columns")},
    **{("information_schema", name): f"information_{name}" for name in ("schemata", "tables", "columns")},
}

_NOT_LISTED = "FROM answers.main.{} WHERE kind <> 'private view'"
ASKED = {
    "information_tables": (
        "SELECT 'main' AS table_schema, table_name, upper(kind) AS table_type, 'NO' AS is_insertable_into, "
        f"'NO' AS is_typed, kind AS TABLE_COMMENT {_NOT_LISTED} GROUP BY table_name, kind"
    ),
    "information_columns": (
        "SELECT 'main' AS table_schema, table_name, column_name, 'YES' AS is_nullable, data_type, CAST("
        f"row_number() OVER (PARTITION BY table_name) AS INTEGER) AS ordinal_position {_NOT_LISTED}"
    ),
}
"""Views of the catalog to which tables are added that one may ask about and join, from dp_columns. They are in no
catalog. duckdb_tables() is without them, since clients make tables of their own from it that they read whole."""

EXPRESSIONS = frozenset(
    ("COLUMN_REF", "CONSTANT", "FUNCTION", "WINDOW", "OPERATOR", "COMPARISON", "CONJUNCTION", "CAST", "CASE", "BETWEEN",
     "STAR", "SUBQUERY", "POSITIONAL_REFERENCE", "LAMBDA", "COLLATE", "TYPE")
)  # fmt: skip
OPERATORS = frozenset(
    ("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE",
     "OPERATOR_NULLIF", "ARRAY_EXTRACT", "ARRAY_SLICE", "ARRAY_CONSTRUCTOR", "STRUCT_EXTRACT", "ARROW",
     "GROUPING_FUNCTION", "OPERATOR_CAST", "OPERATOR_UNPACK")
)  # fmt: skip
"""Kinds of operators. OPERATOR_TRY is left out: with COALESCE in a TRY, DuckDB 1.5 writes beyond the end of a vector.
This may end the process, or do worse."""

CONSTANT_EXPRESSIONS = frozenset(("CONSTANT", "FUNCTION", "OPERATOR", "CAST", "TYPE"))
"""Kinds of expressions in the arguments of dp functions."""

QUERIES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE"))
SOURCES = frozenset(("BASE_TABLE", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT"))
MODIFIERS = frozenset(
    ("ORDER_MODIFIER", "LIMIT_MODIFIER", "DISTINCT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_DEFAULT", "ASCENDING",
     "DESCENDING")
)  # fmt: skip
TYPES = frozenset(
    ("DECIMAL_TYPE_INFO", "LIST_TYPE_INFO", "STRUCT_TYPE_INFO", "STRING_TYPE_INFO", "GENERIC_TYPE_INFO",
     "ARRAY_TYPE_INFO", "ANY_TYPE_INFO", "INTEGER_LITERAL_TYPE_INFO", "UNBOUND_TYPE_INFO")
)  # fmt: skip
"""Kinds of types in DuckDB's own parse tree, as json_serialize_sql writes them."""

WORDS_FOR = {
    "SHOW_REF": "SUMMARIZE, SHOW of anything but TABLES or ALL TABLES, and DESCRIBE of anything but a table's name are",
    "TABLE_FUNCTION": "this table function is",
    "RECURSIVE_CTE_NODE": "WITH RECURSIVE is",
    "PARAMETER": "a parameter is",
    "DELIM_GET": "this source of rows is",
    "COLUMN_DATA": "this source of rows is",
}
"""Beginnings of refusals for kinds that clients may use in good faith."""
