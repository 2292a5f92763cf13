"""Known answers of served principals: from what they may read, for nothing, and nothing of another's."""

from __future__ import annotations

from tests.server.served import Served, ask

CELLS = "SELECT sex, age, count(*) AS n FROM visits GROUP BY sex, age"


def known(statement: str) -> str:
    """A plain statement as a client asks what is known."""
    return f"FROM dp_known($known$ {statement} $known$)"


def test_a_dashboard_over_views_is_free(served: Served) -> None:
    """What a private view measured is known to whoever may ask, in a shell's words, and charges nobody."""
    spent = served.spent()
    for statement in (
        "SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY n DESC",
        "SELECT sex, count(*) AS n FROM visits WHERE ward IN ('w0', 'w1') GROUP BY sex",
    ):
        for who in ("alice", "bob"):
            rows = served.rows(who, f"SELECT *, n - stderr AS low {known(statement)}")
            assert rows and all(row[3] < row[1] < row[4] for row in rows)
    assert served.spent() == spent


def test_another_s_answers_are_not_known(served: Served) -> None:
    """Alice's own release is known to alice; bob is told that nothing determines the answer, and what would."""
    before = served.refused("bob", known(CELLS))
    assert "no release that you may read determines count(*)" in before
    served.rows("alice", ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) {CELLS[7:]}"))
    assert len(served.rows("alice", known(CELLS))) == 20
    assert served.refused("bob", known(CELLS)) == before


def test_a_view_is_refreshed_by_whose_it_is(served: Served) -> None:
    """Alice's view becomes newer for everybody, from what alice may read; bob may not touch it."""
    made = "CREATE PRIVATE VIEW by_age OPTIONS (epsilon = 0.01) AS SELECT age, count(*) AS n FROM visits GROUP BY age"
    served.rows("alice", ask(made))
    served.rows("alice", ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.02) {CELLS[7:]}"))
    before, spent = served.rows("bob", "SELECT age, n, n_stderr FROM by_age ORDER BY age"), served.spent()
    assert "is another's" in served.refused("bob", ask("REFRESH PRIVATE VIEW by_age"))
    served.rows("alice", ask("REFRESH PRIVATE VIEW by_age"))
    after = served.rows("bob", "SELECT age, n, n_stderr FROM by_age ORDER BY age")
    assert [row[0] for row in after] == [row[0] for row in before] and after[0][2] < before[0][2]
    assert served.spent() == spent


def test_what_dp_refuses_is_refused(served: Served) -> None:
    """Functions, tables and statements that may not run over rows are no question either."""
    refused = {
        "SELECT ward, count(*) FROM visits GROUP BY ward; DROP TABLE visits": "",
        "SELECT ward, count(*) FROM secret GROUP BY ward": "no table with a privacy policy",
        "SELECT ward, count(*) FROM visits WHERE write_log(ward) IS NULL GROUP BY ward": "",
        "SELECT ward, count(*) FROM visits WHERE ward IN (SELECT word FROM secret) GROUP BY ward": "",
        "SELECT (SELECT max(word) FROM secret), count(*) FROM visits": "",
        "SELECT ward, count(*) FROM visits GROUP BY ward HAVING random() > 0.5": "",
        "SELECT * FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward), visits": "",
        "CREATE TABLE t AS SELECT count(*) FROM visits": "",
        "SELECT count(*) FROM read_csv('/etc/passwd')": "no table with a privacy policy",
    }
    for statement, why in refused.items():
        assert why in served.refused("bob", known(statement)), statement
