-- For the stock DuckDB shell, 1.5.5:   DPDUCK_TOKEN=dpduck_.. duckdb -init connect.sql
-- A served clinic (dpduck serve) as a database of the shell. Once before, on each machine, the protocol's extensions:
--   duckdb -c "INSTALL httpfs; INSTALL quack FROM core_nightly"
-- or, where nothing can be downloaded, from the files of their wheels (docs/shell.md).
LOAD httpfs;
LOAD quack;

CREATE OR REPLACE SECRET dpduck (TYPE quack, TOKEN getenv('DPDUCK_TOKEN'), SCOPE 'quack:localhost:9494');
ATTACH 'quack:localhost:9494' AS clinic;

-- dp and its kin on the server, as table functions of the shell:
--   FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) sex, count(*) AS n FROM visits GROUP BY sex $$);
-- served: the name of the attached database. DuckDB asks when it plans, so EXPLAIN FROM dp(..) is charged, too.
CREATE OR REPLACE TEMP MACRO dp_quoted(words) AS
    coalesce('''' || replace(CAST(words AS VARCHAR), '''', '''''') || '''', 'NULL');
CREATE OR REPLACE TEMP MACRO dp(statement, served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp(' || dp_quoted(statement) || ')');
CREATE OR REPLACE TEMP MACRO dp_explain(statement, served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_explain(' || dp_quoted(statement) || ')');
CREATE OR REPLACE TEMP MACRO dp_errors(statement, served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_errors(' || dp_quoted(statement) || ')');
CREATE OR REPLACE TEMP MACRO dp_plan(statements, served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_plan(' || dp_quoted(statements) || ')');
CREATE OR REPLACE TEMP MACRO dp_known(statement, confidence := 0.95, target_stderr := NULL, served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_known(' || dp_quoted(statement) || ', ' ||
        coalesce(CAST(CAST(confidence AS DOUBLE) AS VARCHAR), 'NULL') || ', ' ||
        coalesce(CAST(CAST(target_stderr AS DOUBLE) AS VARCHAR), 'NULL') || ')');
CREATE OR REPLACE TEMP MACRO dp_columns(table_name := NULL, served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_columns(' || dp_quoted(table_name) || ')');
CREATE OR REPLACE TEMP MACRO dp_tables(served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'SHOW TABLES');
CREATE OR REPLACE TEMP MACRO dp_budget(served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_budget()');
CREATE OR REPLACE TEMP MACRO dp_ledger(served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_ledger()');
CREATE OR REPLACE TEMP MACRO dp_policies(served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_policies()');
CREATE OR REPLACE TEMP MACRO dp_releases(served := 'clinic') AS TABLE
    FROM quack_query_by_name(served, 'FROM dp_releases()');
