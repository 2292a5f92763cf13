"""docs/sql.md is the dialect's reference: its SQL runs, and its lists are the parser's own."""

import re
from pathlib import Path

import dpduck
from dpduck.frontend import bigquery_forms, duckdb_tree, options, policy_parser

PAGE = Path(__file__).parents[1] / "docs" / "sql.md"


def section(title: str) -> str:
    """The text under a heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def first_cells(text: str) -> str:
    """The first column of the tables of a section."""
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))


def test_every_statement_runs() -> None:
    """The page is executed from top to bottom; every answer of dp() has rows."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 7
    with dpduck.connect() as connection:
        for statement in re.split(r";\s*$", ";\n".join(blocks), flags=re.MULTILINE):
            rows = connection.execute(statement).fetchall() if statement.strip() else [()]
            assert rows or "dp" not in statement, statement


def test_options_are_the_parsers() -> None:
    """The table of options names each option that is known, and no other."""
    assert sorted(re.findall(r"`(\w+)`", first_cells(section("The clause")))) == sorted(options.KNOWN)


def test_policy_items_are_the_parsers() -> None:
    """The table of a policy's items has every kind that the parser reads."""
    items = set(re.split(r", | or ", policy_parser.ITEMS))
    shown = first_cells(section("Policies"))
    assert {item for item in items if item not in shown} == set()


def test_functions_are_those_of_the_second_look() -> None:
    """The list of functions is the one that DuckDB's own parse is checked against."""
    named = [name for name in duckdb_tree.FUNCTIONS if re.fullmatch(r"[a-z_0-9]+", name)]
    listed = re.findall(r"`([a-z_0-9]+)`", section("What may run over rows"))
    assert sorted(listed) == sorted(named)


def test_deprecated_forms_are_listed() -> None:
    """The forms of BigQuery that are refused by name are on the page."""
    assert all(word in section("What is refused, and why") for word in ("ANON_", "CLAMPED BETWEEN", "ANONYMIZATION"))
    assert set(bigquery_forms.OPTIONS.values()) <= set(options.KNOWN)
