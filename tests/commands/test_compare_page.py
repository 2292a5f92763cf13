"""dpduck compare: exact distances for the owner, as lines or as a page that only the owner's account can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import dpduck
from dpduck.commands.command_line import main
from dpduck.commands.compare import LISTED, WARNING, heat_map, page_of
from dpduck.publish.page_file import generator
from dpduck.store.check import Distance

DOMAINS = "DOMAIN sex IN ('F', 'M') WITH NULL, DOMAIN ward IN ('north', '<b>south</b>'), DOMAIN age RANGE 0 TO 9 STEP 3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People as units, MAX ROWS above 1, NULLs, texts that look like HTML. A table made from it, and a view."""
    folder = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect(folder / "clinic.duckdb") as owner:
            owner.execute(
                "CREATE TABLE visits AS SELECT i // 3 AS patient, ['F', 'M', NULL][i % 3 + 1] AS sex, "
                "['north', '<b>south</b>'][i % 2 + 1] AS ward, i % 9 AS age FROM range(3000) AS r(i)"
            )
            for statement in (
                f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 10), {DOMAINS})",
                "CREATE PRIVATE TABLE made OPTIONS (epsilon = 1) AS SELECT * FROM visits WORKLOAD MARGINALS (2)",
                "CREATE PRIVATE VIEW seen OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n FROM visits GROUP BY ALL",
            ):
                owner.execute("FROM dp(?)", [statement])
    return folder


def ran(folder: Path, *words: str) -> Result:
    environment = {"DPDUCK_STATE_DIR": str(folder / "state")}
    return CliRunner().invoke(main, [words[0], str(folder / "clinic.duckdb"), *words[1:]], env=environment)


def test_lines_come_with_the_warning(folder: Path) -> None:
    """The farthest first, one line a marginal on standard output. The warning is on standard error."""
    done = ran(folder, "compare", "made")
    assert done.exit_code == 0 and WARNING in done.stderr
    distances = [float(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(distances) == 7 and distances == sorted(distances, reverse=True)
    refused = ran(folder, "compare", "seen")
    assert (
        refused.exit_code == 1 and "is no synthetic table" in refused.stderr and len(refused.stderr.splitlines()) == 1
    )


def test_the_page_is_for_one_account(folder: Path) -> None:
    """Nobody else may read the file. The page begins with the warning, fetches and runs nothing, shows texts as texts.
    It replaces only its own kind. The report, which is for others, does not contain it."""
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    target = folder / "mine.html"
    for _ in range(2):
        done = ran(folder, "compare", "made", "--to", str(target))
        assert done.exit_code == 0 and "never to be published" in done.stdout
    assert target.stat().st_mode & 0o777 == 0o600
    page = target.read_text(encoding="utf-8")
    assert page.index(WARNING) < page.index("<svg") < page.index("<table")
    assert "<script" not in page and not re.search(r"(src|href)=\"?http", page) and "<b>south" not in page
    assert "content=\"default-src 'none'" in page and page.count("<h2") == 2
    report = folder / "page.html"
    assert ran(folder, "report", "--to", str(report)).exit_code == 0
    shown = report.read_text(encoding="utf-8")
    assert "distance" not in shown and WARNING not in shown
    for command in (("compare", "made", "--to", str(report)), ("report", "--to", str(target))):
        refused = ran(folder, *command)
        assert refused.exit_code == 1 and "exists, and something else made it" in refused.stderr
    assert generator("dpduck compare") in page and generator("dpduck report") in shown


def test_the_map_has_every_pair_twice_and_columns_once() -> None:
    """Tiles are the distances of pairs, both ways round, and of columns on the diagonal, the farthest column first.
    Triples are in the table alone, and of very many marginals so many."""
    found = [
        Distance("a, b", 2, 0.5, "x, y", 0.1, 0.2), Distance("b", 1, 0.4, "y", 0.1, 0.2),
        Distance("a", 1, 0.3, "x", 0.1, 0.2),
        Distance("a, b, c", 3, 0.2, "x, y, z", 0.1, 0.2), Distance("c", 1, 0.1, "z", 0.1, 0.2),
        Distance("b, c", 2, 0.05, "y, z", 0.1, 0.2),
    ]  # fmt: skip
    tiles = heat_map(found)["data"]["values"]
    assert {(one["one"], one["two"]): one["distance"] for one in tiles} == {
        ("b", "b"): 0.4, ("b", "a"): 0.5, ("b", "c"): 0.05, ("a", "b"): 0.5, ("a", "a"): 0.3, ("c", "b"): 0.05,
        ("c", "c"): 0.1,
    }  # fmt: skip
    assert [one["one"] for one in tiles][:3] == ["b", "b", "b"]
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    page = page_of("made", found * LISTED)
    assert page.count("<tr>") == LISTED + 1 and f"{LISTED} of {6 * LISTED} marginals" in page
