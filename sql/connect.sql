-- For the stock DuckDB shell, 1.5.5 or newer of the same line:   duckdb -init connect.sql
-- A served clinic (dpduck serve) as a database of the shell. Put your token where it says so, or leave it out of the
-- file: SET VARIABLE dpduck_token = getenv('DPDUCK_TOKEN') in the next line.
SET VARIABLE dpduck_token = getenv('DPDUCK_TOKEN');

-- The protocol's extensions. Where nothing can be downloaded: LOAD '<file of the wheel duckdb-extension-quack>'.
INSTALL httpfs;
INSTALL quack FROM core_nightly;
LOAD httpfs;
LOAD quack;

CREATE OR REPLACE SECRET dpduck (TYPE quack, TOKEN getvariable('dpduck_token'));
ATTACH 'quack:localhost:9494' AS clinic;
