-- title: SELECT *
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) * FROM visits
-- refused: line 1, column 56: * is refused: rows are not released; accepted: columns of GROUP BY and count(*)

-- title: SELECT table.*
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) visits.*, count(*) FROM visits GROUP BY ALL
-- refused: line 1, column 56: * is refused: rows are not released; accepted: columns of GROUP BY and count(*)

-- title: SELECT COLUMNS
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COLUMNS('s.*'), count(*) FROM visits GROUP BY ALL
-- refused: line 1, column 56: COLUMNS is refused; accepted: a list of columns

-- title: SELECT * EXCLUDE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) * EXCLUDE (note) FROM visits
-- refused: line 1, column 56: * is refused: rows are not released; accepted: columns of GROUP BY and count(*)

-- title: nothing is counted
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex FROM visits GROUP BY sex
-- refused: line 1, column 1: nothing is counted; accepted: count(*), count(column) or count(*) FILTER (WHERE ..)

-- title: no FROM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*)
-- refused: line 1, column 1: there is no FROM; accepted: FROM a table with a privacy policy

-- title: DISTINCT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) DISTINCT sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 56: SELECT DISTINCT is refused; accepted: GROUP BY

-- title: DISTINCT ON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) DISTINCT ON (sex) sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 69: SELECT DISTINCT is refused; accepted: GROUP BY

-- title: count(DISTINCT ..)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(DISTINCT patient_id) FROM visits
-- refused: line 1, column 56: count(DISTINCT ..) takes a column whose values are declared; accepted: the privacy unit's column, or a column with DOMAIN .. IN (..), FROM a public table, BOOLEAN or ENUM

-- title: count of two arguments
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(sex, age) FROM visits
-- refused: line 1, column 56: count takes one argument; accepted: count(*), count(column), count(*) FILTER (WHERE ..), count_if(..)

-- title: an aggregate that is not a count
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) max(patient_id) FROM visits
-- refused: line 1, column 60: these values need public bounds; accepted: max(x, contribution_bounds_per_row => (low, high)), or CLAMP x BETWEEN low AND high in the policy

-- title: a list of the values
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) list(note) FROM visits
-- refused: line 1, column 56: the aggregate list is refused; accepted: count, count(DISTINCT ..), sum, avg, var_pop, var_samp, stddev, min, max, median, quantile_cont, approx_quantiles

-- title: string_agg
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) string_agg(note, ',') FROM visits
-- refused: line 1, column 56: the aggregate string_agg is refused; accepted: count, count(DISTINCT ..), sum, avg, var_pop, var_samp, stddev, min, max, median, quantile_cont, approx_quantiles

-- title: sum without a clamp
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sum(patient_id) FROM visits
-- refused: line 1, column 60: these values need public bounds; accepted: sum(x, contribution_bounds_per_row => (low, high)), or CLAMP x BETWEEN low AND high in the policy, or max_norm_contributed = 'private'

-- title: SAMPLE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits USING SAMPLE 10%
-- refused: line 1, column 77: SAMPLE is refused: sampling is not a guarantee; accepted: the statement without it

-- title: TABLESAMPLE after the table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits TABLESAMPLE reservoir(10)
-- refused: line 1, column 77: SAMPLE over private rows is refused; accepted: all rows: sampling is not a guarantee

-- title: a WINDOW clause
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, rank() OVER w, count(*) FROM visits GROUP BY sex WINDOW w AS (ORDER BY sex)
-- refused: line 1, column 110: a WINDOW clause is refused; accepted: OVER (..) in place

-- title: PIVOT after the table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits PIVOT (count(*) FOR sex IN ('F', 'M'))
-- refused: line 1, column 77: PIVOT over private rows is refused; accepted: GROUP BY

-- title: a statement that begins with PIVOT
PIVOT visits ON sex USING count(*)
-- refused: line 1, column 1: 'PIVOT' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: UNPIVOT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits UNPIVOT (x FOR y IN (sex, ward))
-- refused: line 1, column 77: PIVOT over private rows is refused; accepted: GROUP BY

-- title: LATERAL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits, LATERAL (SELECT visits.note)
-- refused: line 1, column 78: LATERAL in FROM is refused; accepted: a table, a subquery or a CTE that filters

-- title: unnest in FROM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits, unnest([1, 2])
-- refused: line 1, column 78: UNNEST in FROM is refused; accepted: a table, a subquery or a CTE that filters

-- title: VALUES in FROM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (VALUES (1), (2)) AS v(sex)
-- refused: line 1, column 70: VALUES in FROM is refused; accepted: a table, a subquery or a CTE that filters

-- title: FETCH with ties
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex FETCH FIRST 1 ROWS WITH TIES
-- refused: line 1, column 95: LIMIT takes a whole number; accepted: LIMIT 10

-- title: LIMIT as a share
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex LIMIT 10%
-- refused: line 1, column 95: LIMIT takes a whole number; accepted: LIMIT 10

-- title: LIMIT from a subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex LIMIT (SELECT count(*) FROM visits)
-- refused: line 1, column 95: LIMIT takes a whole number; accepted: LIMIT 10

-- title: FOR UPDATE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits FOR UPDATE
-- refused: line 1, column 77: FOR UPDATE is refused; accepted: the statement without it

-- title: SELECT AS STRUCT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) AS STRUCT sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 1: SELECT AS STRUCT or VALUE is refused; accepted: a list of columns

-- title: INTO
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) INTO copied FROM visits
-- refused: line 1, column 70: INTO is refused; accepted: CREATE TABLE x AS FROM dp(..)

-- title: a subquery in the select list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*), (SELECT max(note) FROM visits) FROM visits GROUP BY sex
-- refused: line 1, column 71: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: a correlated subquery on private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age > (SELECT avg(age) FROM visits AS other WHERE other.sex = visits.sex) GROUP BY sex
-- refused: line 1, column 94: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: a second reference in IN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM visits WHERE note = 'note 1') GROUP BY sex
-- refused: line 1, column 88: IN over anything but a list is refused; accepted: IN (literal, ..), or a SEMI JOIN of tables

-- title: NOT IN over a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE ward NOT IN (SELECT name FROM wards) GROUP BY sex
-- refused: line 1, column 88: IN over anything but a list is refused; accepted: IN (literal, ..), or a SEMI JOIN of tables

-- title: IN over a public table beside OR
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE ward IN (SELECT name FROM wards) OR sex = 'F' GROUP BY sex
-- refused: line 1, column 88: IN over anything but a list is refused; accepted: IN (literal, ..), or a SEMI JOIN of tables

-- title: IN over a filtered public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE ward IN (SELECT name FROM wards WHERE beds > 1) GROUP BY sex
-- refused: line 1, column 97: this subquery in IN or on the public side of a join is refused; accepted: SELECT [DISTINCT] columns FROM a public table; with conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: IN over two columns of a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE ward IN (SELECT * FROM wards) GROUP BY sex
-- refused: line 1, column 88: IN over anything but a list is refused; accepted: IN (literal, ..), or a SEMI JOIN of tables

-- title: IN over private rows through a CTE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE ward IN (SELECT ward FROM (SELECT * FROM visits) AS v) GROUP BY sex
-- refused: line 1, column 88: IN over anything but a list is refused; accepted: IN (literal, ..), or a SEMI JOIN of tables

-- title: IN over a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE sex IN ward GROUP BY sex
-- refused: line 1, column 88: IN over anything but a list is refused; accepted: IN (literal, ..), or a SEMI JOIN of tables

-- title: ANY of a list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE sex = ANY(['F']) GROUP BY sex
-- refused: line 1, column 94: ANY is refused; accepted: IN (literal, ..)

-- title: EXISTS
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE EXISTS (SELECT 1 FROM visits WHERE note = 'note 1') GROUP BY sex
-- refused: line 1, column 88: EXISTS is refused; accepted: a join with a declared public table, or a SEMI JOIN or ANTI JOIN of a table with the same privacy unit

-- title: EXISTS without a condition
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE EXISTS (SELECT 1 FROM wards) GROUP BY sex
-- refused: line 1, column 88: EXISTS is refused; accepted: a join with a declared public table, or a SEMI JOIN or ANTI JOIN of a table with the same privacy unit

-- title: EXISTS with a condition on public rows alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE EXISTS (SELECT 1 FROM wards WHERE name = ward AND region = 'north') GROUP BY sex
-- refused: line 1, column 138: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: NOT EXISTS over private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE NOT EXISTS (SELECT 1 FROM visits AS v WHERE v.ward = visits.ward) GROUP BY sex
-- refused: line 1, column 92: EXISTS is refused; accepted: a join with a declared public table, or a SEMI JOIN or ANTI JOIN of a table with the same privacy unit

-- title: EXISTS over a LIMIT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE EXISTS (SELECT 1 FROM wards WHERE name = ward LIMIT 1) GROUP BY sex
-- refused: line 1, column 88: EXISTS is refused; accepted: a join with a declared public table, or a SEMI JOIN or ANTI JOIN of a table with the same privacy unit

-- title: a second reference in HAVING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex HAVING count(*) > (SELECT count(*) FROM secrets)
-- refused: line 1, column 113: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: a second reference in ORDER BY
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex ORDER BY (SELECT count(*) FROM visits)
-- refused: line 1, column 104: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: a second reference in QUALIFY
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex QUALIFY count(*) > (SELECT count(*) FROM visits)
-- refused: line 1, column 114: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: a second reference in FILTER
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FILTER (WHERE age > (SELECT max(age) FROM visits)) FROM visits
-- refused: line 1, column 85: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: UNION of raw rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits UNION ALL SELECT sex FROM visits) GROUP BY sex
-- refused: line 1, column 83: visits protects single rows: UNION ALL of it is refused; accepted: policies with PRIVACY UNIT column

-- title: EXCEPT of raw rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits EXCEPT SELECT sex FROM secrets) GROUP BY sex
-- refused: line 1, column 76: EXCEPT over private rows is refused; accepted: UNION ALL of SELECTs over tables with one privacy unit

-- title: DISTINCT inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT DISTINCT sex FROM visits) GROUP BY sex
-- refused: line 1, column 83: DISTINCT over private rows is refused; accepted: count(*), count(column) and count(*) FILTER (WHERE ..)

-- title: DISTINCT ON inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT DISTINCT ON (patient_id) sex FROM visits) GROUP BY sex
-- refused: line 1, column 96: DISTINCT over private rows is refused; accepted: count(*), count(column) and count(*) FILTER (WHERE ..)

-- title: LIMIT inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits LIMIT 1) GROUP BY sex
-- refused: line 1, column 99: LIMIT over private rows is refused; accepted: LIMIT of SELECT WITH DIFFERENTIAL_PRIVACY

-- title: LIMIT after parentheses
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM ((SELECT sex FROM visits) LIMIT 1) GROUP BY sex
-- refused: line 1, column 101: LIMIT over private rows is refused; accepted: LIMIT of SELECT WITH DIFFERENTIAL_PRIVACY

-- title: OFFSET inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits OFFSET 1) GROUP BY sex
-- refused: line 1, column 99: OFFSET over private rows is refused; accepted: OFFSET of SELECT WITH DIFFERENTIAL_PRIVACY

-- title: ORDER BY inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits ORDER BY note) GROUP BY sex
-- refused: line 1, column 99: ORDER BY over private rows is refused; accepted: ORDER BY of SELECT WITH DIFFERENTIAL_PRIVACY

-- title: GROUP BY inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) n, count(*) FROM (SELECT sex, count(*) AS n FROM visits GROUP BY sex) GROUP BY n
-- refused: line 1, column 121: GROUP BY over private rows inside a subquery is refused; accepted: GROUP BY the privacy unit's column alone, with it and count, min, max, sum, first, bool_or selected

-- title: an aggregate inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) n, count(*) FROM (SELECT count(*) AS n FROM visits) GROUP BY n
-- refused: line 1, column 81: an aggregate inside a row expression is refused; accepted: aggregates in the select list or HAVING

-- title: QUALIFY inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits QUALIFY row_number() OVER () = 1) GROUP BY sex
-- refused: line 1, column 107: a window over rows of several privacy units is refused; accepted: OVER (PARTITION BY the privacy unit's column alone ORDER BY ..)

-- title: SAMPLE of a subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT sex FROM visits) TABLESAMPLE 10% GROUP BY sex
-- refused: line 1, column 100: SAMPLE over private rows is refused; accepted: all rows: sampling is not a guarantee

-- title: a window inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) r, count(*) FROM (SELECT rank() OVER (ORDER BY age) AS r FROM visits) GROUP BY r
-- refused: line 1, column 81: a window over rows of several privacy units is refused; accepted: OVER (PARTITION BY the privacy unit's column alone ORDER BY ..)

-- title: unnest inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT unnest([1, 2]) AS x FROM visits)
-- refused: line 1, column 78: unnest is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: rowid inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT rowid AS r FROM visits) WHERE r = 1
-- refused: line 1, column 78: rowid depends on other rows; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: * with EXCLUDE inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT * EXCLUDE (note) FROM visits)
-- refused: line 1, column 78: * inside an expression is refused; accepted: count(*) or a column

-- title: more names than columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) a, count(*) FROM (SELECT sex FROM visits) AS v(a, b) GROUP BY a
-- refused: line 1, column 73: 2 names for 1 columns; accepted: a name for each column at most

-- title: an annotated SELECT inside another
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex FROM visits) GROUP BY sex
-- refused: line 1, column 76: 2 SELECTs WITH DIFFERENTIAL_PRIVACY in one statement; accepted: one; two calls of dp() can be joined

-- title: two annotated SELECTs side by side
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits) AS a, (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients) AS b
-- refused: line 1, column 100: 2 SELECTs WITH DIFFERENTIAL_PRIVACY in one statement; accepted: one; two calls of dp() can be joined

-- title: a private CTE read twice
WITH v AS (SELECT sex FROM visits) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM v AS a JOIN v AS b ON a.sex = b.sex
-- refused: line 1, column 117: visits protects single rows: a second reference to private rows is refused; accepted: one private table with public tables, or policies with PRIVACY UNIT column

-- title: a recursive CTE over private rows
WITH RECURSIVE v AS (SELECT sex FROM visits UNION ALL SELECT sex FROM v) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM v GROUP BY sex
-- refused: line 1, column 148: WITH RECURSIVE over private rows is refused; accepted: plain CTEs that filter or project

-- title: a CTE that reads itself
WITH v AS (SELECT * FROM v) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM v
-- refused: line 1, column 26: there is no table 'v'; accepted: a table with a policy, or a declared public one

-- title: a CTE that hides a private table by its name
WITH visits AS (SELECT * FROM wards) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits
-- refused: line 1, column 107: 'visits' is public: there is nothing to protect; accepted: plain SQL without WITH DIFFERENTIAL_PRIVACY

-- title: a table function: read_csv
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM read_csv('visits.csv')
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: a table function: read_parquet
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM read_parquet('visits.parquet')
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: a table function: glob
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM glob('*')
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: a table function: query
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM query('SELECT * FROM visits')
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: a table function: query_table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM query_table('visits')
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: a table function: duckdb_tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM duckdb_tables()
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: a table function: dp itself
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM dp('SELECT 1')
-- refused: line 1, column 70: a table function is refused; accepted: a table with a policy

-- title: more grouping sets than allowed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits GROUP BY CUBE (sex, age, ward, urgent, grade, day, score, code, sex, age, ward, urgent, grade, day, score, code, sex, age)
-- refused: line 1, column 92: CUBE of 18 columns has 262144 grouping sets; accepted: at most 200000 grouping sets

-- title: MARGINALS without a number
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits GROUP BY MARGINALS (sex, ward)
-- refused: line 1, column 86: MARGINALS starts with the number of columns in a marginal; accepted: MARGINALS (k, a, b, c, ..) with k at most the number of columns

-- title: MARGINALS of more columns than there are
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits GROUP BY MARGINALS (3, sex, ward)
-- refused: line 1, column 86: MARGINALS starts with the number of columns in a marginal; accepted: MARGINALS (k, a, b, c, ..) with k at most the number of columns

-- title: more cells than allowed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits GROUP BY age, ward, urgent, grade, day, score, code, sex, "Straße", "odd ""name", month(day), CASE WHEN day >= '2024-03-01' THEN day ELSE '2024-01-01' END
-- refused: line 1, column 1: the answer would have 656916480 cells; accepted: at most 50000000: fewer columns or grouping sets, or a summary

-- title: weekdays of bins of a month
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) dayofweek(day) AS d, count(*) FROM visits GROUP BY d
-- refused: line 1, column 56: these groups cut a bin of day in two, and all rows of a bin are in one group; accepted: groups of whole bins, as with comparisons to edges of bins; the column itself; count(*) FILTER (WHERE ..); or a smaller STEP in the policy

-- title: a group that begins inside a bin
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) age < 33 AS young, count(*) FROM visits GROUP BY young
-- refused: line 1, column 56: these groups cut a bin of age in two, and all rows of a bin are in one group; accepted: groups of whole bins, as with comparisons to edges of bins; the column itself; count(*) FILTER (WHERE ..); or a smaller STEP in the policy

-- title: a group that has no text form
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) coalesce((sex, ward), (ward, sex)), count(*) FROM visits GROUP BY 1
-- refused: line 1, column 65: a tuple is refused where it is not compared with tuples; accepted: (ward, sex) IN ((1, 'F'))

-- title: an expression that fails on the public domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) CAST(ward AS INTEGER), count(*) FROM visits GROUP BY 1
-- refused: line 1, column 56: the expression fails on the public domain: ..; accepted: an expression that every declared value can go through

-- title: GROUPING of a column that is not grouped
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, grouping(ward), count(*) FROM visits GROUP BY sex
-- refused: line 1, column 70: GROUPING takes columns of GROUP BY; accepted: sex

-- title: an error bar of something else
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*), dp_stderr(sex) FROM visits GROUP BY sex
-- refused: line 1, column 71: dp_stderr takes an aggregate or the alias of one; accepted: dp_stderr(n) where count(*) AS n is selected

-- title: an error bar of an expression over answers
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, dp_interval_low(count(*) + 1) FROM visits GROUP BY sex
-- refused: line 1, column 61: dp_interval_low takes an aggregate or the alias of one; accepted: dp_interval_low(n) where count(*) AS n is selected

-- title: types that do not fit in the select list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) + day FROM visits GROUP BY sex
-- refused: line 1, column 72: the column 'day' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: types that do not fit in HAVING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, upper(count(*)) FROM visits GROUP BY sex
-- refused: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: nothing is selected inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT FROM visits)
-- refused: line 1, column 71: nothing is selected; accepted: * or a list of columns

-- title: NOT EXISTS with a condition on public rows alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE NOT EXISTS (SELECT 1 FROM wards WHERE name = ward AND region = 'north') GROUP BY sex
-- refused: line 1, column 142: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..
