"""The reference pages of docs/: their SQL runs, and their lists are those of the parser and of the connection."""

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.analyst_macros import install_analyst_macros
from dpduck.kernel.worker import functions as row_functions
from dpduck.language.select import options
from dpduck.language.select.keys import RANGE_END, RANGE_SHAPES
from dpduck.language.statements import policy as policy_parser
from dpduck.language.statements import synthetic_options
from dpduck.language.statements.synthetic_options import SyntheticOptions
from dpduck.language.text import positions as bigquery_forms
from dpduck.language.text.options import Option
from dpduck.mechanisms.registry import own_options
from dpduck.mechanisms.sparse import request as sparse_request
from dpduck.mechanisms.sparse.request import SparseOptions
from dpduck.mechanisms.streams import plan as stream_request

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    name: (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in ("sql", "synthetic_data", "prepared", "known", "reference", "choosing", "monthly", "papers")
}
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits"
ROW = re.compile(r"^\| (`.*?) \|$", re.MULTILINE)


def section(title: str, page: str = "sql") -> str:
    """The text under a heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGES[page], re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def table(title: str, page: str) -> list[list[str]]:
    """The rows of a section's table, cell by cell. The first cell of each has names in code."""
    return [[cell.strip() for cell in line.split(" | ")] for line in ROW.findall(section(title, page))]


def first_cells(text: str) -> str:
    """The first column of the tables of a section."""
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))


def run_page(connection: duckdb.DuckDBPyConnection, page: str) -> int:
    """Every statement of a page, from top to bottom, and their number. Every answer of dp() has rows."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGES[page], re.DOTALL)
    assert len(blocks) >= 3
    statements = re.split(r";\s*$", ";\n".join(blocks), flags=re.MULTILINE)
    for statement in statements:
        rows = connection.execute(statement).fetchall() if statement.strip() else [()]
        assert rows or "dp" not in statement, statement
    return len(statements)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["sql", "synthetic_data", "prepared", "known", "choosing", "monthly", "papers"])
def test_every_statement_runs(page: str) -> None:
    """A page's SQL works as it stands, on a connection of its own."""
    with dpduck.connect() as connection:
        assert run_page(connection, page) > 3


@pytest.mark.slow
def test_a_month_costs_what_the_page_says() -> None:
    """docs/monthly.md names what January, March and LIFETIME have spent after its statements."""
    with dpduck.connect() as connection:
        run_page(connection, "monthly")
        spent = dict(connection.execute("SELECT period, spent FROM dp_budget()").fetchall())
    assert (spent["2024-01"], spent["2024-02"], spent["2024-03"], spent["LIFETIME"]) == (0.75, 0.75, 0.25, 4)


def test_words_of_grouping_are_named() -> None:
    """What GROUP BY reads beside columns, and what shows where a range ends, are on the page and used by its SQL."""
    for word in (*map(str.upper, RANGE_SHAPES), RANGE_END):
        assert PAGES["sql"].count(f"{word}(arrived)") >= 1 and f"{word}(column)" in section("What is selected"), word
    assert f"`{RANGE_END}(column)`" in PAGES["reference"]


def test_options_are_the_parsers() -> None:
    """The table of options names each option that is known, those of every registered mechanism too, and no other."""
    known = [option.name for option in (*options.TABLE, *own_options())]
    assert sorted(re.findall(r"`(\w+)`", first_cells(section("The clause")))) == sorted(known)


def documented(title: str, page: str) -> dict[str, str]:
    """The row of each option in a section's table, as text in lower case."""
    rows = table(title, page)
    return {name: " | ".join(cells).lower() for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}


def stated_bounds(row: str) -> list[tuple[Fraction | None, Fraction]]:
    """The bounds that a row states: "at most b", or "from a to b"."""
    number = r"(\d[\d,]*(?:\.\d+)?|a million)"
    found = re.findall(rf"(?:from {number} to|at most) {number}", row.replace("a million", "1,000,000"))
    read = [[Fraction(text.replace(",", "")) if text else None for text in pair] for pair in found]
    return [(low, high) for low, high in read if high is not None]


def undocumented(tables: Sequence[Option], shown: dict[str, str], elsewhere: str = "") -> list[str]:
    """Words that an option takes and no page has, and bounds that its row states otherwise."""
    found = []
    for option in tables:
        row = shown[option.name]
        missing = [word for word in option.choices if word not in row and not re.search(f"[`']{word}[`']", elsewhere)]
        found += [f"{option.name} = {word}" for word in missing]
        found += [
            f"{option.name}: {low} to {high}"
            for low, high in stated_bounds(row)
            if option.kind != "choice" and (high != option.most or low not in (None, option.least))
        ]
    return found


def test_words_and_bounds_of_options_are_those_of_their_tables() -> None:
    """Each word of an option is on a page, and the bounds on a page are those of the parser."""
    summaries = (DOCS / "summaries.md").read_text(encoding="utf-8")
    assert undocumented((*options.TABLE, *own_options()), documented("The clause", "sql"), summaries) == []
    synthetic = documented("Options", "synthetic_data")
    assert undocumented(synthetic_options.OWN_OPTIONS, synthetic) == []
    sparse = documented("Options of projections, histograms and sessions", "reference")
    assert undocumented(sparse_request.OPTIONS, sparse) == []
    stated = [bounds for row in (*synthetic.values(), *sparse.values()) for bounds in stated_bounds(row)]
    assert len(stated) >= 5, "something is compared"


def test_other_words_and_bounds_are_found() -> None:
    """The comparison compares: a word or a bound that the page does not have is named."""
    shown = {"keep": "`keep` | `'last'`", "rounds": "at most 10,000", "share": "from 0.01 to 0.9"}
    keep = Option("keep", "choice", "", choices=("last", "average"))
    rounds, share = Option("rounds", "whole", "", Fraction(1), Fraction(999)), Option("share", "number", "")
    assert undocumented([keep], shown) == ["keep = average"]
    assert undocumented([rounds], shown) == ["rounds: None to 10000"]
    assert undocumented([share], shown) == ["share: 1/100 to 9/10"]


def test_policy_items_are_the_parsers() -> None:
    """The table of a policy's items has every kind that the parser reads."""
    items = set(re.split(r", | or ", policy_parser.ITEMS))
    shown = first_cells(section("Policies"))
    assert {item for item in items if item not in shown} == set()


def test_functions_are_those_of_the_second_look() -> None:
    """The list of functions equals the one that DuckDB's own parse is checked against."""
    named = [name for name in row_functions.FUNCTIONS if re.fullmatch(r"[a-z_0-9]+", name)]
    listed = re.findall(r"`([a-z_0-9]+)`", section("What may run over rows"))
    assert sorted(listed) == sorted(named)


def test_deprecated_forms_are_listed() -> None:
    """The forms of BigQuery that are refused by name are on the page."""
    assert all(word in section("What is refused, and why") for word in ("ANON_", "CLAMPED BETWEEN", "ANONYMIZATION"))
    assert set(bigquery_forms.OPTIONS.values()) <= {option.name for option in options.TABLE}


def test_options_of_private_tables_are_the_parsers() -> None:
    """The table of options of CREATE PRIVATE TABLE names each that is read, and no other, with its default."""
    shown = {name: cells for cells in table("Options", "synthetic_data") for name in re.findall(r"`(\w+)`", cells[0])}
    assert sorted(shown) == sorted((*synthetic_options.SHARED, *synthetic_options.OWN))
    usual = SyntheticOptions()
    for name in ("mechanism", "update", "keep", "first"):
        assert f"'{getattr(usual, name)}'" in shown[name][1], name
    assert shown["replays"][1] == f"`{usual.replays}`"
    assert shown["first_share"][1] == f"`{float(usual.first_share)}`"
    words = PAGES["synthetic_data"]
    assert all(f"`{name}`" in words or f"`'{name}'`" in words for name in synthetic_options.MECHANISMS)


def test_options_of_sparse_queries_are_the_parsers() -> None:
    """The table of options of projections, histograms and sessions says which kinds read each, and its default."""
    rows = table("Options of projections, histograms and sessions", "reference")
    shown = {name: cells for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}
    for kind, own in sparse_request.OWN.items():
        named = [name for name, cells in shown.items() if cells[1] == "all" or kind in cells[1].split(", ")]
        assert sorted(named) == sorted((*sparse_request.PRICES, *own)), kind
    usual = SparseOptions()
    for name in ("sparsity", "queries", "beta"):
        assert shown[name][2] == f"`{float(getattr(usual, name)):g}`", name


def test_options_of_streams_are_the_parsers() -> None:
    """The table of options of a stream names each that is read, and no other."""
    page = PAGES["monthly"].partition("| option | default | means |")[2].partition("\n\n")[0]
    shown = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in page.splitlines()[2:]]
    known = ["epsilon", "delta", "rho", *(option.name for option in stream_request.OWN)]
    assert sorted(name for names in shown for name in names) == sorted(known)


def signatures(title: str) -> dict[str, list[str]]:
    """The functions of a section with the names of their arguments."""
    found = re.findall(r"`(dp\w*)\((.*?)\)`", "\n".join(cells[0] for cells in table(title, "reference")))
    return {name: re.findall(r"(\w+)(?: := [^,]+)?(?:, |$)", written) for name, written in found}


def registered(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """The table functions and macros of a connection that are not DuckDB's own."""
    rows = connection.execute(
        "SELECT function_name, parameters FROM duckdb_functions() "
        "WHERE NOT internal AND function_type IN ('macro', 'table_macro')"
    ).fetchall()
    return {name: list(parameters) for name, parameters in rows}


@pytest.mark.slow
def test_functions_are_those_of_a_connection() -> None:
    """The page of functions runs, and has every function that dpduck.load registers, with arguments and columns."""
    functions, macros = signatures("Functions"), signatures("Macros over releases")
    with dpduck.connect() as connection:
        assert registered(connection) == functions | macros
        run_page(connection, "reference")
        arguments = {
            "dp_check": "'visits'", "dp_draft": "'visits'", "dp_plan": f"$$ {ASKED} $$",
            "dp_ask": "'counted', ['drug 1']", "dp_certificate": "'wards'",
            "dp_stderr_of": "'wards', '1'", "dp_ratio_of": "'wards', '1', '1'", "dp_difference": "'plain', 'again'",
            "dp_known": "$$ SELECT ward, count(*) AS n FROM visits GROUP BY ward $$",
            "dp_explain": f"$$ {ASKED} $$", "dp_errors": f"$$ {ASKED} $$", "dp_twin": "'visits'",
            "dp_compare": "'made_up'", "dp_trial": f"$$ {ASKED} $$, runs := 2",
        }  # fmt: skip
        for cells in table("Functions", "reference")[1:]:
            name, columns = cells[0].strip("`").split("(")[0], re.findall(r"`(\w+)`", cells[1])
            found = connection.execute(f"FROM {name}({arguments.get(name, '')})").description
            found = found[1:] if name == "dp_difference" else found  # after the key
            assert [column[0] for column in found][: len(columns)] == columns, name
            assert name in ("dp_explain", "dp_twin") or len(found) == len(columns), name
        install_analyst_macros(connection, "memory")
        assert set(registered(connection)) == {*functions, *macros, *signatures("Macros of published files")}
        published = signatures("Macros of published files").items()
        assert dict(published) == {name: registered(connection)[name] for name, _ in published}
