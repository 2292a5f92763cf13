"""The guides in docs/ do not drift: the Python of docs/python.md runs, section by section."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from benchmarks import choosing
from dpduck.commands.command_line import main

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^```python(?: needs=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall((DOCS / "python.md").read_text(encoding="utf-8")))


def blocks(section: str) -> list[tuple[str, str]]:
    return BLOCK.findall(SECTIONS[section])


def installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # of its parent
        return False


@pytest.mark.filterwarnings("ignore")  # other projects warn as they like
@pytest.mark.parametrize("section", [name for name in SECTIONS if BLOCK.search(SECTIONS[name])])
def test_python_of_the_guide_runs(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guides for Python: every block runs as it stands, after those of the section on duckdb."""
    needed = {name for needs, _ in blocks(section) for name in needs.split(",") if name}
    missing = sorted(name for name in needed if not installed(name))
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    names: dict[str, object] = {}
    for _, text in [*blocks("duckdb"), *(blocks(section) if section != "duckdb" else [])]:
        exec(text, names)  # noqa: S102
    with dpduck.connect(tmp_path / "clinic.duckdb") as owner:
        assert owner.execute("SELECT budget, spent FROM dp_budget()").fetchall() == [(2.0, 0.6)], "two charges in all"
        assert owner.execute("SELECT count(*) FROM private.by_ward").fetchone() == (5,)
    with duckdb.connect(str(tmp_path / "published.duckdb"), read_only=True) as reader:
        found = reader.execute("SELECT table_name FROM duckdb_tables() WHERE table_name IN ('by_ward', 'visits')")
        assert found.fetchall() == [("by_ward",)], "what was released is published, and no private row"
        assert reader.execute("SELECT ward FROM by_ward ORDER BY ward").fetchall() == [
            (f"ward {number}",) for number in range(5)
        ]


START = (DOCS / "start.md").read_text(encoding="utf-8")
(SUGGESTED,) = re.findall(r"^## Let the rest be suggested\n.*?(?=^## )", START, re.MULTILINE | re.DOTALL)


def type_all(page: str, folder: Path, policy: str = "") -> None:
    """Types the commands of a page. policy: the edited text of policy.sql. Other files are read."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    for command in map(shlex.split, lines):
        files = command[command.index(">") + 1 :] if ">" in command else []
        words = command[1 : command.index(">")] if ">" in command else command[1:]
        given = None
        if "<" in words:
            file = words[words.index("<") + 1]
            given = policy if file == "policy.sql" else (folder / file).read_text(encoding="utf-8")
            words = words[: words.index("<")]
        done = CliRunner().invoke(main, words, input=given)
        assert done.exit_code == 0, (command, done.output)
        for file in files:
            (folder / file).write_text(done.output, encoding="utf-8")


def test_what_was_suggested_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section on suggestions works as it stands, over a table of few columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    with duckdb.connect("trips.duckdb") as con:
        con.execute("CREATE TABLE trips AS SELECT i // 3 AS rider_id, i % 90 / 1.5 AS fare FROM range(9000) AS r(i)")
    type_all(SUGGESTED, tmp_path)
    assert "CLAMP fare BETWEEN" in (tmp_path / "suggested.sql").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_first_five_minutes_go_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of docs/start.md works as printed, from a file of 25 columns to a published file."""
    page = START.replace(SUGGESTED, "")
    (policy,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    more = ", ".join(f"i % {n} AS c{n}" for n in range(2, 22))
    duckdb.execute(
        "COPY (SELECT i // 3 AS rider_id, TIMESTAMP '2025-11-01' + INTERVAL (i % 700) HOUR AS pickup, "
        f"i % 90 / 1.5 AS fare, i % 3 = 0 AS tipped, i % 7 = 0 AS shared, {more} "
        "FROM range(3000) AS r(i)) TO 'trips.parquet'"
    )
    type_all(page, tmp_path, policy)
    drafted = (tmp_path / "policy.sql").read_text(encoding="utf-8")
    assert "PRIVACY UNIT rider_id MAX ROWS TODO," in drafted and "DOMAIN ALL BOOLEAN WITH NULL," in drafted
    assert "DOMAIN pickup RANGE TODO TO TODO STEP MONTH" in drafted and "CLAMP fare BETWEEN TODO AND TODO" in drafted
    with duckdb.connect(str(tmp_path / "for_everybody.duckdb"), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM by_day").fetchone() == (30,)


@pytest.mark.audit
def test_the_figures_of_choosing_are_the_scripts() -> None:
    """Every table of docs/choosing.md is what benchmarks/choosing.py computes from policy and price."""
    assert "\n".join(choosing.tables()) in (DOCS / "choosing.md").read_text(encoding="utf-8")


def test_the_example_of_a_norm_is_exact() -> None:
    """The riders of docs/choosing.md: each figure of the page is dp_check's, and so is the norm that it takes."""
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```sql\n(CREATE TABLE rides.*?)```", page, re.DOTALL)
    table = page.partition("| bound | rows left out")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    with dpduck.connect() as con:
        *before, asked = re.split(r";\s*\n", example)
        for statement in before:
            con.execute(statement)
        figures = {(row[0], row[1]): row[2:] for row in con.execute(asked).fetchall()}
        for bound, by_rows, by_norm, stderr in lines:
            for option, shown in (("max_rows_contributed", by_rows), ("max_norm_contributed", by_norm)):
                percent, error = figures.get((option, float(bound)), (0, 0))
                assert shown in ("", f"{percent:.1f} %"), (bound, option)
                assert not shown or f"{float(f'{error:.2g}'):,g}" == stderr, (bound, option)
        hinted = con.execute(asked.replace("option, bound, percent, stderr", "option, bound, advice")).fetchall()
    assert len(lines) == 7
    best = {option: bound for option, bound, advice in hinted if "least error" in advice}
    assert best == {"max_rows_contributed": 50, "max_norm_contributed": 20}
    assert "a norm of 20, which" in page and "The best number of rows is 50." in page


def test_what_the_pages_on_bounds_say_of_notes_and_statements() -> None:
    """The note of docs/choosing.md is dp_explain's, and the statement of docs/left_out.md runs."""
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    policy, note = (
        next(block for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if text in block)
        for text in (
            "CREATE PRIVACY POLICY ON visits",
            "epsilon = 1, delta = 1e-6)\n    ward, count(*) AS n FROM visits",
        )
    )
    (left_out,) = re.findall(r"```sql\n(.*?)```", (DOCS / "left_out.md").read_text(encoding="utf-8"), re.DOTALL)
    with dpduck.connect() as con:
        for statement in re.split(r";\s*\n", policy):
            con.execute(statement)
        ((told,),) = con.execute(note).fetchall()
        (said,) = re.findall(r"^It says `(noise goes by .*?)`", page, re.MULTILINE)
        assert said in told
        assert len(con.execute(left_out).fetchall()) > 10


def test_every_guide_is_there() -> None:
    """Guides for Python, Superset with the safe settings, PostgreSQL, Flight SQL."""
    for name in (
        "python",
        "how_to/superset",
        "how_to/postgresql",
        "flight_sql",
        "summaries",
        "synthetic_data",
        "reference",
        "start",
        "choosing",
        "coming_from",
        "glossary",
    ):
        text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        for file in re.findall(r"`((?:tests|benchmarks|sql)/[\w/]+\.\w+)`", text):
            assert (DOCS.parent / file).is_file(), file
    assert "enable_external_access" in (DOCS / "how_to" / "superset.md").read_text(encoding="utf-8")
