"""Readings of texts: the values that count as read are those that the statement converts, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import duckdb
import pytest

from dpduck.values.text_readings import TextReading, readings

NBSP = chr(160)


def read(texts: Sequence[str]) -> Mapping[str, tuple[TextReading, list[Any]]]:
    """Returns each reading of a column by its words, with the column after its statement has run."""
    converted = dict[str, tuple[TextReading, list[Any]]]()
    with duckdb.connect() as con:
        con.execute("CREATE TABLE texts AS SELECT i, ''::VARCHAR AS \"the x\" FROM range(0) AS r(i)")
        con.executemany("INSERT INTO texts VALUES (?, ?)", [[i, text] for i, text in enumerate(texts)])
        for way in readings(lambda sql: con.execute(sql).fetchall()[0], "texts", "the x", "VARCHAR"):
            con.execute("BEGIN")
            con.execute(way.alter("texts"))
            values = [row[0] for row in con.execute('SELECT "the x" FROM texts ORDER BY i').fetchall()]
            con.execute("ROLLBACK")
            assert sum(value is not None for value in values) == way.read
            assert sum(text.strip() != "" for text in texts) == way.values
            converted[way.how] = way, values
    return converted


COMMAS = {
    "7,5": 7.5, "1.250,50": 1250.5, "2.000": 2000, "1.5": None, "-1'000,25": -1000.25, "12 500,25": 12500.25,
    "1,234.50": None, "0.123": None, "1.234.567": 1234567, "12.50": None, "+3": 3, "": None, f"{NBSP}4,5{NBSP}": 4.5,
    "12.345.67": None, "4,": None, "V10.1": None, "007": 7, "0,25": 0.25,
}  # fmt: skip
POINTS = {
    "7.5": 7.5, "1,250.50": 1250.5, "2,000": 2000, "1,5": None, "-0.5": -0.5, "1.234,50": None, "0,123": None,
    "1,234,567": 1234567, "12,50": None, "3": 3, "": None, " 4.5 ": 4.5, "1'000.5": None, "V10.1": None, "3.25": 3.25,
    "12.1": 12.1, "11.75": 11.75,
}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "rows"), [("numbers with a decimal comma", COMMAS), ("numbers", POINTS)], ids=["commas", "points"]
)
def test_each_row_of_both_separators(how: str, rows: Mapping[str, float | None]) -> None:
    """A text of the other form becomes NULL, and no other number. Whole numbers may have thousands apart."""
    converted = read(list(rows))
    assert list(converted) == [how]
    assert dict(zip(rows, converted[how][1], strict=True)) == rows
    assert not converted[how][0].is_nearly_whole


def test_texts_that_two_readings_take() -> None:
    """As many points as commas: both readings are told. Thousands alone have one reading, and codes have none."""
    both = read(["1,5", "2.5", "3"])
    assert [values for _, values in both.values()] == [[1.5, None, 3.0], [None, 2.5, 3.0]]
    assert [(how, values) for how, (_, values) in read(["1,250,000", "2,500"]).items()] == [
        ("numbers with commas between thousands", [1_250_000, 2_500])
    ]
    assert read(["007", "12", "3"]) == read(["V1", "V2.5", "1.5"]) == read(["", " "]) == {}


def test_months_do_not_hide_numbers() -> None:
    """A whole part from 1 to 12 looks like a month, and the two digits behind it are no year."""
    assert read(["3.25", "12.10", "1.5"])["numbers"][1] == [3.25, 12.1, 1.5]
    assert read(["3.2015", "12.2016"])["dates by '%m.%Y'"][1] == [date(2015, 3, 1), date(2016, 12, 1)]


def test_blanks_and_years_of_dates() -> None:
    """Dates with a no-break space beside them are converted. Dates of other centuries count as not read, and go."""
    days = [f"{NBSP}13.04.2024", f"14.04.2024{NBSP}", *["15.04.2024"] * 40, "16.04.0024"]
    way, values = read(days)["dates by '%d.%m.%Y'"]
    assert (way.read, way.is_whole, way.is_nearly_whole) == (42, False, True)
    assert values == [date(2024, 4, 13), date(2024, 4, 14), *[date(2024, 4, 15)] * 40, None]
    zoned = read([f"2024-04-13T10:00:00+02:00{NBSP}"])["moments by '%Y-%m-%dT%H:%M:%S%z'"][1]
    assert zoned == [datetime(2024, 4, 13, 8)]


def test_whole_numbers_that_are_dates() -> None:
    """0 counts as missing, and a short number is no date."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT unnest([0, 2024041] || list(20240400 + x)) AS n FROM range(1, 31) AS r(x)"
        )
        (way,) = readings(lambda sql: con.execute(sql).fetchall()[0], "t", "n", "INTEGER")
        con.execute(way.alter("t"))
        assert con.execute("SELECT count(n), count(*) FROM t").fetchall() == [(30, 32)]
        assert (way.read, way.values) == (30, 31)
