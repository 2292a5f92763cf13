"""Codebooks: every column of every view, its values and errors as they are in the released rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.documents.codebook import HEADS
from dpduck.publish.publish import publish
from dpduck.publish.words import number_text
from tests.support.browser import chromium, needs_chromium, violations
from tests.support.documented import KINDS, Kind, make_store, refused, written


def listed(database: Path) -> list[dict[str, str]]:
    """Returns the codebook's lines, from its CSV."""
    target = database.parent / "columns.csv"
    target.unlink(missing_ok=True)
    written(database, "codebook", "--to", str(target))
    return list(csv.DictReader(StringIO(target.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_of_every_view_is_listed(kind: str, stores: Mapping[str, Path]) -> None:
    """In the order of the view, with its type. No meaning is empty."""
    lines = listed(stores[kind])
    with dpduck.connect(stores[kind]) as owner:
        views = [name for (name,) in owner.execute(
            "SELECT name FROM dp_releases() WHERE kind = 'view' ORDER BY ledger_id"
        ).fetchall()]  # fmt: skip
        for view in views:
            described = owner.execute(f"SELECT column_name, column_type FROM (DESCRIBE private.{view})").fetchall()
            assert [(line["column"], line["type"]) for line in lines if line["view"] == view] == described
    assert list(dict.fromkeys(line["view"] for line in lines)) == views
    assert all(line["meaning"] for line in lines)


def test_errors_and_values_are_those_of_the_rows(stores: Mapping[str, Path]) -> None:
    """The smallest and the largest standard error, the unit of an answer, and the values of a key."""
    lines = {(line["view"], line["column"]): line for line in listed(stores["pure"])}
    with dpduck.connect(stores["pure"]) as owner:
        for answer in ("n", "ages", "mean"):
            ((low, high),) = owner.execute(
                f"SELECT min({answer}_stderr), max({answer}_stderr) FROM private.cube"
            ).fetchall()
            assert lines["cube", answer]["standard error"] == f"{number_text(low)} to {number_text(high)}"
    assert [lines["cube", answer]["unit"] for answer in ("n", "ages", "mean")] == ["visits", "years", "years"]
    assert lines["cube", "ward"]["values"] == "north, south, NULL"
    assert lines["cube", "n_stderr"]["meaning"] == "the standard error of n"
    assert "NULL is one of them, or a total" in lines["cube", "sex"]["meaning"]
    assert " to " not in lines["total", "n"]["standard error"], "one row has one error"


def test_many_values_are_named_by_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of 100 values has the first and the last one."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    with dpduck.connect(tmp_path / "clinic.duckdb") as owner:
        owner.execute("CREATE TABLE visits AS SELECT i AS patient, i % 100 AS age FROM range(1000) AS r(i)")
        for statement in (
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 2), "
            "DOMAIN age RANGE 0 TO 100 STEP 1 WITH NULL)",
            "CREATE PRIVATE VIEW ages OPTIONS (epsilon = 1) AS SELECT age, count(*) AS n FROM visits GROUP BY age",
        ):
            owner.execute("FROM dp(?)", [statement])
    (age, *_) = listed(tmp_path / "clinic.duckdb")
    assert age["values"] == "0 to 99, 100 values, and NULL"


def test_bins_have_ends_and_selected_values_have_no_guarantee(stores: Mapping[str, Path]) -> None:
    """The last bin of a key ends somewhere. What was selected says so, and the promise stands above the table."""
    (day, *_) = listed(stores["stream"])
    assert day["values"] == "2024-01-01, 2024-02-01; bins of 1 month each, up to 2025-01-01"
    (age, *_) = listed(stores["keys"])
    assert age["meaning"] == "a selected value; above a threshold; NULL is one of them"
    (ward, *_) = listed(stores["rho"])
    assert ward["values"] == "north, south", "a list has no bins"


def test_advice_fits_the_view(stores: Mapping[str, Path]) -> None:
    """Levels of a cube overlap, groups do not, a stream has sums over periods, and made-up rows have no error."""
    said = {kind: written(database, "codebook") for kind, database in stores.items()}
    assert r"FROM dp\_margin('cube', \['ward'], \['sex'])" in said["pure"]
    assert "groups without overlap" in said["rho"] and "groups without overlap" not in said["synthetic"]
    assert r"ending in \_total or \_last are sums" in said["stream"]
    assert "stands for nobody" in said["synthetic"] and "| made up | north, south |" in said["synthetic"]
    assert "Each row is made up" not in said["pure"]


def test_advice_fits_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Persons and averages are not added up, sums are, and a missing group is not zero."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    by_ward = "FROM visits GROUP BY ward"
    statements = (
        "CREATE PRIVATE VIEW persons OPTIONS (epsilon = 1) AS SELECT ward, count(DISTINCT patient_id) AS n, "
        f"avg(age) AS mean {by_ward} HAVING n > 5",
        f"CREATE PRIVATE VIEW ages OPTIONS (epsilon = 1) AS SELECT ward, avg(age) AS mean, sum(age) AS ages {by_ward}",
        *(
            f"CREATE PRIVATE TABLE {name} OPTIONS (epsilon = 1, inside = {inside}) AS SELECT age FROM visits "
            "WORKLOAD MARGINALS (1)"
            for name, inside in (("made_up", "FALSE"), ("drawn", "TRUE"))
        ),
    )
    database = make_store(tmp_path, Kind(KINDS["pure"].policy, statements))
    persons, ages, *_ = (written(database, "codebook", "--view", name) for name in ("persons", "ages"))
    assert "A group that is missing is not zero" in persons and "is not zero" not in ages
    assert "dp\\_sum\\_interval" not in persons and "groups without overlap" not in persons
    assert 'dp\\_sum\\_interval("ages", "ages\\_stderr")' in ages and "groups without overlap" in ages
    values = {line["view"]: line["values"] for line in listed(database)}
    assert values["made_up"] == "0, 10, 20, 30, 40, 50, 60, 70, 80; lower edges of bins, up to 90"
    assert "lower edges" not in values["drawn"]


def test_sums_of_a_stream_have_its_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The total over periods is in the unit of the answer."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    stream, refresh = KINDS["stream"].statements
    named = stream.replace("periods = 12", "periods = 12, answer_units = 'visits'")
    units = {
        line["column"]: line["unit"]
        for line in listed(make_store(tmp_path, Kind(KINDS["stream"].policy, (named, refresh))))
    }
    assert (units["n"], units["n_total"], units["n_stderr"]) == ("visits", "visits", "")


def test_advice_can_be_typed(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """The statements of the advice run on a published file."""
    text = re.sub(r"\\(.)", r"\1", written(stores["pure"], "codebook", "--view", "cube"))
    (margin,) = re.findall(r"For the rows of one level: (FROM .*)", text)
    (total,) = re.findall(r"For a sum with its error: (SELECT .*)", text)
    publish(stores["pure"].parent / "clinic_private.duckdb", tmp_path / "published.duckdb")
    with duckdb.connect(str(tmp_path / "published.duckdb"), read_only=True) as reader:
        assert len(reader.execute(margin).fetchall()) == 2
        assert len(reader.execute(f"{total} WHERE grouping_level = 'sex'").fetchall()) == 1


def test_texts_cannot_break_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and values with bars, quotes and tags stay in their cells: in Markdown, in HTML and in CSV."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    with dpduck.connect(tmp_path / "clinic.duckdb") as owner:
        owner.execute("CREATE TABLE visits AS SELECT i AS patient, 'a|b' AS \"<i>|\" FROM range(1000) AS r(i)")
        for statement in (
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 2), "
            "DOMAIN \"<i>|\" IN ('a|b', 'c,\"d', '```'))",
            "CREATE PRIVATE VIEW v OPTIONS (epsilon = 1, title = '# <b>|x', description = 'a ``` b') AS "
            'SELECT "<i>|", count(*) AS n FROM visits GROUP BY "<i>|"',
        ):
            owner.execute("FROM dp(?)", [statement])
    database = tmp_path / "clinic.duckdb"
    text = written(database, "codebook")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(HEADS) + 1}
    assert "<b>" not in text.partition("```")[0].replace(r"\<", "") and "\n````sql\n" in text
    assert listed(database)[0]["values"] == '```, a|b, c,"d'
    written(database, "codebook", "--to", str(tmp_path / "page.html"))
    assert "<b>" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_codebook_is_one_of_three_kinds(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """Another ending is refused. A page is replaced, and a text that may have been edited is not."""
    assert "would be a codebook; accepted: " in refused(stores["pure"], "codebook", "--to", str(tmp_path / "book.txt"))
    for _ in range(2):
        written(stores["pure"], "codebook", "--to", str(tmp_path / "book.html"))
    book = tmp_path / "book.md"
    written(stores["pure"], "codebook", "--to", str(book))
    book.write_text("mine")
    assert "may have been edited" in refused(stores["pure"], "codebook", "--to", str(book))


@needs_chromium
@pytest.mark.slow
def test_a_page_keeps_the_rules_of_accessibility(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """Tables have heads, and boxes that scroll have names."""
    target = tmp_path / "book.html"
    written(stores["pure"], "codebook", "--to", str(target), "--title", "Visits")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(target.as_uri())
        assert violations(page) == []
