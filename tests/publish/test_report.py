"""The page of a report: every private view with its picture. It fetches, runs and tells nothing unasked."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.commands.compare import page_of
from dpduck.publish.pictures import PictureKey, Shape, charts, shape_of
from dpduck.publish.words import number_text
from dpduck.store.check import Distance
from tests.support.browser import SIZES, chromium, needs_chromium, violations

pytest.importorskip("vl_convert", reason="vl-convert is not installed")
CANARY = "canary<script>"
VIEWS = {
    "by_ward": "SELECT ward, count(*) AS n FROM visits GROUP BY ward",
    "by_day": "SELECT day, count(*) AS n, count(*) FILTER (WHERE sex = 'F') AS women FROM visits GROUP BY day",
    "cube": "SELECT sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)",
    "total": "SELECT count(*) AS n FROM visits",
}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People as units, MAX ROWS above 1, texts that look like HTML, NULLs."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect(folder / "clinic.duckdb") as owner:
            owner.execute(
                "CREATE TABLE visits AS SELECT i // 3 AS patient, ['F', 'M', NULL][i % 3 + 1] AS sex, "
                "['north', '<b>south</b>'][i % 2 + 1] AS ward, DATE '2024-01-01' + CAST(i % 366 AS INTEGER) AS day, "
                f"'{CANARY}' AS note FROM range(3000) AS r(i)"
            )
            for statement in (
                "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 10), "
                "DOMAIN sex IN ('F', 'M') WITH NULL, DOMAIN ward IN ('north', '<b>south</b>'), "
                "DOMAIN day RANGE 2024-01-01 TO 2025-01-01 STEP MONTH)",
                *(f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 1) AS {text}" for name, text in VIEWS.items()),
            ):
                owner.execute("FROM dp(?)", [statement])
    return folder


def reported(clinic: Path, *words: str) -> str:
    """Runs the command. Returns the page."""
    target = clinic / "page.html"
    environment = {"DPDUCK_STATE_DIR": str(clinic / "state")}
    command = ["report", str(clinic / "clinic.duckdb"), "--to", str(target), *words]
    ran = CliRunner().invoke(main, command, env=environment)
    assert ran.exit_code == 0, ran.output
    return target.read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Notes each tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.slow
def test_every_view_is_on_the_page_with_its_picture(clinic: Path) -> None:
    """Bars, lines over days, tiles of two keys. A single number has none. Beside each: its rows and its statement."""
    page = reported(clinic, "--title", "A <clinic>")
    assert "<title>A &lt;clinic&gt;</title>" in page
    sections = dict(re.findall(r'<section><h2 id="(\w+)">(.*?)</section>', page, re.DOTALL))
    assert set(sections) == set(VIEWS)
    assert {name: text.count("<svg") for name, text in sections.items()} == {
        "by_ward": 1, "by_day": 2, "cube": 1, "total": 0,
    }  # fmt: skip
    assert all(
        "epsilon = 1" in text and "<table>" in text and "<pre>CREATE PRIVATE VIEW" in text for text in sections.values()
    )
    assert "2 standard errors to each side" in sections["by_ward"]
    with duckdb.connect(str(clinic / "clinic_private.duckdb"), read_only=True) as store:
        ((n,),) = store.execute("SELECT n FROM total").fetchall()
    assert f'<td class="number">{n:,}</td>' in sections["total"] or f"{n:,.6g}" in sections["total"]


def test_the_page_fetches_nothing_and_runs_nothing(clinic: Path) -> None:
    """No script, no address but names of XML. Labels are text, also those that look like HTML."""
    page = reported(clinic)
    tags = Tags(page).found
    assert not {tag for tag, _ in tags} & {"script", "iframe", "link", "object", "embed", "img", "form", "b"}
    addresses = {value for _, given in tags for name, value in given.items() if name in ("src", "href", "xlink:href")}
    assert all(value is not None and value.startswith("#") for value in addresses)
    assert not [name for _, given in tags for name in given if name.startswith("on")]
    assert "default-src 'none'" in page and "&lt;b&gt;south&lt;/b&gt;" in page


def test_nothing_is_told_unasked(clinic: Path) -> None:
    """No private text, and who asked, and what, only with the ledger. Policies, budgets and charges are there."""
    page = reported(clinic)
    assert "canary" not in page and "owner" not in page.partition("The ledger")[2]
    assert "all rows of one patient: epsilon = 10" in page and "40% of epsilon = 10 is spent" in page
    assert "owner" in reported(clinic, "--with-ledger").partition("The ledger")[2]


def test_some_views_are_shown_where_they_are_named(clinic: Path) -> None:
    """Other views are not mentioned. An unknown name is refused with the known ones."""
    page = reported(clinic, "--view", "total")
    assert re.findall(r'<h2 id="(\w+)">', page) == ["total"]
    environment = {"DPDUCK_STATE_DIR": str(clinic / "state")}
    command = ["report", str(clinic / "clinic.duckdb"), "--to", str(clinic / "other.html"), "--view", "totals"]
    ran = CliRunner().invoke(main, command, env=environment)
    assert ran.exit_code == 1 and "accepted: by_day, by_ward, cube, total" in ran.output
    assert not (clinic / "other.html").exists()


def test_another_file_is_not_replaced(clinic: Path) -> None:
    """An earlier report is replaced. Any other file of this name stays."""
    mine = clinic / "mine.html"
    mine.write_text("<p>mine</p>", encoding="utf-8")
    environment = {"DPDUCK_STATE_DIR": str(clinic / "state")}
    ran = CliRunner().invoke(main, ["report", str(clinic / "clinic.duckdb"), "--to", str(mine)], env=environment)
    assert ran.exit_code == 1 and ran.output.startswith(
        "Error: mine.html exists, and something else made it; accepted: "
    )
    assert mine.read_text(encoding="utf-8") == "<p>mine</p>"
    assert reported(clinic) and reported(clinic), "its own page is written anew"


def test_a_picture_is_drawn_only_where_it_helps() -> None:
    """Not of hundreds of bars. A column is a key by its comment, whatever its type."""
    rows = [{"name": f"k{number}", "n": 1.0, "n_stderr": 1.0} for number in range(500)]
    answer = ("n", "n_stderr")
    assert charts(Shape((PictureKey("name"),), (answer,)), answer, rows) == []
    assert len(charts(Shape((PictureKey("name"),), (answer,)), answer, rows[:60])) == 1
    assert charts(Shape((), (answer,)), ("n", None), rows) == []
    columns = [
        ("year", "INTEGER", "a key, whose values are public"), ("n", "BIGINT", "an answer"), ("n_stderr", "DOUBLE", ""),
    ]  # fmt: skip
    shape = shape_of(columns)
    assert (shape.names, shape.answers) == (("year",), (("n", "n_stderr"),))


@pytest.mark.slow
@needs_chromium
def test_the_pages_keep_the_rules_of_accessibility(clinic: Path) -> None:
    """axe-core finds nothing on the pages of report and compare, light and dark, on a phone and a desk. No request."""
    reported(clinic, "--with-ledger")
    margins = [Distance("sex", 1, 0.1, "F", 0.5, 0.4), Distance("ward", 1, 0.2, "north", 0.5, 0.3)]
    margins.append(Distance("sex, ward", 2, 0.3, "F, north", 0.3, 0.1))
    (clinic / "compared.html").write_text(page_of("made", margins), encoding="utf-8")
    asked: list[str] = []
    with chromium() as browser:
        for scheme in ("light", "dark"):
            for size in ("phone", "desktop"):
                width, height = SIZES[size]
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
                )
                page = context.new_page()
                page.on("request", lambda request: asked.append(request.url))
                for name in ("page.html", "compared.html"):
                    page.goto(f"file://{clinic / name}")
                    assert violations(page) == [], (name, size, scheme)
                    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, size)
                context.close()
    assert {one.rpartition("/")[2] for one in asked} == {"page.html", "compared.html"}


def test_a_board_can_read_the_first_screen(clinic: Path) -> None:
    """Title, sentence, date, how to read it and the cost in words stand before the first view, in this order."""
    page = reported(clinic, "--title", "Visits of 2024", "--about", "Visits <by> ward.")
    first = html.unescape(re.sub(r"<[^>]*>", " ", page[page.index("<main>") : page.index("<nav")]))
    words = [
        "Visits of 2024", "Visits <by> ward.", "Noise was added to every number here", "Written on ",
        "How to read this", "about 19 of 20 error bars hold the true number", "What it cost in privacy",
        "40% of the budget is spent", "whether one patient is in the data", "right 50 of 100 times",
        "a guess is right at most 99 of 100 times",
    ]  # fmt: skip
    places = [first.index(word) for word in words]
    assert places == sorted(places)
    day = datetime.now(UTC)
    assert any(f"Written on {one.day} {one:%B %Y}, with numbers up to" in first for one in (day, day - timedelta(1)))


def test_a_single_number_is_told_with_its_error(clinic: Path) -> None:
    """It needs no picture: two standard errors to each side stand behind it."""
    (section,) = re.findall(r'<section><h2 id="total">.*?</section>', reported(clinic), re.DOTALL)
    with duckdb.connect(str(clinic / "clinic_private.duckdb"), read_only=True) as store:
        ((n, error),) = store.execute("SELECT n, n_stderr FROM total").fetchall()
    assert f'<p class="one">n: {n:,} ± {number_text(2 * error)}</p>' in section


def test_tables_have_three_digits(clinic: Path) -> None:
    """Standard errors have as many digits as anybody can use."""
    (section,) = re.findall(r'<section><h2 id="by_ward">.*?</section>', reported(clinic), re.DOTALL)
    numbers = re.findall(r'<td class="number">([\d,.]+)</td>', section)
    assert len(numbers) == 4 and all(len(number.partition(".")[2]) <= 2 for number in numbers)
    assert '<th scope="col" class="number">n</th>' in section and '<th scope="col">ward</th>' in section
