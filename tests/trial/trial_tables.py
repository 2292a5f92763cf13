"""Six tables with statements, for trials: heavy tails, texts, NULLs, a filter, a join, selected keys, a clamp.

Each statement has a plain SELECT with the true answer: the rows of all domains, without MAX ROWS and clamps.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOMY = "BUDGET (epsilon = 100000, delta = 0.009, delta_keys = 0.008)"


@dataclass(frozen=True)
class TrialTable:
    """A table with its policy, a statement with a tag {tag}, and the true answer: cells first, then answers.

    keys: the number of columns that are no answers. order: whether the answer has an order.
    """

    name: str
    setup: tuple[str, ...]
    policy: str
    statement: str
    truth: str
    keys: int


VISITS = """CREATE TABLE visits AS SELECT CAST(2999 * pow((hash(i) % 10000) / 10000, 1.5) AS INTEGER) AS patient_id,
    CASE WHEN i % 17 = 0 THEN NULL ELSE ['north', 'south', 'east'][1 + i % 3] END AS ward,
    'drug ' || CAST(floor(sqrt(hash(i * 7) % 900)) AS INTEGER) AS drug, CAST(hash(i * 3) % 1000 AS DOUBLE) / 10 AS cost
    FROM range(6000) AS r(i)"""
DOMAINS = "DOMAIN ward IN ('north', 'south', 'east')"

TABLES = (
    TrialTable(
        "counts of persons with several rows", (VISITS,),
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id MAX ROWS 4, {ROOMY}, {DOMAINS}, EXPECT ROWS 6000)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.2, delta = 1e-6, refresh = '{tag}') ward, count(*) AS n "
        "FROM visits GROUP BY ward",
        "SELECT ward, count(*) FROM visits WHERE ward IS NOT NULL GROUP BY ward", 1,
    ),
    TrialTable(
        "a cube with a filter and HAVING", (VISITS,),
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, {ROOMY}, {DOMAINS}, "
        "DOMAIN cost RANGE 0 TO 100 STEP 20, EXPECT ROWS 6000)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1, refresh = '{tag}') ward, cost, count(*) AS n "
        "FROM visits WHERE drug <> 'drug 3' GROUP BY ward, cost HAVING count(*) > 370",
        "SELECT ward, floor(cost / 20) * 20 AS c, count(*) AS n FROM visits WHERE drug <> 'drug 3' "
        "AND ward IS NOT NULL AND cost < 100 GROUP BY ward, c HAVING n > 370", 2,
    ),
    TrialTable(
        "sums beyond a clamp", (VISITS,),
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id MAX ROWS 8, {ROOMY}, {DOMAINS}, "
        "CLAMP cost BETWEEN 0 AND 60)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, refresh = '{tag}') ward, "
        "sum(cost) AS s FROM visits GROUP BY ward",
        "SELECT ward, sum(cost) FROM visits WHERE ward IS NOT NULL GROUP BY ward", 1,
    ),
    TrialTable(
        "selected texts", (VISITS,),
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id MAX ROWS 3, {ROOMY})",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2, delta = 1e-5, refresh = '{tag}', "
        "group_selection_strategy = GAUSSIAN_THRESHOLD) drug, count(*) AS n FROM visits GROUP BY drug",
        "SELECT drug, count(*) FROM visits GROUP BY drug", 1,
    ),
    TrialTable(
        "a join with persons", (
            VISITS,
            "CREATE TABLE patients AS SELECT i AS id, ['F', 'M'][1 + i % 2] AS sex FROM range(3000) AS r(i)",
            "ALTER TABLE patients ADD PRIMARY KEY (id)",
        ),
        f"CREATE PRIVACY POLICY ON patients (PRIVACY UNIT id MAX ROWS 1, {ROOMY}, DOMAIN sex IN ('F', 'M')); "
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id REFERENCES patients.id MAX ROWS 5)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, delta = 1e-6, refresh = '{tag}') sex, count(*) AS n, "
        "count(DISTINCT patient_id) AS p FROM visits JOIN patients ON patient_id = id GROUP BY sex",
        "SELECT sex, count(*), count(DISTINCT patient_id) FROM visits JOIN patients ON patient_id = id GROUP BY sex", 1,
    ),
    TrialTable(
        "the largest groups", (VISITS,),
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, {ROOMY}, DOMAIN drug IN ("
        + ", ".join(f"'drug {number}'" for number in range(30)) + "))",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.3, refresh = '{tag}') drug, count(*) AS n FROM visits "
        "GROUP BY drug ORDER BY n DESC LIMIT 8",
        "SELECT drug, count(*) AS n FROM visits GROUP BY drug ORDER BY n DESC, drug LIMIT 8", 1,
    ),
)  # fmt: skip
