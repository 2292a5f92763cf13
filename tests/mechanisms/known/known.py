"""A table with every row inside the codes of each domain, random statements over it, and dense least squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from dpduck.database.functions import database_of
from dpduck.kernel.noise.law import noise_variance
from dpduck.store.measured import Measured, MeasuredKey
from dpduck.values.arrays import FloatArray
from tests.support.clinics import Clinic

SHAPES = (
    "sex, age, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, age, ward)",
    "sex, ward, count(*) AS n FROM visits GROUP BY sex, ward",
    "age, ward, count(*) AS n FROM visits GROUP BY MARGINALS (1, age, ward)",
    "ward, count(*) AS n FROM visits GROUP BY ward",
    "age, count(*) AS n FROM visits GROUP BY RANGES (age)",
    "age, sex, count(*) AS n FROM visits GROUP BY PREFIXES (age), sex",
    "sex, count(*) FILTER (WHERE age >= 20) AS n FROM visits GROUP BY sex",
    "count(*) FILTER (WHERE ward = 'north') AS n, count(*) FILTER (WHERE sex = 'F' AND age < 20) AS m FROM visits",
    "ward, count(*) AS n FROM visits WHERE sex = 'F' GROUP BY ward",
    "CASE WHEN age < 20 THEN 'young' WHEN age >= 20 THEN 'old' END AS g, count(*) AS n FROM visits GROUP BY g",
)
"""Marginals, cubes, ranges, prefixes, filters of both kinds, and CASE."""


def make_visits(clinic: Clinic, unit: str = "ROW", budget: str = "rho") -> None:
    """1,000 rows, prepared, under a budget that both kinds of noise can be paid from."""
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT range // 4 AS patient, ['F', 'M', NULL][range % 3 + 1] AS sex, "
        "CASE WHEN range % 17 > 0 THEN (range * 7) % 41 END AS age, ['north', 'south', 'east', NULL][range % 4 + 1] "
        "AS ward, (range * 13) % 101 AS charge FROM range(1000)"
    )
    clinic.dp(
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT {unit}, BUDGET ({budget} = 100000), "
        "DOMAIN sex IN ('F', 'M') WITH NULL WITH OTHER 'x', DOMAIN age RANGE 0 TO 40 STEP 10 WITH NULL WITH EDGES, "
        "DOMAIN ward IN ('north', 'south') WITH NULL WITH OTHER 'other', CLAMP charge BETWEEN 0 AND 100 STEP 1)"
    )
    clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")


def release(clinic: Clinic, shape: str, price: str) -> None:
    """One release of a shape."""
    clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {shape}")


def known(clinic: Clinic, statement: str) -> list[tuple[object, ...]]:
    """Returns the rows of a known answer, without the releases that it rests on."""
    return [row[:-1] for row in clinic.con.execute("FROM dp_known(?)", [statement]).fetchall()]


def measured(clinic: Clinic) -> list[Measured]:
    """Returns the measurements of every release of visits."""
    database = database_of(clinic.con)
    assert database is not None
    return [one.measured for one in database._measured.of('"memory"."main"."visits"', None)]


def cells() -> list[dict[str, int]]:
    """Every cell of the whole domain, by the codes of its columns."""
    sizes = {"sex": 4, "age": 5, "ward": 4}
    return [dict(zip(sizes, codes, strict=True)) for codes in product(*map(range, sizes.values()))]


MET = {
    '"r0"."age" >= 20': lambda cell: cell["age"] in (2, 3),
    '"r0"."age" < 20': lambda cell: cell["age"] in (0, 1),
    '"r0"."ward" = \'north\'': lambda cell: cell["ward"] == 0,
    '"r0"."sex" = \'F\'': lambda cell: cell["sex"] == 0,
}
"""Conditions, decided by hand."""


def meets(cell: Mapping[str, int], texts: Sequence[str]) -> bool:
    """Tells whether rows of a cell meet all conditions."""
    parts = [part.strip("() ") for text in texts for part in text.split(" AND ") if part.strip("() ")]
    return all(MET[part](cell) for part in parts)


def label(one: Measured, key: MeasuredKey, cell: Mapping[str, int], names: Sequence[str]) -> int:
    """Returns the label of a cell's rows under a key."""
    sizes = [one.columns[place].size for place in key.columns]
    return key.codes[int(np.ravel_multi_index([cell[names[place]] for place in key.columns], sizes))]


def dense_rows(one: Measured) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns a release's strategy matrix, from the trusted operators on each cell, its variances and answers."""
    names = [column.sql.split(".")[-1].strip('"') for column in one.columns]
    rows, variances, noisy = [], [], []
    everything = [(cell, [label(one, key, cell, names) for key in one.keys]) for cell in cells()]
    for table, values in zip(one.tables, one.values, strict=True):
        for query, answer in zip(one.queries[table.group], values, strict=True):
            marginals = np.zeros([*(one.keys[number].labels for number in query.keys), len(everything)], np.int64)
            for place, (cell, labels) in enumerate(everything):
                if min(labels, default=0) >= 0 and meets(cell, [*one.filters, table.condition]):
                    marginals[(*(labels[number] for number in query.keys), place)] += 1
            for axis, factor in enumerate(query.factors):
                marginals = factor.apply(marginals, axis)
            rows.append(marginals.reshape(-1, len(everything)).astype(np.float64))
            variances += [noise_variance(one.noise, query.parameter)] * rows[-1].shape[0]
            noisy.append(answer[0].ravel().astype(np.float64))
    return np.vstack(rows), np.array(variances), np.concatenate(noisy)
