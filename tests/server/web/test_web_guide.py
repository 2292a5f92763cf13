"""docs/web.md goes as it says: its commands, and its statements as they are typed on the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.commands.serving import serve
from tests.server.served import add_principals, make_clinic, serving_flight
from tests.server.web.client import Browser
from tests.support.ports import free_port

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "web.md").read_text(encoding="utf-8")
BLOCKS = {kind: re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL) for kind in ("sh", "sql")}


@pytest.mark.slow
def test_the_guide_goes_as_it_says(tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """alice gets a token, the server says where, and of four statements two are paid for, each after its price."""
    database = make_clinic(tmp_path)
    add_principals(database)
    commands = [shlex.split(line, comments=True)[1:] for line in BLOCKS["sh"][0].splitlines() if "dpduck " in line]
    added, served = commands
    assert served == ["serve", "clinic.duckdb", "--listen", "none", "--web"]
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(main, ["principal", "revoke", "clinic.duckdb", "alice"])
    printed = CliRunner().invoke(main, added)
    (token,) = re.findall(r"dpduck_[\w-]+", printed.output)
    port = free_port()
    with serving_flight(database, "--web", f"127.0.0.1:{port}") as address:
        assert address == f"http://127.0.0.1:{port}"
        alice = Browser(port)
        assert alice.login(token).status == 303
        paid = []
        for statement in BLOCKS["sql"][0].splitlines():
            shown = alice.ask(statement)
            if "What it costs" in shown.words:
                paid.append(statement)
                shown = alice.pay(shown)
            assert "The answer" in shown.words, statement
        assert len(paid) == 2 and "0.5 of 5 spent, your share of 50%" in shown.words


def test_the_guide_names_what_is_there() -> None:
    """Every file and picture that it names exists. Every option is one of the command."""
    root = Path(__file__).resolve().parents[3]
    for name in re.findall(r"`(tests/[\w/]+\.py)`", GUIDE):
        assert (root / name).is_file(), name
    for name in re.findall(r"\]\((pictures/\w+\.png)\)", GUIDE):
        assert (root / "docs" / name).is_file(), name
    options = {option for parameter in serve.params for option in parameter.opts}
    assert set(re.findall(r"(?<!-)--[a-z][\w-]+", GUIDE)) - {"--share", "--identity"} <= options
