"""CREATE PRIVATE TABLE: synthetic rows from private rows, or from an existing release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from dpduck.language.text.dialect import DifferentialPrivacy, PrivateDuckDB, TokenReader
from dpduck.language.text.names import TableName
from dpduck.values.errors import Position

WORKLOADS = "WORKLOAD MARGINALS (k), PARITIES (k), RANGES, GROUPING SETS (..) or (count(*) FILTER (WHERE ..), ..)"
FOR_EACH = "FOR EACH ROW OF parents (column = key) TIMES number"
LARGEST_ORDER = 20
LARGEST_SAMPLE = 10_000_000
ParseQuery = Callable[[str, list[Token]], exp.Query]


@dataclass(frozen=True)
class WorkloadClause:
    """Queries that synthetic rows should answer well."""

    kind: str  # 'marginals', 'parities', 'ranges', 'sets' or 'predicates'
    order: int = 0  # k of MARGINALS (k), the number of columns at a time
    nodes: tuple[exp.Expr, ...] = ()  # elements of GROUPING SETS, or the conditions of counts
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ForEach:
    """FOR EACH ROW OF parents (column = key) TIMES times: rows of a child table for each row of a released table."""

    parents: str
    column: str  # the child's column with the parent's key
    key: str
    times: str  # the parents' column with the number of children
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CreateSynthetic:
    """CREATE [OR REPLACE] PRIVATE TABLE name OPTIONS (..) AS SELECT columns FROM t [FOR EACH ROW OF ..] WORKLOAD .."""

    name: str
    replace: bool
    options: tuple[exp.Expr, ...]
    query: exp.Query
    workload: WorkloadClause
    for_each: ForEach | None = None


@dataclass(frozen=True)
class SampleRelease:
    """CREATE [OR REPLACE] PRIVATE TABLE name AS SAMPLE n FROM release, or FROM KNOWN table (columns)."""

    name: str
    replace: bool
    rows: int
    source: TableName
    columns: tuple[str, ...] = ()  # the columns of KNOWN table (..), empty for a release. Their margins are fitted


def read_private_table(
    reader: TokenReader,
    replace: bool,
    parse_query: ParseQuery,
    read_options: Callable[[TokenReader], tuple[exp.Expr, ...]],
) -> CreateSynthetic | SampleRelease:
    """Reads the rest of CREATE PRIVATE TABLE."""
    if reader.at_words("IF"):
        raise reader.refuse_token("a name (CREATE OR REPLACE PRIVATE TABLE replaces)")
    name = reader.name("a name for the table")
    if reader.at(TokenType.DOT):
        raise reader.refuse("a private table has a name of one part", "a name without dots")
    options = read_options(reader) if reader.at_words("OPTIONS") else ()
    if not reader.take(TokenType.ALIAS):
        raise reader.refuse_token("OPTIONS (..) or AS SELECT ..")
    if reader.take_words("SAMPLE"):
        if options:
            raise reader.refuse("a sample of a release costs nothing and has no options", "AS SAMPLE n FROM release")
        rows = reader.count("the number of rows", LARGEST_SAMPLE)
        reader.expect_words("FROM")
        source, columns = _read_sample_source(reader)
        reader.expect_end()
        return SampleRelease(name, replace, rows, source, columns)
    end = _workload_at(reader)
    last = _words_at(reader, end, "FOR", "EACH", "ROW", "OF")
    last = end if last is None else last
    select = reader.tokens[reader.index : last]
    query = parse_query(reader.text, select) if select else None
    if query is None or query.find(DifferentialPrivacy) is not None:
        raise reader.refuse("a private table has its options after its name", "OPTIONS (..) AS SELECT columns FROM ..")
    reader.index = last
    for_each = _for_each(reader) if last < end else None
    if reader.index != end:
        raise reader.refuse_token(WORKLOADS)
    reader.index = end + 1
    return CreateSynthetic(name, replace, options, query, _workload(reader, parse_query), for_each)


def _for_each(reader: TokenReader) -> ForEach:
    position = reader.position
    reader.expect_words("FOR", "EACH", "ROW", "OF")
    parents = reader.table_name().table
    reader.expect(TokenType.L_PAREN, FOR_EACH)
    at, column = reader.position, reader.name(FOR_EACH)
    if not column:
        raise reader.refuse("a column of no name", FOR_EACH, at)
    reader.expect(TokenType.EQ, FOR_EACH)
    key = reader.name(FOR_EACH)
    reader.expect(TokenType.R_PAREN, FOR_EACH)
    reader.expect_words("TIMES")
    return ForEach(parents, column, key, reader.name("the column of the parents that says how many"), position)


def _read_sample_source(reader: TokenReader) -> tuple[TableName, tuple[str, ...]]:
    """Reads the name of a release, or KNOWN table (columns). At the end of the text, KNOWN is the name of a release."""
    begin = reader.index
    if reader.take_words("KNOWN") and reader.index < len(reader.tokens):
        source = reader.table_name()
        reader.expect(TokenType.L_PAREN, "KNOWN table (column, ..)")
        columns = reader.comma_separated(lambda: reader.name("a column"))
        reader.expect(TokenType.R_PAREN, ")")
        return source, tuple(columns)
    reader.index = begin
    return reader.table_name(), ()


def _workload_at(reader: TokenReader) -> int:
    index = _words_at(reader, len(reader.tokens), "WORKLOAD")
    if index is None:
        reader.index = len(reader.tokens)
        raise reader.refuse_token(WORKLOADS)
    return index


def _words_at(reader: TokenReader, end: int, *words: str) -> int | None:
    """Returns the index where these words begin, outside of parentheses and before `end`. None if they are absent."""
    begin, depth = reader.index, 0
    try:
        for index in range(begin, end):
            token, reader.index = reader.tokens[index], index
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0 and reader.at_words(*words):
                return index
        return None
    finally:
        reader.index = begin


def _workload(reader: TokenReader, parse_query: ParseQuery) -> WorkloadClause:
    position = reader.position
    for kind in ("MARGINALS", "PARITIES", "RANGES"):
        if reader.take_words(kind):
            order = 1
            if kind != "RANGES" or reader.at(TokenType.L_PAREN):
                reader.expect(TokenType.L_PAREN, f"{kind} (k)")
                order = reader.count("the number of columns at a time", LARGEST_ORDER)
                reader.expect(TokenType.R_PAREN, ")")
            reader.expect_end()
            return WorkloadClause(kind.lower(), order, position=position)
    rest = reader.tokens[reader.index :]
    if reader.at_words("GROUPING", "SETS") or (rest and rest[0].text.upper() == "GROUPING SETS"):
        query = parse_query(reader.text, [*PrivateDuckDB().tokenize("SELECT 1 GROUP BY"), *rest])
        group = query.args.get("group")
        if argument_names(query) == {"expressions", "group"} and group is not None:
            return WorkloadClause("sets", nodes=tuple(group.expressions), position=position)
        raise reader.refuse_token(WORKLOADS)
    if len(rest) < 3 or not reader.at(TokenType.L_PAREN) or rest[-1].token_type != TokenType.R_PAREN:
        raise reader.refuse_token(WORKLOADS)
    query = parse_query(reader.text, [*PrivateDuckDB().tokenize("SELECT"), *rest[1:-1]])
    conditions = tuple(_condition(item) for item in query.expressions)
    if argument_names(query) != {"expressions"} or not all(conditions):
        raise reader.refuse("a workload lists counts with conditions", WORKLOADS, position)
    return WorkloadClause("predicates", nodes=tuple(node for node in conditions if node is not None), position=position)


def argument_names(query: exp.Expr) -> set[str]:
    """Returns the names of the parts that a query has, such as expressions and group."""
    return {name for name, value in query.args.items() if value}


def _condition(item: exp.Expr) -> exp.Expr | None:
    """Returns the condition of count(*) FILTER (WHERE ..), None for other expressions."""
    if not isinstance(item, exp.Filter) or not isinstance(item.this, exp.Count):
        return None
    counted = item.this.this
    where = item.expression
    if not isinstance(counted, (exp.Star, type(None))) or not isinstance(where, exp.Where):
        return None
    condition: exp.Expr = where.this
    return condition
