# One statement a line, each to be answered: what analysts write over released tables and dp functions.
FROM ages
FROM private.ages
FROM private.main.ages
FROM main.ages
SELECT * FROM ages LIMIT 3
SELECT age, n FROM ages WHERE n > 10 ORDER BY n DESC
SELECT #1, #2 FROM ages
SELECT sum(n) AS total FROM ages
SELECT count(*), min(n), max(n), avg(n), median(n), stddev(n) FROM ages
SELECT sex, sum(n) FROM ward_cube WHERE sex IS NOT NULL AND ward IS NOT NULL GROUP BY sex
SELECT ward, n, n / sum(n) OVER () AS share FROM ward_cube WHERE sex IS NULL AND ward IS NOT NULL
SELECT ward, rank() OVER (ORDER BY n DESC) AS place FROM ward_cube WHERE sex IS NULL AND ward IS NOT NULL
SELECT ward, n FROM ward_cube QUALIFY row_number() OVER (PARTITION BY ward ORDER BY n DESC) = 1
WITH flat AS (SELECT * FROM ward_cube WHERE sex IS NOT NULL AND ward IS NOT NULL) SELECT ward, sum(n) FROM flat GROUP BY ward
WITH a AS (FROM ages), b AS (FROM a WHERE n > 0) SELECT count(*) FROM b
WITH ages AS (SELECT 1 AS n) FROM ages
SELECT a.age, a.n, b.n FROM ages AS a JOIN ages AS b USING (age)
SELECT a.age FROM ages AS a LEFT JOIN ages AS b ON a.age = b.age + 10 WHERE b.age IS NULL
SELECT * FROM ages CROSS JOIN (SELECT max(n) AS most FROM ages)
SELECT age, n, n > (SELECT avg(n) FROM ages) AS above FROM ages
SELECT age FROM ages WHERE n IN (SELECT max(n) FROM ages)
SELECT age FROM ages AS a WHERE EXISTS (SELECT 1 FROM ages AS b WHERE b.n > a.n)
FROM ages UNION ALL FROM ages
FROM ages EXCEPT FROM ages
(FROM ages LIMIT 1) UNION (FROM ages LIMIT 2)
SELECT DISTINCT ward FROM ward_cube ORDER BY ward NULLS LAST
SELECT CASE WHEN age < 30 THEN 'young' ELSE 'old' END AS generation, sum(n) FROM ages GROUP BY ALL ORDER BY ALL
SELECT upper(ward), length(ward), ward || '!', substring(ward, 1, 1), replace(ward, 'w', 'W') FROM ward_cube
SELECT ward FROM ward_cube WHERE ward LIKE 'w%' AND ward NOT ILIKE '%9' AND regexp_matches(ward, '^w[0-9]$')
SELECT round(n, -1), floor(n), ceil(n), abs(n), n::DOUBLE, CAST(n AS VARCHAR), TRY_CAST(ward AS INTEGER) FROM ward_cube
SELECT coalesce(ward, 'all'), nullif(ward, 'w0'), ifnull(ward, '-') FROM ward_cube
SELECT sex, ward, sum(n) FROM ward_cube WHERE ward IS NOT NULL GROUP BY GROUPING SETS ((sex, ward), (sex), ())
SELECT sex, sum(n) FROM ward_cube GROUP BY ROLLUP (sex) HAVING sum(n) > 0
SELECT sum(n) FILTER (WHERE sex = 0), sum(n) FILTER (WHERE sex = 1) FROM ward_cube WHERE ward IS NULL
FROM (PIVOT ward_cube ON sex IN (0, 1) USING sum(n) GROUP BY ward)
SELECT * EXCLUDE (n) FROM ages
SELECT * REPLACE (n + 1 AS n) FROM ages
SELECT COLUMNS('a.*') FROM ages
SELECT list(age ORDER BY age), string_agg(age::VARCHAR, ',') FROM ages
SELECT [x * 2 FOR x IN list(n)] FROM ages
SELECT list_transform(list(n), lambda x: x + 1) FROM ages
SELECT {'age': age, 'n': n} FROM ages
SELECT unnest([1, 2, 3]) AS x
SELECT a.age, r.range FROM ages AS a, range(3) AS r
SELECT date '2020-01-01' + INTERVAL 1 DAY, date_trunc('month', date '2020-05-17'), extract(year FROM date '2020-01-01')
VALUES (1, 'a'), (2, 'b')
SELECT 1
select age , N from AGES -- a remark
SELECT /* a remark */ n FROM "ages"
FROM ages TABLESAMPLE 5 ROWS
SELECT table_name, comment FROM duckdb_tables()
SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'ages'
SELECT table_name FROM information_schema.tables
SELECT column_name FROM information_schema.columns
SELECT catalog_name, schema_name FROM information_schema.schemata WHERE catalog_name NOT IN ('system', 'temp') ORDER BY ALL
SELECT schema_name, sql, 'table' FROM duckdb_tables() UNION ALL SELECT schema_name, view_name, 'view' FROM duckdb_views()
FROM dp_budget()
FROM dp_ledger()
FROM dp_policies()
FROM dp_releases()
SELECT name FROM dp_releases() WHERE kind = 'view'
SELECT strategy, worst_stderr FROM dp_explain($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex $$)
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits GROUP BY sex')
FROM dp($q$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) ward, count(*) AS n, dp_stderr(n) AS e FROM visits GROUP BY ward $q$) WHERE n > 0
SELECT d.sex, d.n, c.n FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits GROUP BY sex') AS d JOIN ward_cube AS c ON c.sex = d.sex AND c.ward IS NULL
SELECT sum(n) FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) age, count(*) AS n FROM visits GROUP BY age') AS t(years, n)
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) first_ward, count(*) AS n FROM (SELECT patient, min(ward) AS first_ward, bool_or(sex = 1) AS f FROM visits GROUP BY patient) WHERE f GROUP BY first_ward')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM (SELECT sex, age FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY age) = 1) WHERE age > 20 GROUP BY sex')
FROM dp('CREATE PRIVATE VIEW of_honest OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex')
FROM dp('DROP PRIVATE VIEW IF EXISTS of_honest')
FROM dp_streams()
SELECT name, next_period FROM dp_streams() WHERE published < periods
FROM dp_stderr_of('ages', 'CASE WHEN age < 30 THEN 1 ELSE 0 END')
FROM dp_stderr_of(release := 'ages', weight := '1', confidence := 0.99)
FROM dp_ratio_of('ages', 'CASE WHEN age < 30 THEN 1 ELSE 0 END', '1')
SELECT dp_key(['a', 'b']), dp_shared(1, 5, 3, 9), dp_in_range(0, 3, 1, 5), dp_haar_weight(1, 0, 0, 3, 8)
SELECT len(dp_conjunction([true, NULL, false]))
SELECT len(dp_disjunction([true, NULL, false])), len(dp_parity([true, NULL, false]))
SELECT dp_sum_stderr(n * n) FROM ages
DESCRIBE ages
describe private.ages;
DESC main.ages
DESCRIBE visits
SHOW TABLES
show\n tables ;
SHOW ALL TABLES;
FROM dp_columns()
FROM dp_columns('visits')
SELECT column_name, domain FROM dp_columns(table_name := 'visits') WHERE domain IS NOT NULL
FROM dp_columns(NULL)
FROM dp_twin('visits', 3)
SELECT count(*) FROM dp_twin('visits', number_of_rows := 20)
SELECT number, epsilon, fits FROM dp_plan($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) sex, count(*) AS n FROM visits GROUP BY sex; SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.2) count(*) AS n FROM visits $$)
SELECT value FROM dp_certificate('ages') WHERE field = 'statement'
# --- plain questions over a private table's own name, answered from what is known
SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY n DESC LIMIT 3
SELECT sex, count(*) AS n FROM main.visits WHERE ward IN ('w0', 'w1') GROUP BY sex
SELECT count(*) FROM visits
SELECT avg(n) FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) AS t
SELECT sex, n FROM (FROM visits SELECT sex, count(*) AS n GROUP BY sex) AS t
PIVOT ward_cube ON sex IN (0, 1) USING sum(n) GROUP BY ward
PIVOT (FROM ward_cube WHERE ward IS NOT NULL) ON sex IN (0, 1) USING sum(n) GROUP BY ward ORDER BY ward
UNPIVOT (SELECT age, n, n_stderr FROM ages) ON n, n_stderr
FROM ages SELECT age, n WHERE n > 10
# --- statements of dpduck's language as they are
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits GROUP BY sex
select with differential_privacy options (epsilon = 0.01) sex, count(*) as n from visits group by sex;
-- by sex\n SELECT /* all */ WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits GROUP BY sex ; -- ;
\u00a0SELECT\u3000WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits GROUP BY sex
WITH v AS (FROM visits WHERE age > 20) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM v GROUP BY sex
FROM visits SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n GROUP BY sex
(SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) ward, count(*) AS n FROM visits WHERE ward <> 'w1' GROUP BY ward)
SELECT d.ward, region, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) ward, count(*) AS n FROM visits GROUP BY ward) AS d JOIN wards ON wards.name = d.ward
EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex
EXPLAIN CREATE PRIVATE VIEW never OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex
CREATE PRIVATE VIEW bare_one OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex;
CREATE OR REPLACE PRIVATE VIEW bare_one OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex
DROP PRIVATE VIEW bare_one -- PRIVATE VIEW
SELECT 'SELECT WITH DIFFERENTIAL_PRIVACY', $$ ALTER PRIVACY POLICY $$ FROM ages
SELECT c.table_name, count(*) FROM information_schema.columns AS c JOIN information_schema.tables AS t USING (table_name) GROUP BY ALL
SELECT column_names FROM (SELECT list(column_name) AS column_names FROM information_schema.columns WHERE table_name = 'visits')
