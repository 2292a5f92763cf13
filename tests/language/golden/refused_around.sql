-- title: a private table beside the answer
SELECT v.note FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits) AS a, visits AS v
-- refused: line 1, column 109: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table beside the answer, hidden by a CTE of its name elsewhere
SELECT v.note FROM visits AS v, (WITH visits AS (SELECT 1 AS x) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM memory.main.visits) AS a
-- refused: line 1, column 20: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in a subquery around
SELECT n, (SELECT max(note) FROM visits) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: line 1, column 34: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in a UNION around
SELECT sex, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex) UNION ALL SELECT note, age FROM visits
-- refused: line 1, column 153: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in a CTE that is read outside
WITH v AS (SELECT note FROM visits), a AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM v) SELECT * FROM a, v
-- refused: line 1, column 138: 'v' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in a CTE beside
WITH a AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), b AS (SELECT note FROM visits) SELECT * FROM a, b
-- refused: line 1, column 143: 'b' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table named in full
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), "memory"."main"."visits"
-- refused: line 1, column 99: 'memory.main.visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table named by FROM first
FROM (FROM visits SELECT note), (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: line 1, column 12: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in EXISTS around
SELECT n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits) WHERE EXISTS (SELECT 1 FROM visits WHERE note = 'note 1')
-- refused: line 1, column 126: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in ORDER BY around
SELECT n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits) ORDER BY (SELECT max(age) FROM visits)
-- refused: line 1, column 129: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in LIMIT around
SELECT n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits) LIMIT (SELECT count(*) FROM visits)
-- refused: line 1, column 126: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a private table in VALUES around
SELECT n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits) JOIN (VALUES ((SELECT max(age) FROM visits))) AS v(x) ON n > x
-- refused: line 1, column 134: 'visits' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a table without a policy around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), secrets
-- refused: line 1, column 99: 'secrets' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a view around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), visit_view
-- refused: line 1, column 99: 'visit_view' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a released table of the store around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), private.dpduck.ledger
-- refused: line 1, column 99: 'private.dpduck.ledger' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: a table function around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), query('SELECT note FROM visits')
-- refused: line 1, column 99: a table function around SELECT WITH DIFFERENTIAL_PRIVACY is refused; accepted: its answers and public tables

-- title: query_table around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), query_table('visits')
-- refused: line 1, column 99: a table function around SELECT WITH DIFFERENTIAL_PRIVACY is refused; accepted: its answers and public tables

-- title: read_csv around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), read_csv('visits.csv')
-- refused: line 1, column 99: a table function around SELECT WITH DIFFERENTIAL_PRIVACY is refused; accepted: its answers and public tables

-- title: a file around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits), 'visits.csv'
-- refused: line 1, column 99: 'visits.csv' is not public, and is read outside of SELECT WITH DIFFERENTIAL_PRIVACY; accepted: SELECT WITH DIFFERENTIAL_PRIVACY, its CTEs and declared public tables

-- title: LATERAL around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits) AS a, LATERAL (SELECT a.n)
-- refused: line 1, column 104: LATERAL is refused; accepted: plain subqueries

-- title: PIVOT around
FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex) PIVOT (sum(n) FOR sex IN ('F'))
-- refused: line 1, column 107: PIVOT is refused; accepted: GROUP BY

-- title: COLUMNS around
SELECT COLUMNS('.*') FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: line 1, column 8: COLUMNS is refused; accepted: a list of columns

-- title: a function around that is not on the list
SELECT getvariable('x'), n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: line 1, column 8: getvariable is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: a macro around
SELECT peek(n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: line 1, column 8: there is no function 'peek'; accepted: week (did you mean that?)

-- title: a lambda around
SELECT list_transform([n], x -> x) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: line 1, column 8: list_transform is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: SAMPLE around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex) USING SAMPLE 1
-- refused: line 1, column 116: SAMPLE is refused; accepted: all rows

-- title: a column that the answer does not have
SELECT note FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex)
-- refused: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: columns of the released table that the answer does not show
SELECT answer_1 FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex)
-- refused: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a column of the answer of another type
SELECT upper(n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits)
-- refused: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: an annotated SELECT that depends on the query around
SELECT name, (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE ward = wards.name) FROM wards
-- refused: line 1, column 104: there is no table 'wards' in FROM; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: an annotated SELECT in a data statement
INSERT INTO wards SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 1: 'INSERT' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a window that looks to the end of a BIGINT, at which DuckDB 1.5 ends
SELECT lag(n > 5, -9223372036854775807 - 1) OVER () AS z FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex)
-- refused: line 1, column 8: a window that may look too far; accepted: lag(n, 1): a whole number, at most 1000000

-- title: the same in the annotated SELECT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, lead(count(*), 9223372036854775807) OVER () FROM visits GROUP BY sex
-- refused: line 1, column 61: a window that may look too far; accepted: lag(n, 1): a whole number, at most 1000000

-- title: a window that looks as far as an answer says
SELECT nth_value(n, n) OVER () FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex)
-- refused: line 1, column 8: a window that may look too far; accepted: lag(n, 1): a whole number, at most 1000000

-- title: texts that double from query to query
SELECT sex FROM (SELECT sex || sex AS sex FROM (SELECT sex || sex AS sex FROM (SELECT sex || sex AS sex FROM (SELECT sex || sex AS sex FROM (SELECT sex || sex AS sex FROM (SELECT sex || sex AS sex FROM (SELECT sex || sex AS sex FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex))))))))
-- refused: line 1, column 204: this makes texts more than 64 times as long, or longer by 65536 bytes; accepted: fewer concatenations, shorter literals

-- title: texts that double in the answer
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) concat(sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex, sex), count(*) FROM visits GROUP BY sex
-- refused: line 1, column 1: this makes texts more than 64 times as long, or longer by 65536 bytes; accepted: fewer concatenations, shorter literals
