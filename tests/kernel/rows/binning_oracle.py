"""Domain codes in plain Python, and a check that SQL agrees with these codes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import duckdb
import numpy as np

from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.rows.binning import code_expression
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from tests.support.nodes import adds, counts, key


def job_of(domain: Domain, unit_sql: str | None) -> CountingJob:
    attribute = Attribute((0,), np.arange(domain.size), domain.size)
    return counts("t", (), unit_sql, 1, ("t.v",), (key("t.v", domain),), (attribute,), (adds(""),))


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One database for the file: opening one takes longer than a test."""
    return duckdb.connect(config={"threads": 1})


def fill(type_name: str, texts: Sequence[str | None]) -> duckdb.DuckDBPyConnection:
    """Fills a table with one value in each row. Row numbers serve as privacy units."""
    connection = database()
    connection.execute(
        f"CREATE OR REPLACE TABLE t AS SELECT unnest(range($n)) AS unit, unnest(CAST($texts AS {type_name}[])) AS v",
        {"texts": list(texts), "n": len(texts)},
    )
    return connection


def codes_of_rows(connection: duckdb.DuckDBPyConnection, domain: Domain) -> list[int | None]:
    code = code_expression(key("t.v", domain), 0)
    rows = connection.execute(f"SELECT {code.sql} FROM t ORDER BY unit", dict(code.parameters)).fetchall()
    return [row[0] for row in rows]


def counted(connection: duckdb.DuckDBPyConnection, domain: Domain, unit_sql: str | None) -> Counter[int]:
    counts = count_exactly(connection.cursor(), job_of(domain, unit_sql), b"key")
    found: Counter[int] = Counter()
    for code, count in zip(counts._exact_coordinates[0].tolist(), counts._exact_counts[0].tolist(), strict=True):
        found[code] += count
    return found


Codes = dict[str | None, int | None]


def check(type_name: str, texts: Sequence[str | None], domain: Domain, expected: list[int | None]) -> Codes:
    """The scalar expression, the grouped count and the bounded count all agree with the oracle.

    Returns the code that SQL gives to each text.
    """
    connection = fill(type_name, texts)
    found = codes_of_rows(connection, domain)
    assert found == expected
    kept = Counter(code for code in expected if code is not None)
    assert counted(connection, domain, None) == kept
    assert counted(connection, domain, "t.unit") == kept
    return dict(zip(texts, found, strict=True))


def listed_code(text: str | None, domain: ValueDomain) -> int | None:
    """Returns the code of a text in a listed domain."""
    if text is None:
        return len(domain.values) if domain.with_null else None
    if text in domain.values:
        return domain.values.index(text)
    return domain.size - 1 if domain.other is not None else None


def binned_code(
    value: Any, edges: Sequence[Any], upper: Any, domain: RangeDomain, finite: Callable[[Any], bool]
) -> int | None:
    """Returns the code of a number in a range: the number of edges that are not above it."""
    if value is None:
        return len(edges) if domain.with_null else None
    if not finite(value):
        return None
    if not domain.with_edges and not edges[0] <= value < upper:
        return None
    return max(sum(edge <= value for edge in edges) - 1, 0)


def check_numbers(
    type_name: str,
    texts: list[str | None],
    edges: tuple[str, ...],
    upper: str,
    step: str,
    with_null: bool,
    with_edges: bool,
) -> Codes:
    """Compares ranges of numbers with the oracle. The column's own type holds values and edges."""
    domain = RangeDomain(type_name, edges, upper, step, "", 1, with_null, with_edges)
    single = type_name == "FLOAT"
    floating = single or type_name == "DOUBLE"

    def number(text: str) -> float | Fraction:
        if single:
            return float(np.float32(text))
        return float(text) if floating else Fraction(Decimal(text))

    values = [None if text is None else number(text) for text in texts]
    lower = [number(edge) for edge in edges]
    expected = [binned_code(v, lower, number(upper), domain, math.isfinite) for v in values]
    return check(type_name, texts, domain, expected)
