"""Projects over a server: members, their commands, and sixteen of them at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.kernel.ledger.secrets import SecretsFile, SecretsInMemory
from dpduck.server.principals import PrincipalBook
from dpduck.values.errors import DpduckError, Refusal
from tests.server.served import ask, count, make_clinic, open_served
from tests.support.clinics import by
from tests.support.threads import at_once

MEMBERS = 16


@pytest.mark.slow
def test_sixteen_members_ask_at_once(tmp_path: Path, own_state: Path) -> None:
    """Each asks its own questions over its own connection. No more than the share is charged, and nothing is lost."""
    opened = open_served(tmp_path)
    book = PrincipalBook(SecretsFile.open(opened.database.with_name("clinic_private_secrets"), create=False))
    book.put_project("census", Fraction(1, 10))
    for number in range(MEMBERS):
        opened.tokens[f"m{number}"] = book.add(f"m{number}", project="census")
    start, answered, told = threading.Barrier(MEMBERS), list[str](), list[str]()

    def run(who: str, place: int) -> None:
        start.wait()
        for turn in range(4):
            text = ask(by("sex", f"0.{100 + 4 * place + turn}"))
            try:
                opened.sql(who, text)
                answered.append(text)
            except DpduckError as error:
                told.append(str(error))

    try:
        before = len(opened.spent())
        at_once([partial(run, f"m{number}", number) for number in range(MEMBERS)])
        charged = opened.spent()[before:]
        assert len(charged) == len(answered) == len(set(answered)) and len(answered) + len(told) == 4 * MEMBERS
        assert {entry[1] for entry in charged} <= {f"m{number}" for number in range(MEMBERS)}
        spent = sum((entry[2] for entry in charged), Fraction(0))
        assert Fraction(8, 10) < spent <= 1, "a tenth of 10, up to a price that no longer fits"
        assert all("share of the project census" in line and "left" in line for line in told)
        opened.rows("bob", count("ward", "0.5"))
        left = opened.rows("m0", "SELECT remaining, project FROM dp_budget() WHERE table_name = 'visits'")
        assert left == [(pytest.approx(float(1 - spent)), "census")]
        book.revoke("m0")
        opened.tokens["late"] = book.add("late", project="census")
        assert "share of the project census" in opened.refused("late", ask(by("sex", "0.9")))
    finally:
        opened.service.close()


@pytest.mark.slow
def test_the_owners_log_warns(tmp_path: Path, own_state: Path) -> None:
    """From 80 % each charge has a line in the owner's log, and the principal's answer has none."""
    opened = open_served(tmp_path)
    try:
        opened.sql("bob", ask(by("sex", "5.5")))
        assert "warned" not in [line["event"] for line in opened.audited()]
        opened.sql("bob", ask(by("sex", "0.6")))
        (warned,) = [line for line in opened.audited() if line["event"] == "warned"]
        assert warned["why"] == "the budget of clinic.main.visits.patient: 81 % is spent"
        assert (warned["principal"], warned["ledger_id"]) == ("bob", str(opened.spent()[-1][0]))
        opened.sql("bob", ask(by("sex", "0.6")))
        assert [line["event"] for line in opened.audited()].count("warned") == 1, "it was charged once"
    finally:
        opened.service.close()


def test_names_of_projects(tmp_path: Path) -> None:
    """A project and a principal never have one name. A member of no project is refused before it has a token."""
    book = PrincipalBook(SecretsInMemory())
    book.put_project("census", Fraction(1, 3))
    book.add("ada", project="census")
    refused: list[Callable[[], object]] = [
        partial(book.add, "Census"),
        partial(book.put_project, "ADA", Fraction(1, 2)),
        partial(book.put_project, "owner", Fraction(1, 2)),
        partial(book.put_project, "a b", Fraction(1, 2)),
        partial(book.put_project, "more", Fraction(2)),
        partial(book.add, "bob", project="nothing"),
        partial(book.add, "ada", project="census"),
    ]
    for action in refused:
        with pytest.raises(Refusal):
            action()
    assert [principal.name for principal in book.all()] == ["ada"]
    assert [(project.name, project.members) for project in book.projects()] == [("census", ("ada",))]
    book.put_project("CENSUS", Fraction(1, 2))
    assert [(project.name, project.share) for project in book.projects()] == [("census", Fraction(1, 2))]
    assert book.find("ada").caller.project == "census"


def test_the_commands(tmp_path: Path, own_state: Path) -> None:
    """A project is made, given members and listed."""
    database, runner = str(make_clinic(tmp_path)), CliRunner()

    def ran(*arguments: str) -> str:
        result = runner.invoke(main, ["principal", arguments[0], database, *arguments[1:]])
        return result.output

    assert ran("project", "census", "--share", "30%") == "census: 30 % of each budget; no members yet\n"
    assert ran("add", "ada", "--project", "census").startswith("dpduck_")
    assert ran("project") == "census: 30 % of each budget; ada\n"
    assert '"project": "census"' in ran("list", "--format", "json")
    assert "census" in ran("list")
    assert "a project has a share" in ran("project", "census")
    assert "there is no project 'other'; accepted: census" in ran("add", "bob", "--project", "other")
