"""Known answers of served principals come free from their readable releases, and from nothing of another's."""

from __future__ import annotations

from tests.server.served import Served, ask

CELLS = "SELECT sex, age, count(*) AS n FROM visits GROUP BY sex, age"
COUNTED = ", count(*) AS n FROM visits GROUP BY"


def known(statement: str) -> str:
    """Returns a plain statement as a client asks for known answers."""
    return f"FROM dp_known($known$ {statement} $known$)"


def from_releases(served: Served, who: str, statement: str) -> set[str]:
    """The releases that a known answer rests on."""
    ((said,),) = set(served.rows(who, f"SELECT known_from {known(statement)}"))
    return set(said.split("; ")[0].split(", "))


def test_a_dashboard_over_views_is_free(served: Served) -> None:
    """The measurements of a private view are known to every reader, in a shell's words, and charge nobody."""
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
    """Alice's own release is known to alice. Bob is told that nothing determines the answer, and what would."""
    before = served.refused("bob", known(CELLS))
    assert "no release that you may read determines count(*)" in before
    served.rows("alice", ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) {CELLS[7:]}"))
    assert len(served.rows("alice", known(CELLS))) == 20
    assert served.refused("bob", known(CELLS)) == before


def test_a_view_is_refreshed_by_whose_it_is(served: Served) -> None:
    """Alice's view becomes newer for everybody, from what alice may read. Bob may not touch it."""
    made = "CREATE PRIVATE VIEW by_age OPTIONS (epsilon = 0.01) AS SELECT age, count(*) AS n FROM visits GROUP BY age"
    served.rows("alice", ask(made))
    better = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.02) age, count(*) AS n FROM visits GROUP BY age"
    served.rows("alice", ask(better))
    before, spent = served.rows("bob", "SELECT age, n, n_stderr FROM by_age ORDER BY age"), served.spent()
    assert "belongs to somebody else" in served.refused("bob", ask("REFRESH PRIVATE VIEW by_age"))
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


def test_reuse_rests_on_what_one_may_read(served: Served) -> None:
    """Alice's own releases make her combined answer better, and nobody else's. The release itself is paid for once."""
    served.rows("alice", ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) {CELLS[7:]}"))
    both = (
        "epsilon = 0.1, reuse = TRUE) sex, age, count(*) AS n, dp_stderr(n) AS e FROM visits GROUP BY CUBE (sex, age)"
    )
    statement = ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({both}")
    alices, spent = served.rows("alice", statement), served.spent()
    bobs = served.rows("bob", statement)
    assert served.spent() == spent and len(bobs) == len(alices) == 33
    assert max(row[3] for row in alices) < 0.9 * max(row[3] for row in bobs)
    assert served.rows("alice", statement) == alices and served.rows("bob", statement) == bobs


def test_a_plain_select_is_what_is_known(served: Served) -> None:
    """Over the private table's own name, as BI tools write it: the same rows as dp_known's, free, in their order."""
    spent = served.spent()
    for statement in (
        "SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY n DESC",
        'SELECT ward AS ward, count(*) AS "COUNT(*)" FROM main.visits GROUP BY ward ORDER BY "COUNT(*)" DESC LIMIT 10;',
        "SELECT * FROM (SELECT sex, count(*) AS n FROM visits WHERE ward IN ('w0', 'w1') GROUP BY sex) AS t LIMIT 2",
        "WITH t AS (SELECT sex, count(*) AS n FROM visits GROUP BY sex) SELECT max(n) AS most FROM t",
        "SELECT count(*) FROM visits",
        "SELECT sex, count(*) AS n FROM clinic.main.visits GROUP BY sex",
        'SELECT v.sex, count(*) AS n FROM "clinic"."main"."visits" AS v GROUP BY v.sex',
    ):
        for who in ("alice", "bob"):
            assert served.rows(who, statement) == served.rows(who, known(statement)), statement
    ordered = [row[1] for row in served.rows("bob", "SELECT ward, count(*) AS n FROM visits GROUP BY 1 ORDER BY 2")]
    assert ordered == sorted(ordered) and len(ordered) == 6
    principal = served.service.book.authenticate(served.tokens["bob"])
    assert principal is not None
    with served.service.public.cursor() as cursor:
        probed = cursor.execute(served.service.gate.probe(principal, "SELECT count(*) AS n FROM visits"))
        assert [column[0] for column in probed.description] == [
            "n", "stderr", "interval_low", "interval_high", "known_from",
        ]  # fmt: skip
    assert served.spent() == spent


def test_full_names_reach_private_tables_alone(served: Served) -> None:
    """dp_known takes database.schema.table as a private table or as no private view, and tells no more."""
    for name in (
        "clinic.main.secret",
        "clinic.main.nothing",
        "clinic_private.dpduck.releases",
        "elsewhere.main.visits",
    ):
        told = f"there is no private view '{name}'; accepted: "
        assert told in served.refused("bob", f"SELECT count(*) AS n FROM {name}")
        assert told in served.refused("bob", f"FROM {name}")
        assert told in served.refused("bob", f"SELECT * FROM {ask('SELECT 1')[5:]}, {name}")
    assert "carol may not ask" in served.refused("carol", "SELECT count(*) AS n FROM clinic.main.visits")
    for database in ("memory", "answers", "listing", "system", "temp", "private.pg_catalog"):
        name = f"{database}.visits" if "." in database else f"{database}.main.visits"
        assert f"the table '{name}' is not served" in served.refused("bob", f"SELECT count(*) AS n FROM {name}")


def test_what_is_not_known_is_refused_with_what_would_pay(served: Served) -> None:
    """In one line, whoever asks. A name without a private table counts as a missing private view."""
    told = served.refused("bob", f"{CELLS} ORDER BY n")
    assert "no release that you may read determines count(*); accepted: FROM dp($$ SELECT WITH DIFFERENTIAL" in told
    served.rows("alice", ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) {CELLS[7:]}"))
    assert len(served.rows("alice", CELLS)) == 20
    assert served.refused("bob", f"{CELLS} ORDER BY n") == told
    assert "carol may not ask" in served.refused("carol", "SELECT count(*) FROM visits")
    assert "there is no private view 'agess'; accepted: ages" in served.refused("bob", "SELECT count(*) FROM agess")
    assert "no aggregate over private rows" in served.refused("bob", "FROM visits")
    assert "there is no private view 'nothing'" in served.refused("bob", "SELECT count(*) FROM nothing, ages")


def test_a_view_tells_nothing_of_another_s_answer(served: Served) -> None:
    """Bob's view of the statement that alice asked for herself measured something else: nobody is shown alice's
    release, neither its numbers nor its name. A view of what alice measured shows it, and dropping the view ends that.
    """
    asked, cells = f"sex, ward{COUNTED} ROLLUP (sex, ward)", f"SELECT sex, ward{COUNTED} sex, ward"
    served.rows(
        "alice", ask(f"CREATE PRIVATE VIEW all_see OPTIONS (epsilon = 0.5) AS SELECT sex, ward{COUNTED} sex, ward")
    )
    before = from_releases(served, "alice", cells)
    served.rows("alice", ask(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) {asked}"))
    (own,) = from_releases(served, "alice", cells) - before
    shared = from_releases(served, "bob", cells)
    served.rows("bob", ask(f"CREATE PRIVATE VIEW mine OPTIONS (epsilon = 0.1, reuse = TRUE) AS SELECT {asked}"))
    (bobs,) = from_releases(served, "bob", cells) - shared
    assert bobs != own and from_releases(served, "alice", cells) == {*before, own, bobs}
    served.rows("alice", ask(f"CREATE PRIVATE VIEW hers OPTIONS (epsilon = 0.1) AS SELECT {asked}"))
    assert from_releases(served, "bob", cells) == {*shared, bobs, own}
    served.rows("alice", ask("DROP PRIVATE VIEW hers"))
    assert from_releases(served, "bob", cells) == {*shared, bobs}


def test_a_table_that_is_not_served_says_what_there_is(served: Served) -> None:
    """Whether it exists or not: the private views, and how a table with a policy is asked about."""
    views = ", ".join(
        sorted(name for (name,) in served.rows("bob", "SELECT name FROM dp_releases() WHERE kind = 'view'"))
    )
    for name in ("secret", "shops", "clinic.main.secret"):
        told = served.refused("bob", f"FROM {name}")
        assert f"there is no private view '{name}'; accepted: " in told
        shown, _, asking = told.partition("; accepted: ")[2].rpartition(", ")
        assert asking == "SELECT WITH DIFFERENTIAL_PRIVACY .. FROM a table of dp_policies()"
        assert ", ".join(sorted(shown.split(", "))) == views
    assert served.rows("bob", "SELECT table_name FROM dp_policies()")
