"""Values inside bins: a row's value is drawn evenly between the edges of its bin, in the column's own units."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.language.select.request import Key, SelectRequest
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.sqltypes import sql_type

_EPOCH = datetime(1970, 1, 1)
LARGEST = 1 << 53
"""From this number on, 64-bit floats skip whole numbers. In a column with such edges, drawn values stay at edges."""


def bins_of(request: SelectRequest, key: Key) -> list[tuple[str, str]] | None:
    """Returns the edges of a key's bins, None for a column without bins."""
    domain = request.question.sources[key.sources[0]].domain
    if not isinstance(domain, RangeDomain):
        return None
    lows = [label for label in key.labels if label is not None]
    return list(zip(lows, [*lows[1:], domain.upper], strict=True))


def drawn_inside(
    connection: duckdb.DuckDBPyConnection,
    type_name: str,
    bins: Sequence[tuple[str, str]],
    codes: IntegerArray,
    uniform: FloatArray,
) -> pa.Array | None:
    """Returns a value in the bin of each row, NULL beyond the bins. Returns None if values stay at the edges."""
    present, chosen = codes < len(bins), np.minimum(codes, len(bins) - 1)
    if sql_type(type_name).is_float:
        low, high = (np.array([float(pair[side]) for pair in bins])[chosen] for side in (0, 1))
        values = np.minimum(low + uniform * (high - low), np.nextafter(high, low))
        if type_name == "FLOAT":  # rounded towards the lower edge, which is in the bin
            values = np.nextafter(values.astype(np.float32), np.float32(-np.inf)).astype(np.float64)
        inside = np.maximum(values, low)
        return pa.array(inside.astype(np.float32) if type_name == "FLOAT" else inside, mask=~present)
    units = [tuple(_units(type_name, text) for text in pair) for pair in bins]
    edges = [(low, high) for low, high in units if low is not None and high is not None]
    if len(edges) < len(units) or any(max(abs(low), abs(high)) >= LARGEST for low, high in edges):
        return None
    start, width_of = (
        np.array(values, np.int64)[chosen] for values in zip(*((a, b - a) for a, b in edges), strict=True)
    )
    offset = np.minimum((uniform * width_of).astype(np.int64), width_of - 1)
    return _cast_units(connection, type_name, start + offset, ~present)


def _units(type_name: str, text: str) -> int | None:
    """Returns a value as a whole number of days, microseconds, or units of the last digit. None for other types."""
    if type_name == "DATE":
        return (date.fromisoformat(text) - _EPOCH.date()).days
    if type_name == "TIMESTAMP":
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    kind = sql_type(type_name)
    return int(Fraction(text) * 10**kind.scale) if kind.is_integer or kind.is_decimal else None


def _cast_units(
    connection: duckdb.DuckDBPyConnection, type_name: str, units: IntegerArray, absent: NDArray[np.bool_]
) -> pa.Array:
    """Returns whole numbers of units (`_units`) as values of the type, NULL where `absent` is true."""
    shown = {"DATE": "DATE '1970-01-01' + CAST(units AS INTEGER)", "TIMESTAMP": "make_timestamp(units)"}
    digits = sql_type(type_name).scale
    unit = f"units * CAST(1e-{digits} AS DECIMAL(18, {digits}))" if digits else "units"
    sql = shown.get(type_name, f"CAST({unit} AS {type_name})")
    places = np.arange(len(units))
    connection.register("inside_bins", pa.table({"place": places, "units": pa.array(units, mask=absent)}))
    try:
        values = connection.sql(f"SELECT {sql} AS value FROM inside_bins ORDER BY place").to_arrow_table()
        return values.column("value").combine_chunks()
    finally:
        connection.unregister("inside_bins")
