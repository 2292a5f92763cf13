"""docs/report.md goes as it says: its commands, its statement, and its claims about words and pictures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.publish.words import right_guesses

pytest.importorskip("vl_convert", reason="vl-convert is not installed")
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
BLOCKS = {kind: re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL) for kind in ("sh", "sql")}


def test_the_guide_goes_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view is made and its words are on the page, above a picture with the unit and a table with named totals."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with dpduck.connect("clinic.duckdb") as owner:
        owner.execute(
            "CREATE TABLE visits AS SELECT i // 3 AS patient, ['women', 'men'][i % 2 + 1] AS sex, "
            "['north', 'south', NULL][i % 3 + 1] AS ward FROM range(3000) AS r(i)"
        )
        policy = (
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 10), "
            "DOMAIN sex IN ('women', 'men'), DOMAIN ward IN ('north', 'south') WITH NULL)"
        )
        for statement in (policy, *BLOCKS["sql"]):
            owner.execute("FROM dp(?)", [statement])
    (command,) = (shlex.split(line)[1:] for line in BLOCKS["sh"][0].splitlines() if line.startswith("dpduck "))
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in (
        "<h1>Visits of 2026</h1>", "Who came to the clinic, and when.", '<h2 id="by_ward">Visits by ward and sex</h2>',
        "<p>With totals, and visits without a ward.</p>", "n (visits)", '<td class="null">all</td>',
        '<td class="null">NULL</td>', "n by ward and sex, without totals, and 2 standard errors to each side",
    ):  # fmt: skip
        assert words in page, words


def test_the_guide_says_what_is_so() -> None:
    """Its guesses are those of the product, and its pictures are there."""
    said = re.findall(r"At epsilon ([\d.]+) .*? (\d+)(?: of 100 times)?[.,]", " ".join(GUIDE.split()))
    assert ("0.4", "60") in said and right_guesses(0.4) == 60
    assert "At epsilon 1 these are 74, and at epsilon 3 they are 96" in " ".join(GUIDE.split())
    assert (right_guesses(1.0), right_guesses(3.0)) == (74, 96)
    for name in re.findall(r"\]\((pictures/\w+\.png)\)", GUIDE):
        assert (Path(__file__).resolve().parents[2] / "docs" / name).is_file(), name
