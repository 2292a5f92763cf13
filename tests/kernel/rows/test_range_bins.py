"""Bins are those that comparisons with the declared edges give, for every type and at every edge."""

from __future__ import annotations

import math
from calendar import monthrange
from decimal import Decimal
from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.rows.bins import MOST_LEAVES
from dpduck.values.domain import RangeDomain
from tests.kernel.rows.binning_oracle import binned_code, check, check_numbers, codes_of_rows, counted

FLAGS = list(product([False, True], repeat=2))


@pytest.mark.parametrize(("with_null", "with_edges"), FLAGS)
@pytest.mark.parametrize("type_name", ["TINYINT", "INTEGER", "BIGINT", "HUGEINT"])
def test_integer_ranges(type_name: str, with_null: bool, with_edges: bool) -> None:
    """An edge belongs to the bin that it starts, and the extremes of the type do not overflow."""
    bits = {"TINYINT": 7, "INTEGER": 31, "BIGINT": 63, "HUGEINT": 127}[type_name]
    texts = [*map(str, range(-13, 13)), None, str(2**bits - 1), str(-(2**bits))]
    codes = check_numbers(type_name, texts, ("-9", "-6", "-3", "0", "3"), "6", "3", with_null, with_edges)
    assert [codes[str(value)] for value in range(-9, 6)] == [code for code in range(5) for _ in range(3)]
    below, above = (0, 4) if with_edges else (None, None)
    assert (codes["-10"], codes["6"], codes[str(-(2**bits))], codes[str(2**bits - 1)]) == (below, above, below, above)
    assert codes[None] == (5 if with_null else None)


@pytest.mark.parametrize("with_edges", [False, True])
def test_whole_bigint_range(with_edges: bool) -> None:
    """Edges as far apart as the type allows are compared one by one, since their difference overflows."""
    low, high = -(2**63), 2**63 - 1
    texts = [str(low), str(low + 1), "-1", "0", "1", str(high - 1), str(high), None]
    codes = check_numbers("BIGINT", texts, (str(low), "0"), str(high), "1", False, with_edges)
    assert [codes[text] for text in texts] == [0, 0, 0, 1, 1, 1, 1 if with_edges else None, None]


@pytest.mark.parametrize(("with_null", "with_edges"), FLAGS)
@pytest.mark.parametrize("type_name", ["DOUBLE", "FLOAT", "DECIMAL(9,3)", "DECIMAL(38,3)"])
@pytest.mark.parametrize(("start", "step", "count"), [("0", "0.1", 70), ("-1.3", "0.7", 9), ("-5", "2.5", 4)])
def test_fractional_ranges(
    type_name: str, start: str, step: str, count: int, with_null: bool, with_edges: bool
) -> None:
    """DOUBLE with STEP 0.1: every edge and both neighbours fall into the bins that comparisons give."""
    edges = [str(Decimal(start) + i * Decimal(step)) for i in range(count + 1)]
    texts: list[str | None] = [None, *edges, str(Decimal(start) - 1), str(Decimal(edges[-1]) + 1)]
    if type_name == "DOUBLE":
        texts += [repr(math.nextafter(float(edge), side)) for edge in edges for side in (-math.inf, math.inf)]
    elif type_name == "FLOAT":
        singles = [np.nextafter(np.float32(edge), np.float32(side)) for edge in edges for side in ("-inf", "inf")]
        texts += [repr(float(single)) for single in singles]
    else:
        texts += [str(Decimal(edge) + side) for edge in edges for side in (Decimal("0.001"), Decimal("-0.001"))]
    if not type_name.startswith("DECIMAL"):
        texts += ["nan", "inf", "-inf", "1e38", "-1e38", "-0.0", "5e-324" if type_name == "DOUBLE" else "1e-45"]
    codes = check_numbers(type_name, texts, tuple(edges[:-1]), edges[-1], step, with_null, with_edges)
    assert [codes[edge] for edge in edges[:-1]] == list(range(count))
    assert codes[edges[-1]] == (count - 1 if with_edges else None)
    assert {codes[text] for text in ("nan", "inf", "-inf") if text in codes} <= {None}
    assert codes[None] == (count if with_null else None)


@settings(max_examples=30)
@given(
    start=st.decimals(-1000, 1000, places=2),
    step=st.decimals("0.01", 50, places=2),
    count=st.integers(1, 40),
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20),
    with_edges=st.booleans(),
)
def test_random_double_ranges(start: Decimal, step: Decimal, count: int, values: list[float], with_edges: bool) -> None:
    """Arithmetic bins are the bins of the declared edges, whatever the range."""
    edges = [str(start + i * step) for i in range(count + 1)]
    near = [repr(math.nextafter(float(edge), side)) for edge in edges for side in (-math.inf, math.inf)]
    texts: list[str | None] = [*edges, *near, *map(repr, values)]
    codes = check_numbers("DOUBLE", texts, tuple(edges[:-1]), edges[-1], str(step), False, with_edges)
    assert [codes[edge] for edge in edges[:-1]] == list(range(count))


@pytest.mark.sampled
@pytest.mark.parametrize("with_edges", [False, True])
@pytest.mark.parametrize(
    ("type_name", "start", "step"),
    [
        ("DOUBLE", "0", "0.1"),
        ("FLOAT", "-3", "0.1"),
        ("DECIMAL(38,3)", "-7.5", "0.7"),
        ("HUGEINT", str(10**30), str(10**28)),
        ("BIGINT", str(-(2**63)), "7"),
        ("BIGINT", "0", "7"),
    ],
)
def test_many_bins(type_name: str, start: str, step: str, with_edges: bool) -> None:
    """Above MOST_LEAVES bins edges near a guess are looked up, unless arithmetic alone is proven exact."""
    number = int if "INT" in type_name else Decimal
    tiny = 1 if "INT" in type_name else Decimal("0.001")
    edges = [str(number(start) + i * number(step)) for i in range(2 * MOST_LEAVES + 1)]
    around = [str(number(edge) + side) for edge in edges for side in (-tiny, tiny)]
    texts = [*edges, *around[2 if start == str(-(2**63)) else 0 :], None]
    if type_name == "FLOAT":
        texts += [repr(float(np.nextafter(np.float32(edge), np.float32("-inf")))) for edge in edges]
    codes = check_numbers(type_name, texts, tuple(edges[:-1]), edges[-1], step, True, with_edges)
    assert [codes[edge] for edge in edges[:-1]] == list(range(2 * MOST_LEAVES))
    assert codes[None] == 2 * MOST_LEAVES


@pytest.mark.parametrize("with_edges", [False, True])
def test_irregular_bins(with_edges: bool) -> None:
    """Edges without a common step, which no policy declares, are compared one by one."""
    edges = [str(i * (i + 1) // 2) for i in range(MOST_LEAVES + 50)]
    texts: list[str | None] = [str(value) for value in range(-3, int(edges[-1]) + 3, 97)]
    for type_name in ("DOUBLE", "BIGINT", "DECIMAL(38,1)"):
        codes = check_numbers(type_name, [*texts, *edges[::7]], tuple(edges[:-1]), edges[-1], "1", False, with_edges)
        assert [codes[edge] for edge in edges[:-1:7]] == list(range(0, len(edges) - 1, 7))


@pytest.mark.parametrize("with_edges", [False, True])
@pytest.mark.parametrize(("type_name", "zero"), [("DATE", ""), ("TIMESTAMP", " 00:00:00")])
def test_many_months(type_name: str, zero: str, with_edges: bool) -> None:
    """Months that start on their 31st or last day: the edges are irregular and are looked up."""
    months = [(1990 + i // 12, i % 12 + 1) for i in range(MOST_LEAVES + 20)]
    edges = [f"{year}-{month:02d}-{monthrange(year, month)[1]}{zero}" for year, month in months]
    domain = RangeDomain(type_name, tuple(edges[:-1]), edges[-1], "", "month", 1, False, with_edges)
    texts = [
        f"{year}-{month:02d}-{day}{zero}" for year, month in months for day in ("01", "28", monthrange(year, month)[1])
    ]
    texts += ["0001-01-01" + zero, "9999-12-31" + zero]
    expected = [binned_code(text, edges[:-1], edges[-1], domain, lambda _: True) for text in texts]
    codes = check(type_name, texts, domain, expected)
    assert [codes[edge] for edge in edges[:-1]] == list(range(len(edges) - 1))
    assert codes["9999-12-31" + zero] == (len(edges) - 2 if with_edges else None)


MOMENTS = ["2019-12-31", "2020-01-01", "2020-01-31", "2020-02-29", "2020-03-01", "2020-06-30", "2020-07-01"]
MOMENTS += ["2021-01-31", "2021-02-01", "2021-12-31", "1900-01-01", "5000-01-01", "2020-01-15", "2020-02-15"]


@pytest.mark.parametrize(("with_null", "with_edges"), FLAGS)
@pytest.mark.parametrize("type_name", ["DATE", "TIMESTAMP"])
@pytest.mark.parametrize(
    "edges",
    [
        ("2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"),
        ("2020-01-01", "2020-07-01", "2021-01-01"),
        ("2020-01-15", "2020-02-15", "2020-03-15"),
        ("2020-01-01", "2020-01-31", "2020-03-01"),
        ("2020-01-31", "2020-02-29", "2020-03-31"),
        ("1960-01-01", "2020-01-01", "2080-01-01"),
    ],
)
def test_calendar_ranges(type_name: str, edges: tuple[str, ...], with_null: bool, with_edges: bool) -> None:
    """Months, years, days and irregular months give calendar bins. Infinite dates and timestamps go to no bin."""
    zero = " 00:00:00" if type_name == "TIMESTAMP" else ""
    texts: list[str | None] = [moment + zero for moment in MOMENTS]
    if type_name == "TIMESTAMP":
        texts += ["2020-02-29 23:59:59.999999", "2019-12-31 23:59:59.999999", "2020-01-30 23:59:59.999999"]
    domain = RangeDomain(
        type_name, tuple(e + zero for e in edges[:-1]), edges[-1] + zero, "", "month", 1, with_null, with_edges
    )
    lower = [edge + zero for edge in edges[:-1]]
    expected = [binned_code(text, lower, domain.upper, domain, lambda _: True) for text in texts]
    null = len(lower) if with_null else None
    codes = check(type_name, [*texts, "infinity", "-infinity", None], domain, [*expected, None, None, null])
    assert (codes["infinity"], codes["-infinity"], codes[None]) == (None, None, null)
    assert all(codes.get(edge, number) == number for number, edge in enumerate(lower))


@pytest.mark.parametrize("with_edges", [False, True])
def test_timestamp_hours(with_edges: bool) -> None:
    """Timestamps are binned by hours, also at the far ends of the type."""
    edges = tuple(f"2020-01-01 {hour:02d}:00:00" for hour in range(0, 24, 6))
    domain = RangeDomain("TIMESTAMP", edges, "2020-01-02 00:00:00", "", "hour", 6, False, with_edges)
    texts = ["2020-01-01 05:59:59.999999", "2020-01-01 06:00:00", "2020-01-01 23:59:59.999999", "2020-01-02 00:00:00"]
    far = ["290308-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "infinity", "-infinity"]
    ends = [0, 3, None, None] if with_edges else [None] * 4
    codes = check("TIMESTAMP", [*texts, *far], domain, [0, 1, 3, 3 if with_edges else None, *ends])
    assert (codes["2020-01-01 05:59:59.999999"], codes["2020-01-01 06:00:00"]) == (0, 1)
    assert (codes["infinity"], codes["-infinity"]) == (None, None)


@pytest.mark.parametrize("with_edges", [False, True])
@pytest.mark.parametrize("type_name", ["DECIMAL(20,2)", "DECIMAL(38,5)"])
def test_a_decimal_of_more_digits_than_its_type(type_name: str, with_edges: bool) -> None:
    """A decimal from Arrow beyond its type does not end DuckDB 2.0, which fails on the least one as a DOUBLE."""
    digits, scale = map(int, type_name[8:-1].split(","))
    bins = MOST_LEAVES + 10
    domain = RangeDomain(type_name, tuple(map(str, range(bins))), str(bins), "1", "", 1, with_edges=with_edges)
    values = b"".join(value.to_bytes(16, "little", signed=True) for value in (-(2**127), 7 * 10**scale, 2**127 - 1))
    given = pa.Array.from_buffers(pa.decimal128(digits, scale), 3, [None, pa.py_buffer(values)])
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"v": given, "unit": [1, 2, 3]}))
        connection.execute("CREATE TABLE t AS FROM given")
        assert codes_of_rows(connection, domain) == ([0, 7, bins - 1] if with_edges else [None, 7, None])
        found = {7: 1, 0: 1, bins - 1: 1} if with_edges else {7: 1}
        assert [counted(connection, domain, unit) for unit in ("t.unit", None)] == [found, found]
