"""Functions that may run over private rows: every function that DuckDB has is tried, and the pinned ones pass."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp
from sqlglot.errors import SqlglotError

import dpduck
from dpduck.kernel.worker.functions import FUNCTIONS, require_row_local
from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.functions import MAX_GROWTH, check_row_local, check_size
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.store.parse_tree import check_tree
from dpduck.values.errors import Refusal
from dpduck.values.functions import is_date_format
from tests.support.instants import INSTANTS, OF_AN_INSTANT

ARGUMENTS = ("", "a", "a, b", "a, b, c", "a, b, c, d", "'x', a", "a, 'x'", "a, 'x', 'y'", "'month', a, b")
ACCEPTED = """
abs acos ascii asin atan atan2 cbrt ceil ceiling century char_length character_length concat contains cos date_add
date_diff date_part date_trunc datediff datetrunc day dayname dayofweek dayofyear decade ends_with even exp floor gcd
greatest hour if instr isfinite isinf isnan isodow last_day lcase lcm least left len length ln log log10 log2 lower
ltrim make_date minute mod month monthname nullif position pow power prefix quarter regexp_extract regexp_full_match
regexp_matches regexp_replace replace reverse right round rtrim second sign signbit sin split_part sqrt starts_with
strftime strip_accents strlen strpos substr substring suffix tan trim trunc try_strptime ucase unicode upper week
weekday weekofyear xor year
"""


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def expression(text: str) -> exp.Expr:
    query = PrivateDuckDB().parse(f"SELECT {text}")[0]
    assert query is not None
    parsed = query.expressions[0]
    assert isinstance(parsed, exp.Expr)
    return parsed


def duckdbs_tree(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    assert row is not None
    return json.loads(row[0])


def accepted_forms(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    """Returns the SQL that both checks accept for calls of a function with every number of arguments."""
    forms = []
    for arguments in ARGUMENTS:
        try:
            call = expression(f"{name}({arguments})")
            check_row_local(call)
            sql = sql_of(call)
            check_tree(duckdbs_tree(connection, f"SELECT {sql}"))
        except (Refusal, SqlglotError):
            continue
        forms.append(sql)
    return forms


@pytest.mark.slow
def test_every_function_of_duckdb_is_tried(connection: duckdb.DuckDBPyConnection) -> None:
    """Of all functions, macros, aggregates and table functions of DuckDB only the pinned ones may run."""
    names = [row[0] for row in connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()]
    callable_names = [name for name in names if name.isidentifier()]
    assert len(callable_names) > 600
    passed = {name for name in callable_names if accepted_forms(connection, name)}
    assert passed <= set(ACCEPTED.split())
    assert passed >= set(ACCEPTED.split()) & set(callable_names)


def test_listed_functions_are_deterministic(connection: duckdb.DuckDBPyConnection) -> None:
    """Every function that the second check lets DuckDB run is built in, consistent and without side effects."""
    rows = connection.execute(
        "SELECT lower(function_name), function_type, stability, has_side_effects, internal FROM duckdb_functions() "
        f"WHERE NOT ({OF_AN_INSTANT})"
    ).fetchall()
    known = {row[0] for row in rows}
    assert known >= FUNCTIONS - {"row", "struct_pack"}
    for name, kind, stability, side_effects, internal in rows:
        if name in FUNCTIONS:
            assert internal and not side_effects, name
            assert kind in ("scalar", "macro") and stability in ("CONSISTENT", None), name


def test_volatile_functions_are_refused(connection: duckdb.DuckDBPyConnection) -> None:
    """A function that DuckDB calls volatile, or constant within a query alone, is refused in any form."""
    rows = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE has_side_effects OR function_type LIKE '%table%' "
        f"OR stability NOT IN ('CONSISTENT') AND NOT ({OF_AN_INSTANT})"
    ).fetchall()
    assert len(rows) > 20
    assert [name for (name,) in rows if name.isidentifier() and accepted_forms(connection, name)] == []


@pytest.mark.parametrize("instant", INSTANTS)
def test_an_instant_is_in_no_expression(instant: str) -> None:
    """A moment with a time zone depends on the session: no function gets it, and no text is cast to it."""
    with dpduck.connect() as con:
        try:
            con.execute(f"CREATE TABLE calls (caller INTEGER, moment {instant})")
        except duckdb.CatalogException:
            pytest.skip(f"DuckDB {duckdb.__version__} has no {instant}")
        con.execute("FROM dp('CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 1, BUDGET (epsilon = 9))')")
        for tried in (
            "month(moment) = 1",
            "date_trunc('month', moment) = DATE '2024-01-01'",
            f"caller = month({instant} '2024-01-01')",
        ):
            asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) FROM calls WHERE {tried}"
            with pytest.raises(duckdb.Error, match=r"refused|does not parse"):
                con.execute("FROM dp(?)", [asked])


def test_user_functions_are_refused(connection: duckdb.DuckDBPyConnection) -> None:
    """Macros and functions of the user are on no list, whatever their names."""
    assert [name for name in ("peek", "my_upper", "upper2", "main.upper") if accepted_forms(connection, name)] == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT random()",
        "SELECT x FROM t, u WHERE nextval('s') > 0",
        "SELECT (SELECT 1)",
        "SELECT x IN (SELECT 1) FROM t",
        "SELECT rank() OVER () FROM t",
        "SELECT * FROM t",
        "SELECT COLUMNS('a') FROM t",
        "SELECT list_transform([1], lambda x: x)",
        "SELECT x FROM range(10)",
        "SELECT x FROM (SELECT 1 AS x)",
        "SELECT x FROM t TABLESAMPLE 10%",
        "SELECT x FROM t UNION ALL SELECT 1",
        "WITH t AS (SELECT 1 AS x) SELECT x FROM t",
        "SELECT other.upper(x) FROM t",
        "SELECT $1 FROM t",
        "SELECT x FROM t; SELECT 1",
        "not SQL",
    ],
)
def test_the_second_look_sees(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    """The second check refuses DuckDB's own parse if it holds more than listed functions over rows of tables."""
    with pytest.raises(Refusal):
        check_tree(duckdbs_tree(connection, sql))


@pytest.mark.parametrize(
    ("text", "grows"),
    [
        ("replace(a, 'x', 'yy')", False),
        (f"replace(a, 'x', '{'y' * (MAX_GROWTH + 1)}')", True),
        ("replace(replace(a, 'x', 'yyyyyyyyy'), 'y', 'zzzzzzzzz')", True),
        ("replace(replace(a, 'x', 'yyyyyyyyy'), 'yyyyyyyyy', 'x')", False),
        (f"replace(a, '', '{'y' * (MAX_GROWTH + 1)}')", True),
        ("a || a || a", False),
        (" || ".join(["a"] * (MAX_GROWTH + 1)), True),
        (f"concat({', '.join(['a'] * (MAX_GROWTH + 1))})", True),
        (f"regexp_replace(a, '.', '{'y' * MAX_GROWTH}', 'g')", True),
        (f"upper(replace(a || a, 'x', '{'y' * 33}'))", True),
        (f"a = '{'y' * 1000}'", False),
    ],
)
def test_texts_cannot_explode(text: str, grows: bool) -> None:
    """No expression makes a text of a row many times as long: memory must not depend on the contents of a row."""
    if grows:
        with pytest.raises(Refusal, match="times as long"):
            check_size(expression(text))
    else:
        check_row_local(expression(text))


LONG = "y" * 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"replace(replace('{'a' * 1000}', 'a', '{LONG}'), 'y', '{'z' * 400}')", "literals make a text"),
        (f"strlen(CASE WHEN hiv THEN replace('{'a' * 100}', 'a', '{LONG}') END) > 5", "literals make a text"),
        (" || ".join([f"'{'y' * 20_000}'"] * 4), "literals make a text"),
        (f"regexp_replace('{'a' * 300}', 'a', '{'b' * 300}', 'g') = a", "literals make a text"),
        (f"strftime(day, '{'%A' * 1100}') = a", "literals make a text"),
        (f"regexp_matches(CASE WHEN hiv THEN '{'y' * 20_000}' END, '{'y*' * 100}')", "make this take"),
        (f"contains('{'y' * 20_000}' || a, '{LONG}z')", "make this take"),
        (f"strpos('{'y' * 20_000}' || a, '{LONG}z') > 1", "make this take"),
        (f"'{'y' * 20_000}' || a LIKE '%{LONG}z%'", "make this take"),
        (f"split_part('{'y' * 20_000}' || a, '{LONG}z', 1) = a", "make this take"),
        ("regexp_matches(a, '((a{100}){100}){100}')", "a pattern of "),
        ("a SIMILAR TO '(.{1,1000}){2}'", "a pattern of "),
        ("a LIKE '%a_%b'", "more than one wildcard"),
        ("a LIKE '%a!_%b' ESCAPE '!'", "more than one wildcard"),
        ("a ILIKE '%a%b%'", "more than one wildcard"),
        ("a GLOB '*a*b'", "more than one wildcard"),
    ],
)
def test_one_row_costs_little(text: str, said: str) -> None:
    """Literals and patterns that make a row costly, if CASE chooses it, are refused: a clock would show that row."""
    with pytest.raises(Refusal, match=said):
        check_row_local(expression(text))


@pytest.mark.parametrize(
    "text",
    [
        "a ILIKE '%diabetes%'",
        "a ILIKE 'diab%'",
        "a LIKE '%a%b%c%d%e%f%'",
        "lower(a) LIKE '%a%b%c%'",
        "a LIKE 'a_c%'",
        "a LIKE '%_%'",
        "a GLOB '*.csv*'",
        "regexp_matches(a, '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$')",
        "regexp_replace(a, '[0-9]{1,3}', '#', 'g') = 'x'",
        f"coalesce(a, '') LIKE '%{LONG}%'",
        f"a || ', ' || a || '{LONG}' = a",
        "strftime(day, '%Y-%m') = '2024-01'",
        "try_strptime(a, '%d.%m.%Y') >= DATE '2024-01-01'",
        "year(try_strptime(a, '%Y-%m-%dT%H:%M:%SZ')) = 2024",
    ],
)
def test_what_analysts_write_costs_little(text: str) -> None:
    """Ordinary patterns and literals are accepted."""
    check_row_local(expression(text))


FORMATS = ("%z", "%Y-%m-%d %Z", "%s", "%n", "%j", "%V %G", "%A", "%c", "%x", "%-Y", "%", "%%%", "", "x" * 65, "%d\\0%q")


@pytest.mark.parametrize(
    "text", [*(f"try_strptime(a, '{one}')" for one in FORMATS), "try_strptime(a, b)", "try_strptime(a)",
             "try_strptime(a, ['%d', '%m'])", "try_strptime(a, '%d' || '')"],
)  # fmt: skip
def test_a_format_of_dates_is_a_literal_that_no_text_breaks(text: str) -> None:
    """Formats with a zone are refused, since they give another type. So are all that are not listed."""
    with pytest.raises(Refusal, match="try_strptime takes a text and a format"):
        check_row_local(expression(text))
    with pytest.raises(Refusal, match=r"format of dates|DuckDB reads list_value"):
        require_row_local(text, frozenset("ab"))


def test_strptime_names_the_function_that_does_not_fail() -> None:
    """strptime raises for a text that is no date. try_strptime gives NULL."""
    with pytest.raises(Refusal, match=r"accepted: try_strptime\(came, '%d.%m.%Y'\)"):
        check_row_local(expression("strptime(a, '%d.%m.%Y')"))


PIECES = (
    *("0", "1", "9", "12", "31", "2023", "99", "9999", "-1", "-", "+", " ", ".", "/", ":", "T", "Z", "Jan", "january"),
    *("PM", "am", "\u00e4", "\0", "%", "00", "60", "24", "123456", "999999999", "1e9", ""),
)
SPECIFIERS = (
    *("%Y", "%y", "%m", "%-m", "%d", "%-d", "%b", "%B", "%H", "%-H", "%I", "%-I", "%M", "%-M", "%S", "%-S", "%f", "%p"),
    *("%%", ".", "/", "-", " ", "T", "Z", ",", ":", "\u00e4"),
)


def test_no_text_makes_a_listed_format_raise(connection: duckdb.DuckDBPyConnection) -> None:
    """Random texts and formats give a TIMESTAMP or NULL, the same in every time zone. Many texts are dates."""
    source, dates = random.Random(7), 0  # noqa: S311
    for _ in range(150):
        pattern = "".join(source.choice(SPECIFIERS) for _ in range(source.randint(1, 8)))
        assert is_date_format(pattern)
        texts = ["".join(source.choice(PIECES) for _ in range(source.randint(0, 9))) for _ in range(40)]
        row = connection.execute("SELECT strftime(TIMESTAMP '2024-02-29 23:59:59.123456', ?)", [pattern]).fetchone()
        texts.append(row[0] if row else "")
        answers = []
        for zone in ("UTC", "Asia/Kolkata"):
            connection.execute(f"SET timezone = '{zone}'")
            parsed = f"try_strptime(x, '{pattern}')"
            asked = f"SELECT typeof({parsed}), epoch_us({parsed}) FROM (SELECT unnest($1::VARCHAR[]) AS x)"
            answers.append(connection.execute(asked, [texts]).fetchall())
        assert answers[0] == answers[1] and {kind for kind, _ in answers[0]} == {"TIMESTAMP"}
        dates += sum(moment is not None for _, moment in answers[0])
    assert dates > 100
