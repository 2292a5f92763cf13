"""What must be refused, and what must not be: every line of the two lists, through the gate."""

from __future__ import annotations

import random
from dataclasses import replace

import duckdb
import pytest

from dpduck.values.errors import DpduckError
from tests.server.served import CANARY, Served, catalog
from tests.server.statement_lists import statements

ATTACKS, HONEST, DISGUISES = statements("attacks.sql"), statements("honest.sql"), statements("disguises.sql")
FORBIDDEN = (
    *("visits", '"visits"', "VISITS", "main.visits", "private.visits", "private.main.visits", "memory.main.visits"),
    *("clinic.visits", "clinic.main.visits", "wards", "secret", '"Secret"', "vault.main.secret", "dpduck.releases"),
    *("private.dpduck.releases", "dpduck.ledger_entries", "answers.main.ages", "ANSWERS.ages", "listing.main.tables"),
    *("answers.dpduck_answer_0", "sqlite_master", "SQLITE_MASTER", '"sqlite_master"', "main.sqlite_master"),
    *("sqlite_schema", "sqlite_temp_master", "temp.sqlite_master", "System.Main.Sqlite_Master", "pg_settings"),
    *("pg_catalog.pg_settings", "PG_CATALOG.PG_CLASS", '"pg_catalog"."pg_attribute"', "system.pg_catalog.pg_tables"),
    *("pg_catalog/**/./**/pg_views", "information_schema.character_sets", "INFORMATION_SCHEMA.key_column_usage"),
    *("system.information_schema.tables", "memory.information_schema.columns", "system.main.duckdb_tables"),
    *("duckdb_constraints", "duckdb_indexes", "duckdb_settings()", "DuckDB_Settings()", "main.duckdb_settings()"),
    *("system.main.duckdb_tables()", "duckdb_secrets()", "duckdb_functions()", "duckdb_logs", "duckdb_memory()"),
    *("pragma_table_info('ages')", "pragma_database_size()", "pragma_storage_info('ages')", "pg_timezone_names()"),
    *("'clinic.duckdb'", '"clinic.duckdb"', "'/etc/passwd'", '"/etc/passwd"', "'https://example.org/x.parquet'"),
    *("read_text('/etc/passwd')", "Read_Csv($$/etc/passwd$$)", "read_blob(['/etc/passwd'])", "glob('*')"),
    *("parquet_scan('x')", "read_duckdb('clinic.duckdb')", "query('FROM ages')", "query($q$FROM ages$q$)"),
    *("query_table('visits')", "query_table(['ages'])", "repeat(1, 9)", "seq_scan('ages')", "test_all_types()"),
    *("(SELECT getenv('HOME'))", "(SELECT current_setting('secret_directory'))", "(SELECT getvariable('x'))"),
    *("(SELECT dpduck_call('run', 'x'))", "(SELECT dpduck_authorize('x', 'SELECT 1'))"),
    *("(SELECT main.dpduck_authenticate('a', 'b', 'c'))", "(SELECT nextval('s'))", "(SELECT $1)"),
    *("(SELECT pg_catalog.pg_get_viewdef(1))", "(SELECT system.main.lower('A'))", "(SELECT format('{:>9}', 1))"),
    *("(SELECT TRY(1))", "(SELECT write_log('x'))", "(SELECT in_search_path('a', 'b'))"),
    *("v\u0456sits", "\uff56\uff49\uff53\uff49\uff54\uff53", "visits\u200b", '"visits\u00a0"', "s\u0435cret"),
    *("\u017fecret", "sqlite\uff3fmaster", "vi\u00adsits", "\ufeffvisits", "vi\u0301sits"),
)  # fmt: skip
"""Private tables, the catalog, answers of others, files, settings and the gate itself, as sources of rows."""

CLOTHES = (
    lambda text: f"/* FROM ages */ {text} -- FROM ages",
    lambda text: text.replace(" ", "/**/"),
    lambda text: text.replace(" ", "\n\t"),
    lambda text: text.replace(" ", " -- ;\n "),
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: text.replace(" ", "\u3000"),
    lambda text: f"\ufeff{text}",
    lambda text: f"{text};",
    lambda text: f";;{text};;",
    lambda text: f"((({text})))",
    lambda text: f"FROM ages; {text}",
    lambda text: f"SELECT $tag$ FROM ages $tag$; {text}",
    lambda text: text.swapcase() if not set("'\"$") & set(text) else text,
    lambda text: text.replace("'", "$x$"),
    lambda text: f"WITH ages AS (SELECT 1 AS age, 2 AS n) {text}",
    lambda text: f"FROM dp($dp$ {text} $dp$)",
    lambda text: f"FROM dp('{text.replace(chr(39), chr(39) * 2)}')",
    lambda text: text,
)
"""What a client may write around a statement, or between its words, without making it harmless."""

INSIDE = (
    "count(*) AS n FROM THING",
    "count(*) AS n FROM main.THING",
    "count(*) AS n FROM clinic.THING",
    'count(*) AS n FROM "THING"',
    "count(*) AS n FROM/**/THING -- wards",
    "count(*) AS n FROM (FROM THING)",
    "count(*) AS n FROM (SELECT * FROM THING) AS wards",
    "sex, count(*) AS n FROM THING GROUP BY sex",
    "sex, count(*) AS n FROM THING GROUP BY CUBE (sex)",
    "count(*) AS n FROM THING JOIN wards USING (ward)",
    "count(*) AS n FROM wards JOIN THING USING (ward)",
    "count(*) AS n FROM wards, THING",
    "count(*) AS n FROM wards WHERE EXISTS (FROM THING)",
    "count(*) AS n FROM wards WHERE ward IN (SELECT ward FROM THING)",
    "count(*) AS n FROM wards UNION ALL SELECT count(*) FROM THING",
    "(SELECT count(*) FROM THING) AS n FROM wards",
    "count(*) AS n, (SELECT max(age) FROM THING) AS m FROM wards",
    "count(*) AS n FROM query_table('THING')",
    "count(*) AS n FROM query('FROM THING')",
)
"""Questions about a table, without their beginning."""


@pytest.fixture
def hurried(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks on time end after a second: a slower answer counts as a refusal."""
    monkeypatch.setattr(served.service.public, "_limits", replace(served.service.public._limits, seconds=1.0))


_LOOK_ALIKES = (
    "\u00a0",
    "\u200b",
    "\ufeff",
    "\uff07",
    "\u2019",
    "\uff1b",
    "\u037e",
    "\u2215",
    "\u0430",
    "\u017f",
    "\u0130",
    "$$",
    "'",
    '"',
    "--",
)
READING = [text for text in HONEST if "PRIVATE VIEW" not in text]


def test_the_lists_are_long_enough() -> None:
    """At least 150 attacks and 50 honest statements, and no two alike."""
    assert len(set(ATTACKS)) == len(ATTACKS) >= 150
    assert len(set(HONEST)) == len(HONEST) >= 50


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_every_attack_is_refused_in_one_line(served: Served) -> None:
    """With nothing leaked, the ledger unchanged, and a word on what would be accepted."""
    before = public_state(served)
    for text in ATTACKS:
        message = served.refused("alice", text)
        assert "accepted: " in message, (text, message)
        assert len(message) < 1_000 and str(served.database.parent) not in message, (text, message)
    assert public_state(served) == before


@pytest.mark.usefixtures("hurried")
def test_every_attack_is_refused_in_other_clothes(served: Served) -> None:
    """With comments, line ends and another case, where DuckDB sees the same statement."""
    before, tried = public_state(served), [0, 0, 0, 0]
    for number, text in enumerate(ATTACKS):
        if "'" in text or '"' in text or "--" in text or "\x00" in text:
            continue
        commented, lined = f"/* FROM ages */ {text} -- FROM ages", text.replace(" ", "\n")
        message = served.refused("bob", (commented, text.swapcase(), f"\n\t{text}\n;", lined)[number % 4])
        assert "accepted: " in message, (text, message)
        assert len(message) < 1_000 and str(served.database.parent) not in message, (text, message)
        tried[number % 4] += 1
    assert min(tried) >= 30, "attacks in each kind of clothes"
    assert public_state(served) == before


@pytest.mark.slow
def test_every_honest_statement_is_answered(served: Served) -> None:
    """The gate is in nobody's way."""
    for text in HONEST:
        assert served.rows("bob", text) is not None, text


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_no_disguise_makes_a_forbidden_thing_readable(served: Served) -> None:
    """Each thing in a tenth of the forms, each form around a tenth of the things. Around ages most are answered."""
    answered = sum(around(served, form, "ages") for form in DISGUISES)
    assert len(DISGUISES) >= 100 and answered >= 65, "the forms themselves are in order, but for those never answered"
    refused_all(served, "bob", [
        form.replace("THING", thing)
        for number, thing in enumerate(FORBIDDEN)
        for place, form in enumerate(DISGUISES)
        if (number + place) % 10 == 0
    ])  # fmt: skip


@pytest.mark.audit
@pytest.mark.usefixtures("hurried")
def test_no_disguise_in_another_one_does(served: Served) -> None:
    """All disguises. 20,000 combinations of two disguises, one in the other, in two pieces of clothing."""
    refused_all(served, "bob", [form.replace("THING", thing) for form in DISGUISES for thing in FORBIDDEN])
    source = random.Random(3)  # noqa: S311
    before = served.spent()
    refused_all(served, "bob", [disguised(source, source.choice(FORBIDDEN)) for _ in range(20_000)])
    assert served.spent() == before


@pytest.mark.usefixtures("hurried")
def test_no_question_reaches_a_table_that_one_may_not_ask_about(served: Served) -> None:
    """carol may ask about wards, alice about tables with a policy. The same questions are answered to bob."""
    assert sum(around(served, form, "visits") for form in questions()[: len(INSIDE)]) >= 7
    ask_in_vain(served, 8)


@pytest.mark.usefixtures("hurried")
def test_plain_questions_read_releases_alone(served: Served) -> None:
    """A plain SELECT over a private table is attacked like dp(): other tables and other principals."""
    plain = [f"SELECT {inside}" for inside in INSIDE]
    for who, names in {"carol": ("visits", "VISITS"), "alice": ("secret", "sqlite_master", "vis\u0456ts")}.items():
        for number, name in enumerate(names):
            refused_all(served, who, [form.replace("THING", name) for form in plain[number % 3 :: 3]])
    answered = 0
    for form in (one.replace("THING", "visits") for one in plain):
        found = answer(served, form)
        assert found is None or found == answer(served, f"FROM dp_known($ask$ {form} $ask$)"), "no more than dp_known"
        answered += found is not None
    assert answered >= 4


def answer(served: Served, text: str) -> list[tuple[object, ...]] | None:
    """Returns bob's answer, or None for a refusal."""
    try:
        return served.rows("bob", text)
    except DpduckError:
        return None


@pytest.mark.audit
@pytest.mark.usefixtures("hurried")
def test_no_question_at_all_reaches_one(served: Served) -> None:
    """Asks every question of the list, not a part."""
    before = served.spent()
    ask_in_vain(served, 1)
    assert served.spent() == before


def questions() -> list[str]:
    """Every question of the list: asked, explained, made a view, and explained as one."""
    options = "OPTIONS (epsilon = 0.001)"
    begins = (f"SELECT WITH DIFFERENTIAL_PRIVACY {options}", f"CREATE PRIVATE VIEW stolen {options} AS SELECT")
    calls = [(call, begin) for begin in begins for call in ("dp", "dp_explain")]
    return [f"FROM {call}($ask$ {begin} {question} $ask$)" for call, begin in calls for question in INSIDE]


def ask_in_vain(served: Served, step: int) -> None:
    """Every so many-th of the questions, about each table that the caller may not ask about."""
    for place, name in enumerate(("visits", "VISITS", "secret", "ages", "sqlite_master", "vis\u0456ts", "releases")):
        who = "carol" if place < 2 else "alice"
        refused_all(served, who, [form.replace("THING", name) for form in questions()[place % step :: step]])


def around(served: Served, form: str, thing: str) -> bool:
    """Tells whether a form is answered with this thing inside."""
    try:
        served.rows("bob", form.replace("THING", thing))
    except DpduckError:
        return False
    return True


def refused_all(served: Served, who: str, texts: list[str]) -> None:
    """Requires that all are refused in a line that says what is accepted. Nothing is charged and nothing changed."""
    before = public_state(served), served.spent()
    principal = served.service.book.authenticate(served.tokens[who])
    assert principal is not None
    for text in texts:
        try:
            sql = served.service.gate.admit(principal, text)
        except DpduckError as error:
            message = str(error)
        else:
            raise AssertionError(f"{text!r} was admitted to {who} as {sql!r}")
        assert "accepted: " in message and "\n" not in message and len(message) < 1_000, (text, message)
        assert CANARY not in message and str(served.database.parent) not in message, (text, message)
    assert (public_state(served), served.spent()) == before


def disguised(source: random.Random, thing: str) -> str:
    """Something in two forms, one in the other, and in two pieces of clothing."""
    form = source.choice(DISGUISES)
    inner = form.replace("THING", thing)
    text = source.choice(DISGUISES).replace("THING", f"({inner})" if source.randrange(2) else thing)
    for dress in source.sample(CLOTHES, 2):
        text = dress(text)
    return text


def mutated(source: random.Random) -> str:
    """Returns an honest statement with a part of an attack."""
    honest, attack = source.choice(READING), source.choice(ATTACKS)
    kind = source.randrange(11)
    if kind == 8:
        return disguised(source, source.choice((f"({honest})", f"({honest})", f"({attack})", "ages", "ward_cube")))
    if kind == 9:
        return source.choice(CLOTHES)(source.choice((honest, attack)))
    if kind == 10:
        place = source.randrange(len(honest))
        return honest[:place] + source.choice(_LOOK_ALIKES) + honest[place + source.randrange(2) :]
    if kind == 0:
        return f"{honest}; {attack}"
    if kind == 1:
        return f"WITH stolen AS ({attack}) {honest}"
    if kind == 2:
        return honest.replace("ages", f"({attack})", 1)
    if kind == 3:
        words = honest.split(" ")
        words.insert(source.randrange(len(words) + 1), source.choice(attack.split(" ")))
        return " ".join(words)
    if kind == 4:
        place, other = source.randrange(len(honest)), source.randrange(len(attack))
        return honest[:place] + attack[other:]
    if kind == 5:
        words, others = honest.split(" "), attack.split(" ")
        words[source.randrange(len(words))] = source.choice(others)
        return " ".join(words)
    if kind == 6:
        return f"SELECT ({attack}), * FROM ({honest})"
    return "".join(source.choice((c, c.swapcase(), c, "/**/" + c)) if c == " " else c for c in honest + " " + attack)


def explore(served: Served, seed: int, number: int) -> int:
    """Runs mutations. Admitted ones read only released values and change nothing. Returns how many were admitted."""
    source, admitted = random.Random(seed), 0  # noqa: S311
    before = public_state(served)
    for _ in range(number):
        text = mutated(source)
        try:
            sql = served.sql("bob", text)
        except DpduckError as error:
            assert "\n" not in str(error) and CANARY not in str(error), text
            continue
        admitted += 1
        with served.service.public.cursor() as cursor:
            assert len(cursor.extract_statements(sql)) == 1, text
            assert cursor.extract_statements(sql)[0].type == duckdb.StatementType.SELECT, text
            try:
                found = cursor.execute(f"SELECT * FROM ({sql}) LIMIT 100").fetchall()
            except duckdb.Error as error:
                assert CANARY not in str(error), text
                continue
        assert CANARY not in repr(found) and str(served.database.parent) not in repr(found), text
    assert public_state(served) == before
    return admitted


@pytest.mark.usefixtures("hurried")
def test_mutations_of_honest_statements_stay_inside(served: Served) -> None:
    """A bounded fuzz: some mutations are admitted, and none reaches anything but released values."""
    assert explore(served, 1, 400) > 5


@pytest.mark.audit
@pytest.mark.usefixtures("hurried")
def test_many_mutations_of_honest_statements_stay_inside(served: Served) -> None:
    """The fuzz of the test above, at length."""
    assert explore(served, 2, 20_000) > 200


def public_state(served: Served) -> object:
    """Everything that a client could change: the catalog but for answers, the settings, the attached databases."""
    with served.service.public.cursor() as cursor:
        tables = sorted(pair for pair in catalog(cursor) if pair[0] != "answers")
        settings = cursor.execute("SELECT name, value FROM duckdb_settings() ORDER BY name").fetchall()
        databases = cursor.execute("SELECT database_name FROM duckdb_databases() ORDER BY 1").fetchall()
        macros = cursor.execute("SELECT count(*) FROM duckdb_functions()").fetchall()
    return tables, settings, databases, macros
