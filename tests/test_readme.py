"""Code blocks of the README and of the tour are executed: a newcomer can copy them as they are."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    yield from BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def statements(text: str) -> list[str]:
    """Statements of an SQL block. Semicolons stand at line ends only."""
    return [part for part in re.split(r";\s*$", text, flags=re.MULTILINE) if part.strip()]


def bare_block() -> str:
    """The statements of the README that every client types as they stand."""
    (text,) = re.findall(r"^```sql bare\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return re.sub("--[^\n]*", "", str(text))


def check_refusal(con: duckdb.DuckDBPyConnection, text: str) -> None:
    statement, expected = text.split(";\n-- ")
    with pytest.raises(duckdb.Error) as refused:
        con.sql(statement)
    assert str(refused.value).split("\n")[0].removeprefix("Invalid Input Error: ") == expected.strip()


def run_shell(line: str) -> None:
    """`dpduck ..` runs. `make ..` must name a target of the Makefile."""
    words = shlex.split(line)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        return
    assert words[0] == "dpduck", line
    if words[1] == "report" and find_spec("vl_convert") is None:  # of the extra `report`
        return
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, (line, result.output)


def test_the_first_page_is_short_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 80 lines of at most 120 characters, with one picture. Its SQL answers from a Parquet file."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= 120
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "\n".join(lines))
    assert (ROOT / picture).is_file()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    duckdb.sql(
        "COPY (SELECT range // 3 AS person_id, ['F', 'M'][1 + range % 2] AS sex, range % 100 AS age FROM range(3000)) "
        "TO 'people.parquet'"
    )
    with dpduck.connect("mine.duckdb") as con:
        for language, text in blocks("README.md"):
            for statement in statements(text) if language == "sql" else []:
                con.execute(statement).fetchall()
            for line in text.strip().splitlines() if language == "sh" else []:
                run_shell(line)
        assert con.execute("SELECT table_name FROM dp_policies()").fetchall() == [("mine.main.people",)]
    typed = CliRunner().invoke(main, ["shell", "mine.duckdb"], input=";\n".join(statements(bare_block())) + ";\n")
    assert typed.exit_code == 0 and "cost: 6.7 % of your budget" in typed.output, typed.output
    listed = CliRunner().invoke(main, ["ledger", "mine.duckdb", "--format", "json"])
    assert sum(json.loads(line)["epsilon"] > 0 for line in listed.output.splitlines() if "SELECT" in line) == 3


@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python, SQL and shell blocks run in order, in an empty folder. Refusals refuse with the printed text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    names: dict[str, object] = {}
    shell: list[str] = []
    kinds = []
    for language, text in blocks("docs/tour.md"):
        kinds.append(language)
        if language == "python":
            exec(text, names)  # noqa: S102
        elif language == "sql":
            for statement in statements(text):
                names["con"].execute(statement).fetchall()  # type: ignore[attr-defined]
        elif language == "refused":
            check_refusal(names["con"], text)  # type: ignore[arg-type]
        elif language == "sh":
            shell += text.strip().splitlines()
    assert {"python", "sql", "refused", "sh"} <= set(kinds)
    names["con"].close()  # type: ignore[attr-defined]
    for line in shell:
        run_shell(line)
    assert os.path.exists("published.duckdb")  # noqa: PTH110
