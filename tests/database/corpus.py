"""A small database of every kind of privacy unit, and statements over it, which are pinned (corpus_pins.py).

People have several visits each, visits have lines. Texts, NULLs, NaN, orphans and values outside of domains are among
them. Nothing is random. Units of `trips`, `pings` and `answers` have more rows than MAX ROWS, most others have fewer.
"""

from __future__ import annotations

import duckdb

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.kernel.ledger.secrets import BOUNDING_KEY

KEYS = (b"the key of the pins" + bytes(13), b"another key" + bytes(21))
"""Keys of the order in which rows of a unit are kept: that of the pins, and one to see which counts depend on it."""

TABLES = (
    "CREATE TYPE grade AS ENUM ('low', 'mid', 'high')",
    "CREATE TABLE people (person INTEGER PRIMARY KEY, email VARCHAR UNIQUE, sex VARCHAR, born DATE, ward VARCHAR, "
    "height DOUBLE, income DECIMAL(10, 2), smoker BOOLEAN, grade grade)",
    "INSERT INTO people SELECT CAST(i AS INTEGER) AS person, 'p' || i || '@x' AS email, "
    "['F', 'M', 'F', NULL, 'x', 'M', 'f'][1 + i % 7] AS sex, DATE '1950-01-01' + CAST(i * 397 % 20000 AS INTEGER) AS "
    "born, 'w' || (i % 5) AS ward, CASE WHEN i % 11 = 0 THEN 'nan'::DOUBLE WHEN i % 13 = 0 THEN 'inf'::DOUBLE "
    "WHEN i % 17 = 0 THEN -0.0 WHEN i % 19 = 0 THEN NULL ELSE 150 + i * 7 % 60 + 0.25 END AS height, "
    "CAST(i * 731 % 9000 / 4 AS DECIMAL(10, 2)) AS income, [TRUE, FALSE, NULL][1 + i % 3] AS smoker, "
    "['low', 'mid', 'high'][1 + i % 3]::grade AS grade FROM range(80) AS r(i)",
    "CREATE TABLE visits AS SELECT CAST(i AS INTEGER) AS visit, CASE WHEN i % 37 = 0 THEN NULL WHEN i % 41 = 0 THEN "
    "900 + i ELSE CAST(i * i % 83 AS INTEGER) END AS person, ['in', 'out', 'tele', NULL][1 + i % 4] AS kind, "
    "DATE '2024-01-01' + CAST(i * 11 % 400 AS INTEGER) AS came, "
    "TIMESTAMP '2024-01-01 00:30:00' + INTERVAL (i * 977 % 9000) HOUR AS moment, "
    "CAST(i * 37 % 500 - 20 AS DECIMAL(8, 2)) + 0.25 AS charge, "
    "CASE WHEN i % 23 = 0 THEN 'nan'::DOUBLE WHEN i % 29 = 0 THEN NULL ELSE i * 3 % 70 / 7 END AS score, "
    "CASE WHEN i % 6 = 0 THEN NULL ELSE 'note ' || i % 9 END AS note, CAST(i % 6 AS SMALLINT) AS code, "
    "'w' || (i * 3 % 7) AS ward FROM range(240) AS r(i)",
    "ALTER TABLE visits ADD PRIMARY KEY (visit)",
    "CREATE TABLE lines AS SELECT CAST(i * 7 % 260 AS INTEGER) AS visit, ['pen', 'ink', 'nib', 'Pen', NULL][1 + i % 5] "
    "AS item, CAST(i * 13 % 40 AS INTEGER) AS amount, i % 9 / 4 AS price FROM range(500) AS r(i)",
    "CREATE TABLE cards AS SELECT 'p' || i * 3 % 90 || '@x' AS email, ['shop', 'web', 'Web '][1 + i % 3] AS place, "
    "CAST(i * 7 % 50 AS INTEGER) AS spent FROM range(150) AS r(i)",
    "CREATE TABLE wards AS SELECT * FROM (VALUES ('w0', 'north', 1), ('w1', 'south', 2), ('w2', NULL, 3), "
    "('w3', 'north', 4), ('w9', 'east', 5)) AS w(name, region, beds)",
    "CREATE TABLE regions AS SELECT * FROM (VALUES ('north', 'N'), ('south', 'S')) AS r(region, letter)",
    "CREATE TABLE offers AS SELECT 'w' || (i % 3) AS ward, 'offer ' || i // 3 AS offer FROM range(9) AS r(i)",
    "CREATE TABLE items AS SELECT * FROM (VALUES ('pen', 'tool'), ('ink', 'fluid'), ('nib', 'part')) AS i(item, sort)",
    "CREATE TABLE rides AS SELECT CAST(i % 4 AS INTEGER) AS zone, CAST(i * 17 % 300 / 10 AS DECIMAL(6, 1)) AS fare, "
    "TIMESTAMP '2024-03-01' + INTERVAL (i * 7 % 96) HOUR AS pickup, i % 3 = 0 AS card, "
    "['a', 'b', NULL, 'ä'][1 + i % 4] AS tag FROM range(300) AS r(i)",
    "CREATE TABLE clicks AS SELECT tag, CAST(zone AS BIGINT) AS zone FROM rides WHERE fare > 3",
    "CREATE TABLE answers AS SELECT i AS id, 'h' || i * 7 % 12 AS household, CAST(i % 3 AS INTEGER) AS survey, "
    "['a', 'b'][1 + i % 2] AS kind, CAST(i % 7 AS INTEGER) AS x FROM range(180) AS r(i)",
    "CREATE TABLE stays AS SELECT CAST(i AS INTEGER) AS stay, 'g' || i * 5 % 20 AS guest, "
    "DATE '2024-01-10' + CAST(i * 9 % 120 AS INTEGER) AS came, ['n', 's'][1 + i % 2] AS wing, "
    "CAST(i % 6 AS INTEGER) AS nights FROM range(160) AS r(i)",
    "ALTER TABLE stays ADD PRIMARY KEY (stay)",
    "CREATE TABLE bills AS SELECT CAST(i * 3 % 170 AS INTEGER) AS stay, 'g' || (i * 3 % 170) * 5 % 20 AS guest, "
    "TIMESTAMP '2024-01-10 12:00:00' + INTERVAL ((i * 3 % 170) * 9 % 120) DAY AS billed, CAST(i % 50 AS INTEGER) AS "
    "euros FROM range(200) AS r(i)",
    "CREATE TABLE letters AS SELECT ['ann', 'Ann', 'ann ', 'bob', 'nörd', NULL, ''][1 + i * 3 % 7] || "
    "(i % 5) AS author, i % 2 = 0 AS long, CAST(i % 4 AS TINYINT) AS pages FROM range(120) AS r(i)",
    "CREATE TABLE sensors AS SELECT CAST('00000000-0000-0000-0000-0000000000' || (10 + i % 30) AS UUID) AS sensor, "
    "CAST(i % 5 AS UTINYINT) AS level, i * 3 % 100 / 4 AS reading FROM range(120) AS r(i)",
    "CREATE TABLE trips AS SELECT CAST(i * i % 31 AS BIGINT) AS rider, 't' || (i * i % 31) % 3 AS town, "
    "CAST(i * 7 % 4 AS INTEGER) AS zone, CAST(10 + (i * i % 31) % 9 AS INTEGER) AS fare, "
    "CAST(i % 12 AS INTEGER) AS month FROM range(300) AS r(i)",
    "CREATE TABLE pings AS SELECT 'd' || i % 7 % 5 AS device, CAST(i % 7 % 2 AS INTEGER) AS model, "
    "CAST(i * 3 % 8 AS INTEGER) AS place, CAST(i * 11 % 30 AS INTEGER) AS delay FROM range(560) AS r(i)",
)  # fmt: skip

BUDGET = "BUDGET (epsilon = 1000000, delta = 1e-3, delta_keys = 5e-4)"
POLICIES = (
    *(f"DECLARE PUBLIC TABLE {name}" for name in ("wards", "regions", "offers", "items")),
    f"""CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, {BUDGET}, DOMAIN sex IN ('F', 'M') WITH NULL,
        DOMAIN ward FROM wards.name WITH NULL, DOMAIN smoker BOOLEAN, DOMAIN grade ENUM,
        DOMAIN born RANGE 1950-01-01 TO 2000-01-01 STEP 10 YEARS, CLAMP height BETWEEN 100 AND 220 STEP 0.5,
        CLAMP income BETWEEN 0 AND 2000)""",
    """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person REFERENCES people.person MAX ROWS 12,
        DOMAIN kind IN ('in', 'out') WITH NULL WITH OTHER 'else', DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH,
        DOMAIN moment RANGE '2024-01-01' TO '2025-01-06' STEP 7 DAYS, DOMAIN code IN (0, 1, 2, 3),
        DOMAIN ward FROM wards.name WITH NULL, DOMAIN score RANGE 0 TO 10 STEP 2 WITH EDGES,
        CLAMP charge BETWEEN 0 AND 400 STEP 0.25)""",
    """CREATE PRIVACY POLICY ON lines (PRIVACY UNIT visit REFERENCES visits.visit MAX ROWS 48,
        DOMAIN item FROM items.item, DOMAIN amount RANGE 0 TO 40 STEP 10, CLAMP amount BETWEEN 0 AND 30,
        CLAMP price BETWEEN 0 AND 2)""",
    """CREATE PRIVACY POLICY ON cards (PRIVACY UNIT email REFERENCES people.email MAX ROWS 8,
        DOMAIN place IN ('shop', 'web'), CLAMP spent BETWEEN 0 AND 40)""",
    """CREATE PRIVACY POLICY ON rides (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000), DOMAIN zone IN (0, 1, 2),
        DOMAIN card BOOLEAN, DOMAIN tag IN ('a', 'ä') WITH NULL, CLAMP fare BETWEEN 0 AND 25)""",
    f"CREATE PRIVACY POLICY ON clicks (PRIVACY UNIT ROW, {BUDGET}, DOMAIN zone RANGE 0 TO 4 STEP 2)",
    f"""CREATE PRIVACY POLICY ON answers (PRIVACY UNIT (household, survey) MAX ROWS 3, {BUDGET},
        DOMAIN kind IN ('a', 'b'), DOMAIN survey IN (0, 1, 2), CLAMP x BETWEEN 0 AND 6)""",
    """CREATE PRIVACY POLICY ON stays (PRIVACY UNIT guest PER MONTH OF came MAX ROWS 8,
        BUDGET (epsilon = 1000000) PER MONTH, DOMAIN wing IN ('n', 's'), CLAMP nights BETWEEN 0 AND 5,
        DOMAIN came RANGE 2024-01-01 TO 2024-07-01 STEP MONTH)""",
    """CREATE PRIVACY POLICY ON bills (PRIVACY UNIT guest REFERENCES stays.guest PER MONTH OF billed MAX ROWS 8,
        CLAMP euros BETWEEN 0 AND 40)""",
    """CREATE PRIVACY POLICY ON letters (PRIVACY UNIT author MAX ROWS 9, BUDGET (epsilon = 1000000),
        DOMAIN long BOOLEAN, DOMAIN pages IN (0, 1, 2))""",
    f"""CREATE PRIVACY POLICY ON sensors (PRIVACY UNIT sensor MAX ROWS 6, {BUDGET},
        DOMAIN level RANGE 0 TO 5 STEP 1, CLAMP reading BETWEEN 0 AND 20 STEP 0.5)""",
    f"""CREATE PRIVACY POLICY ON trips (PRIVACY UNIT rider MAX ROWS 6, {BUDGET}, DOMAIN town IN ('t0', 't1', 't2'),
        DOMAIN zone IN (0, 1, 2, 3), DOMAIN month RANGE 0 TO 12 STEP 1, CLAMP fare BETWEEN 0 AND 15)""",
    f"""CREATE PRIVACY POLICY ON pings (PRIVACY UNIT device MAX ROWS 100, {BUDGET}, DOMAIN model IN (0, 1),
        DOMAIN place RANGE 0 TO 8 STEP 2, CLAMP delay BETWEEN 0 AND 25)""",
)
PREPARED = ("people", "visits", "lines", "cards", "rides", "clicks", "answers", "letters", "sensors", "trips", "pings")
"""Tables that are prepared for a second run: all but those of units by periods, which cannot be."""


def opened(key: bytes = KEYS[0], prepared: bool = False) -> duckdb.DuckDBPyConnection:
    """Returns a new database with its policies, in memory. key: orders the rows of a unit."""
    connection = dpduck.connect(config={"threads": 1})
    require_database(connection).ledger.secrets.save(BOUNDING_KEY, key)
    for sql in TABLES:
        connection.execute(sql)
    for statement in POLICIES:
        connection.execute("FROM dp(?)", [statement]).fetchall()
    if prepared:
        connection.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {', '.join(PREPARED)} PREPARE"]).fetchall()
    return connection


def asked(rests: tuple[str, ...], options: str = "epsilon = 1") -> list[str]:
    """Returns annotated SELECTs of one price."""
    return [f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {rest}" for rest in rests]


KEYED = (
    "count(*) AS n FROM visits",
    "sex, count(*) AS n FROM people GROUP BY sex",
    "ward, smoker, grade, count(*) AS n FROM people GROUP BY ward, smoker, grade",
    "born, count(*) AS n FROM people GROUP BY born",
    "kind, code, count(*) AS n FROM visits GROUP BY CUBE (kind, code)",
    "kind, code, ward, count(*) AS n FROM visits GROUP BY ROLLUP (kind, code, ward)",
    "kind, code, ward, count(*) AS n FROM visits GROUP BY MARGINALS (2, kind, code, ward)",
    "kind, ward, count(*) AS n FROM visits GROUP BY GROUPING SETS ((kind), (ward), ())",
    "came, count(*) AS n FROM visits GROUP BY came",
    "moment, count(*) AS n FROM visits GROUP BY moment",
    "score, count(*) AS n FROM visits GROUP BY score",
    "came, count(*) AS n FROM visits GROUP BY PREFIXES(came)",
    "moment, count(*) AS n FROM visits GROUP BY RANGES(moment)",
    "kind, came, count(*) AS n FROM visits GROUP BY kind, RANGES(came)",
    "upper(ward) AS loud, count(*) AS n FROM visits GROUP BY loud",
    "code // 2 AS half, kind || '!' AS k, count(*) AS n FROM visits GROUP BY half, k",
    "coalesce(ward, 'none') AS w, count(*) AS n FROM visits GROUP BY w",
    "CASE WHEN code < 2 THEN kind ELSE ward END AS mixed, count(*) AS n FROM visits GROUP BY mixed",
    "date_trunc('quarter', came) AS q, count(*) AS n FROM visits GROUP BY q",
    "month(came) AS m, count(*) AS n FROM visits WHERE came >= DATE '2024-03-01' AND came < DATE '2024-09-01' "
    "GROUP BY m",
    "kind, count(*) AS n FROM visits WHERE ward = 'w1' OR code IN (1, 3) GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE note LIKE '%3' GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE note IS NULL OR length(note) + code > 8 GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE score = score AND score > 3 GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE charge BETWEEN 50 AND 200.5 AND NOT code = 2 GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE 10 / code > 3 AND CAST(substring(note, 6) AS INTEGER) < 7 GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE hour(moment) BETWEEN 8 AND 16 AND isodow(came) < 6 GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE regexp_matches(note, '[2-4]$') GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE kind IS DISTINCT FROM 'in' GROUP BY kind",
    "smoker, count(*) AS n FROM people WHERE grade = 'mid' OR height > 180 GROUP BY smoker",
    "smoker, count(*) AS n FROM people WHERE born < DATE '1980-01-01' AND email <> 'p3@x' GROUP BY smoker",
    "ward, count(*) AS n FROM people WHERE isnan(height) OR height IS NULL GROUP BY ward",
    "s, a2, count(*) AS n FROM (SELECT kind AS s, code // 2 AS a2, note FROM visits WHERE score < 8) AS v "
    "WHERE note IS NOT NULL GROUP BY s, a2",
    "item, amount, count(*) AS n FROM lines GROUP BY item, amount",
    "item, count(*) AS n FROM lines WHERE lower(item) = 'pen' AND price > 0.5 GROUP BY item",
    "place, count(*) AS n FROM cards GROUP BY place",
)
KEYED_OTHERWISE = [
    *asked((KEYED[4],), "epsilon = 1, delta = 1e-6"),
    *asked((KEYED[4],), "rho = 0.1, strategy = 'Q'"),
    *asked((KEYED[4],), "epsilon = 1, strategy = 'C'"),
    *asked((KEYED[12],), "epsilon = 1, strategy = 'hierarchy'"),
    *asked((KEYED[1],), "epsilon = 1, nonnegative = TRUE, integer = TRUE"),
    *asked((KEYED[1],), "target_stderr = 2"),
    "WITH v AS (SELECT kind, code FROM visits WHERE ward = 'w0'), u AS (SELECT kind AS k FROM v WHERE code > 0) "
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) k, count(*) AS n FROM u GROUP BY k",
    "SELECT kind, n / sum(n) OVER () AS share FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, "
    "count(*) AS n FROM visits WHERE code = 1 GROUP BY kind) ORDER BY kind",
    "CREATE PRIVATE VIEW by_kind OPTIONS (epsilon = 1) AS SELECT kind, code, count(*) AS n FROM visits "
    "WHERE ward = 'w2' GROUP BY CUBE (kind, code)",
]

AGGREGATES = (
    "kind, count(note) AS n, count(*) FILTER (WHERE code > 1) AS m FROM visits GROUP BY kind",
    "kind, count(*) FILTER (WHERE ward = 'w0') AS a, count(*) FILTER (WHERE ward IN ('w0', 'w1')) AS b, "
    "count_if(code = 2) AS c FROM visits GROUP BY kind",
    "sum(CASE WHEN code = 1 THEN 1 ELSE 0 END) AS a, sum(CASE WHEN code = 2 THEN 1 ELSE 0 END) AS b FROM visits",
    "kind, sum(charge) AS s FROM visits GROUP BY kind",
    "kind, sum(charge) AS s, avg(charge) AS a, count(*) AS n FROM visits GROUP BY kind",
    "kind, sum(charge) FILTER (WHERE code = 1) AS s, avg(charge) FILTER (WHERE note IS NOT NULL) AS a FROM visits "
    "GROUP BY kind",
    "ward, var_pop(height) AS v, stddev_samp(height) AS d, count(*) AS n FROM people GROUP BY ward",
    "grade, avg(height) AS h, sum(income) AS i FROM people GROUP BY CUBE (grade)",
    "kind, sum(charge * 2 + 1) AS s, sum(abs(charge - 100)) AS t FROM visits GROUP BY kind",
    "kind, sum(CASE WHEN code > 2 THEN charge ELSE 0 END) AS s FROM visits GROUP BY kind",
    "kind, sum(least(greatest(score, 0), 9)) AS s FROM visits GROUP BY kind",
    "kind, sum(length(note), contribution_bounds_per_row => (0, 10)) AS s FROM visits GROUP BY kind",
    "kind, sum(charge, contribution_bounds_per_group => (0, 500)) AS s FROM visits GROUP BY kind",
    "kind, avg(charge, contribution_bounds_per_group => (0, 300)) AS a FROM visits GROUP BY kind",
    "kind, count(*, contribution_bounds_per_group => (0, 3)) AS n FROM visits GROUP BY kind",
    "kind, count(DISTINCT person) AS p, count(*) AS n FROM visits GROUP BY kind",
    "ward, count(DISTINCT code) AS codes FROM visits GROUP BY ward",
    "count(DISTINCT ward) AS wards, count(DISTINCT code) AS codes FROM visits",
    "kind, median(charge) AS m FROM visits GROUP BY kind",
    "kind, quantile_cont(charge, [0.1, 0.9]) AS q, min(charge) AS low, max(charge) AS high FROM visits GROUP BY kind",
    "kind, approx_quantiles(score, 4, contribution_bounds_per_row => (0, 10)) AS q FROM visits GROUP BY kind",
    "item, sum(amount) AS s, avg(price) AS p FROM lines GROUP BY item",
    "item, sum(amount * price) AS s FROM lines GROUP BY item",
    "place, sum(spent) AS s, count(DISTINCT person) AS p FROM cards JOIN people USING (email) GROUP BY place",
    "avg(smoker::INTEGER) AS share FROM people",
    "sum(income) AS s, var_samp(income) AS v FROM people WHERE sex = 'F'",
)
AGGREGATES_OTHERWISE = [
    *asked((AGGREGATES[18],), "epsilon = 1, quantiles = 'tree'"),
    *asked((AGGREGATES[18],), "epsilon = 1, quantile_intervals = FALSE"),
    *asked((AGGREGATES[4],), "epsilon = 1, delta = 1e-6, aggregate_weights = (2, 1, 1)"),
    *asked((AGGREGATES[15],), "epsilon = 1, delta = 1e-6"),
]

PUBLIC_JOINS = (
    "region, count(*) AS n FROM visits JOIN wards ON ward = name GROUP BY region",
    "region, count(*) AS n, count(name) AS m FROM visits LEFT JOIN wards ON ward = name GROUP BY region",
    "name, count(*) AS n FROM visits RIGHT JOIN wards ON ward = name GROUP BY name",
    "name, count(*) AS n FROM wards LEFT JOIN visits ON ward = name GROUP BY name",
    "name, count(*) AS n FROM visits FULL JOIN wards ON ward = name GROUP BY name",
    "kind, count(*) AS n FROM visits SEMI JOIN offers ON visits.ward = offers.ward GROUP BY kind",
    "kind, count(*) AS n FROM visits ANTI JOIN wards ON ward = name GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE ward IN (SELECT name FROM wards) GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE lower(ward) IN (SELECT ward FROM offers) AND code > 0 GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE EXISTS (SELECT 1 FROM offers WHERE offers.ward = visits.ward) GROUP BY kind",
    "kind, count(*) AS n FROM visits WHERE NOT EXISTS (SELECT 1 FROM wards WHERE wards.name = visits.ward) "
    "GROUP BY kind",
    "offer, count(*) AS n FROM people JOIN offers USING (ward) GROUP BY offer",
    "letter, count(*) AS n FROM visits JOIN wards ON ward = name JOIN regions USING (region) GROUP BY letter",
    "letter, count(*) AS n FROM visits LEFT JOIN wards ON ward = name LEFT JOIN regions "
    "ON wards.region = regions.region GROUP BY letter",
    "beds, count(*) AS n FROM visits JOIN wards ON code + 1 = beds GROUP BY beds",
    "region, count(*) AS n FROM visits JOIN wards ON 'w' || (code // 2) = name GROUP BY region",
    "region, count(*) AS n FROM visits JOIN wards ON ward = name AND code = beds GROUP BY region",
    "kind || coalesce(region, '-') AS x, count(*) AS n FROM visits JOIN wards ON ward = name WHERE beds >= 2 "
    "GROUP BY x",
    "region, sum(charge) AS s, avg(charge) AS a FROM visits JOIN wards ON ward = name GROUP BY region",
    "region, sum(beds * charge, contribution_bounds_per_row => (0, 800)) AS s FROM visits JOIN wards ON ward = name "
    "GROUP BY region",
    "sort, count(*) AS n FROM lines JOIN items USING (item) GROUP BY sort",
    "item, count(*) AS n FROM lines RIGHT OUTER JOIN (SELECT DISTINCT item FROM items) USING (item) GROUP BY item",
    "region, count(DISTINCT person) AS p FROM visits JOIN wards ON ward = name GROUP BY region",
)

PRIVATE_JOINS = (
    "sex, kind, count(*) AS n FROM people JOIN visits ON people.person = visits.person GROUP BY sex, kind",
    "sex, kind, count(*) AS n FROM people JOIN visits USING (person) WHERE born < DATE '1980-01-01' AND code > 0 "
    "GROUP BY sex, kind",
    "kind, count(*) AS n FROM people AS p JOIN visits AS v ON p.person = v.person AND v.code % 4 <> p.person % 3 "
    "GROUP BY kind",
    "kind, item, count(*) AS n FROM visits JOIN lines ON visits.visit = lines.visit GROUP BY kind, item",
    "sex, item, count(*) AS n FROM people JOIN visits USING (person) JOIN lines USING (visit) GROUP BY sex, item",
    "sex, sum(amount) AS s FROM lines JOIN visits ON lines.visit = visits.visit JOIN people "
    "ON visits.person = people.person WHERE item = 'pen' GROUP BY sex",
    "sex, count(*) AS n, count(kind) AS m FROM people LEFT JOIN visits ON people.person = visits.person GROUP BY sex",
    "sex, count(kind) AS m FROM people LEFT JOIN (SELECT * FROM visits WHERE code = 1) AS v "
    "ON people.person = v.person GROUP BY sex",
    "kind, count(item) AS n, count(*) AS m FROM visits LEFT JOIN lines ON visits.visit = lines.visit "
    "AND lines.amount > 20 GROUP BY kind",
    "sex, count(*) AS n FROM (SELECT * FROM visits WHERE kind = 'in') AS v RIGHT JOIN people "
    "ON people.person = v.person GROUP BY sex",
    "kind, count(*) AS n FROM (SELECT * FROM lines WHERE item = 'ink') AS l RIGHT JOIN visits "
    "ON l.visit = visits.visit GROUP BY kind",
    "kind, count(sex) AS s, count(*) AS n FROM people FULL JOIN visits ON people.person = visits.person GROUP BY kind",
    "kind, count(*) AS n FROM visits SEMI JOIN (SELECT visit FROM lines WHERE item = 'pen') AS l "
    "ON l.visit = visits.visit GROUP BY kind",
    "sex, count(*) AS n FROM people SEMI JOIN visits ON people.person = visits.person AND kind = 'out' GROUP BY sex",
    "kind, count(*) AS n FROM visits ANTI JOIN lines ON lines.visit = visits.visit AND item = 'nib' GROUP BY kind",
    "sex, count(*) AS n FROM people ANTI JOIN visits ON people.person = visits.person GROUP BY sex",
    "sex, count(*) AS n FROM people SEMI JOIN visits ON people.person = visits.person ANTI JOIN cards "
    "ON people.email = cards.email GROUP BY sex",
    "a.smoker, b.grade, count(*) AS n FROM people AS a JOIN people AS b ON a.person = b.person "
    "GROUP BY a.smoker, b.grade",
    "place, sex, count(*) AS n FROM cards JOIN people ON cards.email = people.email GROUP BY place, sex",
    "region, kind, count(*) AS n FROM people JOIN visits USING (person) LEFT JOIN wards ON people.ward = wards.name "
    "GROUP BY region, kind",
    "kind, region, count(*) AS n FROM visits JOIN (SELECT person AS who, region FROM people JOIN wards ON ward = name "
    "WHERE sex = 'F') AS f ON who = visits.person GROUP BY kind, region",
    "sex, sum(charge) AS s, count(DISTINCT people.person) AS p FROM people JOIN visits "
    "ON people.person = visits.person GROUP BY sex",
    "sex, median(charge) AS m FROM people JOIN visits ON people.person = visits.person GROUP BY sex",
)
PRIVATE_JOINS_OTHERWISE = [
    *asked(
        (
            "a.kind, b.kind AS other, count(*) AS n FROM visits AS a JOIN visits AS b ON a.person = b.person "
            "GROUP BY a.kind, b.kind",
            "place, kind, count(*) AS n FROM cards JOIN people USING (email) JOIN visits USING (person) "
            "GROUP BY place, kind",
            "a.item, count(*) AS n FROM lines AS a JOIN lines AS b ON a.visit = b.visit GROUP BY a.item",
        ),
        "epsilon = 1, max_rows_contributed = 96",
    ),
    "WITH f AS (SELECT * FROM people WHERE sex = 'F'), v AS (SELECT person AS who, kind FROM visits) SELECT WITH "
    "DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, count(*) AS n FROM f JOIN v ON f.person = v.who GROUP BY kind",
]

UNIONS = (
    "label, count(*) AS n FROM (SELECT ward AS label FROM people UNION ALL SELECT ward FROM visits) GROUP BY label",
    "origin, count(*) AS n FROM (SELECT 'people' AS origin FROM people WHERE sex = 'F' UNION ALL SELECT 'visits' "
    "FROM visits UNION ALL SELECT 'lines' FROM lines WHERE amount > 20) GROUP BY origin",
    "origin, label, count(*) AS n FROM (SELECT 'own' AS origin, sex AS label FROM people UNION ALL SELECT 'joined', "
    "sex FROM people JOIN visits USING (person)) GROUP BY origin, label",
    "kind, count(*) AS n FROM (SELECT person AS who, kind FROM visits UNION ALL SELECT person, kind FROM visits WHERE "
    "code = 1) AS u JOIN people ON who = people.person WHERE sex = 'F' GROUP BY kind",
    "origin, sum(money, contribution_bounds_per_row => (0, 30)) AS s FROM (SELECT 'l' AS origin, amount AS money "
    "FROM lines UNION ALL SELECT 'c', spent FROM cards) GROUP BY origin",
    "ward, count(*) AS n FROM (SELECT ward FROM people WHERE smoker UNION ALL SELECT visits.ward FROM visits "
    "JOIN lines USING (visit) JOIN wards ON visits.ward = name WHERE beds > 1) GROUP BY ward",
)
FEATURES = (
    "n, count(*) AS people FROM (SELECT people.person, count(visit) AS n FROM people LEFT JOIN visits "
    "ON people.person = visits.person GROUP BY people.person) GROUP BY n",
    "n, count(*) AS people FROM (SELECT person, count(*) AS n FROM visits WHERE kind = 'in' GROUP BY person) "
    "GROUP BY n",
    "n, count(*) AS people FROM (SELECT person, count(DISTINCT kind) AS n FROM visits GROUP BY person) GROUP BY n",
    "sex, n, count(*) AS people FROM people JOIN (SELECT person AS who, count(*) AS n FROM visits GROUP BY person) "
    "AS c ON who = person WHERE n < 3 GROUP BY sex, n",
    "first_kind, count(*) AS people FROM (SELECT person, first(kind ORDER BY visit) AS first_kind, "
    "max(code) - min(code) AS spread FROM visits GROUP BY person) WHERE spread < 3 GROUP BY first_kind",
    "k, count(*) AS people FROM (SELECT person, arg_max(kind, charge) AS k FROM visits GROUP BY person) GROUP BY k",
    "sum(spent, contribution_bounds_per_row => (0, 900)) AS s, count(*) FILTER (WHERE dear) AS m FROM (SELECT person, "
    "sum(charge) AS spent, bool_or(charge > 300) AS dear FROM visits GROUP BY person)",
    "avg(n) AS mean, median(n) AS middle FROM (SELECT person, count(*) AS n FROM visits GROUP BY person)",
    "late, count(*) AS people FROM (SELECT person, bool_and(came > DATE '2024-03-01') AS late FROM visits "
    "GROUP BY person) GROUP BY late",
    "n, count(*) AS people FROM (SELECT person, count(*) FILTER (WHERE amount > 20) AS n FROM visits JOIN lines "
    "USING (visit) GROUP BY person) GROUP BY n",
    "kind, before, count(*) AS n FROM (SELECT kind, lag(kind) OVER (PARTITION BY person ORDER BY visit) AS before "
    "FROM visits) GROUP BY kind, before",
    "kind, count(*) AS n FROM (SELECT kind FROM visits QUALIFY row_number() OVER (PARTITION BY person ORDER BY visit) "
    "= 1) GROUP BY kind",
    "r, count(*) AS n FROM (SELECT rank() OVER (PARTITION BY person ORDER BY code) AS r FROM visits) GROUP BY r",
    "many, count(*) AS n FROM (SELECT count(*) OVER (PARTITION BY person) > 3 AS many FROM visits) GROUP BY many",
    "kind, count(*) AS n FROM (SELECT kind, sum(code) OVER (PARTITION BY person ORDER BY visit) AS so_far FROM visits) "
    "WHERE so_far > 4 GROUP BY kind",
    "kind, following, count(*) AS n FROM (SELECT kind, lead(code, 2) OVER (PARTITION BY person ORDER BY came, visit) "
    "AS following FROM visits) GROUP BY kind, following",
    "sex, k, count(*) AS n FROM (SELECT sex, first_value(kind) OVER (PARTITION BY people.person ORDER BY visit) AS k "
    "FROM people JOIN visits ON people.person = visits.person) GROUP BY sex, k",
)

UNITS = (
    "zone, card, tag, count(*) AS n FROM rides GROUP BY CUBE (zone, card, tag)",
    "zone, sum(fare) AS s, avg(fare) AS a FROM rides WHERE hour(pickup) < 12 GROUP BY zone",
    "zone, count(*) AS n FROM rides WHERE CAST(tag AS INTEGER) = 1 OR fare > 20 GROUP BY zone",
    "card, median(fare) AS m, count(DISTINCT zone) AS z FROM rides GROUP BY card",
    "zone, count(*) AS n FROM clicks GROUP BY PREFIXES(zone)",
    "offer, count(*) AS n FROM rides JOIN offers ON 'w' || zone = ward GROUP BY offer",
    "long, pages, count(*) AS n FROM letters GROUP BY long, pages",
    "long, count(DISTINCT author) AS authors FROM letters GROUP BY long",
    "n, count(*) AS authors FROM (SELECT author, count(*) AS n FROM letters GROUP BY author) GROUP BY n",
    "level, count(*) AS n, avg(reading) AS r FROM sensors GROUP BY level",
    "level, count(DISTINCT sensor) AS s FROM sensors WHERE reading > 5 GROUP BY level",
    "a.level, count(*) AS n FROM sensors AS a SEMI JOIN (SELECT * FROM sensors WHERE level = 1) AS b "
    "ON a.sensor = b.sensor GROUP BY a.level",
    "survey, count(*) AS n FROM answers GROUP BY survey",
    "survey, count(DISTINCT (household, survey)) AS pairs FROM answers GROUP BY survey",
    "wing, count(*) AS n FROM stays GROUP BY wing",
    "wing, sum(nights) AS s FROM stays WHERE came >= DATE '2024-02-01' AND came < DATE '2024-03-01' GROUP BY wing",
    "came, count(*) AS n FROM stays WHERE year(came) = 2024 GROUP BY came",
    "wing, count(*) AS n FROM stays JOIN offers ON 'w' || nights = offers.ward WHERE year(came) = 2024 GROUP BY wing",
    "sum(euros) AS s FROM bills WHERE year(billed) = 2024",
    "wing, count(*) AS n, sum(euros) AS s FROM bills JOIN stays ON bills.stay = stays.stay AND bills.guest = "
    "stays.guest AND date_trunc('month', billed) = date_trunc('month', came) GROUP BY wing",
    "kind, count(*) AS n FROM answers WHERE x = 3 GROUP BY kind",
)

CUT = (
    "town, count(*) AS n FROM trips GROUP BY town",
    "town, sum(fare) AS s, avg(fare) AS a, count(*) AS n FROM trips GROUP BY town",
    "town, zone, count(*) AS n FROM trips GROUP BY CUBE (town, zone)",
    "zone, count(DISTINCT rider) AS p FROM trips GROUP BY zone",
    "town, count(DISTINCT rider) AS p FROM trips GROUP BY town",
    "town, median(fare) AS m FROM trips GROUP BY town",
    "zone, month, count(*) AS n FROM trips WHERE fare % 3 = 1 GROUP BY zone, month",
    "zone, sum(fare, contribution_bounds_per_group => (0, 30)) AS s FROM trips GROUP BY zone",
    "town, n, count(*) AS riders FROM trips JOIN (SELECT rider AS who, count(*) AS n FROM trips GROUP BY rider) AS c "
    "ON who = rider GROUP BY town, n",
    "m, count(*) AS riders FROM (SELECT rider, max(month) AS m FROM trips GROUP BY rider) GROUP BY m",
    "r, count(*) AS n FROM (SELECT row_number() OVER (PARTITION BY rider ORDER BY month, zone) AS r FROM trips) "
    "GROUP BY r",
    "kind, sum(x) AS s FROM answers GROUP BY kind",
    "model, count(*) AS n FROM pings GROUP BY model",
    "place, count(*) AS n, sum(delay) AS s FROM pings GROUP BY place",
    "place, count(DISTINCT device) AS d, count(*) AS n FROM pings WHERE delay % 3 < 2 GROUP BY place",
)
CUT_OTHERWISE = [
    *asked((CUT[0], CUT[2]), "epsilon = 1, max_rows_contributed = 2"),
    *asked((KEYED[4], PUBLIC_JOINS[0], PRIVATE_JOINS[4], UNIONS[0]), "epsilon = 1, max_rows_contributed = 2"),
    *asked((CUT[3], CUT[7]), "epsilon = 1, delta = 1e-6, max_groups_contributed = 2"),
    *asked((AGGREGATES[12],), "epsilon = 1, max_groups_contributed = 2"),
]
NORMS = asked(
    (
        "town, month, count(*) AS n FROM trips GROUP BY town, month",
        "month, count(*) AS n, sum(fare) AS s, avg(fare) AS a FROM trips GROUP BY month",
        "month, count(DISTINCT rider) AS p FROM trips GROUP BY month",
        "month, var_pop(fare) AS v FROM trips GROUP BY month",
        "kind, ward, count(*) AS n, sum(charge) AS s FROM visits GROUP BY kind, ward",
        "kind, count(*) AS n, avg(charge) AS a FROM people JOIN visits USING (person) GROUP BY kind",
    ),
    "epsilon = 1, delta = 1e-6, max_norm_contributed = 2",
) + asked(
    ("month, count(*) AS n FROM trips GROUP BY month",),
    "epsilon = 1, delta = 1e-6, max_norm_contributed = 2, total = TRUE, left_out = TRUE",
)
FOUND_NORM = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_norm_contributed = 'private') month, "
    "count(*) AS n, count(DISTINCT rider) AS p FROM trips GROUP BY month"
)
BY_NOISE = {NORMS[-1]: 2, FOUND_NORM: 2}
"""Statements that choose by noise what they count next, each with how many counts come before that choice."""

SELECTED = [
    *asked(
        (
            "note, count(*) AS n FROM visits GROUP BY note",
            "note, kind, count(*) AS n, sum(charge) AS s FROM visits GROUP BY note, kind",
            "note, count(DISTINCT person) AS p FROM visits WHERE code < 5 GROUP BY note",
            "item, count(*) AS n, avg(amount) AS a FROM lines GROUP BY item",
            "upper(note) AS loud, count(*) AS n FROM visits GROUP BY loud",
            "note, sex, count(*) AS n FROM people JOIN visits USING (person) GROUP BY note, sex",
        ),
        "epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD",
    ),
    *asked(
        ("note, count(*) AS n FROM visits GROUP BY note", "email, count(*) AS n FROM cards GROUP BY email"),
        "epsilon = 1, delta = 1e-6, group_selection_strategy = LAPLACE_THRESHOLD, min_privacy_units_per_group = 3",
    ),
    *asked(
        ("note, count(*) AS n FROM visits GROUP BY note",),
        "epsilon = 1, delta = 1e-6, group_selection_strategy = LAPLACE_THRESHOLD, other = TRUE, "
        "max_groups_contributed = 2",
    ),
    *asked(
        ("tag, count(*) AS n FROM clicks GROUP BY tag",),
        "epsilon = 1, delta = 1e-6, group_selection_strategy = LAPLACE_THRESHOLD",
    ),
]
SUMMARY = "AS SELECT kind, code, count(*) AS n FROM visits GROUP BY kind, code"
RELEASES = [
    f"CREATE PRIVATE VIEW s1 OPTIONS (epsilon = 1, summary = 'filter', theta = 2) {SUMMARY}",
    f"CREATE PRIVATE VIEW s2 OPTIONS (epsilon = 1, summary = 'filter_priority', summary_size = 10) {SUMMARY}",
    f"CREATE PRIVATE VIEW s3 OPTIONS (epsilon = 1, summary = 'sketch', summary_size = 10, sketch_rows = 3) {SUMMARY}",
    "CREATE PRIVATE VIEW s4 OPTIONS (epsilon = 1, summary = 'priority', summary_size = 10) AS "
    "SELECT kind, ward, sum(charge) AS s FROM visits GROUP BY kind, ward",
    "CREATE PRIVATE VIEW s5 OPTIONS (epsilon = 1, summary = 'filter', theta = 1, range_summary = 'dyadic') AS "
    "SELECT came, count(*) AS n FROM visits GROUP BY RANGES(came)",
    "CREATE PRIVATE TABLE made OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 10) AS SELECT sex, smoker, grade "
    "FROM people WORKLOAD MARGINALS (2)",
    "CREATE PRIVATE TABLE cubed OPTIONS (epsilon = 1, mechanism = 'cube', rows = 10) AS SELECT kind, code FROM visits "
    "WHERE ward = 'w1' WORKLOAD MARGINALS (2)",
    "CREATE PRIVATE TABLE joined OPTIONS (epsilon = 1, mechanism = 'cube', rows = 10) AS SELECT sex, kind FROM people "
    "JOIN visits USING (person) WORKLOAD MARGINALS (1)",
    "CREATE PRIVATE PROJECTION projected OPTIONS (epsilon = 1, sparsity = 2, queries = 5) AS SELECT note FROM visits",
    "CREATE PRIVATE PROJECTION pairs OPTIONS (epsilon = 1, sparsity = 2, queries = 5) AS SELECT note, sex FROM people "
    "JOIN visits USING (person)",
    "CREATE PRIVATE HISTOGRAM lazy OPTIONS (epsilon = 1, queries = 5) ON visits (note) WHERE code > 1",
    "CREATE PRIVATE HISTOGRAM towns OPTIONS (epsilon = 1, queries = 5) ON trips (town)",
    "CREATE PRIVATE SESSION talk OPTIONS (epsilon = 1, sparsity = 2, queries = 5) ON visits (note)",
    "FROM dp_ask('talk', ['note 1', 'note 2'])",
]
STREAMS = [
    "CREATE PRIVATE STREAM st1 OPTIONS (epsilon = 1, periods = 6) AS SELECT came, kind, count(*) AS n FROM visits "
    "GROUP BY came, kind",
    "REFRESH PRIVATE STREAM st1 UNTIL '2024-03-01'",
    "REFRESH PRIVATE STREAM st1 UNTIL '2024-06-01'",
    "CREATE PRIVATE STREAM st2 OPTIONS (epsilon = 1, delta = 1e-6, periods = 6, answers = 'totals', "
    "max_rows_contributed = 2) AS SELECT came, sum(charge) AS s, avg(charge) AS a FROM visits GROUP BY came",
    "REFRESH PRIVATE STREAM st2 UNTIL '2024-04-01'",
    "REFRESH PRIVATE STREAM st2 UNTIL '2024-07-01'",
    "CREATE PRIVATE STREAM st3 OPTIONS (epsilon = 1, periods = 6) AS SELECT came, sex, count(*) AS n FROM visits "
    "JOIN people USING (person) GROUP BY came, sex",
    "REFRESH PRIVATE STREAM st3 UNTIL '2024-07-01'",
    "CREATE PRIVATE STREAM st4 OPTIONS (epsilon = 1, periods = 6) AS SELECT came, region, count(DISTINCT person) AS p "
    "FROM visits JOIN wards ON ward = name GROUP BY came, region",
    "REFRESH PRIVATE STREAM st4 UNTIL '2024-07-01'",
]

STATEMENTS = {
    "keys": [*asked(KEYED), *KEYED_OTHERWISE],
    "aggregates": [*asked(AGGREGATES), *AGGREGATES_OTHERWISE],
    "public_joins": asked(PUBLIC_JOINS),
    "private_joins": [*asked(PRIVATE_JOINS), *PRIVATE_JOINS_OTHERWISE],
    "unions_and_features": asked((*UNIONS, *FEATURES)),
    "units": asked(UNITS),
    "bounds": [*asked(CUT), *CUT_OTHERWISE, *NORMS, FOUND_NORM],
    "releases": [*SELECTED, *RELEASES, *STREAMS],
}
"""Statements by what they are about; those of one list are carried out in order on one database."""
