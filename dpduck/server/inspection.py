"""The allowlist over one parsed query: every node of DuckDB's own tree is known by name, or the statement is refused.

What refers to the catalog or to a dp function is rewritten on the way, so that the text that runs reads tables alone:
dp('..') becomes a table that will hold its answer, duckdb_tables() a view of the private views. A private view is
written with its database and schema: what was checked under a name is what the name means when the text runs, whatever
became of the view meanwhile.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dpduck.engine.macros import MACROS, SEVERAL_ARGUMENTS
from dpduck.server import syntax
from dpduck.server.syntax import Syntax, Tree, children_of, dicts_in, in_selects, path_of
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold

ANSWERS, LISTING, PRIVATE, OWN = "answers", "listing", "private", "memory"
"""Databases of the public database: answers of dp functions, views of the catalog; and two names for its own tables."""

_NOBODY_S = frozenset((ANSWERS, LISTING, PRIVATE, OWN, "system", "temp", "information_schema", "pg_catalog"))
"""Databases and schemas in which no private table lies, whatever the served file is called."""

MOST_NODES = 20_000
DEEPEST_NODE = 400
_REWRITTEN = "dpduck_answer_"
_BARE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_CHARACTERS_OF_A_PART = 16
_LESSER = syntax.MODIFIERS | syntax.TYPES


@dataclass(frozen=True)
class Call:
    """A dp function with its arguments. action, argument: as dpduck.engine.functions takes them.

    mark: the name that stands for its answer's table in the SQL.
    """

    function: str
    action: str
    argument: str | None
    mark: str


@dataclass(frozen=True)
class Inspected:
    """A statement that may run. sql: DuckDB's text, with marks in place of answers. views: private views that it reads.

    listings: views of the catalog that it reads. plain: a scan of one table, which can stream: its work is bounded by
    the rows of the table times parts, the parts of the statement, with all columns of the table for each of its stars.
    macros: whether some views are named as arguments of macros.
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
    """Returns the statement, all of it found on the lists; PermissionRefusal or Refusal names what is not."""
    text = in_selects(text).rstrip("; \t\r\n")
    tree = syntax.tree(text, longest=longest)
    walk = _Walk(syntax, longest)
    walk.query(tree, frozenset())
    if not walk.changed:
        if not walk.bare:
            return walk.inspected(text)
        with suppress(DpduckError, UnicodeDecodeError):  # DuckDB counts a blank of Unicode as one byte
            named = _with_names_in_full(text, walk.bare)
            if _is_as_inspected(walk, named, syntax, longest):
                return walk.inspected(named)
    rewritten = syntax.text(tree)
    if not _is_as_inspected(walk, rewritten, syntax, longest):
        raise Refusal("the statement cannot be rewritten", accepted="a simpler statement")
    return walk.inspected(rewritten)


def _is_as_inspected(walk: _Walk, sql: str, syntax: Syntax, longest: int) -> bool:
    """Tells whether what will run is what was inspected, whoever wrote it: the same tables, all named in full."""
    again = _Walk(syntax, longest, rewritten=True)
    again.query(syntax.tree(sql, longest=4 * longest), frozenset())
    same = again.views == walk.views and sorted(again.rewritten_tables) == sorted(walk.rewritten_tables)
    return same and not again.changed and not again.bare


def _with_names_in_full(text: str, bare: Sequence[tuple[int, str]]) -> str:
    """Returns the client's own text with databases and schemas put before names of views: quicker than writing it anew.

    bare: where in the text's bytes a name begins that lacks what.

    >>> _with_names_in_full("FROM ages, main.ages", [(5, "memory.main."), (11, "memory.")])
    'FROM memory.main.ages, memory.main.ages'
    """
    written = text.encode("utf-8", "surrogatepass")
    for place, missing in sorted(bare, reverse=True):
        if place < len(written):  # DuckDB does not say where the name of TABLE ages is
            written = written[:place] + missing.encode() + written[place:]
    return written.decode("utf-8", "surrogatepass")


@dataclass
class _Walk:
    """One pass over a tree. rewritten: of what this module wrote, where its own tables are known too.

    bare: names of views that are not in full in the text: where they begin, and what is missing before them.
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

    def inspected(self, sql: str) -> Inspected:
        """Returns the findings, for the text that will run."""
        listings = {table.partition(".")[2] for table in self.rewritten_tables if table.startswith(f"{LISTING}.")}
        plain = self.queries == 1 and self.sources <= 1 and self.streams
        parts = self.nodes + len(sql) // _CHARACTERS_OF_A_PART
        calls, views = tuple(self.calls), tuple(sorted(self.views))
        return Inspected(sql, calls, views, tuple(sorted(listings)), plain, parts, self.stars, self.macros)

    def query(self, node: Tree, known: frozenset[str], depth: int = 0) -> None:
        """Looks at a query and all that is in it; known: names of common table expressions that it can see."""
        if node.get("type") not in syntax.QUERIES:
            raise _refused(str(node.get("type")))
        self.queries += 1
        self.streams &= not _names_itself(node)
        for entry in node.get("cte_map", {}).get("map", []):
            value = entry["value"]
            self._extras(value, ("query", "query_node"), known, depth)
            inner = value.get("query_node") or value["query"]["node"]
            self.query(inner, known, depth + 1)
            known = known | {fold(entry["key"])}
        for name, part in list(node.items()):
            if name in ("left", "right") and node["type"] == "SET_OPERATION_NODE" and part is not None:
                self.query(part, known, depth + 1)
            elif name == "from_table":
                node[name] = self.source(part, known, depth + 1)
            elif name == "children" and node["type"] == "SET_OPERATION_NODE":  # of DuckDB 2.0
                for child in part:
                    self.query(child, known, depth + 1)
            elif name not in ("cte_map", "type"):
                self.any(part, known, depth + 1)

    def source(self, node: Tree, known: frozenset[str], depth: int) -> Tree:
        """Returns a source of rows, rewritten where it refers to the catalog or to a dp function."""
        self._count(depth)
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            return self._function(node, known, depth)
        if kind not in syntax.SOURCES:
            raise _refused(str(kind))
        if kind == "BASE_TABLE":
            self.sources += 1
            self._extras(node, (), known, depth)
            return self._table(node, known)
        if kind in ("JOIN", "PIVOT", "EXPRESSION_LIST"):
            self.sources += 2  # whose rows can be more than those of one table
        for name, part in list(node.items()):
            if name in ("left", "right", "source") and isinstance(part, dict) and kind in ("JOIN", "PIVOT"):
                node[name] = self.source(part, known, depth + 1)
            elif name == "subquery":
                self.query(part["node"], known, depth + 1)
            elif name != "type":
                self.any(part, known, depth + 1)
        return node

    def any(self, part: Any, known: frozenset[str], depth: int) -> None:
        """Expressions, modifiers, types and lists of them."""
        self._count(depth)
        if isinstance(part, list):
            for element in part:
                self.any(element, known, depth + 1)
        elif isinstance(part, dict):
            self._dict(part, known, depth)

    def _dict(self, part: Tree, known: frozenset[str], depth: int) -> None:
        kind = part.get("class")
        if kind is not None and kind not in syntax.EXPRESSIONS:
            raise _refused(str(kind))
        if kind in ("FUNCTION", "WINDOW"):
            self._named(part)
        elif kind == "OPERATOR" and part.get("type") not in syntax.OPERATORS:
            self._operator(str(part.get("type")))
        self.streams &= kind not in ("WINDOW", "SUBQUERY", "LAMBDA")
        self.stars += kind == "STAR"
        if kind == "SUBQUERY":
            self.query(part["subquery"].get("node", part["subquery"]), known, depth + 1)
        elif kind is None and isinstance(part.get("type"), str) and part["type"] not in _LESSER:
            raise _refused(part["type"])
        self._extras(part, ("subquery",) if kind == "SUBQUERY" else (), known, depth)

    def _extras(self, part: Tree, done: Sequence[str], known: frozenset[str], depth: int) -> None:
        for value in (value for name, value in part.items() if name not in done and isinstance(value, (dict, list))):
            self.any(value, known, depth + 1)

    def _operator(self, kind: str) -> None:
        if kind == "OPERATOR_TRY":
            raise _refusal("TRY(..) is refused", "TRY_CAST(.. AS ..), or CASE WHEN .. THEN .. END")
        raise _refused(kind)

    def _named(self, part: Tree) -> None:
        catalog, schema, name = path_of(part, "function_name", "catalog", "schema")
        if catalog or schema not in ("", "main") or name not in syntax.FUNCTIONS:
            if name in MACROS:
                raise _refusal(f"{name}(..) is a table function", f"FROM {name}(..)")
            raise _refusal(f"the function {name[:80]!r} is not on the list", "arithmetic, text, date and aggregates")
        several = name in syntax.AGGREGATE and len(children_of(part)) > 1  # max(n, 1000) keeps a thousand of a group
        self.streams &= name in syntax.STREAMED and not several

    def _table(self, node: Tree, known: frozenset[str]) -> Tree:
        """Returns a table by name: a common table expression, a private view, or a listing of the catalog."""
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
        if not catalog and not schema and name in known:
            return node
        listing = syntax.CATALOG_TABLES.get((schema, name))
        if not catalog and listing is not None:
            return self._replaced(node, LISTING, listing, node["alias"] or node["table_name"], node)
        if catalog or schema not in ("", "main", PRIVATE):
            place = ".".join(part for part in (catalog, schema, name) if part)
            if {catalog, schema} & _NOBODY_S:
                raise _refusal(f"the table {place[:200]!r} is not served", "private views: FROM dp_releases()")
            self.views.add(place)  # no view's name has a dot: dp_known may know a private table of this name, or nobody
            return node
        self.views.add(name)
        if schema == PRIVATE:
            self.changed = True
        self.bare.append((int(node["query_location"]), f"{OWN}." if schema else f"{OWN}.main."))
        return self.syntax.named(node, OWN, "main", name)

    def _function(self, node: Tree, known: frozenset[str], depth: int) -> Tree:
        """Returns a table function: of the catalog, of dp, or one that reads nothing."""
        call = node["function"]
        catalog, schema, name = path_of(call, "function_name", "catalog", "schema")
        alias = node["alias"] or call["function_name"]
        arguments = children_of(call)
        if catalog or schema:
            raise _refusal(f"the table function {name[:80]!r} is not served", "dp('..') and its kin")
        self._extras(node, ("function",), known, depth)
        if name in syntax.CATALOG_FUNCTIONS and not arguments:
            return self._replaced(node, LISTING, syntax.CATALOG_FUNCTIONS[name], alias, node)
        if name in syntax.TABLE_MACROS:
            return self._macro(node, name, arguments, known, depth)
        if name in syntax.ROW_FUNCTIONS:
            self.sources += 2
            self.any(arguments, known, depth + 1)
            return node
        if name not in MACROS:
            raise _refusal(f"the table function {name[:80]!r} is not on the list", ", ".join(sorted(MACROS)))
        if node.get("with_ordinality", "WITHOUT_ORDINALITY") != "WITHOUT_ORDINALITY":
            raise _refusal("WITH ORDINALITY is refused here", "row_number() OVER ()")
        self.sources += 1
        made = self._call(name, arguments, known, depth)
        self.calls.append(made)
        return self._replaced(node, ANSWERS, made.mark, alias, node)

    def _macro(self, node: Tree, name: str, arguments: list[Tree], known: frozenset[str], depth: int) -> Tree:
        """Returns a macro that reads public tables by name: a private view, or a common table expression in sight."""
        self._constants(name, arguments, known, depth)
        number, names, example = syntax.TABLE_MACROS[name]
        if len(arguments) != number or any(argument.get("alias") for argument in arguments):
            raise _refusal(f"these are no arguments of {name}", f"{name}({example})")
        for place in range(names):
            plain = arguments[place].get("class") == "CONSTANT"  # what today() makes could be another name tomorrow
            table = self.syntax.values([arguments[place]], ["name"], "CAST(name AS VARCHAR)") if plain else None
            if table is None or not _BARE_NAME.fullmatch(table):
                raise _refusal(f"these are no arguments of {name}", f"{name}({example})")
            if place == 0 and name in syntax.SEEDED:
                self.views |= {fold(table), fold(table) + syntax.SEED}
            elif fold(table) not in known:
                self.views.add(fold(table))
        self.sources += 2
        self.macros = True
        return node

    def _constants(self, name: str, children: list[Tree], known: frozenset[str], depth: int) -> None:
        for part in dicts_in(children):
            if part.get("class") not in (None, *syntax.CONSTANT_EXPRESSIONS):
                raise _refusal(f"an argument of {name} is no constant", "texts and numbers")
        self.any(children, known, depth + 1)

    def _call(self, name: str, children: list[Tree], known: frozenset[str], depth: int) -> Call:
        self._constants(name, children, known, depth)
        for part in dicts_in(children):  # the parser's instance evaluates them, which has neither clock nor limit
            called = path_of(part, "function_name", "catalog", "schema")[2] if part.get("class") == "FUNCTION" else ""
            if called and called not in syntax.CONSTANT_FUNCTIONS:
                raise _refusal(f"an argument of {name} is computed", "texts and numbers, and lists of them")
        parameters, action = MACROS[name]
        mark = f"{_REWRITTEN}{secrets.token_hex(16)}"
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

    def _replaced(self, node: Tree, database: str, table: str, alias: str, columns: Tree) -> Tree:
        self.changed = True
        self.rewritten_tables.append(f"{database}.{table}")
        return self.syntax.table(database, "main", table, alias, columns.get("column_name_alias") or [])

    def _count(self, depth: int) -> None:
        self.nodes += 1
        if depth > DEEPEST_NODE:
            raise Refusal("the statement is nested too deeply", accepted=f"at most {DEEPEST_NODE} levels")
        if self.nodes > MOST_NODES:
            raise Refusal("the statement is too large", accepted=f"at most {MOST_NODES} parts")


def _names_itself(node: Tree) -> bool:
    """Tells whether an expression of a SELECT refers to another by its alias: by aliases of aliases a short
    text grows.
    """
    selected = node.get("select_list") or []
    aliases = {fold(part["alias"]) for part in selected if part.get("alias")}
    names = [part.get("column_names") or [""] for part in dicts_in(selected) if part.get("class") == "COLUMN_REF"]
    return any(fold(str(name[-1])) in aliases for name in names)


def _arguments(name: str, parameters: str, children: Sequence[Tree]) -> tuple[dict[str, Tree], dict[str, str]]:
    """Returns arguments by parameter, and the defaults of the others. parameters: 'release, confidence := 0.95'."""
    declared = [(left.strip(), right.strip()) for left, _, right in (p.partition(":=") for p in parameters.split(","))]
    known = [parameter for parameter, _ in declared]
    given: dict[str, Tree] = {}
    for place, child in enumerate(children):
        written = fold(child.get("alias") or "")
        parameter = written or (known[place] if place < len(known) else "")
        if parameter not in known or parameter in given:
            raise _refusal(f"{name} has no such argument", f"{name}({parameters})")
        given[parameter] = child
    missing = [parameter for parameter, default in declared if parameter not in given and not default]
    if missing:
        raise _refusal(f"{name} needs {missing[0]}", f"{name}({parameters})")
    return given, {parameter: default for parameter, default in declared if parameter not in given}


def _refusal(what: str, accepted: str) -> Refusal:
    return PermissionRefusal(what, accepted=accepted)


def _refused(kind: str) -> Refusal:
    words = syntax.WORDS_FOR.get(kind, f"{kind.lower().replace('_', ' ')[:60]} is")
    return _refusal(f"{words} refused", "SELECT over private views, dp('..') and its kin")
