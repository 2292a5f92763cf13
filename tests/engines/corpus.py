"""Rows with every value that engines disagree about, and statements over them."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import pyarrow as pa

SEXES = ("F", "M", "f", "F ", " F", "", "M\x00", None, "X", "F", "M")
WARDS = ("north", "south", "west", "North", "north ", "nörth", "no\u0308rth", "NULL", None, "o'brien", "1e3", " 12 ")
AGES = (None, -1, 0, 4, 5, 99, 100, 2**31 - 1, -(2**31), *range(10, 90, 7))
BIGS = (None, 2**63 - 1, -(2**63), 0, 1000, *range(1, 1000, 83))
DAYS = (None, date(1, 1, 1), date(9999, 12, 31), *(date(2024, 1, 1) + timedelta(days=17 * n) for n in range(40)))
MOMENTS = (
    None,
    datetime(1, 1, 1),
    *(datetime(2024, 1, 1, 23, 59, 59, 7) + timedelta(hours=101 * n) for n in range(40)),
)
CHARGES = (
    *(None, math.nan, math.inf, -math.inf, -0.0, 0.005, 1e300, -1e300, 0.015, 2.675, 1000.0, 5e-324),
    *(7.01 * n for n in range(60)),
)
PRICES = (None, Decimal("-0.01"), Decimal("0.00"), *(Decimal(n) / 4 for n in range(0, 4000, 37)))


def rows(count: int = 3000) -> pa.Table:
    """Visits of some 700 patients. Columns have lengths that share no divisor, so that values meet."""

    def column(values: tuple[Any, ...], kind: pa.DataType, stride: int) -> pa.Array:
        return pa.array(islice(cycle(values), 0, count * stride, stride), kind)

    patients = [None if n % 41 == 0 else (n * n) % 701 for n in range(count)]
    return pa.table(
        {
            "patient_id": pa.array(patients, pa.int64()),
            "sex": column(SEXES, pa.string(), 5),
            "age": column(AGES, pa.int32(), 2),
            "big": column(BIGS, pa.int64(), 3),
            "ward": column(WARDS, pa.string(), 7),
            "day": column(DAYS, pa.date32(), 5),
            "moment": column(MOMENTS, pa.timestamp("us"), 4),
            "charge": column(CHARGES, pa.float64(), 11),
            "price": column(PRICES, pa.decimal128(9, 2), 3),
            "ok": column((None, True, False, True, False), pa.bool_(), 3),
            "small": column((None, -128, 127, 0, 1), pa.int8(), 2),
            "short": column((None, -32768, 32767, 0, 3), pa.int16(), 3),
            "single": column((None, math.nan, -0.0, 1.5, 3.4e38), pa.float32(), 2),
        }
    )


POLICY = """CREATE PRIVACY POLICY ON lake.db.visits (
    PRIVACY UNIT {unit}, BUDGET (epsilon = 3000, delta = 1e-6, delta_keys = 1e-7), EXPECT ROWS 3000,
    DOMAIN sex IN ('F', 'M') WITH OTHER 'other', DOMAIN age RANGE 0 TO 100 STEP 5, DOMAIN big RANGE 0 TO 1000 STEP 10,
    DOMAIN ward FROM wards.name WITH NULL, DOMAIN day RANGE '2024-01-01' TO '2026-01-01' STEP INTERVAL 1 MONTH,
    DOMAIN ok BOOLEAN, DOMAIN small IN (-128, 0, 127) WITH NULL, DOMAIN short RANGE -32768 TO 32000 STEP 256,
    CLAMP charge BETWEEN 0 AND 1000 STEP 0.01, CLAMP price BETWEEN 0 AND 1000 STEP 0.01,
    CLAMP single BETWEEN -1 AND 2 STEP 0.5
)"""

_ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
_KEYS = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-9, group_selection_strategy = "
    "GAUSSIAN_THRESHOLD, max_groups_contributed = 2) "
)
STATEMENTS = {
    "three keys": _ASK + "sex, age, ward, count(*) FROM lake.db.visits GROUP BY sex, age, ward",
    "cube": _ASK + "ok, small, ward, count(*) FROM lake.db.visits GROUP BY CUBE (ok, small, ward)",
    "months": _ASK + "ok, short, date_trunc('month', day) AS m, count(*) FROM lake.db.visits GROUP BY ok, short, m",
    "texts": _ASK + "sex, count(*) FROM lake.db.visits WHERE upper(sex) = 'F' OR length(ward) = 5 OR ward < 'nz' "
    "OR substring(ward, 1, 2) = 'no' OR trim(sex) = 'M' OR ward ILIKE 'N%h' OR regexp_matches(ward, '^n[oö]') "
    "GROUP BY sex",
    "numbers": _ASK + "ward, count(*) FROM lake.db.visits WHERE age // 7 = 3 OR big % 5 = 2 OR age * big > 1000 "
    "OR 100 / age > 3 OR CAST(ward AS INTEGER) > 3 OR CAST(charge AS INTEGER) = 2 OR charge = charge GROUP BY ward",
    "moments": _ASK + "ok, count(*) FROM lake.db.visits WHERE hour(moment) BETWEEN 8 AND 11 OR isodow(day) = 7 "
    "OR date_diff('month', day, DATE '2025-01-01') = 2 OR strftime(moment, '%Y') = '0001' GROUP BY ok",
    "absent": _ASK + "ok, count(*) FROM lake.db.visits WHERE sex IS DISTINCT FROM 'F' AND coalesce(age, 3) <> 4 "
    "AND greatest(age, 50) = 50 AND nullif(sex, '') IS NOT NULL GROUP BY ok",
    "sums": _ASK + "sex, sum(charge), avg(price), sum(single), count(*) FROM lake.db.visits GROUP BY sex",
    "squares": _ASK + "ward, var_pop(price) FROM lake.db.visits GROUP BY ward",
    "quantiles": _ASK + "ok, median(charge) FROM lake.db.visits GROUP BY ok",
    "distinct": _ASK + "sex, count(DISTINCT small) FROM lake.db.visits GROUP BY sex",
    "weighed": _ASK.replace("= 1)", "= 1, delta = 1e-9, max_norm_contributed = 2)")
    + "ok, ward, count(*), sum(charge), avg(price), count(DISTINCT patient_id) FROM lake.db.visits GROUP BY ok, ward",
    "found norms": _ASK.replace("= 1)", "= 1, delta = 1e-9, max_norm_contributed = 'private', total = TRUE)")
    + "ward, day, count(*) AS n, avg(charge) AS a FROM lake.db.visits GROUP BY ward, day",
    "weighed weeks": _ASK.replace("= 1)", "= 1, delta = 1e-9, max_norm_contributed = 2)")
    + "age // 10 AS decade, count(*) AS n FROM lake.db.visits GROUP BY age // 10",
    "groups": _ASK.replace("= 1)", "= 1, max_groups_contributed = 2)")
    + "ok, ward, count(*), sum(charge), count(DISTINCT patient_id) FROM lake.db.visits GROUP BY ok, ward",
    "per group": _ASK + "sex, sum(charge, contribution_bounds_per_group => (0, 500)) FROM lake.db.visits GROUP BY sex",
    "total": _ASK + "count(*) FROM lake.db.visits",
    "public join": _ASK + "name, count(*) FROM lake.db.visits JOIN wards ON ward = name GROUP BY name",
    "computed join": _ASK + "name, count(*) FROM lake.db.visits JOIN wards ON lower(ward) = name GROUP BY name",
    "left join": _ASK + "sex, count(*) FROM lake.db.visits LEFT JOIN wards ON trim(ward) = name WHERE name IS NULL "
    "GROUP BY sex",
    "keys": _KEYS + "sex, ward, count(*) FROM lake.db.visits GROUP BY sex, ward",
    "computed keys": _KEYS + "upper(ward) AS w, count(*) FILTER (WHERE age > 20) AS n FROM lake.db.visits GROUP BY w",
    "keys of what a worker reads": _KEYS + "ward, count(*) FROM lake.db.visits "
    "WHERE age // 7 = 3 OR regexp_matches(ward, '^n[oö]') GROUP BY ward",
    "summary": "CREATE PRIVATE VIEW summary_of_visits OPTIONS (epsilon = 1, summary = 'filter_priority', "
    "summary_size = 50) AS SELECT age, ward, count(*) AS n FROM lake.db.visits GROUP BY age, ward",
    "synthetic": "CREATE PRIVATE TABLE made_up OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 100) AS "
    "SELECT sex, ok, small FROM lake.db.visits WORKLOAD MARGINALS (2)",
    "projection": "CREATE PRIVATE PROJECTION by_ward OPTIONS (epsilon = 1, delta = 1e-6, sparsity = 64, queries = 1e6) "
    "AS SELECT ward FROM lake.db.visits",
}
OF_PEOPLE = ("per group", "weighed", "found norms", "weighed weeks", "groups", "keys")
"""Statements about people with several rows, which are refused where a row is a unit."""
