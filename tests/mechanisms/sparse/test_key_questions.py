"""Questions that select their keys from declared public tables, and the refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpduck.database.functions import OWNER, answer, database_of
from tests.mechanisms.sparse.sparse import PRICE, ask, fill, histogram, refused_ask
from tests.support.clinics import Clinic


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    """A histogram over the codes, and a declared public catalogue: one code is NULL, one stands twice."""
    made = open_clinic()
    fill(made)
    histogram(made)
    made.con.execute(
        "CREATE TABLE catalogue AS FROM (VALUES ('K0', 'acute', 2001), ('K1', 'acute', 2010), ('K2', 'chronic', 2015), "
        "('K1', 'acute', 2020), (NULL, 'acute', 2020), ('absent', 'acute', NULL)) AS t(code, class, since)"
    )
    made.dp("DECLARE PUBLIC TABLE catalogue")
    return made


def by_text(visits: Clinic, name: str, text: str) -> float:
    """The answer of the one question that a text selects."""
    (row,) = visits.con.execute("SELECT answer FROM dp_ask(?, ?)", [name, text]).fetchall()
    return float(row[0])


SELECTIONS = [
    ("code IN (SELECT code FROM catalogue WHERE class = 'acute')", "['K0', 'K1', 'absent']"),
    ("key IN (SELECT code FROM catalogue WHERE since BETWEEN 2010 AND 2015)", "['K1', 'K2']"),
    ('"Code" IN (SELECT c.code FROM catalogue AS c WHERE c.since + 1 < 2011)', "['K0']"),
    ("code IN (SELECT 'K' || (since - 2000) FROM catalogue WHERE since < 2005)", "['K1']"),
    ("(code) IN (SELECT DISTINCT code FROM memory.main.catalogue WHERE class LIKE 'chr%')", "['K2']"),
    ("SELECT code AS key FROM catalogue WHERE class = 'chronic'", "['K2']"),
    ("SELECT code FROM catalogue WHERE class = 'acute' AND code IS NOT NULL", "['K0', 'K1', 'absent']"),
]


def test_keys_from_public_tables(visits: Clinic) -> None:
    """WHERE key IN (SELECT ..) over public tables is the question of the keys that it lists."""
    for text, keys in SELECTIONS:
        selected = by_text(visits, "h", text)
        assert selected == visits.value(f"SELECT answer FROM dp_ask('h', {keys})"), text


def test_weights_and_questions_that_are_selected(visits: Clinic) -> None:
    """Computed weights, and a question for each class, in one go."""
    text = "SELECT code, 0.5 AS weight, class AS question FROM catalogue WHERE since < 2012 OR class = 'chronic'"
    acute, chronic = visits.con.execute("FROM dp_ask('h', ?)", [text]).fetchall()
    assert (acute[0], chronic[0]) == ("acute", "chronic")
    assert acute[1] == ask(visits, "h", "['K0', 'K1']", ", weights := [0.5, 0.5]")[1]


def test_keys_of_several_columns(visits: Clinic) -> None:
    """The columns before IN may come in any order."""
    visits.dp(f"CREATE PRIVATE HISTOGRAM two OPTIONS ({PRICE}, queries = 9) ON visits (code, number)")
    visits.con.execute("CREATE TABLE pairs AS SELECT 'K' || i AS code, i AS number FROM range(3) AS r(i)")
    visits.dp("DECLARE PUBLIC TABLE pairs")
    listed = ask(visits, "two", "[('K1', 1), ('K2', 2)]")[1]
    for text in ("(number, code) IN (SELECT number, code FROM pairs WHERE number > 0)",
                 "(code, number) IN (SELECT code, number FROM pairs WHERE number > 0)"):  # fmt: skip
        assert by_text(visits, "two", text) == listed
    assert "not the key's" in refused_ask(visits, "two", "'code IN (SELECT code FROM pairs)'")
    assert "2 columns for 1" in refused_ask(visits, "h", "'code IN (SELECT code, number FROM pairs)'")


REFUSED = [
    ("code IN (SELECT code FROM visits)", "no declared public table"),
    ("SELECT code FROM visits", "no declared public table"),
    ("SELECT code FROM private.dpduck.session_answers", "no declared public table"),
    ("SELECT code FROM read_csv('/etc/passwd')", "cannot be selected from"),
    ("SELECT code FROM '/etc/passwd'", "no declared public table"),
    ("SELECT code FROM catalogue WHERE code IN (SELECT code FROM visits)", "IN over anything but a list"),
    ("SELECT (SELECT max(code) FROM visits) AS code FROM catalogue", "a subquery in an expression"),
    ("SELECT getenv('HOME') AS code FROM catalogue", "getenv"),
    ("SELECT dp_released(code) AS code FROM catalogue", "dp_released"),
    ("code IN (SELECT code FROM catalogue UNION SELECT code FROM visits)", "this is no question"),
    ("code IN (WITH c AS (FROM visits) SELECT code FROM c)", "this SELECT of keys is refused"),
    ("SELECT code FROM catalogue, visits", "this SELECT of keys is refused"),
    ("SELECT code FROM catalogue LIMIT 1", "this SELECT of keys is refused"),
    ("SELECT code FROM catalogue; SELECT 1", "two statements"),
    ("code NOT IN (SELECT code FROM catalogue)", "this is no question"),
    ("code IN ('K0', 'K1')", "this is no question"),
    ("since IN (SELECT since FROM catalogue)", "not the key's"),
    ("SELECT class FROM catalogue", "gives no column 'code'"),
    ("SELECT code, 2 AS weight FROM catalogue", "weights from 0 to 1"),
    ("SELECT code, CAST(class AS DOUBLE) AS weight FROM catalogue", "weights from 0 to 1"),
    ("SELECT code FROM catalogue WHERE since > 3000", "1 to"),
    ("SELECT code, class AS code FROM catalogue", "two selected columns have one name"),
    ("SELECT rowid AS code FROM catalogue", "rowid"),
    ("code IN (SELECT", "does not parse"),
    ("", "the statement is empty"),
    ("sku-0", "this text selects no keys; accepted: a list such as ['key']"),
    ("catalogue", "has no meaning here"),
]


def test_other_selections_are_refused(visits: Clinic) -> None:
    """Nothing but plain conditions over one declared public table is run for a question, and no value is quoted."""
    charges = visits.charges()
    for text, said in REFUSED:
        line = refused_ask(visits, "h", "'" + text.replace("'", "''") + "'")
        assert said in line, text
        assert "unexpected" not in line
    assert visits.charges() == charges


ARGUMENTS = [
    "", "[", "1", "[1]", '["h"]', '["h", 1, null]', '["h", ["a"], {}]', '{"a": 1, "b": 2, "c": 3}', "[" * 50_000,
    '["h", ["a"], ["1"]]', '["h", ["a"], [1' + "0" * 400 + "]]", '["h", ["a"], [1e999]]', '["h", ["a"], [NaN]]',
    '["h", ["\\ud800"], null]', '["h", [["\\udfff"]], null]', '["h", [1' + "0" * 5000 + "], null]", '[null, [], []]',
    '["\\ud800", ["a"], null]', '["h", "\\ud800", null]',
]  # fmt: skip


def test_arguments_that_no_macro_sends(visits: Clinic) -> None:
    """Anything a client sends instead of JSON of three parts is refused in one line, as any senseless argument."""
    database = database_of(visits.con)
    assert database is not None
    for argument in ARGUMENTS:
        told = answer(database, OWNER, "ask", argument)
        assert told.startswith("FROM query(error("), argument[:100]
        assert "unexpected" not in told, argument[:100]
        told.encode()
