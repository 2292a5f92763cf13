"""Joins never make so many rows of one person's few that these decide what fails, or fill the memory."""

from __future__ import annotations

import duckdb
import pytest

import dpduck

JOINED = {
    "public": "JOIN pub AS p{n} ON v0.g = p{n}.k",
    "private": "JOIN visits AS v{n} ON v0.patient = v{n}.patient",
    "private, by halves": "JOIN (SELECT a.patient FROM visits AS a JOIN visits AS b ON a.patient = b.patient) AS s{n} "
    "ON v0.patient = s{n}.patient",
}
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1e-9, max_rows_contributed = 100) count(*) FROM "


def opened(hers: int) -> duckdb.DuckDBPyConnection:
    """A thousand people with one visit each, and person 5000 with some. Little memory, and no disk."""
    connection = dpduck.connect(config={"memory_limit": "100MB", "temp_directory": ""})
    connection.execute("CREATE TABLE visits AS SELECT range AS patient, 0 AS g FROM range(1000)")
    connection.execute("INSERT INTO visits SELECT 5000, 0 FROM range(?)", [hers])
    connection.execute("CREATE TABLE pub AS FROM (VALUES (0, 1), (0, 2)) AS p(k, v)")
    connection.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, parent BIGINT)")
    connection.execute("CREATE TABLE calls (call BIGINT PRIMARY KEY, who BIGINT)")
    unit = "MAX ROWS 100"
    for statement in (
        "DECLARE PUBLIC TABLE pub",
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient {unit}, BUDGET (epsilon = 10))",
        f"CREATE PRIVACY POLICY ON people (PRIVACY UNIT id REFERENCES visits.patient {unit})",
        f"CREATE PRIVACY POLICY ON calls (PRIVACY UNIT who REFERENCES visits.patient {unit})",
    ):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    return connection


def outcome(connection: duckdb.DuckDBPyConnection, rows: str) -> str:
    try:
        connection.execute("FROM dp(?)", [ASKED + rows]).fetchall()
    except duckdb.Error as refused:
        return str(refused).partition("\n")[0]
    return "answered"


INSIDE = "(SELECT v0.patient, v0.g FROM {rows} UNION ALL SELECT patient, g FROM visits) AS v0"


def test_copies_inside_of_a_union_count() -> None:
    """Rows that are multiplied inside are multiplied again outside."""
    joins = " ".join(JOINED["public"].format(n=number) for number in range(6))
    inside = INSIDE.format(rows=f"visits AS v0 {joins}")
    with opened(1) as connection:
        assert outcome(connection, f"{inside} WHERE v0.patient = 5000") == "answered"
        assert "one row may be multiplied 1040 times" in outcome(connection, f"{inside} {joins}")


@pytest.mark.parametrize("kind", JOINED)
def test_no_row_is_multiplied_until_the_memory_is_full(kind: str) -> None:
    """2^23 rows of one visit, or of two, failed after the charge: a bit about anybody for an epsilon of 1e-9."""
    joins = " ".join(JOINED[kind].format(n=number) for number in range(1, 24))
    said = []
    for hers in (0, 1, 2):
        with opened(hers) as connection:
            said.append(outcome(connection, f"visits AS v0 {joins} WHERE v0.patient = 5000"))
            assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE epsilon > 0").fetchall() == [(0,)]
    assert len(set(said)) == 1
    assert "one row may be multiplied 1024 times" in said[0] or "would be joined" in said[0]


ALLOWED = (
    "visits AS v0 " + " ".join(JOINED["public"].format(n=number) for number in range(9)),
    "visits AS v0 JOIN visits AS v1 ON v0.patient = v1.patient",
    "visits AS v0 " + " ".join(f"SEMI JOIN visits AS v{n} ON v0.patient = v{n}.patient" for n in range(1, 6)),
    "people JOIN calls ON people.id = calls.who JOIN visits ON visits.patient = people.id",
    "calls JOIN people ON people.id = calls.who JOIN calls AS c ON c.call = calls.call JOIN visits ON patient = id",
    "visits JOIN (SELECT patient, count(*) AS n FROM visits GROUP BY patient) AS u ON u.patient = visits.patient",
)
REPEATED = (
    "people JOIN calls ON people.id = calls.who JOIN visits ON visits.patient = people.id "
    "LEFT JOIN visits AS v ON v.patient = people.id",
    "visits AS v0 JOIN calls ON who = patient FULL JOIN visits AS v ON v.patient = calls.who",
    "calls JOIN (SELECT a.patient FROM visits AS a JOIN visits AS b ON a.patient = b.patient) AS s ON s.patient = who",
)
REFUSED = (
    "visits AS v JOIN calls ON who = v.patient "
    "JOIN (SELECT a.patient FROM visits AS a JOIN visits AS b ON a.patient = b.patient) AS s ON s.patient = who"
)


def cuts(connection: duckdb.DuckDBPyConnection, rows: str) -> int:
    """Returns how many tables are cut to some rows for a key before they are joined."""
    statement = ASKED.replace("1e-9, max_rows_contributed = 100", "1e-9") + rows
    found = connection.execute("SELECT private_sql FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
    return str(found[0][0]).count("OVER (PARTITION BY dpduck_t.")


@pytest.mark.slow
def test_joins_by_keys_repeat_nothing() -> None:
    """A join with a PRIMARY KEY adds no rows to the other side: such joins may be many."""
    with opened(1) as connection:
        assert [(rows, outcome(connection, rows)) for rows in ALLOWED] == [(rows, "answered") for rows in ALLOWED]
        assert [cuts(connection, rows) for rows in ALLOWED] == [0, 1, 0, 1, 1, 0]
        assert [cuts(connection, rows) for rows in REPEATED] == [2, 2, 2]
        assert "each row of a join" in outcome(connection, REFUSED)


ONE_TO_MANY = (
    "visits AS v JOIN visits AS w ON v.patient = w.patient",
    "visits AS v JOIN visits AS w ON v.patient = w.patient AND v.g <= w.g WHERE v.patient = 5000",
    "visits AS v LEFT JOIN (SELECT patient FROM visits UNION ALL SELECT who FROM calls) AS w ON v.patient = w.patient",
    "calls JOIN visits ON who = patient JOIN pub ON pub.k = visits.g",
)


@pytest.mark.parametrize("rows", ONE_TO_MANY)
def test_many_rows_of_one_person_do_not_fill_the_memory(rows: str) -> None:
    """8,000 visits of one person made 64 million rows, which failed. Now they make as many as 128 visits would."""
    said = []
    for hers in (0, 8000):
        with opened(hers) as connection:
            said.append(outcome(connection, rows))
    assert said == ["answered", "answered"]


def test_which_rows_are_joined_is_the_persons_own() -> None:
    """The first 128 rows for a key in keyed order of their own content: of a unit alone, and not by chance."""
    with opened(1) as connection:
        (sql,) = connection.execute(
            "SELECT private_sql FROM dp_explain($$SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) "
            "FROM visits AS v JOIN visits AS w ON v.patient = w.patient$$) WHERE chosen"
        ).fetchall()[0]
    assert 'hash(CAST($dpduck_bounding_key AS UBIGINT), dpduck_t."patient"' in sql
    assert 'PARTITION BY dpduck_t."patient" ORDER BY dpduck_cut_0,' in sql
    assert sql.count("<= 128") == 1


PER_UNIT = "(SELECT patient, count(*) AS n FROM visits GROUP BY patient)"


def nested(levels: int, through: str = "") -> str:
    """Joins to the right, each inside another. through: the beginning of each second level."""
    inner = "(SELECT d.patient FROM visits AS d JOIN visits AS e ON d.patient = e.patient)"
    for level in range(levels):
        inner = f"(SELECT b{level}.patient FROM visits AS b{level} JOIN {inner} AS s{level} USING (patient))"
        if through:
            inner = f"(SELECT u{level}.patient FROM {through} AS u{level} JOIN {inner} AS w{level} USING (patient))"
    return f"{inner} AS t WHERE patient = 5000"


def united(doublings: int) -> str:
    """A table united with itself, and that with itself again."""
    inner = "SELECT patient FROM visits"
    for level in range(doublings):
        inner = f"SELECT patient FROM ({inner}) AS a{level} UNION ALL SELECT patient FROM ({inner}) AS b{level}"
    return f"({inner}) AS t WHERE patient = 5000"


@pytest.mark.parametrize(
    "rows", [nested(1), nested(3), nested(2, PER_UNIT), united(4), united(7)],
    ids=["in one", "in three", "per unit", "16 tables", "128 tables"],
)  # fmt: skip
def test_joins_inside_of_joins_are_bounded_together(rows: str) -> None:
    """Each level once had a separate bound. 60 visits of one person then failed where none were answered."""
    said = []
    for hers in (0, 60):
        with opened(hers) as connection:
            said.append(outcome(connection, rows))
    assert said[0] == said[1]
    assert said[0] == "answered" or "at most 64" in said[0] or "joined each with each" in said[0]


def test_copies_of_joined_rows_are_bounded_with_them() -> None:
    """Joined rows of a unit times their copies by public tables are bounded: 200 visits became 50 million rows."""
    inner = "(SELECT b.patient, b.g FROM visits AS b JOIN visits AS c ON b.patient = c.patient)"
    joined = f"(SELECT a.patient, a.g FROM visits AS a JOIN {inner} AS s ON a.patient = s.patient) AS t"
    public = " ".join(f"JOIN pub AS p{number} ON p{number}.k = t.g" for number in range(4))
    with opened(1) as connection:
        said = [outcome(connection, f"{joined} {copied}") for copied in ("", public)]
    assert said[0] == "answered"
    assert "multiplied" in said[1]


@pytest.mark.parametrize("kind", ["LEFT", "ANTI"])
def test_keys_that_are_null_are_nobodys_group(kind: str) -> None:
    """NULLs of a UNIQUE column are of many units: cut together, one unit's rows would put out another's."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE calls (call BIGINT UNIQUE, who BIGINT)")
        connection.execute("INSERT INTO calls SELECT NULL, range FROM range(300)")
        connection.execute(
            "FROM dp('CREATE PRIVACY POLICY ON calls (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 1000))')"
        ).fetchall()
        pairs = "(SELECT b.call FROM calls AS b JOIN calls AS c ON b.who = c.who) AS s"
        statement = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 50) count(*) FROM calls AS a "
        ((counted,),) = connection.execute(
            "FROM dp(?)", [f"{statement} {kind} JOIN {pairs} ON a.call = s.call"]
        ).fetchall()
    assert counted == 300, "noise of scale 1/50 rounds to 0 but for a chance of 1e-21"
