"""Lazy histograms from SQL: one charge, a value for every key of the universe, the same one for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpduck.mechanisms.sparse.store import SparseStore
from dpduck.store.attaching import STORE_NAME
from tests.mechanisms.sparse.sparse import ask, fill, histogram, refused_ask
from tests.support.clinics import Clinic


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    made = open_clinic()
    fill(made)
    return made


def test_values_are_kept_whatever_happens(open_clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    """Rows that change, a dropped name and a restart move no value. The ledger has one charge."""
    path = tmp_path / "clinic.duckdb"
    made = open_clinic(path)
    fill(made)
    histogram(made)
    first = {key: ask(made, "h", f"['{key}']")[1] for key in ("K0", "K3", "absent", "")}
    charges = made.charges()
    made.con.execute("UPDATE visits SET code = 'absent' WHERE code = 'K0'")
    made.dp("DROP PRIVATE HISTOGRAM h")
    histogram(made)
    assert {key: ask(made, "h", f"['{key}']")[1] for key in first} == first
    later = ask(made, "h", "['K5', 'never']")[1]
    made.con.close()
    made = open_clinic(path)
    assert {key: ask(made, "h", f"['{key}']")[1] for key in first} == first
    assert ask(made, "h", "['never', 'K5']")[1] == later
    assert made.charges() == charges


def test_the_first_value_of_a_key_stays(visits: Clinic) -> None:
    """A released value of a key is in the store, and is given again whatever is drawn later."""
    store = SparseStore(visits.con.cursor, STORE_NAME)
    assert store.store_first_values("a", [7, 1 << 127], [1, 2]) == [1, 2]
    assert store.store_first_values("a", [1 << 127, 9, 7], [5, 3, 6]) == [2, 3, 1]
    assert store.store_first_values("b", [7], [8]) == [8], "another histogram"


def test_answers_lie_within_their_margins(visits: Clinic) -> None:
    """Keys with rows, keys without, and weighted questions. False alarm below 1e-9: beta is 1e-9."""
    histogram(visits, options="queries = 10, beta = 1e-9")
    for keys, weights, sql in (
        ("['K0', 'K1']", "", "count(*) FILTER (code IN ('K0', 'K1'))"),
        ("['K2', 'zzz']", ", weights := [0.5, 1]", "0.5 * count(*) FILTER (code = 'K2')"),
        ("['']", "", "0"),
    ):
        answer, margin = ask(visits, "h", keys, weights)[1:3]
        assert abs(answer - float(visits.value(f"SELECT {sql} FROM visits"))) <= margin < 400


def test_another_histogram_has_other_noise(visits: Clinic) -> None:
    """A new epoch, or another tag, is a new charge and a new secret. The old one repeats its values.

    With noise of deviation 8 or more two values agree with a chance below 0.036, and twelve in a row below 1e-17.
    """
    histogram(visits)

    def values() -> list[float]:
        return [ask(visits, "h", f"['absent{i}']")[1] for i in range(12)]

    old = values()
    charges = visits.charges()
    visits.dp("ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert values() == old
    visits.dp("DROP PRIVATE HISTOGRAM h")
    histogram(visits)
    assert visits.charges() == charges + 1
    assert values() != old


def test_keys_are_canonical(visits: Clinic) -> None:
    """Equal keys of the column are one key under the function: collation, numbers as text or not, repeated keys."""
    visits.con.execute("ALTER TABLE visits ADD COLUMN name VARCHAR COLLATE NOCASE")
    visits.con.execute("UPDATE visits SET name = CASE WHEN number < 25 THEN 'Anna' ELSE 'anna' END")
    histogram(visits, "names", on="name")
    answers = {ask(visits, "names", keys)[1] for keys in ("['anna']", "['ANNA']", "['Anna', 'aNNA']")}
    assert len(answers) == 1
    assert abs(answers.pop() - 4000) < 300
    histogram(visits, "numbers", on="number")
    assert len({ask(visits, "numbers", keys)[1] for keys in ("[7]", "['7']", "['007']", "[7.0]")}) == 1
    assert "no meaning here" in refused_ask(visits, "numbers", "['seven']")


def test_tuples_and_conjunctions(visits: Clinic) -> None:
    """Keys of several columns are lists, or dp_key. Conjunctions are lists of boolean columns."""
    histogram(visits, "flags", on="smoker, senior", options="queries = 10, beta = 1e-9")
    exact = visits.value("SELECT count(*) FROM visits WHERE senior")
    answer, margin = ask(visits, "flags", "dp_conjunction([NULL, true])")[1:3]
    assert abs(answer - exact) <= margin
    assert ask(visits, "flags", "[[true, true], [false, true]]")[1] == answer
    assert ask(visits, "flags", "[dp_key(['true', 'true']), dp_key(['false', 'true'])]")[1] == answer
    assert "a key of 1 values" in refused_ask(visits, "flags", "[[true]]")
    assert "written otherwise" in refused_ask(visits, "flags", "['true']")


def test_questions_from_public_tables(visits: Clinic) -> None:
    """Questions by the name of a declared public table, many at once. Never from a private one."""
    visits.con.execute(
        "CREATE TABLE asked AS SELECT * FROM (VALUES ('a', 'K0', 1.0), ('a', 'K1', 0.5), ('b', 'K2', 1.0)) "
        "AS t(question, key, weight)"
    )
    histogram(visits)
    assert "no declared public table" in refused_ask(visits, "h", "'asked'")
    assert "no declared public table" in refused_ask(visits, "h", "'visits'")
    visits.dp("DECLARE PUBLIC TABLE asked")
    rows = visits.rows("FROM dp_ask('h', 'asked')")
    assert [row[0] for row in rows] == ["a", "b"]
    assert rows[0][1] == ask(visits, "h", "['K0', 'K1']", ", weights := [1.0, 0.5]")[1]
    visits.con.execute("INSERT INTO asked VALUES ('a', 'K0', 0.5)")
    assert "two weights" in refused_ask(visits, "h", "'asked'")
    visits.con.execute("DELETE FROM asked; INSERT INTO asked VALUES ('a', 'K0', 1.5)")
    assert "weights from 0 to 1" in refused_ask(visits, "h", "'asked'")


def test_the_guarantee_is_said(visits: Clinic) -> None:
    """Computational in the function's strength, in the ledger and in the list."""
    histogram(visits)
    assert "HMAC-SHA256" in visits.value("SELECT mechanism FROM dp_ledger() ORDER BY id DESC LIMIT 1")
    assert "HMAC-SHA256" in visits.value("SELECT note FROM dp_sessions() WHERE name = 'h'")


def test_refusals(visits: Clinic) -> None:
    """Senseless questions are refused in one line."""
    histogram(visits)
    assert "there is no private histogram" in refused_ask(visits, "nobody", "['a']")
    assert "1 to" in refused_ask(visits, "h", "[]")
    assert "weights for" in refused_ask(visits, "h", "['a', 'b']", ", weights := [1]")
    assert "has no meaning here" in refused_ask(visits, "h", "['a']", ", weights := [2]")
    assert "is taken" in visits.refused("CREATE PRIVATE SESSION h OPTIONS (epsilon = 1, delta = 1e-7) ON visits (code)")
