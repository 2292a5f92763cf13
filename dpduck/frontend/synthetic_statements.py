"""CREATE PRIVATE TABLE: synthetic rows from private ones, or from a release that is there already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from dpduck.errors import Position
from dpduck.frontend.dialect import DifferentialPrivacy, PrivateDuckDB
from dpduck.frontend.names import TableName
from dpduck.frontend.token_reader import TokenReader

WORKLOADS = "WORKLOAD MARGINALS (k), PARITIES (k), RANGES, GROUPING SETS (..) or (count(*) FILTER (WHERE ..), ..)"
LARGEST_ORDER = 20
LARGEST_SAMPLE = 10_000_000
ParseQuery = Callable[[str, list[Token]], exp.Query]


@dataclass(frozen=True)
class WorkloadClause:
    """What the synthetic rows are to answer well. kind: 'marginals', 'parities', 'ranges', 'sets' or 'predicates'.

    order: k, the number of columns at a time. nodes: the elements of GROUPING SETS, or the conditions.
    """

    kind: str
    order: int = 0
    nodes: tuple[exp.Expr, ...] = ()
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CreateSynthetic:
    """CREATE [OR REPLACE] PRIVATE TABLE name OPTIONS (..) AS SELECT columns FROM t WORKLOAD .."""

    name: str
    replace: bool
    options: tuple[exp.Expr, ...]
    query: exp.Query
    workload: WorkloadClause


@dataclass(frozen=True)
class SampleRelease:
    """CREATE [OR REPLACE] PRIVATE TABLE name AS SAMPLE n FROM a release: post-processing."""

    name: str
    replace: bool
    rows: int
    source: TableName


def read_private_table(
    reader: TokenReader,
    replace: bool,
    parse_query: ParseQuery,
    read_options: Callable[[TokenReader], tuple[exp.Expr, ...]],
) -> CreateSynthetic | SampleRelease:
    """What follows CREATE PRIVATE TABLE."""
    if reader.at_words("IF"):
        raise reader.unexpected("a name (CREATE OR REPLACE PRIVATE TABLE replaces)")
    name = reader.name("a name for the table")
    if reader.at(TokenType.DOT):
        raise reader.refuse("a private table has a name of one part", "a name without dots")
    options = read_options(reader) if reader.at_words("OPTIONS") else ()
    if not reader.take(TokenType.ALIAS):
        raise reader.unexpected("OPTIONS (..) or AS SELECT ..")
    if reader.take_words("SAMPLE"):
        if options:
            raise reader.refuse("a sample of a release costs nothing and has no options", "AS SAMPLE n FROM release")
        rows = reader.count("the number of rows", LARGEST_SAMPLE)
        reader.expect_words("FROM")
        source = reader.table_name()
        reader.expect_end()
        return SampleRelease(name, replace, rows, source)
    end = _workload_at(reader)
    select = reader.tokens[reader.index : end]
    query = parse_query(reader.text, select) if select else None
    if query is None or query.find(DifferentialPrivacy) is not None:
        raise reader.refuse("a private table has its options after its name", "OPTIONS (..) AS SELECT columns FROM ..")
    reader.index = end + 1
    return CreateSynthetic(name, replace, options, query, _workload(reader, parse_query))


def _workload_at(reader: TokenReader) -> int:
    depth = 0
    for index in range(reader.index, len(reader.tokens)):
        token = reader.tokens[index]
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if depth == 0 and not quoted and token.text.upper() == "WORKLOAD":
            return index
    reader.index = len(reader.tokens)
    raise reader.unexpected(WORKLOADS)


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
        if _given(query) == {"expressions", "group"} and group is not None:
            return WorkloadClause("sets", nodes=tuple(group.expressions), position=position)
        raise reader.unexpected(WORKLOADS)
    if len(rest) < 3 or not reader.at(TokenType.L_PAREN) or rest[-1].token_type != TokenType.R_PAREN:
        raise reader.unexpected(WORKLOADS)
    query = parse_query(reader.text, [*PrivateDuckDB().tokenize("SELECT"), *rest[1:-1]])
    conditions = tuple(_condition(item) for item in query.expressions)
    if _given(query) != {"expressions"} or not all(conditions):
        raise reader.refuse("a workload lists counts with conditions", WORKLOADS, position)
    return WorkloadClause("predicates", nodes=tuple(node for node in conditions if node is not None), position=position)


def _given(query: exp.Expr) -> set[str]:
    return {name for name, value in query.args.items() if value}


def _condition(item: exp.Expr) -> exp.Expr | None:
    """The condition of count(*) FILTER (WHERE ..), None where it is something else."""
    if not isinstance(item, exp.Filter) or not isinstance(item.this, exp.Count):
        return None
    counted = item.this.this
    where = item.expression
    if not isinstance(counted, (exp.Star, type(None))) or not isinstance(where, exp.Where):
        return None
    condition: exp.Expr = where.this
    return condition
