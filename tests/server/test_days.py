"""Parts of a budget a day over a server: commands, what principals are told, and sixteen threads at once."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Barrier, Thread

import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.kernel.ledger.secrets import SecretsFile, SecretsInMemory
from dpduck.server.audit import AuditFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import RECORD, PrincipalBook
from dpduck.values.errors import DpduckError, Refusal
from tests.server.served import Served, ask, count, make_clinic, open_served
from tests.support.clinics import by


def book_of(database: Path) -> PrincipalBook:
    return PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False))


def test_a_day_over_a_server(served: Served) -> None:
    """A charge beyond the day's part is refused in one line, and the budget tells the day's rest."""
    book = book_of(served.database)
    served.tokens["agent"] = book.add("agent", tables=["visits"], a_day=Fraction(1, 50))
    left = "SELECT a_day, left_today, epsilon_left FROM dp_budget() WHERE table_name = 'visits'"
    assert served.rows("agent", left) == [(0.02, pytest.approx(0.2), pytest.approx(0.2))]
    served.rows("agent", count("sex", "0.15"))
    assert served.rows("agent", left) == [(0.02, pytest.approx(0.05), pytest.approx(0.05))]
    said = served.refused("agent", count("sex", "0.151"))
    assert "part of agent for this day in the budget of clinic.main.visits.patient has 0.05 of 0.2 left" in said
    plan = served.rows("agent", "SELECT fits, times_left FROM dp_plan($q$ " + by("sex", "0.151") + " $q$) LIMIT 1")
    assert plan == [(False, 0)]
    assert served.rows("agent", count("sex", "0.15")), "what is paid for is free"
    book.limit_day("agent", Fraction(1, 25))
    served.rows("agent", count("sex", "0.151"))
    book.limit_day("agent", None)
    served.rows("agent", count("sex", "0.152"))
    assert served.rows("alice", "SELECT DISTINCT a_day, left_today FROM dp_budget()") == [(None, None)]


def test_a_larger_share_needs_no_new_token(served: Served) -> None:
    """It holds for the next charge, and earlier spending stays."""
    book = book_of(served.database)
    served.tokens["sharer"] = book.add("sharer", share=Fraction(1, 100))
    served.rows("sharer", count("sex", "0.1"))
    assert "share of sharer in the budget" in served.refused("sharer", count("ward", "0.1"))
    book.limit_share("sharer", Fraction(1, 40))
    assert len(served.rows("sharer", count("ward", "0.1"))) > 0
    assert "has 0.05 of 0.25 left" in served.refused("sharer", count("age", "0.1"))
    book.limit_share("sharer", None)
    assert served.rows("sharer", "SELECT DISTINCT share FROM dp_budget()") == [(None,)]


@pytest.mark.slow
def test_sixteen_threads_and_a_restart(tmp_path: Path, own_state: Path) -> None:
    """Whatever they ask at once, no more than the day's part is charged, also by the next server of the same day."""
    opened = open_served(tmp_path)
    token = book_of(opened.database).add("agent", a_day=Fraction(1, 20))
    opened.tokens["agent"] = token
    start, said = Barrier(16), list[str]()

    def run(place: int) -> None:
        start.wait()
        for turn in range(3):
            try:
                opened.sql("agent", ask(by("sex", f"0.{100 + 3 * place + turn}")))
            except DpduckError as error:
                said.append(str(error))

    before = len(opened.spent())
    threads = [Thread(target=partial(run, place)) for place in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    charged = opened.spent()[before:]
    spent = sum((entry[2] for entry in charged), Fraction(0))
    assert Fraction(7, 20) < spent <= Fraction(1, 2) and len(charged) + len(said) == 48
    assert all("for this day" in line for line in said)
    opened.service.close()
    again = open_again(opened)
    assert "for this day" in again.refused("agent", ask(by("sex", "0.9")))
    again.service.close()


def open_again(before: Served) -> Served:
    """Serves the same files anew."""

    service = open_service(
        before.database, None, AuditFile(before.log), Limits(seconds=600.0), vault=LocalVault(before.database)
    )
    return Served(before.database, service, before.tokens, before.log)


def test_a_record_has_no_more_than_it_needs() -> None:
    """Without a part a day, the record is the one that earlier versions read. Earlier records are read as before."""
    secrets = SecretsInMemory()
    book = PrincipalBook(secrets)
    book.add("plain")
    assert "a_day" not in json.loads(secrets.get(RECORD) or b"")[0]
    book.add("agent", a_day=Fraction(1, 100))
    assert [(one.name, one.a_day) for one in book.all()] == [("agent", Fraction(1, 100)), ("plain", None)]
    for wrong in (Fraction(0), Fraction(2), Fraction(-1, 2)):
        with pytest.raises(Refusal, match="part of the budget"):
            book.add("other", a_day=wrong)
        with pytest.raises(Refusal, match="part of the budget"):
            book.limit_day("agent", wrong)
    with pytest.raises(Refusal, match="there is no principal"):
        book.limit_day("nobody", Fraction(1, 2))


def test_the_commands(tmp_path: Path, own_state: Path) -> None:
    """The owner sets a part when adding a principal, and changes it later."""
    database, runner = str(make_clinic(tmp_path)), CliRunner()

    def ran(*arguments: str) -> str:
        return runner.invoke(main, ["principal", arguments[0], database, *arguments[1:]]).output

    ran("add", "agent", "--a-day", "1%")
    assert json.loads(ran("list", "--format", "json"))["a_day"] == "1/100"
    assert ran("limit", "agent", "--a-day", "2%") == "agent: 2 % of each budget on one day in UTC\n"
    assert "1/50" in ran("list")
    assert ran("limit", "agent", "--a-day", "none") == "agent: all that its share allows on one day in UTC\n"
    assert "is no share" in ran("limit", "agent", "--a-day", "much")
    before = json.loads(ran("list", "--format", "json"))
    assert ran("limit", "agent", "--share", "40%", "--a-day", "1%") == (
        "agent: 40 % of each budget\nagent: 1 % of each budget on one day in UTC\n"
    )
    assert json.loads(ran("list", "--format", "json")) == before | {"share": "2/5", "a_day": "1/100"}
    assert ran("limit", "agent", "--share", "none") == "agent: all of each budget\n"
    assert "this changes nothing; accepted: --share 40%" in ran("limit", "agent")
    assert "part of the budget" in ran("limit", "agent", "--share", "2")
