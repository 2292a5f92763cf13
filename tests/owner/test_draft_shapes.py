"""Drafts of tables as people have them: nested columns, lists, JSON and moments with a zone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from dpduck.owner.draft_open_items import OTHERS
from dpduck.owner.draft_remarks import MOST_NAMES
from tests.support.clinics import Clinic

PEOPLE = """
CREATE TABLE visits AS SELECT range // 3 AS patient_id,
    nullif({'city': ['n', 's'][1 + range % 2], 'b c': 'x', 'geo': {'lat': range / 7, 'at': TIMESTAMPTZ '2024-01-01'}},
        NULL) AS address,
    union_value(n := range % 5)::UNION(n INTEGER, s VARCHAR) AS un, MAP {'k': range % 2} AS m,
    CASE range % 4 WHEN 0 THEN NULL WHEN 1 THEN [] ELSE ['flu', 'cold'] END AS tags,
    [range, 2]::INTEGER[2] AS ar, [{'drug': 'a', 'dose': range}] AS drugs,
    ('{"4": "' || range % 3 || '"}')::JSON AS js, TIMESTAMPTZ '2024-05-01 10:00:00+02' AS tz,
    TIMETZ '10:00:00+02' AS tt, 'ab'::BLOB AS scan, '101'::BIT AS bi, TIMESTAMP_NS '2024-05-01' AS ns,
    TIMESTAMP_S '2024-05-01' AS sec, TIMESTAMP_MS '2024-05-01' AS ms, INTERVAL 1 DAY AS iv, range::HUGEINT AS h,
    range::UHUGEINT AS uh, uuid() AS u, TIME '10:00' AS ti, (['a', 'b'][1 + range % 2])::ENUM ('a', 'b') AS mood,
    1.5::FLOAT AS f, range::BIGNUM AS bn, range % 2 = 0 AS smoker, 'note ' || range AS note, 5::UTINYINT AS n
FROM range(300)
"""
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count({}) AS n FROM {}"


def drafted(clinic: Clinic, table: str, **options: object) -> str:
    listed = "".join(f", {name} := {value}" for name, value in options.items())
    return "\n".join(row[0] for row in clinic.con.execute(f"FROM dp_draft(?{listed})", [table]).fetchall())


def filled(text: str) -> str:
    return text.replace("PRIVACY UNIT TODO", "PRIVACY UNIT patient_id").replace("TODO", "4")


def suggested(text: str) -> list[str]:
    """Returns the statements in the comments of a draft, with 4 for TODO."""
    lines = [line.strip() for line in text.splitlines()]
    comments = " ".join(line.removeprefix("--").strip() for line in lines if line.startswith("--"))
    return [found.replace("TODO", "4") for found in re.findall(r"CREATE TABLE .*?;", comments)]


def test_each_suggested_table_has_a_policy_and_a_count(open_clinic: Callable[..., Clinic]) -> None:
    """Suggested statements run as they are. In the end, each column of each new table can be asked about."""
    clinic = open_clinic()
    clinic.con.execute(PEOPLE)
    pending, done = ["visits"], list[str]()
    while pending:
        table = pending.pop()
        text = drafted(clinic, table)
        clinic.dp(filled(text))
        assert clinic.dp(COUNT.format("*", table)), table
        for statement in suggested(text):
            clinic.con.execute(statement)
            pending.append(statement.split()[2])
        if OTHERS[:40] not in " ".join(text.replace("--", " ").split()):
            for name, *_ in clinic.con.execute(f"DESCRIBE {table}").fetchall():
                clinic.dp(COUNT.format(f'CASE WHEN "{name}" = "{name}" THEN 1 END', table))
        done.append(table)
    assert {"visits", "visits_flat", "visits_tags", "visits_drugs", "visits_drugs_flat", "visits_m"} <= set(done)
    columns = [row[0] for row in clinic.con.execute("DESCRIBE visits_flat").fetchall()]
    new = ["address_city", "address_b c", "address_geo_lat", "address_geo_at", "un_n", "js_4", "scan_bytes"]
    assert set(new) <= set(columns)
    domain = "BUDGET (epsilon = 50), DOMAIN tags IN ('flu', 'cold') WITH NULL)"
    clinic.dp(f"CREATE OR REPLACE PRIVACY POLICY ON visits_tags (PRIVACY UNIT patient_id MAX ROWS 6, {domain}")
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 40) tags, count(*) AS n FROM visits_tags GROUP BY tags"
    counts = dict(clinic.dp(asked))
    assert abs(counts["flu"] - 150) < 6 and abs(counts["cold"] - 150) < 6, "off by 6 with probability below 1e-12"


@pytest.mark.slow
def test_a_private_draft_takes_every_type(open_clinic: Callable[..., Clinic]) -> None:
    """No type makes a private draft or a check fail, with several rows of each person, NULLs and texts."""
    clinic = open_clinic()
    clinic.con.execute(PEOPLE)
    assert clinic.rows("FROM dp_check('visits')")
    budget = "BUDGET (epsilon = 20, delta = 1e-6, delta_keys = 5e-7)"
    clinic.dp(f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id MAX ROWS 3, {budget})")
    text = drafted(clinic, "visits", privately=8)
    assert len(suggested(text)) == 5 and "visits_flat" in text
    clinic.dp(filled(text))
    assert clinic.dp(COUNT.format("*", "visits")) and clinic.rows("FROM dp_check('visits')")


def test_lists_name_the_unit_or_leave_it_open(open_clinic: Callable[..., Clinic]) -> None:
    """Without a column that names people, the unit of the elements is a TODO. Keys of JSON and MAP are not read."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE t AS SELECT ['a'] AS tags, MAP {'secret': 1} AS m, '{\"hidden\": 1}'::JSON AS js")
    text = " ".join(drafted(clinic, "t").replace("--", " ").split())
    assert "CREATE TABLE t_tags AS SELECT TODO, unnest(tags) AS tags FROM t;" in text
    assert "js->>'$.TODO' AS js_TODO" in text and "never ROW" in text
    assert "secret" not in text and "hidden" not in text


def test_names_of_fields_stay_in_their_comment(open_clinic: Callable[..., Clinic]) -> None:
    """A field's name with a line break or a quote writes no item. A new name that is taken gets a number."""
    clinic = open_clinic()
    field = 'a\n    BUDGET (epsilon = 9) ""; --\''
    clinic.con.execute(
        f'CREATE TABLE t (id INTEGER PRIMARY KEY, st STRUCT("{field}" INTEGER, b INTEGER), st_b INTEGER)'
    )
    text = drafted(clinic, "t")
    items = [line.strip() for line in text.splitlines() if not line.lstrip().startswith("--")]
    assert items == ["CREATE PRIVACY POLICY ON t (", "PRIVACY UNIT id MAX ROWS 1,", "BUDGET (epsilon = TODO)", ")"]
    assert "st.b AS st_b_2" in " ".join(text.replace("--", " ").split())


def test_many_columns_are_cut(open_clinic: Callable[..., Clinic]) -> None:
    """A table of very many lists has a draft with as many suggestions as one remark names."""
    clinic = open_clinic()
    clinic.con.execute(f"CREATE TABLE t (id INTEGER, {', '.join(f'l{n} INTEGER[]' for n in range(MOST_NAMES + 9))})")
    assert len(suggested(drafted(clinic, "t"))) == MOST_NAMES


def test_a_policy_over_dates_that_are_texts_says_how_to_convert_them(open_clinic: Callable[..., Clinic]) -> None:
    """RANGE and PER name the ALTER TABLE, and the policy is accepted once it was typed."""
    clinic = open_clinic()
    day = "'0' || (1 + range % 9) || '.05.2024'"
    clinic.con.execute(f"CREATE TABLE t AS SELECT range // 3 AS id, {day} AS came FROM range(90)")
    head = "CREATE PRIVACY POLICY ON t (PRIVACY UNIT id {}MAX ROWS 3, BUDGET (epsilon = 1){})"
    ranged = head.format("", ", DOMAIN came RANGE 2024-05-01 TO 2024-06-01 STEP DAY")
    told = clinic.refused(ranged)
    assert "ALTER TABLE .. ALTER came TYPE DATE USING CAST(try_strptime(came, '%d.%m.%Y') AS DATE)" in told
    told = clinic.refused(head.format("PER MONTH OF came ", ""))
    assert "try_strptime(..), by the format that dp_check of the table without a policy names" in told
    (way,) = [row[2] for row in clinic.rows("FROM dp_check('t')") if "are dates by" in row[0]]
    clinic.con.execute(way.partition(": ")[2])
    clinic.dp(ranged)
    clinic.con.execute("CREATE TABLE u AS FROM t")
    by_month = head.replace("ON t", "ON u").replace("(epsilon = 1)", "(epsilon = 1) PER MONTH")
    clinic.dp(by_month.format("PER MONTH OF came ", ""))


@pytest.mark.parametrize("name", ["patient_id", "Patient-Nr", "customer no", "PATIENTID", "users", "patience", "idea"])
def test_names_of_people_may_have_blanks(name: str, open_clinic: Callable[..., Clinic]) -> None:
    """A column that identifies a person is suggested as the unit, also by a name of an export."""
    clinic = open_clinic()
    clinic.con.execute(f'CREATE TABLE t (x INTEGER, "{name}" INTEGER)')
    assert ("PRIVACY UNIT TODO" in drafted(clinic, "t")) is (name in ("patience", "idea"))
