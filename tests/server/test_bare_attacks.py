"""Attacks by bare statements, and by the macros that the stock shell has for dp and its kin."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dpduck.language.statements.kinds import DeclarePublicTable
from dpduck.language.statements.parse import parse_statement
from dpduck.server.bare_statements import read_bare
from dpduck.server.inspection import Inspected, inspect
from dpduck.server.syntax import Syntax
from dpduck.values.errors import DpduckError
from dpduck.values.quoting import quote_text
from tests.server.served import Served
from tests.server.statement_lists import statements
from tests.server.test_attacks import ATTACKS, CLOTHES, DISGUISES, FORBIDDEN, INSIDE, public_state, refused_all
from tests.server.test_bare_statements import OWNERS

BARE = statements("bare.sql")
CONNECT = Path(__file__).resolve().parent.parent.parent / "sql" / "connect.sql"
OPTIONS = "OPTIONS (epsilon = 0.001)"
BEGINS = (
    f"SELECT WITH DIFFERENTIAL_PRIVACY {OPTIONS}",
    f"EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY {OPTIONS}",
    f"CREATE PRIVATE VIEW stolen {OPTIONS} AS SELECT",
)
ONLY_BARE = "\u017f"
"""A long s, which DuckDB and the gate do not read as an s, and the parser of dp() does. Nothing depends on it."""

CREATED = {"CreatePolicy", "AlterPolicy", "DropPolicy"}


def test_every_bare_attack_is_refused(served: Served) -> None:
    """The refusal is one line with an accepted form. Nothing is charged, and nothing changes."""
    assert len(set(BARE)) == len(BARE) >= 115
    refused_all(served, "bob", BARE)


def test_no_bare_text_reads_a_file(served: Served) -> None:
    """What would reach private rows from inside a DuckDB, alone and as a source of an annotated SELECT."""
    file, folder = str(served.database), str(served.database.parent)
    for line in statements("public_reads.sql"):
        text = line.replace("{file}", file).replace("{folder}", folder)
        for sent in (text, f"SELECT WITH DIFFERENTIAL_PRIVACY {OPTIONS} count(*) AS n FROM ({text})"):
            message = served.refused("bob", sent)
            assert "accepted: " in message and "\n" not in message, sent


@pytest.mark.slow
def test_bare_attacks_in_other_clothes(served: Served) -> None:
    """Comments, blanks, brackets and other statements around them, and dp around them."""
    source = random.Random(11)  # noqa: S311
    texts = [dress(text) for text in BARE if ONLY_BARE not in text for dress in source.sample(CLOTHES, 4)]
    worn = [text for text in texts if text.strip("; ")]
    assert len(worn) > 400
    refused_all(served, "bob", worn)


def test_no_bare_question_reaches_a_table_that_one_may_not_ask_about(served: Served) -> None:
    """carol may ask about wards, alice about tables with a policy."""
    asked = 0
    for place, name in enumerate(("visits", "VISITS", "secret", "ages", "sqlite_master", "vis\u0456ts", "releases")):
        texts = [f"{begin} {inside.replace('THING', name)}" for begin in BEGINS for inside in INSIDE]
        refused_all(served, "carol" if place < 2 else "alice", texts[place % 3 :: 3])
        asked += len(texts[place % 3 :: 3])
    assert asked >= 2 * len(BEGINS) * len(INSIDE)


@pytest.mark.slow
def test_no_disguise_around_a_bare_statement_reads_a_forbidden_thing(served: Served) -> None:
    """The disguises of the gate, as the source of an annotated SELECT, and around one."""
    select = f"SELECT WITH DIFFERENTIAL_PRIVACY {OPTIONS} count(*) AS n FROM"
    texts = [
        text
        for number, thing in enumerate(FORBIDDEN)
        for place, form in enumerate(DISGUISES)
        if (number + place) % 50 == 0
        for text in (f"{select} ({form.replace('THING', thing)})", form.replace("THING", f"({select} {thing})"))
    ]
    assert len(texts) > 300
    refused_all(served, "carol", texts)


WORDS = (
    *("SELECT", "select", "WITH", "DIFFERENTIAL_PRIVACY", "differential_privacy", "OPTIONS", "(epsilon = 0.001)"),
    *("count(*) AS n", "FROM visits", "FROM ages", "FROM secret", "GROUP BY sex", "sex,", "UNION ALL", "WHERE sex = 1"),
    *("CREATE", "OR", "REPLACE", "PRIVATE", "VIEW", "TABLE", "STREAM", "PRIVACY", "POLICY", "ON visits", "ON secret"),
    *("ALTER", "DROP", "REFRESH", "DECLARE", "UNDECLARE", "PUBLIC", "NEW EPOCH", "IF EXISTS", "v", "AS", "EXPLAIN"),
    *("ANALYZE", "COPY", "PREPARE p AS", "FROM dp($a$", "$a$)", "FROM dp('", "')", "DESCRIBE", "SHOW TABLES", "PIVOT"),
    *(";", ";;", "(", ")", "'", '"', "$$", "$a$", "E'\\'", "--", "-- x\n", "/*", "*/", "/* /* */", "/**/", "{#", "#}"),
    *("/*+", "#", "\\", "\n", "\r", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u2028", "\x0b", "\x0c", "\x00"),
    *("\u017f", "\u0130", "\uff33ELECT", "`", "@", "$1", "?", "1", "\ud800"),
)
BEGINNINGS = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001) sex, count(*) AS n FROM visits GROUP BY sex",
    "CREATE OR REPLACE PRIVATE VIEW v OPTIONS (epsilon = 0.001) AS SELECT count(*) AS n FROM visits",
    "DROP PRIVATE VIEW IF EXISTS v",
    "WITH x AS (FROM visits) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001) count(*) AS n FROM x",
    "FROM ages",
    *OWNERS,
)


def written(source: random.Random) -> str:
    """Returns a text of such words: alone, or put into a statement at some place."""
    number = source.randrange(1, 12)
    words = source.choice(("", " ", " ", "\n")).join(source.choice(WORDS) for _ in range(number))
    if source.randrange(3) == 0:
        return words
    text = source.choice(BEGINNINGS)
    place = source.choice((0, len(text), source.randrange(len(text) + 1)))
    text = text[:place] + source.choice((words, source.choice(WORDS))) + text[place:]
    return source.choice(CLOTHES)(text) if source.randrange(4) == 0 else text


def is_owners(statement: str) -> bool:
    """Tells whether the parser of dp() reads a statement of the data owner's alone."""
    try:
        parsed = parse_statement(statement)
    except (DpduckError, RecursionError):
        return False
    return isinstance(parsed, DeclarePublicTable) or type(parsed).__name__ in CREATED


def fuzz(seed: int, number: int) -> tuple[int, int]:
    """Inspects so many texts. Returns how many were calls of bare statements, and how many were refused."""
    source, syntax, called, refused = random.Random(seed), Syntax(), 0, 0  # noqa: S311
    for _ in range(number):
        text = written(source)
        bare = read_bare(text)
        try:
            inspected = inspect(text, syntax)
        except DpduckError as error:
            assert "\n" not in str(error) and "accepted: " in str(error), text
            refused += 1
            continue
        assert bare is None or not bare.owner, text
        if bare is not None:
            (call,) = inspected.calls
            assert (call.function, call.argument, inspected.views) == (bare.function, bare.statement, ()), text
            assert call.action == {"dp": "run", "dp_explain": "explain"}[bare.function]
            assert not is_owners(bare.statement), text
            kept = bare.statement if bare.function == "dp" else bare.statement.replace(" " * 7, "EXPLAIN", 1)
            assert text.lower().startswith(kept.lower()), "the client's own text, without its end"
            called += 1
    return called, refused


def test_a_text_is_refused_or_one_call_and_never_the_owners() -> None:
    """4,000 texts of words, quotes, comments and blanks, in which statements are put together."""
    called, refused = fuzz(1, 4_000)
    assert called > 300 and refused > 1_500, (called, refused)


@pytest.mark.audit
def test_many_texts_are_refused_or_one_call() -> None:
    """The fuzz of the test above with 200,000 texts."""
    called, refused = fuzz(2, 200_000)
    assert called > 10_000 and refused > 75_000, (called, refused)


@pytest.fixture(scope="module")
def shell_macros() -> Iterator[duckdb.DuckDBPyConnection]:
    """The macros of sql/connect.sql, with the text for the server in place of its answer."""
    text = CONNECT.read_text(encoding="utf-8")
    text = text[text.index("CREATE OR REPLACE TEMP MACRO") :]
    with duckdb.connect() as con:
        con.execute("CREATE MACRO sent(served, sent) AS TABLE SELECT served AS served, sent AS sent")
        con.execute(text.replace("quack_query_by_name", "sent"))
        yield con


def through(con: duckdb.DuckDBPyConnection, macro: str, argument: str) -> str:
    """Returns the text that a macro sends to the server."""
    sent = con.execute(f"FROM {macro}($1)", [argument]).fetchall()
    assert [served for served, _ in sent] == ["clinic"]
    return str(sent[0][1])


def test_no_argument_breaks_out_of_a_macro(shell_macros: duckdb.DuckDBPyConnection) -> None:
    """Every attack, every bare attack and 1,000 texts of the fuzz arrive as one text, whatever quotes they have."""
    source, syntax = random.Random(3), Syntax()  # noqa: S311
    texts = [*ATTACKS[::3], *BARE, *(written(source) for _ in range(300))]
    texts = [text for text in texts if not set(text) & {"\x00", "\ud800"}]
    for number, text in enumerate(texts):
        macro = ("dp", "dp_explain", "dp_errors", "dp_plan", "dp_columns")[number % 5]
        sent = through(shell_macros, macro, text)
        assert sent == f"FROM {macro}({quote_text(text)})"
        try:
            inspected: Inspected = inspect(sent, syntax)
        except DpduckError as error:
            assert "too deeply" in str(error) or "too many signs" in str(error), text  # brackets in the text count, too
            continue
        (call,) = inspected.calls
        assert (call.function, call.argument, inspected.views) == (macro, text, ())


def test_arguments_without_a_value(shell_macros: duckdb.DuckDBPyConnection) -> None:
    """NULL and numbers become what dp refuses, and no other statement. NULL is all tables for dp_columns alone."""
    for macro in ("dp", "dp_explain", "dp_errors", "dp_plan"):
        sent = shell_macros.execute(f"SELECT sent FROM {macro}(NULL)").fetchall()
        assert sent == [(f"FROM {macro}(NULL)",)]
    assert shell_macros.execute("SELECT sent FROM dp(3)").fetchall() == [("FROM dp('3')",)]
    assert shell_macros.execute("SELECT sent FROM dp_columns()").fetchall() == [("FROM dp_columns(NULL)",)]
    known = "SELECT sent FROM dp_known('it''s', confidence := {}, target_stderr := {})"
    for given, becomes in (
        (("0.9", "3"), "0.9, 3.0"), (("NULL", "NULL"), "NULL, NULL"), (("'nan'", "1e300"), "nan, 1e+300")
    ):  # fmt: skip
        sent = shell_macros.execute(known.format(*given)).fetchall()
        assert sent == [(f"FROM dp_known('it''s', {becomes})",)]
    for wrong in ("0.9) UNION ALL FROM ages --", "'0.9) UNION ALL FROM ages --'"):
        with pytest.raises(duckdb.Error):
            shell_macros.execute(known.format(wrong, "NULL")).fetchall()


@pytest.mark.slow
def test_every_attack_through_a_macro_is_refused(served: Served, shell_macros: duckdb.DuckDBPyConnection) -> None:
    """The lists of attacks as arguments of dp, dp_explain, dp_errors and dp_plan: refused, free, and without effect."""
    before = public_state(served)
    macros = ("dp", "dp_explain", "dp_errors", "dp_plan")
    texts = [text for text in ATTACKS if "\x00" not in text]
    sent = [through(shell_macros, macros[number % 4], text) for number, text in enumerate(texts)]
    sent += [through(shell_macros, "dp", text) for text in BARE if not {"\x00", ONLY_BARE} & set(text)]
    refused_all(served, "bob", sent)
    assert public_state(served) == before
