"""Any text through the parser and the analysis gives a refusal, or an answer that reads private rows once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.worker.functions import FUNCTIONS
from dpduck.language.select.analyse import Analysis
from dpduck.language.statements.parse import parse_statement
from dpduck.language.text.names import HOLE
from dpduck.values.errors import Refusal
from tests.language.facts import analysed
from tests.language.full_clinic import open_full_clinic
from tests.language.golden_files import read_golden

PUBLIC = {"wards", "regions", "offers"}
STATEMENTS = [golden.statement for golden in read_golden("*.sql") if len(golden.statement) < 2000]
ACCEPTED = [golden.statement for golden in read_golden("accepted_*.sql")]
WORDS = sorted({word for statement in STATEMENTS for word in re.findall(r"\w+|[^\w\s]+", statement) if len(word) < 40})
EXOTIC = st.sampled_from(
    ("'", '"', "(", ")", "((((", "--", "/*", ";", "\x00", "\u202e", "\ufeff", "é", "$$", "\\", "\n")
)


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_full_clinic() as connection:
        yield connection


@st.composite
def mutations(draw: st.DrawFn, statements: list[str]) -> str:
    """Returns a statement with some words deleted, doubled, exchanged, replaced by other words, or made strange."""
    words = draw(st.sampled_from(statements)).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(words) - 1))
        other = draw(st.integers(0, len(words) - 1))
        kind = draw(st.integers(0, 6))
        if kind == 0 and len(words) > 1:
            del words[place]
        elif kind == 1:
            words.insert(place, words[other])
        elif kind == 2:
            words[place], words[other] = words[other], words[place]
        elif kind == 3:
            words[place] = draw(st.sampled_from(WORDS))
        elif kind == 4:
            words.insert(place, draw(EXOTIC))
        elif kind == 5:
            words[place : place + 1] = draw(st.sampled_from(statements)).split(" ")[:8]
        else:
            words[place] = f"({words[place]})"
    return " ".join(words)


def refusal(text: str) -> str | None:
    """Returns the parser's refusal of a text, or None where it accepts. No other error may be raised."""
    try:
        parse_statement(text)
    except Refusal as error:
        return str(error)
    return None


def is_taken_or_told(message: str | None) -> bool:
    """Tells whether a text is accepted, or refused in one line that names an accepted form."""
    return message is None or ("\n" not in message and "; accepted: " in message)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join))
def test_word_soup(text: str) -> None:
    """Random words in any order parse or are refused."""
    assert is_taken_or_told(refusal(text))


@settings(max_examples=200)
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    """Any characters parse or are refused, alone and inside a statement."""
    assert is_taken_or_told(refusal(text))
    inside = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {text}, count(*) FROM visits"
    assert is_taken_or_told(refusal(inside))
    assert is_taken_or_told(refusal(f"CREATE PRIVACY POLICY ON visits ({text})"))


@settings(max_examples=400)
@given(mutations(STATEMENTS))
def test_mutated_statements_parse_or_are_refused(text: str) -> None:
    """Golden statements with a few changes parse or are refused."""
    assert is_taken_or_told(refusal(text))


@pytest.mark.parametrize("times", [41, 1001, 10_001])  # odd, so that the last quote is open
@pytest.mark.parametrize(
    "opening", ["(", "[", "{", "NOT ", "- ", "CASE WHEN ", "upper(", "(SELECT ", "+ ", "~ ", "'", "/*"]
)
def test_deep_nesting(opening: str, times: int) -> None:
    """Depth is refused before the parser could run out of stack, whatever opens it."""
    reason = (
        "a quote or a comment that never closes" if opening in ("'", "/*") else "the statement is nested too deeply"
    )
    for beginning in (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE ",
        "CREATE PRIVACY POLICY ON visits ",
    ):
        with pytest.raises(Refusal, match=reason) as refused:
            parse_statement(beginning + opening * times)
        assert is_taken_or_told(str(refused.value))


@settings(max_examples=100)
@given(mutations(ACCEPTED))
def test_what_is_accepted_reads_what_it_names(clinic: duckdb.DuckDBPyConnection, text: str) -> None:
    """The analysis refuses, or gives SQL over the private tables of one unit by listed functions, and nothing else."""
    try:
        analysis = analysed(clinic, text)
    except Refusal as error:
        assert is_taken_or_told(str(error))
        return
    if analysis is not None:
        check(clinic, analysis)


@pytest.mark.parametrize("text", ACCEPTED[::6])
def test_golden_statements_read_what_they_name(clinic: duckdb.DuckDBPyConnection, text: str) -> None:
    """The property above holds for accepted golden statements, so that it is not empty."""
    analysis = analysed(clinic, text)
    assert analysis is not None
    check(clinic, analysis)


def check(clinic: duckdb.DuckDBPyConnection, analysis: Analysis) -> None:
    request = analysis.request
    outputs = [f"({source.sql})" for source in request.question.sources] + [
        f"({one.condition or 1})" for one in request.question.aggregates
    ]
    where = " AND ".join(f"({condition})" for condition in request.rows.filters) or "true"
    inside = parts(clinic, f"SELECT {', '.join(outputs)} FROM {request.rows.from_sql} WHERE {where}")
    assert inside is not None
    named = {read.table.table for read in request.rows.reads}
    assert request.rows.table.table in named & set(inside.tables)
    assert set(inside.tables) <= {*named, *PUBLIC}
    if request.rows.unit_sql is None:
        assert len(named) == inside.tables.count(request.rows.table.table) == 1
    else:
        assert {clinic_unit(clinic, table) for table in named} == {request.rows.unit_key}
    assert inside.functions <= FUNCTIONS | {"count", "count_star"}
    around = parts(clinic, analysis.outer.sql)
    if around is None:  # refused before the charge, when DuckDB binds it
        return
    assert around.tables.count(HOLE) >= 1
    assert not {"visits", "people", "calls", "words", "odd", "loose", 'Übung "1'} & set(around.tables) - around.common


def clinic_unit(clinic: duckdb.DuckDBPyConnection, table: str) -> str:
    """Returns the privacy unit of a table, as its owner sees it."""
    found = clinic.execute("SELECT privacy_unit FROM dp_policies() WHERE table_name LIKE '%.' || ?", [table]).fetchone()
    assert found is not None
    return str(found[0])


class Parts:
    """Names of tables, of functions and of CTEs in DuckDB's own parse of a query."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.functions: set[str] = set()
        self.common: set[str] = set()

    def add(self, value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                self.add(item)
        elif isinstance(value, dict):
            if value.get("type") == "BASE_TABLE":
                self.tables.append(value.get("table_name") or value["qualified_name"]["path"][-1])
            if "function_name" in value:
                self.functions.add(value["function_name"])
            self.common |= {entry["key"] for entry in (value.get("cte_map") or {}).get("map", [])}
            for item in value.values():
                self.add(item)


def parts(clinic: duckdb.DuckDBPyConnection, sql: str) -> Parts | None:
    """Returns the names that DuckDB reads in the SQL, or None where it cannot parse the SQL."""
    row = clinic.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    assert row is not None
    tree = json.loads(row[0])
    if tree["error"]:
        return None
    assert len(tree["statements"]) == 1
    found = Parts()
    found.add(tree)
    return found
