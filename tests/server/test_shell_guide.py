"""docs/shell.md: every statement of the guide, in the stock shell, against a served clinic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpduck.edges.extensions import extension_file
from tests.server.served import add_principals, make_clinic
from tests.server.shell import EXTENSIONS, attach, needs_quack, serving, shell

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE, CONNECT = ROOT / "docs" / "shell.md", ROOT / "sql" / "connect.sql"
_STEP = re.compile(r"(?P<statement>.*?;)\n-- (?P<kind>gives|refused): (?P<says>[^\n]*)\n", re.DOTALL)


def steps() -> list[tuple[str, str, str]]:
    """Every statement of the guide's SQL blocks with what the guide says about it."""
    blocks = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = [(m["statement"].strip(), m["kind"], m["says"]) for block in blocks for m in _STEP.finditer(block)]
    left = [_STEP.sub("", block).strip() for block in blocks]
    assert left == [""] * len(blocks), left
    return found


@needs_quack
def test_the_guide_says_what_the_shell_says(tmp_path: Path, state_directory: Path) -> None:
    """One session for what is answered, in order; one for each refusal."""
    database = make_clinic(tmp_path)
    token = add_principals(database)["bob"]
    with serving(database) as server:
        answered = [(statement, says) for statement, kind, says in steps() if kind == "gives"]
        script = "".join(f"{statement}\n.print ====\n" for statement, _ in answered)
        out, err = shell(attach(server.address, token) + script)
        assert err == ""
        parts = out.split("====\n")[:-1]
        assert len(parts) == len(answered) > 12
        for (statement, says), part in zip(answered, parts, strict=True):
            assert described(part) == says, statement
        refused = [(statement, says) for statement, kind, says in steps() if kind == "refused"]
        assert len(refused) >= 5
        for statement, says in refused:
            out, err = shell(attach(server.address, token) + statement + "\n")
            assert out == "" and says in err, (statement, err)


def described(part: str) -> str:
    """What came back, as the guide says it: columns and rows."""
    lines = part.splitlines()
    return f"{', '.join(lines[0].split(','))}; {len(lines) - 1} rows" if lines else "nothing"


@needs_quack
def test_connect_sql_is_what_a_shell_begins_with(
    tmp_path: Path, state_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sql/connect.sql as it ships, but for the address, and for downloads, which a test does not make."""
    database = make_clinic(tmp_path)
    monkeypatch.setenv("DPDUCK_TOKEN", add_principals(database)["carol"])
    text = CONNECT.read_text(encoding="utf-8")
    with serving(database) as server:
        assert "quack:localhost:9494" in text
        text = re.sub(r"^INSTALL .*\n", "", text, flags=re.MULTILINE).replace("quack:localhost:9494", server.address)
        for name in EXTENSIONS:
            text = text.replace(f"\nLOAD {name};", f"\nLOAD '{extension_file(name, '')}';")
        init = tmp_path / "connect.sql"
        init.write_text(text, encoding="utf-8")
        out, err = shell("SELECT count(*) AS c FROM clinic.ages;", "-init", str(init))
        assert out.endswith("c\n10\n") and "Error" not in err
