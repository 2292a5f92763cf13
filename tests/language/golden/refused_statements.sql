-- title: an empty text
;
-- refused: the statement is empty; accepted: a statement such as SELECT WITH DIFFERENTIAL_PRIVACY ..

-- title: only a comment
/* nothing */
-- refused: the statement is empty; accepted: a statement such as SELECT WITH DIFFERENTIAL_PRIVACY ..

-- title: a SELECT that is not annotated
SELECT sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 1: the statement is not annotated; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) ..

-- title: an annotation in a comment annotates nothing
SELECT /* WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) */ sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 1: the statement is not annotated; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) ..

-- title: an annotation as a hint annotates nothing
SELECT /*+ WITH DIFFERENTIAL_PRIVACY */ sex FROM visits
-- refused: line 1, column 1: the statement is not annotated; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) ..

-- title: two statements
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits; DROP TABLE visits
-- refused: line 1, column 76: two statements in one text; accepted: one statement

-- title: a second statement behind a comment
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits -- ;
; SELECT * FROM visits
-- refused: line 2, column 1: two statements in one text; accepted: one statement

-- title: a statement for DuckDB: DROP
DROP TABLE visits
-- refused: line 1, column 1: 'DROP' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: CREATE TABLE
CREATE TABLE copied AS SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits
-- refused: line 1, column 8: 'TABLE' is not expected here; accepted: CREATE PRIVACY POLICY, or CREATE PRIVATE and what: VIEW, TABLE, PROJECTION ..

-- title: a statement for DuckDB: INSERT
INSERT INTO wards SELECT ward FROM visits
-- refused: line 1, column 1: 'INSERT' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: UPDATE
UPDATE visits SET sex = 'F'
-- refused: line 1, column 1: 'UPDATE' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: DELETE
DELETE FROM visits
-- refused: line 1, column 1: 'DELETE' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: COPY
COPY visits TO 'out.csv'
-- refused: line 1, column 1: 'COPY' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: ATTACH
ATTACH 'other.duckdb'
-- refused: line 1, column 1: 'ATTACH' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: PRAGMA
PRAGMA database_list
-- refused: line 1, column 1: 'PRAGMA' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: SET
SET threads = 1
-- refused: line 1, column 1: 'SET' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: CALL
CALL pragma_version()
-- refused: line 1, column 1: 'CALL' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: EXPLAIN
EXPLAIN ANALYZE SELECT * FROM visits
-- refused: line 1, column 1: 'EXPLAIN' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: EXPORT
EXPORT DATABASE 'out'
-- refused: line 1, column 1: 'EXPORT' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: LOAD
LOAD httpfs
-- refused: line 1, column 1: 'LOAD' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: CHECKPOINT
CHECKPOINT
-- refused: line 1, column 1: 'CHECKPOINT' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: SUMMARIZE
SUMMARIZE visits
-- refused: line 1, column 1: 'SUMMARIZE' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: DESCRIBE
DESCRIBE visits
-- refused: line 1, column 1: 'DESCRIBE' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: VALUES
VALUES (1)
-- refused: line 1, column 1: 'VALUES' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: a statement for DuckDB: TABLE
TABLE visits
-- refused: line 1, column 1: 'TABLE' is not expected here; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .., CREATE PRIVATE VIEW or TABLE, DROP PRIVATE VIEW, CREATE / ALTER / DROP PRIVACY POLICY, DECLARE PUBLIC TABLE

-- title: data modified inside a CTE
WITH gone AS (DELETE FROM visits RETURNING *) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM gone
-- refused: line 1, column 27: DELETE in FROM is refused; accepted: a SELECT that filters or projects

-- title: a quote that never closes
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE ward = 'w1
-- refused: line 1, column 90: a quote or a comment that never closes; accepted: closed quotes and comments

-- title: a comment that never closes
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits /* where
-- refused: line 1, column 77: a quote or a comment that never closes; accepted: closed quotes and comments

-- title: SQL that does not parse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(* FROM visits
-- refused: line 1, column 69: the SELECT does not parse near 'FROM'; accepted: )

-- title: a keyword out of place
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*)
FROM visits GROUP sex
-- refused: line 2, column 19: the SELECT does not parse near 'sex'; accepted: DuckDB's SQL

-- title: a literal too long to parse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note = '<<x * 20001>>' GROUP BY sex
-- refused: line 1, column 95: a literal of 20001 characters; accepted: at most 20000

-- title: a statement too long to parse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits -- <<x * 200000>>
-- refused: the statement has 200079 characters; accepted: at most 200000 (long lists go in a table)

-- title: 10,000 nested parentheses
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE <<( * 10000>>1<<) * 10000>> = 1 GROUP BY sex
-- refused: line 1, column 128: the statement is nested too deeply; accepted: at most 40 levels

-- title: 1,000 nested CASE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE <<CASE WHEN  * 1000>>true<< THEN 1 END * 1000>> = 1 GROUP BY sex
-- refused: line 1, column 488: the statement is nested too deeply; accepted: at most 40 levels

-- title: 100 signs before a number
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age = <<-  * 100>> 1 GROUP BY sex
-- refused: line 1, column 174: the statement is nested too deeply; accepted: at most 40 levels

-- title: 10,000 NOT before a condition
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE <<NOT  * 10000>>urgent GROUP BY sex
-- refused: line 1, column 248: the statement is nested too deeply; accepted: at most 40 levels

-- title: a chain of operators too long to walk
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age = 0<< + 1 * 5000>> GROUP BY sex
-- refused: the statement is nested too deeply; accepted: shorter chains of operators

-- title: the name of the hole that the released table fills
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS "dpduck_released_table" FROM visits
-- refused: line 1, column 68: the name dpduck_released_table is dpduck's own; accepted: another name

-- title: SELECT WITH something else
SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1) count(*) FROM visits
-- refused: line 1, column 13: SELECT WITH ANONYMIZATION is deprecated and refused; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..)

-- title: CREATE of something that is not ours
CREATE VIEW x AS SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits
-- refused: line 1, column 8: 'VIEW' is not expected here; accepted: CREATE PRIVACY POLICY, or CREATE PRIVATE and what: VIEW, TABLE, PROJECTION ..

-- title: a private view with the clause of a SELECT
CREATE PRIVATE VIEW v AS SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits
-- refused: line 1, column 26: a private view has its options after its name; accepted: CREATE PRIVATE VIEW name OPTIONS (..) AS SELECT .. without WITH DIFFERENTIAL_PRIVACY

-- title: a stream with the clause of a SELECT
CREATE PRIVATE STREAM s OPTIONS (epsilon = 1) AS SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (nonsense = 3) count(*) FROM visits
-- refused: line 1, column 50: this statement has its options after its name; accepted: OPTIONS (..) AS SELECT .. without WITH DIFFERENTIAL_PRIVACY

-- title: a projection with the clause of a SELECT
CREATE PRIVATE PROJECTION p OPTIONS (epsilon = 1) AS SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (nonsense = 3) sex FROM visits
-- refused: line 1, column 54: this statement has its options after its name; accepted: OPTIONS (..) AS SELECT .. without WITH DIFFERENTIAL_PRIVACY

-- title: a private view with two parts in its name
CREATE PRIVATE VIEW private.v OPTIONS (epsilon = 1) AS SELECT count(*) FROM visits
-- refused: line 1, column 28: a private view has a name of one part; accepted: a name without dots

-- title: a private view IF NOT EXISTS
CREATE PRIVATE VIEW IF NOT EXISTS v OPTIONS (epsilon = 1) AS SELECT count(*) FROM visits
-- refused: line 1, column 21: 'IF' is not expected here; accepted: a name (CREATE OR REPLACE PRIVATE VIEW replaces)

-- title: a private view without options
CREATE PRIVATE VIEW v AS SELECT count(*) FROM visits
-- refused: line 1, column 26: the price is missing; accepted: OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..

-- title: a private view without AS
CREATE PRIVATE VIEW v OPTIONS (epsilon = 1) SELECT count(*) FROM visits
-- refused: line 1, column 45: 'SELECT' is not expected here; accepted: OPTIONS (..) or AS SELECT ..

-- title: a private view with options that do not close
CREATE PRIVATE VIEW v OPTIONS (epsilon = 1 AS SELECT count(*) FROM visits
-- refused: line 1, column 74: the statement ends too early; accepted: OPTIONS (epsilon = .., ..)

-- title: a private view of a UNION
CREATE PRIVATE VIEW v OPTIONS (epsilon = 1) AS SELECT count(*) FROM visits UNION SELECT 1
-- refused: line 1, column 48: a private view takes one SELECT; accepted: SELECT .. FROM .. GROUP BY ..

-- title: dropping a private view that does not exist
DROP PRIVATE VIEW nothing
-- refused: there is no private view 'nothing'; accepted: a name of dp_releases(), or IF EXISTS
