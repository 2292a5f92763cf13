"""Bins of a RANGE domain in SQL: by arithmetic if that is proven to agree with the edges, otherwise by comparisons.

Every expression is total: it raises on no value of the column's type, be it NaN, infinite or out of range.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from dpduck.values.domain import RangeDomain
from dpduck.values.sqltypes import sql_type

MOST_LEAVES = 256  # above this, looking up the edges around a guess is faster than a tree of comparisons
FARTHEST = 1 << 62


@dataclass(frozen=True)
class BinExpression:
    """A bin in SQL. inside: condition of values in some bin. sql: that bin's number. parameters: its edges, if any."""

    sql: str
    inside: str
    parameters: Mapping[str, str]


def bin_expression(value: str, domain: RangeDomain, name: str) -> BinExpression:
    """Writes the bin of `value`, decided from the public domain alone. `name` is the parameter with its edges."""
    last = len(domain.edges) - 1
    code = _integer_bins(value, domain) or _floating_bins(value, domain) or _calendar_bins(value, domain)
    code = code or _edge_bins(value, domain, name)
    # DuckDB refuses parameters that it does not use
    edges = {name: texts_parameter([*domain.edges, domain.upper])} if f"${name}" in code else {}
    if domain.with_edges:
        # Only here can the arithmetic leave the bins. Infinities go to no bin, with edges or without.
        finite = f"isfinite({value})" if sql_type(domain.type_name).has_infinity else "TRUE"
        clamped = f"TRY_CAST(least(greatest({code}, 0), {last}) AS INTEGER)"
        return BinExpression(clamped, finite, edges)
    lower, upper = (_literal(edge, domain.type_name) for edge in (domain.edges[0], domain.upper))
    # NaN and infinities compare above every number; minus infinity is below.
    return BinExpression(code, f"{value} >= {lower} AND {value} < {upper}", edges)


def _literal(text: str, type_name: str) -> str:
    quoted = text.replace("'", "''")
    return f"CAST('{quoted}' AS {type_name})"


def _regular_step(edges: list[int]) -> int | None:
    step = edges[1] - edges[0]
    regular = step > 0 and edges == list(range(edges[0], edges[0] + step * len(edges), step))
    return step if regular else None


def _integer_bins(value: str, domain: RangeDomain) -> str | None:
    kind = sql_type(domain.type_name)
    if not kind.is_whole:
        return None
    edges = [int(edge) for edge in (*domain.edges, domain.upper)]
    step = _regular_step(edges)
    if step is None or max(-edges[0], edges[-1]) >= FARTHEST:
        return None
    if kind.bits > 32:
        # Narrow types cannot overflow in BIGINT arithmetic; wide ones are brought between the edges first.
        low, high = (f"CAST({edge} AS {domain.type_name})" for edge in (edges[0], edges[-1] - 1))
        value = f"least(greatest({value}, {low}), {high})"
    return f"(CAST({value} AS BIGINT) - ({edges[0]})) // {step}"


def _floating_bins(value: str, domain: RangeDomain) -> str | None:
    """Writes floor((x - low) / step), corrected by comparisons with the edges. None if that could be a wrong bin.

    x - low, the division and floor are monotone in x even when rounded. Let the guess be at most one off at each edge
    and at the value just below it. Then it is at most one off everywhere, and one comparison on either side mends it.
    Edge i is recomputed as (a + i p) / q. Doubles hold these integers exactly, and one division is correctly rounded.
    So the result is the same double as the edge's decimal text.
    """
    if not _is_exact_in_double(domain.type_name):
        return None
    exact = [Fraction(Decimal(edge)) for edge in (*domain.edges, domain.upper)]
    denominator = lcm(*(edge.denominator for edge in exact))
    numerators = [int(edge * denominator) for edge in exact]
    step = _regular_step(numerators)
    if step is None or max(denominator, *map(abs, numerators)) >= 1 << 52:
        return None
    edges = _as_doubles(domain, exact)
    width = float(Fraction(step, denominator))
    recomputed = np.array(numerators, dtype=np.float64) / float(denominator)
    indices = np.arange(len(edges))
    at_edge = np.floor((edges - edges[0]) / width)
    below = np.floor((_just_below(domain, edges, exact) - edges[0]) / width)
    if not np.array_equal(recomputed, edges) or np.abs(at_edge - indices).max() > 1:
        return None
    if np.abs(below - (indices - 1)).max() > 1:
        return None
    number = f"CAST({value} AS DOUBLE)"
    guess = f"floor(({number} - {_double(edges[0])}) / {_double(width)})"
    if np.array_equal(at_edge, indices) and np.array_equal(below, indices - 1):
        return guess if domain.with_edges else f"TRY_CAST({guess} AS INTEGER)"
    start, stride, scale = _double(float(numerators[0])), _double(float(step)), _double(float(denominator))
    this, following = (f"({start} + ({guess} + {shift}) * {stride}) / {scale}" for shift in (0, 1))
    mended = f"{guess} + CAST({number} >= {following} AS TINYINT) - CAST({number} < {this} AS TINYINT)"
    return mended if domain.with_edges else f"TRY_CAST({mended} AS INTEGER)"


def _is_exact_in_double(type_name: str) -> bool:
    """Tells whether values of a type stay different and in order as doubles, as decimals of 15 digits do."""
    kind = sql_type(type_name)
    return kind.is_float or (kind.is_decimal and kind.digits <= 15)


def _as_doubles(domain: RangeDomain, exact: list[Fraction]) -> NDArray[np.float64]:
    """Returns the edges as doubles, rounded to the column's type first if it is FLOAT."""
    doubles = np.array([float(edge) for edge in exact])
    if domain.type_name != "FLOAT":
        return doubles
    singles = np.array([*domain.edges, domain.upper]).astype(np.float32)
    return singles.astype(np.float64)


def _just_below(domain: RangeDomain, edges: NDArray[np.float64], exact: list[Fraction]) -> NDArray[np.float64]:
    if domain.type_name == "FLOAT":
        single = np.nextafter(edges.astype(np.float32), np.float32(-np.inf))
        return single.astype(np.float64)
    if domain.type_name == "DOUBLE":
        return np.nextafter(edges, -np.inf)
    quantum = Fraction(1, 10 ** sql_type(domain.type_name).scale)
    return np.array([float(edge - quantum) for edge in exact])


def _double(number: float) -> str:
    return f"CAST('{float(number)!r}' AS DOUBLE)"


def _calendar_bins(value: str, domain: RangeDomain) -> str | None:
    """Writes bins of whole months, or of a fixed number of days or microseconds. None for any other bins."""
    if not sql_type(domain.type_name).is_moment:
        return None
    try:
        moments = [datetime.fromisoformat(edge) for edge in (*domain.edges, domain.upper)]
    except ValueError:
        return None
    if any(moment.tzinfo is not None for moment in moments):
        return None
    if all(moment == datetime(moment.year, moment.month, 1) for moment in moments):
        months = [12 * moment.year + moment.month for moment in moments]
        step = _regular_step(months)
        if step is not None:
            return f"(12 * year({value}) + month({value}) - {months[0]}) // {step}"
    if domain.type_name == "DATE":
        step = _regular_step([moment.toordinal() for moment in moments])
        first = _literal(domain.edges[0], "DATE")
        return None if step is None else f"date_diff('day', {first}, {value}) // {step}"
    micros = [_microseconds(moment) for moment in moments]
    step = _regular_step(micros)
    low, high = (_literal(edge, "TIMESTAMP") for edge in (domain.edges[0], domain.upper))
    between = f"least(greatest({value}, {low}), {high})"
    return None if step is None else f"(epoch_us({between}) - ({micros[0]})) // {step}"


def _microseconds(moment: datetime) -> int:
    elapsed = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _edge_bins(value: str, domain: RangeDomain, name: str) -> str:
    """Writes a tree of comparisons with the edges. For many bins, a guess is compared with the two edges around it."""
    count = len(domain.edges)
    guess = _guess(value, domain) if count > MOST_LEAVES else None
    if guess is None:
        return _halve(value, [_literal(edge, domain.type_name) for edge in domain.edges], 0, count)
    edges = texts_sql(name, domain.type_name)
    place = f"TRY_CAST(least(greatest({guess}, 0), {count - 1}) AS INTEGER)"
    below, above = f"{value} < {edges}[{place} + 1]", f"{value} >= {edges}[{place} + 2]"
    return f"{place} + CAST({above} AS TINYINT) - CAST({below} AS TINYINT)"


def texts_sql(name: str, type_name: str) -> str:
    """Writes a list of this type from a JSON list in a parameter. A Python list would take 0.2 ms for each element."""
    return f"CAST(from_json(${name}, '[\"VARCHAR\"]') AS {type_name}[])"


def texts_parameter(texts: Iterable[str]) -> str:
    """Returns a list of texts as one prepared parameter in JSON, for texts_sql."""
    return json.dumps(list(texts), ensure_ascii=False)


def _guess(value: str, domain: RangeDomain) -> str | None:
    """Writes a guess of the bin that is at most one off: by months for dates, otherwise by division in doubles."""
    bounds = (*domain.edges, domain.upper)
    if sql_type(domain.type_name).is_moment:
        months = [12 * int(edge[:4]) + int(edge[5:7]) for edge in bounds if len(edge.split("-")[0]) == 4]
        step = _regular_step(months) if len(months) == len(bounds) else None
        return None if step is None else f"(12 * year({value}) + month({value}) - {months[0]}) // {step}"
    exact = [Fraction(Decimal(edge)) for edge in bounds]
    width = (exact[-1] - exact[0]) / len(domain.edges)
    if any(abs(edge - exact[0] - place * width) * 8 > width for place, edge in enumerate(exact)):
        return None
    # Three roundings, of the value, of the difference and of the quotient, move the guess by less than 1/8 of a bin.
    precision = 1 << (20 if domain.type_name == "FLOAT" else 48)
    if max(map(abs, exact)) >= precision * width:
        return None
    if sql_type(domain.type_name).is_decimal:  # a value with more digits than its type may have no DOUBLE
        low, high = (_literal(edge, domain.type_name) for edge in (bounds[0], bounds[-1]))
        value = f"least(greatest({value}, {low}), {high})"
    return f"floor((CAST({value} AS DOUBLE) - {_double(float(exact[0]))}) / {_double(float(width))})"


def _halve(value: str, edges: list[str], low: int, high: int) -> str:
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    below, above = _halve(value, edges, low, middle), _halve(value, edges, middle, high)
    return f"CASE WHEN {value} < {edges[middle]} THEN {below} ELSE {above} END"
