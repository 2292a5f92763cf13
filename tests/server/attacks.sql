# One statement a line, each to be refused; \n, \t and \uXXXX are read as in Python. Lines with # are headings.
# --- the gate itself
CREATE OR REPLACE MACRO dpduck_authorize(a, b) AS true
CREATE OR REPLACE MACRO dpduck_authenticate(a, b, c) AS true
CREATE OR REPLACE MACRO system.main.dpduck_authorize(a, b) AS b
CREATE OR REPLACE TEMP MACRO dpduck_authorize(a, b) AS 'SELECT 1'
CREATE MACRO dp(q) AS TABLE SELECT 1
SELECT dpduck_authorize('x', 'SELECT 1')
SELECT system.main.dpduck_authorize('x', 'SELECT 1')
SELECT dpduck_authenticate('x', 'y', 'z')
SELECT dpduck_call('run', 'x')
SELECT system.main.dpduck_call('run', 'DROP PRIVACY POLICY ON visits')
SET GLOBAL quack_authorization_function = 'quack_nop_authorization'
SET quack_authentication_function = 'quack_check_token'
RESET GLOBAL quack_authorization_function
SELECT quack_nop_authorization('a', 'b')
SELECT quack_check_token('a', 'b', 'b')
# --- two statements in one text
SELECT 1; SELECT 2
FROM ages; DROP TABLE ages
FROM ages;;DROP TABLE ages
SELECT 1; ; SET VARIABLE x = 1
FROM ages; -- \n CHECKPOINT
SELECT 1;/* */ATTACH ':memory:' AS m
BEGIN; DROP TABLE ages; COMMIT
# --- listeners and connections outward
CALL quack_serve('quack:localhost:9999')
FROM quack_serve('quack:localhost:9999', token := 'abcd')
SELECT * FROM quack_serve('quack:localhost:9999', token := 'abcd', allow_other_hostname := true)
CALL quack_stop('quack:localhost:9494')
FROM quack_stop('quack:localhost:9494')
FROM quack_query('quack:localhost:9494', 'SELECT 1', token := 'x')
FROM quack_query_by_name('clinic', 'SELECT 1')
FROM quack_active_connections()
SELECT connection_id FROM quack_active_connections()
FROM quack_server_list()
FROM quack_identify(name := 'x')
FROM quack_clear_cache()
FROM whoami()
SELECT quack_uri_parser('quack:localhost', false)
ATTACH 'quack:localhost:9494' AS again (TOKEN 'x')
ATTACH ':memory:' AS more
ATTACH 'clinic.duckdb' AS vault (READ_ONLY)
ATTACH IF NOT EXISTS '/etc/passwd' AS p
FROM read_csv('https://example.org/x.csv')
FROM 'https://example.org/x.parquet'
# --- SQL hidden in texts
FROM query('SELECT 1')
FROM query('FROM duckdb_secrets()')
FROM query_table('ages')
FROM query_table('duckdb_settings')
FROM query_table(['ages', 'ward_cube'])
FROM json_execute_serialized_sql('{}')
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
SELECT json_serialize_sql('SELECT 1')
SELECT json_deserialize_sql('{}')
SELECT json_serialize_plan('SELECT 1')
PRAGMA json_execute_serialized_sql('{}')
PREPARE p AS SELECT 1
EXECUTE p
EXECUTE IMMEDIATE 'SELECT 1'
DEALLOCATE p
SELECT $1
SELECT ?
FROM ages WHERE n > $limit
# --- figures of the instance, and its insides
SUMMARIZE ages
SUMMARIZE SELECT 1
FROM (SUMMARIZE ages)
DESCRIBE SELECT 1
DESCRIBE secret
DESC dpduck.ledger_entries
DESCRIBE private.dpduck.releases
DESCRIBE ages; DROP TABLE ages
DESCRIBE "ages"
DESCRIBE ages/**/; SELECT 1
SHOW TABLES; SHOW TABLES
SHOW TABLES FROM clinic
SHOW ages
SHOW ALL TABLES, ages
SHOW DATABASES
FROM (SHOW ALL TABLES)
FROM (DESCRIBE ages)
EXPLAIN SELECT 1
EXPLAIN ANALYZE FROM ages
EXPLAIN (FORMAT json) FROM ages
FROM summary('ages')
FROM pragma_storage_info('ages')
FROM pragma_table_info('ages')
FROM pragma_show('ages')
FROM pragma_database_size()
FROM pragma_metadata_info()
FROM pragma_platform()
FROM pragma_version()
FROM pragma_user_agent()
FROM pragma_database_list
FROM sqlite_master
FROM sqlite_schema
SELECT reltuples FROM pg_class
FROM pg_catalog.pg_class
FROM pg_catalog.pg_attribute
FROM pg_tables
FROM pg_settings
FROM information_schema.table_constraints
FROM information_schema.key_column_usage
FROM duckdb_settings()
FROM duckdb_functions()
FROM duckdb_secrets()
FROM duckdb_logs()
FROM duckdb_logs
FROM duckdb_log_contexts()
FROM duckdb_extensions()
FROM duckdb_variables()
FROM duckdb_memory()
FROM duckdb_temporary_files()
FROM duckdb_prepared_statements()
FROM duckdb_dependencies()
FROM duckdb_sequences()
FROM duckdb_indexes()
FROM duckdb_constraints()
FROM duckdb_types()
FROM duckdb_keywords()
FROM duckdb_optimizers()
FROM duckdb_external_file_cache()
FROM duckdb_connection_count()
FROM duckdb_table_sample('ages')
FROM which_secret('x', 'quack')
FROM seq_scan('ages')
FROM arrow_scan(1, 2, 3)
FROM pandas_scan(1)
FROM python_map_function()
FROM test_all_types()
FROM repeat('x', 10)
FROM repeat_row(1, num_rows = 3)
SELECT current_setting('access_mode')
SELECT getvariable('x')
SELECT current_query()
SELECT current_database()
SELECT current_schemas(true)
SELECT current_connection_id()
SELECT txid_current()
SELECT stats(n) FROM ages
SELECT vector_type(n) FROM ages
SELECT get_block_size('memory')
SELECT in_search_path('memory', 'main')
SELECT pg_get_viewdef(1)
SELECT pg_size_pretty(1)
SELECT has_table_privilege('ages', 'select')
SELECT inet_client_addr()
SELECT version()
SELECT n FROM ages WHERE current_user() = 'x'
# --- answers of others, listings, other databases
FROM answers.main.dpduck_answer_0123456789abcdef
FROM answers.dpduck_answer_0123456789abcdef
FROM dpduck_answer_0123456789abcdef
FROM listing.main.tables
FROM listing.tables
FROM memory.main.ages
FROM system.main.duckdb_tables
FROM system.information_schema.tables
FROM temp.main.ages
FROM private.dpduck.ledger_entries
FROM dpduck.ledger_entries
FROM private.dpduck.releases
FROM dpduck.policies
FROM visits
FROM clinic.main.visits
FROM secret
SELECT * FROM release_3
FROM memory.release_3
FROM system.main.duckdb_tables()
FROM main.duckdb_tables()
FROM memory.main.dp('x')
FROM main.dp('FROM x')
# --- files
FROM read_csv('/etc/passwd')
FROM read_text('/etc/passwd')
FROM read_blob('clinic.duckdb')
FROM read_json('x.json')
FROM read_parquet('x.parquet')
FROM read_duckdb('clinic.duckdb')
FROM glob('/*')
FROM sniff_csv('/etc/passwd')
FROM parquet_metadata('x.parquet')
FROM parquet_scan('x.parquet')
FROM '/etc/passwd'
FROM 'clinic.duckdb'
FROM "clinic_private.duckdb"
FROM 'file:///etc/passwd'
SELECT * FROM '~/.duckdb/x.csv'
COPY ages TO '/tmp/out.csv'
COPY (SELECT 1) TO 'out.parquet' (FORMAT parquet)
COPY ages FROM '/etc/passwd'
EXPORT DATABASE '/tmp/out'
IMPORT DATABASE '/tmp/out'
INSTALL httpfs
LOAD httpfs
LOAD '/tmp/x.duckdb_extension'
FORCE INSTALL spatial FROM community
UPDATE EXTENSIONS
# --- changes
CREATE TABLE t AS SELECT 1
CREATE TEMP TABLE t (x INTEGER)
CREATE VIEW v AS SELECT 1
CREATE OR REPLACE VIEW ages AS SELECT 1 AS n
CREATE SCHEMA s
CREATE SEQUENCE s
CREATE TYPE mood AS ENUM ('a')
CREATE INDEX i ON ages (n)
CREATE SECRET s (TYPE quack, TOKEN 'x')
CREATE PERSISTENT SECRET s (TYPE http)
CREATE MACRO m(x) AS x + 1
CREATE FUNCTION f(x) AS x
CREATE TRIGGER t
INSERT INTO ages VALUES (1, 2)
INSERT INTO main.ages VALUES (NULL)
INSERT OR REPLACE INTO ages SELECT * FROM ages
UPDATE ages SET n = 0
DELETE FROM ages
TRUNCATE ages
MERGE INTO ages USING ages AS b ON true WHEN MATCHED THEN DELETE
DROP TABLE ages
DROP TABLE IF EXISTS ages CASCADE
DROP VIEW listing.main.tables
DROP SCHEMA main CASCADE
DROP FUNCTION dpduck_authorize
ALTER TABLE ages ADD COLUMN x INTEGER
ALTER TABLE ages RENAME TO others
COMMENT ON TABLE ages IS 'x'
DETACH answers
DETACH DATABASE IF EXISTS listing
USE listing
USE memory.main
SET schema = 'listing'
SET VARIABLE x = 1
SET threads = 1
SET memory_limit = '1KB'
SET enable_external_access = true
SET lock_configuration = false
SET GLOBAL enable_logging = true
RESET lock_configuration
PRAGMA enable_profiling
PRAGMA threads = 1
PRAGMA database_list
PRAGMA show_tables
CALL enable_logging()
CALL pragma_version()
CALL disable_logging()
CALL truncate_duckdb_logs()
FROM enable_logging()
FROM enable_profiling()
FROM disable_profiling()
FROM truncate_duckdb_logs()
FROM checkpoint()
FROM force_checkpoint()
CHECKPOINT
FORCE CHECKPOINT
VACUUM
VACUUM ANALYZE ages
ANALYZE
BEGIN TRANSACTION
COMMIT
ROLLBACK
ABORT
# --- functions that act, wait, or grow without bound
SELECT write_log('x')
SELECT sleep_ms(100000)
SELECT pg_sleep(100)
SELECT error('x')
SELECT nextval('s')
SELECT currval('s')
SELECT setseed(0.5)
SELECT random()
SELECT uuid()
SELECT gen_random_uuid()
SELECT repeat('x', 1000000000)
SELECT lpad('x', 1000000000, 'y')
SELECT rpad('x', 1000000000, 'y')
SELECT list_resize([1], 1000000000)
SELECT range(1000000000)
SELECT generate_series(1, 1000000000)
SELECT bar(1, 0, 1, 1000000000)
SELECT getenv('HOME')
SELECT parse_duckdb_log_message('x', 'y')
SELECT create_sort_key(n, 'ASC') FROM ages
SELECT can_cast_implicitly(1, 2)
SELECT cast_to_type('1', 2)
SELECT alias(n) FROM ages
SELECT format_bytes(1), current_schema()
WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) FROM t
WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < 5) SELECT * FROM t LIMIT 3
# --- nested, quoted, commented, in other letters
SELECT (SELECT count(*) FROM duckdb_settings())
SELECT * FROM ages WHERE n IN (SELECT value FROM duckdb_settings())
SELECT * FROM ages WHERE EXISTS (FROM duckdb_secrets())
WITH x AS (FROM duckdb_secrets()) FROM x
WITH x AS (WITH y AS (FROM visits) FROM y) FROM x
WITH visits AS (FROM visits) FROM visits
WITH a AS (FROM b), b AS (SELECT 1) FROM a
WITH x AS (SELECT 1) SELECT (WITH visits AS (SELECT 1) FROM visits), (SELECT count(*) FROM visits)
FROM (WITH secret AS (SELECT 1) FROM secret), secret
FROM ages UNION ALL FROM visits
FROM ages EXCEPT (FROM ages INTERSECT FROM secret)
FROM ages JOIN LATERAL (FROM duckdb_settings()) AS s ON true
FROM ages, (FROM (FROM (FROM read_text('/etc/passwd'))))
SELECT count(*) FILTER (WHERE n > (SELECT count(*) FROM visits)) FROM ages
SELECT sum(n) OVER (ORDER BY getvariable('x')) FROM ages
SELECT list_transform([1], lambda x: sleep_ms(x))
SELECT [getvariable('x') FOR y IN [1]]
SELECT CASE WHEN true THEN current_setting('threads') END
SELECT COLUMNS(c -> current_setting(c) = 'x') FROM ages
FROM ages ORDER BY random()
FROM ages GROUP BY ALL HAVING count(*) > (FROM visits SELECT count(*))
FROM ages QUALIFY row_number() OVER (ORDER BY random()) = 1
FROM ages LIMIT (SELECT count(*) FROM visits)
SELECT * REPLACE (current_setting('threads') AS n) FROM ages
PIVOT ages ON age USING sum(n)
FROM (PIVOT visits ON sex IN (0, 1) USING count(*))
FROM (UNPIVOT visits ON sex, age INTO NAME x VALUE y)
VALUES ((SELECT count(*) FROM visits))
TABLE visits
FROM/**/duckdb_settings()
FROM /* FROM ages */ visits
FROM -- ages\nvisits
fRoM DuCkDb_SeTtInGs()
FROM "duckdb_settings"()
FROM "DUCKDB_SETTINGS"()
FROM U&"visits"
FROM "v\u0130sits"
FROM \uff56isits
FROM "visits"
FROM v\u200bisits
FROM "vis""its"
FROM ages\x00; DROP TABLE ages
FROM\u00a0visits
SELECT 'x' || current_setting('threads')
SELECT 1 UNION SELECT length(current_query())
SELECT "current_setting"('threads')
SELECT main.current_setting('threads')
SELECT system.main.upper('x')
SELECT memory.main.upper('x')
SELECT pg_catalog.pg_size_pretty(1)
SELECT 'threads'.current_setting()
SELECT upper('x').getvariable()
SELECT getvariable(x := 'y')
SELECT * FROM ages AT (VERSION => 1)
FROM ages AT (TIMESTAMP => '2020-01-01')
# --- dp functions where and how they are not meant
SELECT dp('x')
SELECT dp_budget()
SELECT * FROM ages WHERE n = dp_stderr_of('ages', '1')
FROM dp()
FROM dp('x', 'y')
FROM dp(NULL)
FROM dp(42)
FROM dp(n) 
FROM ages, dp(age)
FROM dp((SELECT 'x'))
FROM dp(getvariable('x'))
FROM dp(current_setting('threads'))
FROM dp($1)
FROM dp(statement := 'x', statement := 'y')
FROM dp(other := 'x')
FROM dp('') 
FROM dp(';')
FROM dp('FROM visits')
FROM dp('SELECT count(*) FROM visits')
FROM dp('SELECT * FROM visits; SELECT 1')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward, count(*) FROM visits GROUP BY ward; DROP TABLE visits')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) patient, count(*) FROM visits GROUP BY patient')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM secret')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM private.dpduck.ledger_entries')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*), (SELECT max(word) FROM secret) FROM visits')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FILTER (WHERE error(ward)) FROM visits')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*), getvariable(''x'') FROM visits')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM read_csv(''/etc/passwd'')')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = -1) count(*) FROM visits')
FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = sex) count(*) FROM visits')
FROM dp('CREATE PRIVATE VIEW ages OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex')
FROM dp('CREATE OR REPLACE PRIVATE VIEW ages OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex')
FROM dp('CREATE PRIVATE VIEW "../x" OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex')
FROM dp('DROP PRIVATE VIEW ages')
FROM dp('DROP PRIVATE VIEW nothing')
FROM dp('DROP PRIVACY POLICY ON visits')
FROM dp('ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 1000)')
FROM dp('ALTER PRIVACY POLICY ON visits NEW EPOCH')
FROM dp('CREATE PRIVACY POLICY ON secret (PRIVACY UNIT ROW, BUDGET (epsilon = 1))')
FROM dp('CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1000))')
FROM dp('DECLARE PUBLIC TABLE secret')
FROM dp('DECLARE PUBLIC TABLE visits')
FROM dp('UNDECLARE PUBLIC TABLE wards')
FROM dp_check('visits')
FROM dp_check('wards')
FROM dp_check('visits; SELECT 1')
FROM dp_explain('ALTER PRIVACY POLICY ON visits NEW EPOCH')
FROM dp_explain('SELECT 1')
FROM dp_stderr_of('nothing', '1')
FROM dp('CREATE PRIVATE STREAM s OPTIONS (epsilon = 0.01) AS SELECT age, count(*) AS n FROM visits GROUP BY age')
FROM dp('REFRESH PRIVATE STREAM ages')
FROM dp($$ REFRESH PRIVATE STREAM s UNTIL '2024-01-01' $$)
FROM dp('DROP PRIVATE STREAM IF EXISTS s')
FROM dp_difference('ages', 'visits')
FROM dp_difference('ages', (SELECT 'visits'))
FROM dp_difference('ages', 'ages')
FROM dp_difference('ages', 'ward_cube', confidence := 9)
FROM dp_stderr_of('ages', '(SELECT count(*) FROM visits)')
FROM dp_stderr_of('ages', 'getvariable(''x'')')
FROM dp_stderr_of('ages', '1', confidence := 2)
FROM dp_stderr_of('ages', 'n')
FROM dp_ratio_of('ages', '1')
FROM dp_budget('visits')
FROM dp_ledger('alice')
FROM dp_ledger(principal := 'owner')
FROM dp('x') WITH ORDINALITY
# --- macros that read tables by name
FROM dp_project('visits', 'ages')
FROM dp_project('ages', 'visits')
FROM dp_project('ages', 'duckdb_settings')
FROM dp_project('clinic.main.visits', 'ages')
FROM dp_project('listing.main.tables', 'ages')
FROM dp_project('"ages"', 'ages')
FROM dp_project('ages''; DROP TABLE ages; --', 'ages')
FROM dp_project('ages', '(SELECT 1 AS key, 1 AS weight)')
FROM dp_project((SELECT 'ages'), 'ages')
FROM dp_project_all('ages', 'secret')
FROM dp_decode('ages', 'ages', 'secret')
FROM dp_decode('visits', 'ages', 'ages')
FROM dp_decode('ages', '/etc/passwd', 'ages')
FROM dp_project_all('/etc/passwd', 'ages')
FROM dp_project_all(getvariable('x'), 'ages')
FROM dp_sketch_point('visits', ['w1'])
FROM dp_sketch_estimates('answers.main.x', ['w1'])
FROM system.main.dp_sketch_point('ages', ['w1'])
SELECT dp_released('visits')
# --- TRY, in which COALESCE writes out of bounds; operators that nobody has looked at
SELECT TRY(COALESCE(n, 1)) FROM ages
SELECT try(n) FROM ages
SELECT TRY(CAST(COALESCE(age, n) AS BOOLEAN)) FROM ages
SELECT count(*) FILTER (WHERE TRY(n > 1)) FROM ages
SELECT n FROM ages ORDER BY TRY(COALESCE(n, age))
SELECT n FROM ages GROUP BY ALL HAVING TRY(COALESCE(n, 0)) > 1
SELECT list_transform([1], x -> TRY(COALESCE(x, 1))) FROM ages
WITH t AS (SELECT TRY(COALESCE(n, 1)) AS m FROM ages) FROM t
SELECT sum(TRY(n)) OVER () FROM ages
SELECT (SELECT TRY(max(n)) FROM ages)
FROM ages LIMIT TRY(COALESCE(1, 2))
FROM dp_stderr_of(TRY('ages'), 'n')
FROM dp_ask('s', [TRY(COALESCE('a', 'b'))])
FROM ages AS a JOIN ages AS b ON TRY(COALESCE(a.n = b.n, false))
SELECT "try"(n) FROM ages
SELECT main.try(n) FROM ages
# --- statements around others, functions that only look like ones of the list
SELECT COLUMNS(x -> TRY(x)) FROM ages
SELECT list_aggregate([1], 'duckdb_secrets') FROM duckdb_secrets()
SELECT apply([1], x -> getvariable('x'))
SELECT list_reduce([1, 2], (a, b) -> nextval('s') + a)
FROM (EXPLAIN FROM ages)
FROM query_table(['ages', 'duckdb_secrets'])
SELECT struct_extract(duckdb_settings(), 'name')
FROM histogram_values(ages, n)
SELECT write_log('x', level := 'ERROR')
SELECT current_setting('temp_directory')
SELECT txid_current(), current_query()
# --- columns, twins and prices of what is another's, or computed
FROM dp_columns('secret')
FROM dp_columns('dpduck.ledger_entries')
FROM dp_columns((SELECT 'visits'))
FROM dp_columns('visits'), dp_columns('secret')
FROM dp_columns('visits) UNION ALL FROM secret --')
FROM dp_columns('visits', 'secret')
FROM dp_draft('visits')
FROM dp_draft('secret')
FROM dp_twin('secret')
FROM dp_twin('private.dpduck.releases', 5)
FROM dp_twin('visits', 0)
FROM dp_twin('visits', 100000000)
FROM dp_twin('visits', '5')
FROM dp_twin('visits', 1.5)
FROM dp_twin('visits', range)
FROM dp_twin(['visits'], 5)
FROM dp_twin('ages', 5)
FROM dp_twin('visits"; DROP TABLE ages --', 5)
FROM dp_plan('DROP PRIVACY POLICY ON visits')
FROM dp_plan('SELECT 1; SELECT 2')
FROM dp_plan($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM secret $$)
FROM dp_plan($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM visits; FROM dp_ledger() $$)
FROM dp_plan(';;;')
FROM dp_plan('')
FROM dp_plan(NULL)
# --- plain questions, which dp_known answers: rows, other tables, and what no release determines
SELECT patient, count(*) FROM visits GROUP BY patient
SELECT ward, count(*) FROM visits WHERE patient = 3 GROUP BY ward
SELECT count(*) FROM visits HAVING count(*) > (SELECT count(*) FROM secret)
SELECT count(*), (SELECT max(word) FROM secret) AS word FROM visits
SELECT count(*) FROM visits WHERE ward IN (SELECT word FROM secret)
SELECT count(*) FROM visits WHERE error(ward) IS NULL
SELECT count(*) FROM visits WHERE write_log(ward) IS NULL
SELECT ward, count(*) FROM visits GROUP BY ward HAVING random() > 0.5
SELECT ward, max(age) FROM visits GROUP BY ward
SELECT list(patient) FROM visits
SELECT string_agg(ward, ',') FROM visits
SELECT count(*) FROM visits TABLESAMPLE 10 ROWS
SELECT count(*) FROM visits, visits AS again
SELECT count(*) FROM (FROM visits LIMIT 1)
SELECT count(*) FROM visits, ages
SELECT count(*) FROM visits UNION ALL SELECT n FROM ages
SELECT count(*) FROM visits JOIN secret ON word = ward
SELECT count(*) FROM clinic.main.secret
SELECT count(*) FROM clinic_private.dpduck.releases
SELECT age, patient FROM clinic.main.visits
SELECT count(*) FROM vault.main.visits
SELECT count(*) OVER () FROM visits
SELECT * FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) AS t, visits
SELECT count(*) FROM visits; SELECT 1
WITH ages AS (FROM visits) SELECT ward, count(*) FROM visits JOIN ages USING (ward) GROUP BY ward
SELECT ward, count(*) FROM visits GROUP BY ward INTO x
SELECT count(*) FROM visits WHERE EXISTS (SELECT 1 FROM visits AS v WHERE v.patient = 3)
# --- the state of an aggregate, in which DuckDB leaves bytes of memory
SELECT CAST(max(CAST(n AS HUGEINT)) FILTER (WHERE n IS NULL) EXPORT_STATE AS BLOB) AS x FROM ward_cube GROUP BY n
SELECT max(CAST(n AS HUGEINT)) EXPORT_STATE AS x FROM ward_cube, range(200) AS t(i) GROUP BY n, i
SELECT finalize(sum(n) EXPORT_STATE) FROM ages
