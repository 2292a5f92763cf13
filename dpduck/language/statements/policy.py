"""Grammar of privacy policies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

from sqlglot.tokens import TokenType

from dpduck.language.statements.kinds import (
    AlterPolicy,
    BudgetClause,
    ClampClause,
    CreatePolicy,
    DomainClause,
    DropPolicy,
    PolicyClauses,
    PreparePolicy,
    ReserveBudget,
    UnitClause,
)
from dpduck.language.text.dialect import TokenReader
from dpduck.language.text.names import TableName
from dpduck.values.errors import Position
from dpduck.values.periods import WORDS
from dpduck.values.quoting import fold

MOST_TOGETHER = 8  # most columns that may together identify a privacy unit
MAX_ROWS_LIMIT = 1_000_000
ITEMS = "PRIVACY UNIT, BUDGET, LIFETIME, DOMAIN, CLAMP, EXPECT ROWS, MAX EPSILON or MIN EPSILON"
EVERY = ""  # column of DOMAIN ALL BOOLEAN or ALL ENUM, for every column of that type without its own domain
CLOCKS = ("TODAY", "NOW", "CURRENT_DATE", "CURRENT_TIMESTAMP", "TOMORROW", "YESTERDAY")
STEPS = tuple(
    word + plural
    for word in ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
    for plural in ("", "S")
)
ZERO = Fraction(0)

_QUOTED_STEP = re.compile(r"\s*(\d+)?\s*([A-Za-z]+)\s*")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")


def read_create_policy(reader: TokenReader, replace_existing: bool) -> CreatePolicy:
    """Reads the rest of CREATE [OR REPLACE] PRIVACY POLICY."""
    reader.expect_words("ON")
    position, table = reader.position, reader.table_name()
    reader.expect(TokenType.L_PAREN, "( and the policy's items")
    clauses = _read_item(reader, PolicyClauses())
    while reader.take(TokenType.COMMA):
        if reader.at(TokenType.R_PAREN):
            raise reader.refuse("a comma stands before ')'", "no comma after the last item")
        clauses = _read_item(reader, clauses)
    reader.expect(TokenType.R_PAREN, ") or , and " + ITEMS)
    reader.expect_end()
    return CreatePolicy(table, replace_existing, clauses, position)


def read_alter_policy(reader: TokenReader) -> AlterPolicy | PreparePolicy | ReserveBudget:
    """Reads the rest of ALTER PRIVACY POLICY."""
    reader.expect_words("ON")
    position, tables = reader.position, reader.comma_separated(reader.table_name)
    undo = reader.take_words("UNPREPARE")
    if undo or reader.take_words("PREPARE"):
        reader.expect_end()
        return PreparePolicy(tuple(tables), undo, position)
    changes, new_epoch = PolicyClauses(), False
    drop_domain = drop_clamp = None
    if reader.take_words("NEW", "EPOCH"):
        new_epoch = True
    elif len(tables) > 1:
        raise reader.refuse_token("NEW EPOCH, PREPARE or UNPREPARE, which alone take several tables")
    elif reader.at_words("RESERVE") or reader.at_words("RELEASE"):
        return _read_reservation(reader, tables[0], position)
    elif reader.take_words("SET"):
        _refuse_rows_alone(reader, tables[0])
        changes = _read_item(reader, changes)
    elif reader.take_words("DROP", "DOMAIN"):
        drop_domain = reader.name("a column with a domain")
    elif reader.take_words("DROP", "CLAMP"):
        drop_clamp = reader.name("a column with a clamp")
    else:
        raise reader.refuse_token(
            "NEW EPOCH, PREPARE, UNPREPARE, SET and an item (BUDGET, LIFETIME, DOMAIN, CLAMP, PRIVACY UNIT, "
            "EXPECT ROWS, MAX EPSILON, MIN EPSILON), DROP DOMAIN column, DROP CLAMP column, RESERVE share FOR name, "
            "RELEASE name"
        )
    reader.expect_end()
    return AlterPolicy(tables[0], new_epoch, changes, drop_domain, drop_clamp, tuple(tables[1:]), position)


def _read_reservation(reader: TokenReader, table: TableName, position: Position) -> ReserveBudget:
    """Reads RESERVE share FOR payer [UNTIL 'day'], or RELEASE payer. The day ends the reservation with its end."""
    share: Fraction | None = None
    until: datetime | None = None
    if reader.take_words("RESERVE"):
        place, share = reader.position, reader.amount("a share of the budget")
        share = share / 100 if reader.take(TokenType.MOD) else share
        if share > 1:
            raise reader.refuse("a share is a part of the budget", "more than 0 and at most 1, or 20 %", place)
        reader.expect_words("FOR")
        payer = _read_payer(reader)
        if reader.take_words("UNTIL"):
            reader.take_words("DATE")
            place, text = reader.position, reader.string("a day, as in '2027-01-31'")
            if not _DATE.fullmatch(text):
                raise reader.refuse(f"{text[:40]!r} is no day", "a day, as in '2027-01-31'", place)
            try:
                day = datetime.strptime(text, "%Y-%m-%d")
            except ValueError:
                raise reader.refuse(f"{text[:40]!r} is no day", "a day, as in '2027-01-31'", place) from None
            until = day.replace(hour=23, minute=59, second=59, tzinfo=UTC)
    else:
        reader.expect_words("RELEASE")
        payer = _read_payer(reader)
    reader.expect_end()
    return ReserveBudget(table, payer, share, until, position)


def _read_payer(reader: TokenReader) -> str:
    what = "a principal, a project, or owner"
    return reader.string(what) if reader.at(TokenType.STRING) else reader.name(what)


def _refuse_rows_alone(reader: TokenReader, table: TableName) -> None:
    """Refuses SET MAX ROWS: MAX ROWS can change only with all of PRIVACY UNIT."""
    if reader.at_words("MAX", "ROWS"):
        most = reader.tokens[reader.index + 2].text[:12] if reader.index + 2 < len(reader.tokens) else "m"
        raise reader.refuse(
            "MAX ROWS belongs to PRIVACY UNIT",
            f"ALTER PRIVACY POLICY ON {table} SET PRIVACY UNIT column MAX ROWS {most}",
        )


def read_drop_policy(reader: TokenReader) -> DropPolicy:
    """Reads the rest of DROP PRIVACY POLICY."""
    if_exists = reader.take_words("IF", "EXISTS")
    reader.expect_words("ON")
    position, table = reader.position, reader.table_name()
    reader.expect_end()
    return DropPolicy(table, if_exists, position)


def _read_item(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    for words, read in _ITEM_READERS.items():
        if reader.at_words(*words.split()):
            return read(reader, clauses)
    raise reader.refuse_token(ITEMS)


def _begin_item(reader: TokenReader, present: object, words: str) -> None:
    """Reads the first words of an item. Refuses an item that is already present."""
    if present:
        raise reader.refuse(f"{words} is given twice", "each item once")
    reader.expect_words(*words.split())


def _read_unit(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    _begin_item(reader, clauses.unit, "PRIVACY UNIT")
    position = reader.position
    if reader.take_words("ROW"):
        return replace(clauses, unit=UnitClause(None, None, 1, position, _read_period(reader)))
    columns = _read_together(reader) if reader.at(TokenType.L_PAREN) else ()
    column = columns[0] if len(columns) == 1 else None
    columns = columns if column is None else ()
    if column is None and not columns:
        column = reader.name("ROW, a column, or (several, columns)")
    references = _table_and_column(reader) if not columns and reader.take_words("REFERENCES") else None
    period = _read_period(reader) if not columns else None
    if not reader.take_words("MAX", "ROWS"):
        raise reader.refuse_token("MAX ROWS and the most rows of one unit that an answer may see")
    most = reader.count("MAX ROWS", MAX_ROWS_LIMIT)
    return replace(clauses, unit=UnitClause(column, references, most, position, period, columns))


def _read_together(reader: TokenReader) -> tuple[str, ...]:
    """Reads columns in parentheses that together identify a privacy unit."""
    columns = _read_columns(reader)
    if len(columns) > MOST_TOGETHER:
        raise reader.refuse(f"{len(columns)} columns of a privacy unit", f"{MOST_TOGETHER} columns at most")
    listed = f"({', '.join(columns)})"
    if len(columns) == 1:
        return tuple(columns)
    if reader.at_words("REFERENCES"):
        raise reader.refuse(
            f"a unit of several columns, {listed}, refers to no other table",
            f"PRIVACY UNIT {listed} MAX ROWS m here; and in a table of its rows' parts PRIVACY UNIT part REFERENCES "
            "this_table.key MAX ROWS m, by a PRIMARY KEY or UNIQUE column",
        )
    if reader.at_words("PER"):
        raise reader.refuse(
            f"a unit of several columns, {listed}, has no periods",
            f"PRIVACY UNIT {listed} MAX ROWS m; or PRIVACY UNIT {columns[0]} PER MONTH OF a_date MAX ROWS m",
        )
    return tuple(columns)


def _read_columns(reader: TokenReader) -> list[str]:
    reader.expect(TokenType.L_PAREN, "(")
    columns = reader.comma_separated(lambda: reader.name("a column"))
    reader.expect(TokenType.R_PAREN, ") or , and a column")
    return columns


def _read_period(reader: TokenReader) -> tuple[str, str] | None:
    if not reader.take_words("PER"):
        return None
    word = _read_word(reader)
    reader.expect_words("OF")
    return word, reader.name("a column of dates")


def _read_word(reader: TokenReader) -> str:
    word = next((candidate for candidate in WORDS if reader.take_words(candidate)), None)
    if word is None:
        raise reader.refuse_token(", ".join(WORDS[:-1]) + f" or {WORDS[-1]}")
    return word


def _table_and_column(reader: TokenReader) -> tuple[TableName, str]:
    name = reader.table_name(4)
    if len(name.parts) < 2:
        raise reader.refuse("a column is named with its table", "table.column")
    return TableName(name.parts[:-1]), name.parts[-1]


def _read_budget(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    _begin_item(reader, clauses.budget, "BUDGET")
    budget = _read_amounts(reader)
    if reader.take_words("PER"):
        budget = replace(budget, per=_read_word(reader))
    return replace(clauses, budget=budget)


def _read_lifetime(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    _begin_item(reader, clauses.lifetime, "LIFETIME")
    return replace(clauses, lifetime=_read_amounts(reader))


def _read_amounts(reader: TokenReader) -> BudgetClause:
    position = reader.position
    reader.expect(TokenType.L_PAREN, "(epsilon = ..), (epsilon = .., delta = ..) or (rho = ..)")
    amounts: dict[str, Fraction] = {}
    while True:
        name = reader.name("epsilon, delta, delta_keys or rho").lower()
        if name not in ("epsilon", "delta", "delta_keys", "rho") or name in amounts:
            raise reader.refuse(f"{name} is unknown or given twice", "epsilon, delta, delta_keys or rho, each once")
        reader.expect(TokenType.EQ, "=")
        amounts[name] = reader.amount(name)
        if not reader.take(TokenType.COMMA):
            break
    reader.expect(TokenType.R_PAREN, ")")
    shapes = ({"epsilon"}, {"epsilon", "delta"}, {"epsilon", "delta", "delta_keys"}, {"rho"})
    if set(amounts) not in shapes:
        raise reader.refuse(
            "these parts make no budget", "(epsilon = ..), (epsilon = .., delta = ..) or (rho = ..)", position
        )
    delta, delta_keys = amounts.get("delta", ZERO), amounts.get("delta_keys", ZERO)
    if delta >= Fraction(1, 100) or ("delta" in amounts and delta_keys >= delta):
        raise reader.refuse("delta is out of range", "delta below 0.01 and delta_keys below delta", position)
    return BudgetClause(amounts.get("epsilon"), delta, delta_keys, amounts.get("rho"), position)


def _read_domain(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    """Reads DOMAIN of one column, of several columns in parentheses, or of ALL BOOLEAN or ALL ENUM columns."""
    reader.expect_words("DOMAIN")
    position = reader.position
    if reader.at_words("ALL", "BOOLEAN") or reader.at_words("ALL", "ENUM"):
        reader.index += 1
        columns = [EVERY]
    elif reader.at(TokenType.L_PAREN):
        columns = _read_columns(reader)
    else:
        columns = [reader.name("a column, (several, columns), ALL BOOLEAN or ALL ENUM")]
    domain = _read_values_of(reader, columns[0], position)
    for column in columns:
        if any(fold(clause.column) == fold(column) and column != EVERY for clause in clauses.domains):
            raise reader.refuse(f"the domain of {column} is given twice", "one domain for each column", position)
        clauses = replace(clauses, domains=(*clauses.domains, replace(domain, column=column)))
    return clauses


def _read_values_of(reader: TokenReader, column: str, position: Position) -> DomainClause:
    """Reads the rest of DOMAIN after the columns: the values, and WITH NULL, OTHER or EDGES."""
    values: tuple[str, ...] = ()
    bare = False
    low = high = step = unit = ""
    source = None
    if reader.take_words("IN"):
        start = reader.index
        kind, values = "values", _read_values(reader)
        bare = any(token.token_type == TokenType.NUMBER for token in reader.tokens[start : reader.index])
    elif reader.take_words("RANGE"):
        kind, (low, high, step, unit) = "range", _read_range(reader)
    elif reader.take_words("FROM"):
        kind, source = "public", _table_and_column(reader)
    elif reader.take_words("BOOLEAN"):
        kind = "boolean"
    elif reader.take_words("ENUM"):
        kind = "enum"
    else:
        raise reader.refuse_token("IN (..), RANGE .. TO .. STEP .., FROM table.column, BOOLEAN or ENUM")
    with_null, other, with_edges = _read_withs(reader, kind)
    return DomainClause(
        column, kind, values, low, high, step, unit, source, with_null, other, with_edges, position, bare
    )


def _read_values(reader: TokenReader) -> tuple[str, ...]:
    reader.expect(TokenType.L_PAREN, "( and the values")
    if reader.at_words("SELECT") or reader.at_words("FROM") or reader.at_words("WITH"):
        raise reader.refuse(
            "a domain is declared, never read from data", "a list of literals, or FROM public_table.column"
        )
    values = reader.comma_separated(reader.literal)
    reader.expect(TokenType.R_PAREN, ") or , and a value")
    return tuple(values)


def _read_range(reader: TokenReader) -> tuple[str, str, str, str]:
    low = _read_bound(reader)
    if reader.at(TokenType.DASH):
        raise reader.refuse_token("TO; a date has a year, a month and a day: 2024-01-01 TO 2025-01-01 STEP MONTH")
    reader.expect_words("TO")
    high = _read_bound(reader)
    if not reader.take_words("STEP"):
        raise reader.refuse_token("STEP and a width, as in STEP 5, or of dates STEP MONTH")
    return (low, high, *_read_step(reader))


def _read_step(reader: TokenReader) -> tuple[str, str]:
    """Reads a step: a number, or a number of date units such as INTERVAL 7 DAYS, 7 DAYS, MONTH, '7 days'."""
    named = reader.take_words("INTERVAL")
    match = _QUOTED_STEP.fullmatch(reader.current.text) if reader.current and reader.at(TokenType.STRING) else None
    if match is not None and match[2].upper() in STEPS:
        reader.index += 1
        step, unit = match[1] or "1", match[2]
    elif named:
        quoted = reader.at(TokenType.STRING)
        step = reader.string("a number") if quoted else reader.number_text("a number")
        unit = reader.name("a number and a unit such as DAY, HOUR or MONTH: INTERVAL 1 MONTH")
    elif any(reader.take_words(word) for word in STEPS):
        step, unit = "1", reader.tokens[reader.index - 1].text
    else:
        step = reader.number_text("a number, or of dates a word: STEP MONTH, STEP 7 DAYS")
        unit = reader.tokens[reader.index - 1].text if any(map(reader.take_words, STEPS)) else ""
    return step, unit.lower().rstrip("s")


def _read_bound(reader: TokenReader) -> str:
    """Reads a bound of a range: a literal, or a date without quotes. Refuses words of the clock, such as TODAY."""
    if any(map(reader.at_words, CLOCKS)):
        raise reader.refuse(
            "a range ends at a date that stays: TODAY would be another one tomorrow, so that bins, and what was "
            "released of them, would change with the clock",
            "a date that is far enough, as in TO 2031-01-01: bins without rows cost no budget",
        )
    following = reader.tokens[reader.index : reader.index + 5]
    written = reader.text[following[0].start : following[-1].end + 1] if following else ""
    if _DATE.fullmatch(written):
        reader.index += len(following)
        return written
    return reader.literal()


def _read_withs(reader: TokenReader, kind: str) -> tuple[bool, str | None, bool]:
    with_null, other, with_edges = False, None, False
    while reader.take_words("WITH"):
        if not with_null and reader.take_words("NULL"):
            with_null = True
        elif kind != "range" and other is None and reader.take_words("OTHER"):
            if reader.at(TokenType.NUMBER) or reader.at(TokenType.DASH):
                raise reader.refuse_token("WITH OTHER of texts, with a quoted label; of numbers RANGE .. WITH EDGES")
            other = reader.string("a label") if reader.at(TokenType.STRING) else "OTHER"
        elif kind == "range" and reader.take_words("EDGES"):
            with_edges = True
        else:
            raise reader.refuse_token("NULL or EDGES, each once" if kind == "range" else "NULL or OTHER, each once")
    return with_null, other, with_edges


def _read_clamp(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    reader.expect_words("CLAMP")
    position = reader.position
    column = reader.name("a column")
    if any(fold(clamp.column) == fold(column) for clamp in clauses.clamps):
        raise reader.refuse(f"the clamp of {column} is given twice", "one clamp for each column", position)
    reader.expect_words("BETWEEN")
    low = reader.number_text("a number")
    reader.expect_words("AND")
    high = reader.number_text("a number")
    step = reader.number_text("a step") if reader.take_words("STEP") else ""
    return replace(clauses, clamps=(*clauses.clamps, ClampClause(column, low, high, step, position)))


def _read_expect(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    _begin_item(reader, clauses.expect_rows, "EXPECT ROWS")
    return replace(clauses, expect_rows=reader.count("EXPECT ROWS", 10**15))


def _read_max_epsilon(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    _begin_item(reader, clauses.max_epsilon, "MAX EPSILON")
    amount = reader.amount("MAX EPSILON")
    reader.take_words("PER", "QUERY")
    return replace(clauses, max_epsilon=amount)


def _read_min_epsilon(reader: TokenReader, clauses: PolicyClauses) -> PolicyClauses:
    _begin_item(reader, clauses.min_epsilon, "MIN EPSILON")
    return replace(clauses, min_epsilon=reader.amount("MIN EPSILON"))


_ITEM_READERS: Mapping[str, Callable[[TokenReader, PolicyClauses], PolicyClauses]] = {
    "PRIVACY UNIT": _read_unit,
    "BUDGET": _read_budget,
    "LIFETIME": _read_lifetime,
    "DOMAIN": _read_domain,
    "CLAMP": _read_clamp,
    "EXPECT ROWS": _read_expect,
    "MAX EPSILON": _read_max_epsilon,
    "MIN EPSILON": _read_min_epsilon,
}
