"""Allowlist over one parsed query: a statement is refused unless a list names every node in DuckDB's own parse tree.

The SQL that runs reads tables alone: names of the catalog and calls of dp functions become names of tables. Private
views are named in full, so that each name means the same table when the SQL runs, whatever has changed meanwhile.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dpduck.database.macros import MACROS, SEVERAL_ARGUMENTS
from dpduck.server import syntax
from dpduck.server.bare_statements import in_dp
from dpduck.server.parse_tree import Tree, children_of, dicts_in, path_of
from dpduck.server.syntax import Syntax, in_selects, require_short
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold

ANSWERS, LISTING, PRIVATE, OWN = "answers", "listing", "private", "memory"
"""Databases of the public database: answers of dp functions, views of the catalog, and two names for private views."""

_NOBODY_S = frozenset((ANSWERS, LISTING, PRIVATE, OWN, "system", "temp", "information_schema", "pg_catalog"))
"""Databases and schemas that have no private tables, even if the served file has the same name."""

MOST_NODES = 20_000
DEEPEST_NODE = 400
_REWRITTEN = "dpduck_answer_"
_BARE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_CHARACTERS_OF_A_PART = 16
_LESSER = syntax.MODIFIERS | syntax.TYPES


@dataclass(frozen=True)
class Call:
    """Call of a dp function, as dpduck.database.functions takes it. mark: the text for its answer in SQL."""

    function: str
    action: str
    argument: str | None
    mark: str


@dataclass(frozen=True)
class Inspected:
    """Statement that may run. sql: its text, with Call.mark in place of answers.

    views, listings: the private views and the views of the catalog that it reads. macros: whether it names some of the
    views in arguments of macros. plain: whether it scans one table, and so can stream. Its work is then at most the
    table's rows times (parts + stars * the table's columns).
    """

    sql: str
    calls: tuple[Call, ...]
    views: tuple[str, ...]
    listings: tuple[str, ...]
    plain: bool
    parts: int
    stars: int
    macros: bool = False


def inspect(text: str, syntax: Syntax, *, longest: int = 100_000) -> Inspected:
    """Checks every part of a statement against the lists, and returns it as it may run. Refuses all other parts."""
    require_short(text, longest)
    text = in_dp(in_selects(text)).rstrip("; \t\r\n")
    tree = syntax.tree(text, longest=longest)
    walk = _Walk(syntax, longest)
    walk.query(tree, frozenset())
    if not walk.changed:
        if not walk.bare:
            return walk.summarize(text)
        with suppress(DpduckError, UnicodeDecodeError):  # DuckDB counts a Unicode blank as one byte
            named = _with_names_in_full(text, walk.bare)
            if _is_as_inspected(walk, named, syntax, longest):
                return walk.summarize(named)
    rewritten = syntax.text(tree)
    if not _is_as_inspected(walk, rewritten, syntax, longest):
        raise Refusal("the statement cannot be rewritten", accepted="a simpler statement")
    return walk.summarize(rewritten)


def _is_as_inspected(walk: _Walk, sql: str, syntax: Syntax, longest: int) -> bool:
    """Tells whether the SQL to run reads exactly the inspected tables, with all names in full."""
    again = _Walk(syntax, longest, rewritten=True)
    again.query(syntax.tree(sql, longest=4 * longest), frozenset())
    same = again.views == walk.views and sorted(again.rewritten_tables) == sorted(walk.rewritten_tables)
    return same and not again.changed and not again.bare


def _with_names_in_full(text: str, bare: Sequence[tuple[int, str]]) -> str:
    """Puts databases and schemas before names of views in the client's own text, which is faster than rewriting it.

    bare: the place of each incomplete name in the text's bytes, and its missing prefix.

    >>> _with_names_in_full("FROM ages, main.ages", [(5, "memory.main."), (11, "memory.")])
    'FROM memory.main.ages, memory.main.ages'
    """
    written = text.encode("utf-8", "surrogatepass")
    for place, missing in sorted(bare, reverse=True):
        if place < len(written):  # DuckDB gives no place for the name in TABLE ages
            written = written[:place] + missing.encode() + written[place:]
    return written.decode("utf-8", "surrogatepass")


@dataclass
class _Walk:
    """One pass over a parse tree. rewritten: whether it checks rewritten SQL, which may name ANSWERS and LISTING.

    ctes: the names of common table expressions that a node may use. bare: for each view that the text does not name in
    full, the place of the name and its missing prefix.
    """

    syntax: Syntax
    longest: int
    rewritten: bool = False
    changed: bool = False
    calls: list[Call] = field(default_factory=list)
    views: set[str] = field(default_factory=set)
    rewritten_tables: list[str] = field(default_factory=list)
    bare: list[tuple[int, str]] = field(default_factory=list)
    sources: int = 0
    queries: int = 0
    streams: bool = True
    nodes: int = 0
    stars: int = 0
    macros: bool = False

    def summarize(self, sql: str) -> Inspected:
        listings = {table.partition(".")[2] for table in self.rewritten_tables if table.startswith(f"{LISTING}.")}
        plain = self.queries == 1 and self.sources <= 1 and self.streams
        parts = self.nodes + len(sql) // _CHARACTERS_OF_A_PART
        calls, views = tuple(self.calls), tuple(sorted(self.views))
        return Inspected(sql, calls, views, tuple(sorted(listings)), plain, parts, self.stars, self.macros)

    def query(self, node: Tree, ctes: frozenset[str], depth: int = 0) -> None:
        if node.get("type") not in syntax.QUERIES:
            raise _kind_refusal(str(node.get("type")))
        self.queries += 1
        self.streams &= not _names_itself(node)
        for entry in node.get("cte_map", {}).get("map", []):
            value = entry["value"]
            self._extras(value, ("query", "query_node"), ctes, depth)
            inner = value.get("query_node") or value["query"]["node"]
            self.query(inner, ctes, depth + 1)
            ctes = ctes | {fold(entry["key"])}
        for name, part in list(node.items()):
            if name in ("left", "right") and node["type"] == "SET_OPERATION_NODE" and part is not None:
                self.query(part, ctes, depth + 1)
            elif name == "from_table":
                node[name] = self.source(part, ctes, depth + 1)
            elif name == "children" and node["type"] == "SET_OPERATION_NODE":  # in DuckDB 2.0
                for child in part:
                    self.query(child, ctes, depth + 1)
            elif name not in ("cte_map", "type"):
                self.any(part, ctes, depth + 1)

    def source(self, node: Tree, ctes: frozenset[str], depth: int) -> Tree:
        """Checks a source of rows. Replaces it if it is part of the catalog or a call of a dp function."""
        self._count(depth)
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            return self._function(node, ctes, depth)
        if kind not in syntax.SOURCES:
            raise _kind_refusal(str(kind))
        if kind == "BASE_TABLE":
            self.sources += 1
            self._extras(node, (), ctes, depth)
            return self._table(node, ctes)
        if kind in ("JOIN", "PIVOT", "EXPRESSION_LIST"):
            self.sources += 2  # it can have more rows than one table
        for name, part in list(node.items()):
            if name in ("left", "right", "source") and isinstance(part, dict) and kind in ("JOIN", "PIVOT"):
                node[name] = self.source(part, ctes, depth + 1)
            elif name == "subquery":
                self.query(part["node"], ctes, depth + 1)
            elif name != "type":
                self.any(part, ctes, depth + 1)
        return node

    def any(self, part: Any, ctes: frozenset[str], depth: int) -> None:
        self._count(depth)
        if isinstance(part, list):
            for element in part:
                self.any(element, ctes, depth + 1)
        elif isinstance(part, dict):
            self._dict(part, ctes, depth)

    def _dict(self, part: Tree, ctes: frozenset[str], depth: int) -> None:
        kind = part.get("class")
        if kind is not None and kind not in syntax.EXPRESSIONS:
            raise _kind_refusal(str(kind))
        if kind in ("FUNCTION", "WINDOW"):
            self._check_function(part)
        elif kind == "OPERATOR" and part.get("type") not in syntax.OPERATORS:
            if part.get("type") == "OPERATOR_TRY":
                raise _refusal("TRY(..) is refused", "TRY_CAST(.. AS ..), or CASE WHEN .. THEN .. END")
            raise _kind_refusal(str(part.get("type")))
        self.streams &= kind not in ("WINDOW", "SUBQUERY", "LAMBDA")
        self.stars += kind == "STAR"
        if kind == "SUBQUERY":
            self.query(part["subquery"].get("node", part["subquery"]), ctes, depth + 1)
        elif kind is None and isinstance(part.get("type"), str) and part["type"] not in _LESSER:
            raise _kind_refusal(part["type"])
        self._extras(part, ("subquery",) if kind == "SUBQUERY" else (), ctes, depth)

    def _extras(self, part: Tree, done: Sequence[str], ctes: frozenset[str], depth: int) -> None:
        for value in (value for name, value in part.items() if name not in done and isinstance(value, (dict, list))):
            self.any(value, ctes, depth + 1)

    def _check_function(self, part: Tree) -> None:
        catalog, schema, name = path_of(part, "function_name", "catalog", "schema")
        if catalog or schema not in ("", "main") or name not in syntax.FUNCTIONS:
            if name in MACROS:
                raise _refusal(f"{name}(..) is a table function", f"FROM {name}(..)")
            raise _refusal(f"the function {name[:80]!r} is not on the list", "arithmetic, text, date and aggregates")
        if part.get("export_state"):  # DuckDB leaves bytes of a state unset, which may hold anybody's memory
            raise _refusal("EXPORT_STATE is refused", "the aggregate itself")
        several = name in syntax.AGGREGATE and len(children_of(part)) > 1  # max(n, 1000) keeps a thousand values
        self.streams &= name in syntax.STREAMED and not several

    def _table(self, node: Tree, ctes: frozenset[str]) -> Tree:
        """Resolves a table's name: a common table expression, a private view, or a listing of the catalog."""
        catalog, schema, name = path_of(node, "table_name", "catalog_name", "schema_name")
        catalog, schema = ("", PRIVATE) if (catalog, schema) == (PRIVATE, "main") else (catalog, schema)
        if node.get("at_clause"):
            raise _refusal("AT is refused", "the table as it is")
        if self.rewritten and catalog in (ANSWERS, LISTING):
            self.rewritten_tables.append(f"{catalog}.{name}")
            return node
        if self.rewritten and (catalog, schema) == (OWN, "main"):
            self.views.add(name)
            return node
        if not catalog and not schema and name in ctes:
            return node
        listing = syntax.CATALOG_TABLES.get((schema, name))
        if not catalog and listing is not None:
            alias = node["alias"] or node["table_name"]
            listed = self._replace_table(node, LISTING, listing, alias, node)
            return self._with_asked(listing, alias, listed) if listing in syntax.ASKED else listed
        if catalog or schema not in ("", "main", PRIVATE):
            path = ".".join(part for part in (catalog, schema, name) if part)
            if {catalog, schema} & _NOBODY_S:
                raise _refusal(f"the table {path[:200]!r} is not served", "private views: FROM dp_releases()")
            self.views.add(path)  # no view's name has a dot: only dp_known can find a private table of this name
            return node
        self.views.add(name)
        if schema == PRIVATE:
            self.changed = True
        self.bare.append((int(node["query_location"]), f"{OWN}." if schema else f"{OWN}.main."))
        return self.syntax.qualify(node, OWN, "main", name)

    def _function(self, node: Tree, ctes: frozenset[str], depth: int) -> Tree:
        """Resolves a table function: of the catalog, of dp, a macro over views, or a function that reads no table."""
        call = node["function"]
        catalog, schema, name = path_of(call, "function_name", "catalog", "schema")
        alias = node["alias"] or call["function_name"]
        arguments = children_of(call)
        if catalog or schema:
            raise _refusal(f"the table function {name[:80]!r} is not served", "dp('..') and its kin")
        self._extras(node, ("function",), ctes, depth)
        if name in syntax.CATALOG_FUNCTIONS and not arguments:
            return self._replace_table(node, LISTING, syntax.CATALOG_FUNCTIONS[name], alias, node)
        if name in syntax.TABLE_MACROS:
            return self._macro(node, name, arguments, ctes, depth)
        if name in syntax.ROW_FUNCTIONS:
            self.sources += 2
            self.any(arguments, ctes, depth + 1)
            return node
        if name not in MACROS:
            raise _refusal(f"the table function {name[:80]!r} is not on the list", ", ".join(sorted(MACROS)))
        if node.get("with_ordinality", "WITHOUT_ORDINALITY") != "WITHOUT_ORDINALITY":
            raise _refusal("WITH ORDINALITY is refused here", "row_number() OVER ()")
        self.sources += 1
        dp_call = self._call(name, arguments, ctes, depth)
        self.calls.append(dp_call)
        return self._replace_table(node, ANSWERS, dp_call.mark, alias, node)

    def _macro(self, node: Tree, name: str, arguments: list[Tree], ctes: frozenset[str], depth: int) -> Tree:
        """Checks a macro over tables that it names: private views, or common table expressions of the query."""
        self._constants(name, arguments, ctes, depth)
        number, names, example = syntax.TABLE_MACROS[name]
        if len(arguments) != number or any(argument.get("alias") for argument in arguments):
            raise _refusal(f"these are no arguments of {name}", f"{name}({example})")
        for place in range(names):
            plain = arguments[place].get("class") == "CONSTANT"  # today() could return another name later
            table = self.syntax.values([arguments[place]], ["name"], "CAST(name AS VARCHAR)") if plain else None
            if table is None or not _BARE_NAME.fullmatch(table):
                raise _refusal(f"these are no arguments of {name}", f"{name}({example})")
            if place == 0 and name in syntax.SEEDED:
                self.views |= {fold(table), fold(table) + syntax.SEED}
            elif fold(table) not in ctes:
                self.views.add(fold(table))
        self.sources += 2
        self.macros = True
        return node

    def _constants(self, name: str, children: list[Tree], ctes: frozenset[str], depth: int) -> None:
        for part in dicts_in(children):
            if part.get("class") not in (None, *syntax.CONSTANT_EXPRESSIONS):
                raise _refusal(f"an argument of {name} is no constant", "texts and numbers")
        self.any(children, ctes, depth + 1)

    def _call(self, name: str, children: list[Tree], ctes: frozenset[str], depth: int) -> Call:
        self._constants(name, children, ctes, depth)
        for part in dicts_in(children):  # they are evaluated without a time limit
            called = path_of(part, "function_name", "catalog", "schema")[2] if part.get("class") == "FUNCTION" else ""
            if called and called not in syntax.CONSTANT_FUNCTIONS:
                raise _refusal(f"an argument of {name} is computed", "texts and numbers, and lists of them")
        parameters, action = MACROS[name]
        mark = _new_mark()
        if not parameters:
            if children:
                raise _refusal(f"{name} takes no argument", f"FROM {name}()")
            return Call(name, action, None, mark)
        given, defaults = _arguments(name, parameters, children)
        expressions, names = list(given.values()), list(given)
        for parameter, default in defaults.items():
            expressions.append(self.syntax.tree(f"SELECT {default}")["select_list"][0])
            names.append(parameter)
        result = SEVERAL_ARGUMENTS.get(name, f"CAST({names[0]} AS VARCHAR)")
        value = self.syntax.values(expressions, names, result)
        if len(str(value)) > self.longest:
            raise _refusal(f"the arguments of {name} are too long", f"at most {self.longest} characters")
        return Call(name, action, None if value is None else str(value), mark)

    def _replace_table(self, node: Tree, database: str, table: str, alias: str, columns: Tree) -> Tree:
        self.changed = True
        self.rewritten_tables.append(f"{database}.{table}")
        return self.syntax.table(database, "main", table, alias, columns.get("column_name_alias") or [])

    def _with_asked(self, listing: str, alias: str, listed: Tree) -> Tree:
        """Adds tables that one may ask about to a view of the catalog. They come from a call of dp_columns."""
        call = Call("dp_columns", MACROS["dp_columns"][1], None, _new_mark())
        self.calls.append(call)
        self.rewritten_tables.append(f"{ANSWERS}.{call.mark}")
        self.sources += 2
        both = f"FROM {LISTING}.main.{listing} UNION ALL BY NAME {syntax.ASKED[listing].format(call.mark)}"
        source: Tree = self.syntax.tree(f"FROM ({both}) AS listed")["from_table"]
        return source | {"alias": alias, "column_name_alias": listed["column_name_alias"]}

    def _count(self, depth: int) -> None:
        self.nodes += 1
        if depth > DEEPEST_NODE:
            raise Refusal("the statement is nested too deeply", accepted=f"at most {DEEPEST_NODE} levels")
        if self.nodes > MOST_NODES:
            raise Refusal("the statement is too large", accepted=f"at most {MOST_NODES} parts")


def _new_mark() -> str:
    return f"{_REWRITTEN}{secrets.token_hex(16)}"


def _names_itself(node: Tree) -> bool:
    """Tells whether a selected expression uses another's alias. Chains of aliases can make a short query huge."""
    selected = node.get("select_list") or []
    aliases = {fold(part["alias"]) for part in selected if part.get("alias")}
    names = [part.get("column_names") or [""] for part in dicts_in(selected) if part.get("class") == "COLUMN_REF"]
    return any(fold(str(name[-1])) in aliases for name in names)


def _arguments(name: str, parameters: str, children: Sequence[Tree]) -> tuple[dict[str, Tree], dict[str, str]]:
    """Returns given arguments, and the defaults of missing ones. parameters: as in 'release, confidence := 0.95'."""
    declared = [(left.strip(), right.strip()) for left, _, right in (p.partition(":=") for p in parameters.split(","))]
    names = [parameter for parameter, _ in declared]
    given: dict[str, Tree] = {}
    for place, child in enumerate(children):
        written = fold(child.get("alias") or "")
        parameter = written or (names[place] if place < len(names) else "")
        if parameter not in names or parameter in given:
            raise _refusal(f"{name} has no such argument", f"{name}({parameters})")
        given[parameter] = child
    missing = [parameter for parameter, default in declared if parameter not in given and not default]
    if missing:
        raise _refusal(f"{name} needs {missing[0]}", f"{name}({parameters})")
    return given, {parameter: default for parameter, default in declared if parameter not in given}


def _refusal(what: str, accepted: str) -> Refusal:
    return PermissionRefusal(what, accepted=accepted)


def _kind_refusal(kind: str) -> Refusal:
    words = syntax.WORDS_FOR.get(kind, f"{kind.lower().replace('_', ' ')[:60]} is")
    return _refusal(f"{words} refused", "SELECT over private views, dp('..') and its kin")
