"""Parser of a text as one statement: a statement of dpduck's own, or SELECT WITH DIFFERENTIAL_PRIVACY."""

from __future__ import annotations

import re
from difflib import get_close_matches

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType

from dpduck.language.rows.copied_words import check_atoms
from dpduck.language.statements.kinds import (
    KINDS,
    STREAM,
    VIEW,
    AskStatement,
    CreatePrivate,
    DeclarePublicTable,
    DropPrivate,
    RefreshPrivate,
    Statement,
)
from dpduck.language.statements.policy import read_alter_policy, read_create_policy, read_drop_policy
from dpduck.language.statements.synthetic import argument_names, read_private_table
from dpduck.language.text.dialect import (
    MISSPELT,
    DifferentialPrivacy,
    PrivateDuckDB,
    TokenReader,
    tokenize_statement,
)
from dpduck.language.text.positions import note_positions, refuse_deprecated
from dpduck.language.text.words import position_in
from dpduck.language.text.wrapped_calls import refuse_wrapped
from dpduck.values.errors import InternalError, Position, Refusal

KEYWORDS = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "SELECT", "UNION", "JOIN")
"""Keywords that a refusal suggests in place of a similar word, if a statement does not parse after that word."""

_WORD = re.compile(r"[A-Za-z_]+")
_CALL = re.compile(r"(\w+)\s*\([^()]*$")
_ARGUMENTS = re.compile(r"provided arguments \((\d+)\) is greater than .* supported arguments \((\d+)\)", re.DOTALL)
_WITHOUT_WITH = re.compile(r"\bSELECT\s+DIFFERENTIAL_PRIVACY\b", re.IGNORECASE)
_IN_OPTIONS = re.compile(r"\bOPTIONS\s*\([^()]*$", re.IGNORECASE)

ANNOTATION = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) .."
STATEMENTS = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, "
    "CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE"
)


def parse_statement(text: str) -> Statement:
    """Parses a text as one statement. Refuses any other text."""
    tokens = tokenize_statement(text)
    reader = TokenReader(text, tokens)
    refuse_wrapped(reader)
    if reader.take_words("DECLARE", "PUBLIC", "TABLE"):
        return _public_table(reader, withdraw=False)
    if reader.take_words("UNDECLARE", "PUBLIC", "TABLE"):
        return _public_table(reader, withdraw=True)
    if reader.take_words("ALTER", "PRIVACY", "POLICY"):
        return read_alter_policy(reader)
    if reader.take_words("DROP", "PRIVACY", "POLICY"):
        return read_drop_policy(reader)
    if (existing := _existing(reader)) is not None:
        return existing
    if reader.take_words("CREATE"):
        replace = reader.take_words("OR", "REPLACE")
        if reader.take_words("PRIVACY", "POLICY"):
            return read_create_policy(reader, replace)
        if reader.take_words("PRIVATE", "VIEW"):
            return _private_view(reader, replace)
        if reader.take_words("PRIVATE", "TABLE"):
            return read_private_table(reader, replace, _parse_query, _view_options)
        for kind in KINDS:
            if reader.take_words("PRIVATE", kind.upper()):
                if replace:
                    raise reader.refuse(
                        f"a {kind} is not replaced", f"DROP PRIVATE {kind.upper()} first, or another name"
                    )
                return _named(reader, kind)
        raise reader.refuse_token("CREATE PRIVACY POLICY, or CREATE PRIVATE and what: VIEW, TABLE, PROJECTION ..")
    if reader.at(TokenType.L_PAREN) or any(reader.at_words(word) for word in ("SELECT", "WITH", "FROM")):
        query = _parse_query(text, tokens)
        if query.find(DifferentialPrivacy) is None:
            raise reader.refuse("the statement is not annotated", ANNOTATION)
        return AskStatement(query, text, 0, None, False, ())
    raise reader.refuse_token(STATEMENTS)


def parse_ask(text: str) -> AskStatement:
    """Parses a text that was parsed before as a SELECT WITH DIFFERENTIAL_PRIVACY or a private view."""
    statement = parse_statement(text)
    if not isinstance(statement, AskStatement):
        raise InternalError("a statement of another kind than before")
    return statement


def parse_expression(text: str) -> exp.Expr:
    """Parses one expression over the columns of a released table. The caller checks what the expression contains."""
    tokens = tokenize_statement(text)
    query = _parse_query(text, [*PrivateDuckDB().tokenize("SELECT"), *tokens])
    if not isinstance(query, exp.Select) or len(query.expressions) != 1 or argument_names(query) != {"expressions"}:
        raise Refusal("this is not one expression", accepted="an expression such as CASE WHEN x = 1 THEN 1 ELSE -1 END")
    expression: exp.Expr = query.expressions[0]
    return expression


def parse_plain(text: str) -> exp.Query:
    """Parses one query without options for dp_known. The caller checks what the query contains."""
    tokens = tokenize_statement(text)
    refuse_wrapped(TokenReader(text, tokens))
    return _parse_query(text, tokens)


def parse_options(text: str) -> DifferentialPrivacy:
    """Parses the text of options, such as epsilon = 1. Returns the clause WITH DIFFERENTIAL_PRIVACY that holds them."""
    clause = _parse_query(text, _clause_tokens(PrivateDuckDB().tokenize(f"({text})"))).find(DifferentialPrivacy)
    if clause is None:
        raise InternalError("a clause that does not parse")
    return clause


def parse_select(text: str) -> exp.Select:
    """Parses one plain SELECT. The caller checks what the SELECT contains."""
    query = _parse_query(text, tokenize_statement(text))
    if not isinstance(query, exp.Select):
        raise Refusal("this is not one SELECT", accepted="SELECT columns FROM a table WHERE conditions")
    return query


def _public_table(reader: TokenReader, withdraw: bool) -> DeclarePublicTable:
    position, table = reader.position, reader.table_name()
    reader.expect_end()
    return DeclarePublicTable(table, withdraw, position)


def _existing(reader: TokenReader) -> DropPrivate | RefreshPrivate | None:
    for kind in KINDS:
        name_of = f"the name of a private {kind}"
        if reader.take_words("DROP", "PRIVATE", kind.upper()):
            if_exists = reader.take_words("IF", "EXISTS")
            name = reader.name(name_of)
            reader.expect_end()
            return DropPrivate(kind, name, if_exists)
        if kind in (VIEW, STREAM) and reader.take_words("REFRESH", "PRIVATE", kind.upper()):
            name, until = reader.name(name_of), ""
            if kind == STREAM and reader.take_words("UNTIL"):
                reader.take_words("DATE")
                until = reader.string("a day, such as '2025-01-01'")
            reader.expect_end()
            return RefreshPrivate(kind, name, until)
    return None


def _private_view(reader: TokenReader, replace: bool) -> AskStatement:
    if reader.at_words("IF"):
        raise reader.refuse_token("a name (CREATE OR REPLACE PRIVATE VIEW replaces)")
    name = reader.name("a name for the view")
    if reader.at(TokenType.DOT):
        raise reader.refuse("a private view has a name of one part", "a name without dots")
    options = _view_options(reader) if reader.at_words("OPTIONS") else ()
    if not reader.take(TokenType.ALIAS):
        raise reader.refuse_token("OPTIONS (..) or AS SELECT ..")
    start = reader.index
    text, offset = reader.rest()
    query = _parse_query(reader.text, reader.tokens[start:])
    if query.find(DifferentialPrivacy) is not None:
        raise Refusal(
            "a private view has its options after its name",
            accepted="CREATE PRIVATE VIEW name OPTIONS (..) AS SELECT .. without WITH DIFFERENTIAL_PRIVACY",
            position=position_in(reader.text, offset),
        )
    return AskStatement(query, text, offset, name, replace, options)


def _named(reader: TokenReader, kind: str) -> CreatePrivate:
    """Reads the rest of CREATE PRIVATE kind. ON table (columns) stands for SELECT columns FROM table."""
    name, is_stream = reader.name(f"a name for the {kind}"), kind == STREAM
    options = _view_options(reader) if reader.at_words("OPTIONS") else ()
    if not options:
        raise reader.refuse_token(f"OPTIONS (epsilon = .., {'periods = ' if is_stream else ''}..)")
    if reader.take(TokenType.ALIAS):
        query = _parse_inner(reader.text, reader.tokens[reader.index :])
    elif not is_stream and reader.take_words("ON"):
        table = _until(reader, TokenType.L_PAREN, "(")
        columns = _until(reader, TokenType.R_PAREN, ")")
        words = PrivateDuckDB().tokenize
        rest = reader.tokens[reader.index :]
        if rest and not reader.at_words("WHERE"):
            raise reader.refuse_token("WHERE .. or the end of the statement")
        query = _parse_query(reader.text, [*words("SELECT"), *columns, *words("FROM"), *table, *rest])
    else:
        raise reader.refuse_token("AS SELECT .." + ("" if is_stream else " or ON table (columns)"))
    return CreatePrivate(kind, name, query, reader.text, options)


def _until(reader: TokenReader, end: TokenType, shown: str) -> list[Token]:
    """Takes all tokens through the next token of type `end`. Returns the tokens before that token."""
    start = reader.index
    while reader.current is not None and not reader.at(end):
        reader.index += 1
    reader.expect(end, shown)
    if reader.index - start < 2:
        raise reader.refuse_token(f"a name before {shown}")
    return reader.tokens[start : reader.index - 1]


def _view_options(reader: TokenReader) -> tuple[exp.Expr, ...]:
    """Reads options in parentheses after the name of a new object. They are parsed as options of a SELECT."""
    reader.index += 1
    start, depth = reader.index, 0
    while reader.current is not None:
        depth += reader.at(TokenType.L_PAREN) - reader.at(TokenType.R_PAREN)
        reader.index += 1
        if depth == 0:
            break
    if depth != 0 or reader.index - start < 3:
        raise reader.refuse_token("OPTIONS (epsilon = .., ..)")
    parsed = _parse_query(reader.text, _clause_tokens(reader.tokens[start : reader.index]))
    clause = parsed.find(DifferentialPrivacy)
    return tuple(clause.expressions) if clause is not None else ()


def _clause_tokens(options: list[Token]) -> list[Token]:
    """Returns the tokens of a SELECT with these options in its clause. Options keep their offsets in the text."""
    words = PrivateDuckDB().tokenize("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS")
    return [*words, *options, *PrivateDuckDB().tokenize("1")]


def _parse_query(text: str, tokens: list[Token]) -> exp.Query:
    refuse_deprecated(text, tokens)
    try:
        parsed = PrivateDuckDB().parser().parse(tokens, text)
    except ParseError as error:
        raise _parse_refusal(error) from None
    except (SqlglotError, RecursionError, ValueError, AttributeError, TypeError, IndexError, KeyError, AssertionError):
        raise Refusal("the SELECT does not parse", accepted="DuckDB's SQL") from None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise Refusal("the statement is not a SELECT", accepted="one SELECT", position=Position(1, 1))
    note_positions(parsed[0], text)
    check_atoms(parsed[0])
    return parsed[0]


def _parse_inner(text: str, tokens: list[Token]) -> exp.Query:
    query = _parse_query(text, tokens)
    if query.find(DifferentialPrivacy) is not None:
        raise Refusal(
            "this statement has its options after its name",
            accepted="OPTIONS (..) AS SELECT .. without WITH DIFFERENTIAL_PRIVACY",
            position=position_in(text, tokens[0].start),
        )
    return query


def _parse_refusal(error: ParseError) -> Refusal:
    first = error.errors[0] if error.errors else {}
    highlight = str(first.get("highlight") or "").strip()[:40]
    position = _token_position(first)
    near = f" near {highlight!r}" if highlight else ""
    said = str(first.get("description") or "")
    accepted = said.removeprefix("Expecting ").rstrip(".") if said.startswith("Expecting ") else "DuckDB's SQL"
    start = str(first.get("start_context") or "")
    many, called = _ARGUMENTS.search(said), _CALL.search(start)
    if called and (many or said.startswith("Required argument")):
        given = f"{many[1]} arguments" if many else "an argument too few"
        wanted = f"at most {many[2]}" if many else "one more"
        return Refusal(
            f"{called[1][:40]}(..) has {given}", accepted=f"{wanted}, as DuckDB documents", position=position
        )
    before = _WORD.findall(start)[-1:]
    meant = get_close_matches(before[0].upper(), KEYWORDS, n=1, cutoff=0.7) if before else []
    if meant and meant[0] != before[0].upper():
        accepted = f"{meant[0]} in place of {before[0][:20]}"
    if said == MISSPELT or _WITHOUT_WITH.search(start):
        accepted = ANNOTATION
    elif _IN_OPTIONS.search(start):
        accepted = "options with = and commas, as in OPTIONS (epsilon = 1, delta = 1e-7)"
    return Refusal(f"the SELECT does not parse{near}", accepted=accepted, position=position)


def _token_position(error: dict[str, object]) -> Position | None:
    """Returns the position of the unexpected token. The parser gives the line, and the column of the token's end."""
    line, column, highlight = error.get("line"), error.get("col"), str(error.get("highlight") or "")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    return Position(line, max(1, column - max(0, len(highlight) - 1)))
