"""Every way known to learn from anything but a noisy answer is refused, or tells nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import pytest

from tests.support.clinics import Clinic, by, one_line

OpenClinic = Callable[..., Clinic]

# What an analyst might want to run over private rows, and must not: by the reason that WHERE and FILTER give.
REFUSED = {
    "is volatile or has side effects": (
        "nextval('s') > 0",
        "currval('s') > 0",
        "write_log('seen') IS NULL",
        "sleep_ms(1000) IS NULL",
        "gen_random_uuid() IS NULL",
        "now() > TIMESTAMP '2020-01-01'",
        "getvariable('x') = 1",
        "current_setting('threads')::INTEGER > 1",
        "txid_current() > 1",
        "pg_typeof(age) = 'x'",
        "CASE WHEN age > 5 THEN sleep_ms(1000) IS NULL END",
    ),
    "rowid depends on other rows": ("rowid > 5", "visits.rowid > 5"),
    "random() is not deterministic": ("random() < 0.5",),
    "current_date changes by itself": ("current_date > DATE '2020-01-01'",),
    "is not on the list of deterministic row functions": (
        "error('seen') IS NULL",
        "query('SELECT 1') = 1",
        "read_text('/etc/hostname') IS NULL",
        "dpduck_call('check', 'visits') IS NULL",
        "try(nextval('s')) > 0",
        "try(error('seen')) IS NULL",
        "coalesce(try(random()), 0) > 0",
        "list_sum([age]) > 5",
        "hash(age) > 5",
    ),
    "IN over anything but a list is refused": ("age IN (SELECT age FROM visits)", "age IN (FROM visits SELECT age)"),
    "a subquery in an expression is refused": (
        "age > (SELECT max(age) FROM visits)",
        "age = ANY (SELECT age FROM visits)",
        "(SELECT count(*) FROM visits) > 5",
    ),
    "EXISTS is refused": ("EXISTS (SELECT 1 FROM visits v WHERE v.age = visits.age)",),
}


@pytest.mark.slow
def test_what_may_not_run_over_private_rows(clinic: Clinic) -> None:
    """Refused in WHERE, FILTER, a key, HAVING, ORDER BY and around, before anything is charged or run."""
    clinic.rows("CREATE SEQUENCE s")
    for reason, condition in ((reason, one) for reason, conditions in REFUSED.items() for one in conditions):
        messages = clinic.all_refused(
            [
                by("sex").replace("FROM visits", f"FROM visits WHERE {condition}"),
                by("sex").replace("count(*)", f"count(*) FILTER (WHERE {condition})"),
                by("sex", tail=f"HAVING {condition}"),
                by("sex", tail=f"ORDER BY {condition}"),
                by(f"({condition})"),
                f"SELECT * FROM ({by('sex')}) AS answered WHERE {condition}",
            ]
        )
        assert all(reason in message for message in messages[:2]), condition
        assert all("; accepted: " in message for message in messages), condition
    assert clinic.charges() == 0
    assert clinic.rows("SELECT nextval('s')") == [(1,)]


SECOND_REFERENCES_AROUND = (
    ("visits", "SELECT b.patient FROM (WITH visits AS (SELECT 1 AS x) FROM visits) a, visits b, ({A}) c"),
    (
        "visits",
        "SELECT * FROM ({A}) c WHERE EXISTS (WITH visits AS (SELECT 1 AS x) FROM visits) AND sex IN (FROM visits)",
    ),
    ("wards", "WITH wards AS (FROM visits) SELECT * FROM ({A}) c, wards"),
    ("q", "WITH q AS (SELECT age FROM visits) SELECT * FROM ({A}) c, q"),
    ("r", "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM visits) SELECT * FROM r, ({A}) c"),
    ("b", "WITH a AS (FROM b), b AS (SELECT 1 AS x) SELECT * FROM a, ({A}) c"),
    ("memory.main.visits", "SELECT * FROM ({A}) c, memory.main.visits"),
    ("visits", "SELECT * FROM ({A}) c, (TABLE visits)"),
    ("visits", "SELECT (SELECT max(age) FROM visits) FROM ({A}) c"),
    ("visits", "SELECT * FROM ({A}) c SEMI JOIN visits USING (sex)"),
    ("visits", "SELECT * FROM ({A}) c UNION ALL SELECT sex, age FROM visits"),
    ("visits", "SELECT * FROM ({A}) c ORDER BY (SELECT count(*) FROM visits)"),
    ("visits", "SELECT * FROM ({A}) c LIMIT (SELECT count(*) FROM visits)"),
    ("visits", "SELECT sum(n) FILTER (WHERE sex IN (SELECT sex FROM visits)) FROM ({A}) c"),
    ("visits.csv", "SELECT * FROM ({A}) c, 'visits.csv'"),
    ("private.dpduck.ledger_entries", "SELECT * FROM ({A}) c, private.dpduck.ledger_entries"),
    ("private.main.release_2", "SELECT * FROM ({A}) c, private.main.release_2"),
    ("information_schema.tables", "SELECT * FROM ({A}) c, information_schema.tables"),
    ("pg_catalog.pg_class", "SELECT * FROM ({A}) c, pg_catalog.pg_class"),
)
FUNCTION = (
    "a table function around SELECT WITH DIFFERENTIAL_PRIVACY is refused; accepted: its answers and public tables"
)
OTHERS_AROUND = (
    (FUNCTION, "SELECT * FROM ({A}) c, duckdb_tables()"),
    (FUNCTION, "SELECT * FROM ({A}) c, pragma_storage_info('visits')"),
    (FUNCTION, "SELECT * FROM ({A}) c, query_table('visits')"),
    (FUNCTION, "SELECT * FROM ({A}) c, query('FROM visits')"),
    (
        "the name dpduck_released_table is dpduck's own; accepted: another name",
        'SELECT * FROM ({A}) c, "dpduck_released_table"',
    ),
    ("COLUMNS is refused; accepted: a list of columns", "SELECT columns('.*') FROM ({A}) c"),
)


def second_reference(name: str) -> str:
    """The reason why a table's name may not stand around an answer."""
    return (
        f"'{name}' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; "
        "accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables"
    )


def test_nothing_private_around_an_answer(clinic: Clinic) -> None:
    """The SQL around an annotated SELECT reads its answer and declared public tables, whatever hides which name."""
    around = [(second_reference(name), statement) for name, statement in SECOND_REFERENCES_AROUND]
    around += OTHERS_AROUND
    messages = clinic.all_refused([statement.replace("{A}", by("sex")) for _, statement in around])
    assert [message.partition(": ")[2] for message in messages] == [reason for reason, _ in around]
    assert all(message.startswith("line 1, column ") for message in messages)
    assert clinic.charges() == 0


def test_a_letter_that_python_folds_and_duckdb_does_not(clinic: Clinic) -> None:
    """A CTE named with the Kelvin sign does not stand for a private table named with a k."""
    clinic.rows("CREATE TABLE bank AS FROM visits")
    message = clinic.refused(f'WITH "ban\u212a" AS (SELECT 1 AS x) SELECT * FROM bank, ({by("sex")}) AS answered')
    assert message == f"line 1, column 46: {second_reference('bank')}"


def hostile(clinic: Clinic) -> None:
    """Rows on which careless SQL would raise, be slow, or show itself."""
    clinic.rows(
        "INSERT INTO odd (sex, big, real, text, moment, day, tiny, flag) VALUES "
        "(0, 9223372036854775807, 'NaN'::DOUBLE, 'abc', 'infinity'::TIMESTAMP, DATE '9999-12-31', 0, TRUE), "
        "(1, -9223372036854775808, 'inf'::DOUBLE, '', '-infinity'::TIMESTAMP, '-infinity'::DATE, 0, FALSE), "
        "(0, 0, '-inf'::DOUBLE, '2024-02-30', TIMESTAMP '290000-01-01', DATE '0001-01-01', -1, NULL), "
        "(1, -1, -0.0, repeat('(a+)+$', 50), TIMESTAMP '1970-01-01', DATE '1970-01-01', 1, NULL), "
        "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
        "(1, 1, 1e308, chr(7) || '\u2603', TIMESTAMP '2024-02-29', DATE '2024-02-29', 127, TRUE)"
    )


EXPRESSIONS = (
    "big + 1 > 0", "big - 1 > 0", "big * 2 > 0", "-big > 0", "abs(big) > 0", "big // (tiny * 0) = 1",
    "big % (tiny * 0) = 1", "big / (tiny * 0) > 1", "tiny + 100 > 0", "tiny * 100 > 0", "big::TINYINT > 0",
    "big::INTEGER > 0", "real::BIGINT > 0", "real::INTEGER > 0", "text::INTEGER > 0", "text::DOUBLE > 0",
    "text::DATE > DATE '2000-01-01'", "text::BOOLEAN", "sqrt(big) > 1", "ln(big) > 0", "log(real) > 0",
    "acos(real) > 0", "pow(real, 1000) > 1", "exp(big) > 1", "big << 60 > 0", "big >> tiny > 0", "tiny << tiny > 0",
    "day + INTERVAL 100000 YEAR > day", "moment + INTERVAL 300000 YEAR > moment", "moment::DATE > day",
    "date_trunc('year', moment) > moment", "date_diff('second', day, DATE '0001-01-01') > 0", "year(day) > 1",
    "date_part('epoch', moment) > 0", "make_date(big, tiny, 1) > day", "left(text, big) = 'a'", "strlen(text) > 0",
    "regexp_matches(text, '(a+)+$')", "text SIMILAR TO '(a+)+'", "unicode(text) > 5", "real > big", "real = real",
    "flag", "coalesce(text::INTEGER, big) > 0", "CASE WHEN flag THEN big * 2 END > 0", "greatest(big, real) > 0",
    "round(real, tiny) > 1", "trunc(real) > 0", "gcd(big, tiny) > 1", "lcm(big, big - 1) > 1", "even(real) > 1",
    "big IN (1, 2, 9223372036854775807)", "big BETWEEN -1 AND 1", "text BETWEEN 'a' AND 'b'", "big = 1.5",
    "try_cast(text AS INTEGER) > 0", "big = '5'", "day = '2024-02-29'", "day > moment", "tiny = 1000",
    # what DuckDB computes once for several conditions, or for one, it computes outside of TRY
    "text::INTEGER < 100", "(big * 3) * (big * 3) > 5", "text::INTEGER + text::INTEGER > 1",
    "big * 2 < 7 OR big * 2 > 9", "sqrt(big) + sqrt(big) > 1",
    "(day + INTERVAL 100000 YEAR) = day OR (day + INTERVAL 100000 YEAR) > DATE '2000-01-01'",
)  # fmt: skip


def outcome(clinic: Clinic, statement: str) -> tuple[str, object]:
    """Returns everything that a client can see of a statement except its noisy numbers."""
    try:
        return "answered", len(clinic.dp(statement))
    except duckdb.Error as error:
        return "refused", one_line(error)


PREPARED = ", prepared"


def odd_clinic(clinic: Clinic, unit: str) -> Clinic:
    clinic.rows(
        "CREATE TABLE odd (sex INTEGER, big BIGINT, real DOUBLE, text VARCHAR, moment TIMESTAMP, day DATE, "
        "tiny TINYINT, flag BOOLEAN, who INTEGER DEFAULT 1)"
    )
    clinic.dp(
        f"CREATE PRIVACY POLICY ON odd (PRIVACY UNIT {unit.removesuffix(PREPARED)}, BUDGET (epsilon = 100000), "
        "DOMAIN sex IN (0, 1), "
        "DOMAIN tiny RANGE 0 TO 10 STEP 1, DOMAIN flag BOOLEAN, DOMAIN real RANGE 0 TO 1 STEP 0.1, "
        "DOMAIN big RANGE -10 TO 10 STEP 5 WITH EDGES, DOMAIN text IN ('a', 'b') WITH OTHER 'c', "
        "DOMAIN moment RANGE '2024-01-01' TO '2025-01-01' STEP INTERVAL 1 DAY, "
        "DOMAIN day RANGE '2024-01-01' TO '2025-01-01' STEP INTERVAL 1 MONTH)"
    )
    return clinic


def prepare(unit: str, *clinics: Clinic) -> None:
    """Prepares the tables of odd rows, where the unit's name says so."""
    for clinic in clinics if unit.endswith(PREPARED) else ():
        clinic.dp("ALTER PRIVACY POLICY ON odd PREPARE")


SHAPE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {epsilon}) {what} FROM odd {where} GROUP BY {key}"
KEYS = (
    "sex + 1", "tiny::INTEGER * 2", "big", "real", "text", "moment", "day", "flag", "tiny // sex", "year(day)",
    "NOT flag", "real * 2", "big // 5", "sex, big, real, text, day, flag",
)  # fmt: skip


def counting_all(expressions: Sequence[str], epsilon: int) -> str:
    """One statement with a filtered count for every expression."""
    counts = ", ".join(f"count(*) FILTER (WHERE {one}) AS n{number}" for number, one in enumerate(expressions))
    return SHAPE.format(epsilon=epsilon, what=f"sex, {counts}", where="", key="sex")


def keyed(key: str) -> str:
    return SHAPE.format(epsilon=1, what=f"{key}, count(text) AS n", where="", key=key)


def same_outcomes(empty: Clinic, full: Clinic, statements: Sequence[str]) -> list[str]:
    """Requires equal outcomes over no rows and over hostile rows. Returns the kind of each outcome."""
    outcomes = [(outcome(empty, statement), outcome(full, statement)) for statement in statements]
    assert [pair for pair in outcomes if pair[0] != pair[1]] == []
    assert [pair for pair in outcomes if "unexpected" in str(pair) or "failed after" in str(pair)] == []
    ledger = "SELECT id, statement, mechanism, epsilon, rho FROM dp_ledger() ORDER BY id"
    assert empty.rows(ledger) == full.rows(ledger)
    return [kind for (kind, _), _ in outcomes]


UNITS = pytest.mark.parametrize("unit", ["ROW", "who MAX ROWS 3", f"who MAX ROWS 3{PREPARED}"])


@pytest.mark.sampled
@UNITS
def test_no_row_decides_whether_a_statement_fails(open_clinic: OpenClinic, unit: str) -> None:
    """Over no rows and over hostile rows, statements have the same outcome, charge and message."""
    empty, full = odd_clinic(open_clinic(), unit), odd_clinic(open_clinic(), unit)
    hostile(full)
    prepare(unit, empty, full)
    where = SHAPE.format(epsilon=1, what="sex, count(*) AS n", where=f"WHERE ({') OR ('.join(EXPRESSIONS)})", key="sex")
    kinds = same_outcomes(empty, full, [counting_all(EXPRESSIONS, 100), where, *map(keyed, KEYS)])
    assert kinds[:2] == ["answered", "answered"]
    assert kinds.count("answered") > len(KEYS) - 2


@pytest.mark.audit
@UNITS
def test_no_row_decides_whether_a_condition_fails(open_clinic: OpenClinic, unit: str) -> None:
    """Every expression alone, as a condition of WHERE and of FILTER, is answered over no rows and over hostile rows."""
    empty, full = odd_clinic(open_clinic(), unit), odd_clinic(open_clinic(), unit)
    hostile(full)
    prepare(unit, empty, full)
    statements = [counting_all([expression], 1) for expression in EXPRESSIONS]
    statements += [
        SHAPE.format(epsilon=1, what="sex, count(*) AS n", where=f"WHERE {expression}", key="sex")
        for expression in EXPRESSIONS
    ]
    assert set(same_outcomes(empty, full, statements)) == {"answered"}
