"""Every value gets the code that the domain declares, and no value of any kind raises."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import Attribute
from dpduck.kernel.rows.binning import MOST_POSITIONS, key_reading
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from tests.kernel.rows.binning_oracle import Codes, check, check_numbers, counted, fill, job_of, listed_code
from tests.support.nodes import key

NASTY = [
    "it's",
    '"',
    "$dpduck_key_0",
    "'; DROP TABLE t; --",
    "",
    " ",
    "\n",
    "é",
    "e\u0301",
    "\U0001d54f",
    "%",
    "\\",
    "NULL",
    "a",
]


@pytest.mark.parametrize(("with_null", "other"), list(product([False, True], [None, "other's"])))
def test_listed_text(with_null: bool, other: str | None) -> None:
    """Labels with quotes, newlines and unicode are values, never SQL, and are compared by their bytes."""
    domain = ValueDomain("VARCHAR", tuple(NASTY), with_null, other)
    texts: list[str | None] = [*NASTY, *NASTY[::2], None, None, "A", "E\u0301", "outside", "other's"]
    codes = check("VARCHAR", texts, domain, [listed_code(text, domain) for text in texts])
    assert [codes[text] for text in NASTY] == list(range(len(NASTY)))
    assert codes[None] == (len(NASTY) if with_null else None)
    unlisted = None if other is None else len(NASTY) + with_null
    assert [codes[text] for text in ("A", "E\u0301", "outside", "other's")] == [unlisted] * 4


@pytest.mark.parametrize("count", [1, MOST_POSITIONS, MOST_POSITIONS + 1, 1000])
@pytest.mark.parametrize(("with_null", "other"), list(product([False, True], [None, "other"])))
def test_long_lists(count: int, with_null: bool, other: str | None) -> None:
    """Lists above MOST_POSITIONS are looked up by a join, and give the same codes."""
    domain = ValueDomain("VARCHAR", tuple(f"value {i}" for i in range(count)), with_null, other)
    texts = [*(f"value {i}" for i in range(0, count + 40, 3)), None, "", "value 0"]
    codes = check("VARCHAR", texts, domain, [listed_code(text, domain) for text in texts])
    assert [codes[f"value {i}"] for i in range(0, count, 3)] == list(range(0, count, 3))
    assert (codes[None], codes[""]) == (count if with_null else None, None if other is None else count + with_null)


@pytest.mark.parametrize("type_name", ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"])
@pytest.mark.parametrize("values", [(0, 1, 2), (5, 3, 4), (-4, -2, -1), (0, 100), (-7,)])
@pytest.mark.parametrize("with_null", [False, True])
def test_listed_integers(type_name: str, values: tuple[int, ...], with_null: bool) -> None:
    """Dense lists and lists with gaps work in any order. The extremes of the type neither match nor raise."""
    bits = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63, "HUGEINT": 127}[type_name]
    domain = ValueDomain(type_name, tuple(str(value) for value in values), with_null)
    extremes = [str(2**bits - 1), str(-(2**bits))]
    texts = [*map(str, range(-8, 8)), "100", "101", None, *extremes]
    codes = check(type_name, texts, domain, [listed_code(text, domain) for text in texts])
    assert [codes[str(value)] for value in values] == list(range(len(values)))
    assert [codes[text] for text in ("101", *extremes)] == [None] * 3
    assert codes[None] == (len(values) if with_null else None)


@pytest.mark.parametrize("first", [2**31 - 2, 2**40, 2**63 - 3, 2**64 - 3, -(2**63)])
@pytest.mark.parametrize("with_null", [False, True])
def test_far_integers(first: int, with_null: bool) -> None:
    """Values near the ends of 32 and 64 bits have right codes, in types where packing them could overflow."""
    texts = [*(str(first + i) for i in range(3)), None, "0", "-1" if first < 0 else "1", str(2**63 - 1)]
    types = {"BIGINT": first < 2**63, "HUGEINT": True, "UBIGINT": first > 0}
    for type_name in (name for name, holds in types.items() if holds):
        domain = ValueDomain(type_name, tuple(str(first + i) for i in range(3)), with_null)
        codes = check(type_name, texts, domain, [listed_code(text, domain) for text in texts])
        assert [codes[str(first + i)] for i in range(3)] == [0, 1, 2]
        assert (codes["0"], codes[None]) == (None, 3 if with_null else None)


@pytest.mark.parametrize("type_name", ["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"])
@pytest.mark.parametrize("with_null", [False, True])
def test_unsigned(type_name: str, with_null: bool) -> None:
    """Subtracting the first value never goes below zero in an unsigned type."""
    bits = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128}[type_name]
    texts = ["0", "1", "3", "4", "5", "6", "9", "10", None, str(2**bits - 1)]
    listed = ValueDomain(type_name, ("3", "4", "5"), with_null)
    null = 3 if with_null else None
    codes = check(type_name, texts, listed, [listed_code(text, listed) for text in texts])
    assert [codes[text] for text in texts] == [None, None, 0, 1, 2, None, None, None, null, None]
    codes = check_numbers(type_name, texts, ("3", "5", "7"), "9", "2", with_null, False)
    assert [codes[text] for text in texts] == [None, None, 0, 0, 1, 1, None, None, null, None]
    codes = check_numbers(type_name, texts, ("3", "5", "7"), "9", "2", with_null, True)
    assert [codes[text] for text in texts] == [0, 0, 0, 0, 1, 1, 2, 2, null, 2]


NULL = -1
"""Stands for the code of NULL, where the domain has one."""


@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize(
    ("type_name", "values", "found"),
    [
        ("BOOLEAN", ("false", "true"), {"true": 1, "false": 0, None: NULL}),
        ("BOOLEAN", ("true",), {"true": 0, "false": None, None: NULL}),
        (
            "DATE",
            ("2020-02-29", "1969-12-31"),
            {"2020-02-29": 0, "infinity": None, "-infinity": None, None: NULL, "1969-12-31": 1},
        ),
        ("TIMESTAMP", ("2020-02-29 01:02:03",), {"2020-02-29 01:02:03": 0, "infinity": None, None: NULL}),
        ("DECIMAL(5,2)", ("1.50", "-2.00"), {"1.50": 0, "-2.00": 1, "999.99": None, None: NULL}),
        ("DOUBLE", ("0.1", "nan", "-0.0"), {"0.1": 0, "nan": 1, "-0.0": 2, "inf": None, None: NULL}),
        ("UUID", ("00000000-0000-0000-0000-00000000000a",), {"00000000-0000-0000-0000-00000000000a": 0, None: NULL}),
        ("TIME", ("01:02:03",), {"01:02:03": 0, "01:02:04": None, None: NULL}),
        ("ENUM('it''s', 'b')", ("b", "it's"), {"b": 0, "it's": 1, None: NULL}),
        ("ENUM('it''s', 'b')", ("b",), {"b": 0, "it's": None, None: NULL}),
    ],
)
def test_listed_types(type_name: str, values: tuple[str, ...], found: Codes, with_null: bool) -> None:
    """Every type that may have a listed domain is coded, and a value that comes twice has one code."""
    domain = ValueDomain(type_name, values, with_null)
    texts = [*found, next(iter(found))]
    null = len(values) if with_null else None
    codes = check(type_name, texts, domain, [listed_code(text, domain) for text in texts])
    assert codes == {text: null if code == NULL else code for text, code in found.items()}


@pytest.mark.parametrize(
    ("held", "domain"),
    [
        ("VARCHAR", ValueDomain("INTEGER", ("1", "2", "3"))),
        ("VARCHAR", RangeDomain("DOUBLE", ("1", "2"), "3", "1", "", 1)),
        ("VARCHAR", ValueDomain("BOOLEAN", ("true",))),
        ("BIGINT", RangeDomain("TINYINT", ("1", "2"), "3", "1", "", 1, with_edges=True)),
        ("DOUBLE", ValueDomain("INTEGER", ("1", "2"))),
    ],
)
def test_changed_type(held: str, domain: Domain) -> None:
    """A column that was altered after its policy does not raise on a value that no longer converts."""
    texts = ["1", "2", "9223372036854775807"] + (["secret", "1e400"] if held == "VARCHAR" else [])
    connection = fill(held, texts)
    for unit_sql in (None, "t.unit"):
        assert counted(connection, domain, unit_sql).total() <= 3


def test_parameters_hold_the_labels() -> None:
    """Labels are parameters and never part of the SQL, so that none can inject SQL."""
    domain = ValueDomain("VARCHAR", tuple(NASTY))
    reading = key_reading(key("t.v", domain), 0)
    text = reading.group_sql + reading.guard + "".join(reading.filters)
    assert "DROP" not in text
    assert reading.parameters == {"dpduck_key_0": json.dumps(NASTY, ensure_ascii=False)}


def test_two_keys_do_not_share_a_parameter() -> None:
    """Each key column has separate parameters."""
    connection = fill("VARCHAR", ["a", "b", "c"])
    first, second = ValueDomain("VARCHAR", ("a", "b")), ValueDomain("VARCHAR", ("b", "a"))
    attributes = tuple(Attribute((i,), np.arange(2), 2) for i in range(2))
    job = replace(job_of(first, None), keys=(key("t.v", first), key("t.v", second)), attributes=attributes)
    counts = count_exactly(connection.cursor(), job, b"key")
    found = set(zip(*(codes.tolist() for codes in counts._exact_coordinates), strict=True))
    assert found == {(0, 1), (1, 0)}
