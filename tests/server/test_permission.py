"""Permission comes before existence: an unknown table seems not to exist, and another's is not described."""

from __future__ import annotations

from pathlib import Path

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook
from tests.server.served import NoAudit, Served, ask, make_clinic
from tests.support.clinics import Clinic

HIV = "CREATE PRIVACY POLICY ON hiv (PRIVACY UNIT pid MAX ROWS 1, BUDGET (epsilon = 1), DOMAIN positive IN (0, 1))"
KNOWN = "SELECT {0}, count(*) AS n FROM {1} GROUP BY {0}"
FORMS = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) {0}, count(*) AS n FROM {1} GROUP BY {0}",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits "
    "JOIN {1} ON patient = {0} GROUP BY sex",
    "CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.01) AS SELECT {0}, count(*) AS n FROM {1} GROUP BY {0}",
    "CREATE PRIVATE TABLE v OPTIONS (epsilon = 0.01, mechanism = 'mwem', rows = 10) AS SELECT {0} FROM {1} "
    "WORKLOAD MARGINALS (1)",
    "CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 0.01, delta = 1e-9, queries = 5) ON {1} ({0})",
)


def opened(folder: Path) -> Served:
    """The clinic with a table that alice may not ask about, and one without a policy."""
    database = make_clinic(folder)
    with dpduck.connect(database) as connection:
        clinic = Clinic(connection)
        connection.execute(
            "CREATE TABLE hiv AS SELECT range AS pid, range % 2 AS positive, 'x' AS remark FROM range(9)"
        )
        clinic.dp(HIV)
    book = PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False))
    tokens = {"alice": book.add("alice", None, ["visits"]), "bob": book.add("bob")}
    service = open_service(database, None, NoAudit(), Limits(), vault=LocalVault(database))
    return Served(database, service, tokens, folder / "none")


def test_names_cannot_be_tried_out(tmp_path: Path, state_directory: Path) -> None:
    """A table without a policy is refused like a missing one. No column of another's table is named."""
    served = opened(tmp_path)
    try:
        for form in FORMS:
            for explain in (False, True):
                texts = {}
                for table in ("secret", "nosuch", "private.dpduck.releases", "private.main.nosuch", "main.secret"):
                    statement = form.format("word", table)
                    sql = f"FROM dp_explain($e$ {statement} $e$)" if explain else ask(statement)
                    if explain and "PRIVATE VIEW" in form:
                        continue
                    told = served.refused("alice", sql)
                    texts[table] = told.replace(table, "NAME")
                assert len(set(texts.values())) <= 1, texts
                for column in ("nosuchcol", "remark", "positive"):
                    statement = form.format(column, "hiv")
                    sql = f"FROM dp_explain($e$ {statement} $e$)" if explain else ask(statement)
                    told = served.refused("alice", sql)
                    assert told == "alice may not ask about 'hiv'; accepted: visits", told
        for column in ("nosuchcol", "remark", "positive"):
            told = served.refused("alice", f"FROM dp_known($k$ {KNOWN.format(column, 'hiv')} $k$)")
            assert told == "alice may not ask about 'hiv'; accepted: visits", told
        tables = ("secret", "nosuch", "private.dpduck.measured")
        unknown = {served.refused("alice", f"FROM dp_known($k$ {KNOWN.format('word', name)} $k$)") for name in tables}
        assert unknown == {"no table with a privacy policy is read; accepted: FROM a table of dp_policies()"}
        told = served.refused("bob", ask(FORMS[0].format("nosuchcol", "hiv")))
        assert "pid, positive" in told, "who may ask is told what there is"
        raw = served.refused("bob", ask(FORMS[0].format("word", "secret")))
        assert raw.endswith(": there is no table 'secret'; accepted: a table with a policy, or a declared public one")
    finally:
        served.service.close()
    with dpduck.connect(served.database) as connection:
        assert "has no privacy policy" in Clinic(connection).refused(FORMS[0].format("word", "secret")), (
            "the owner's own"
        )
