-- For the stock DuckDB shell, 1.5.5:   DPDUCK_TOKEN=dpduck_.. duckdb -init connect.sql
-- A served clinic (dpduck serve) as a database of the shell. Once before, on each machine, the protocol's extensions:
--   duckdb -c "INSTALL httpfs; INSTALL quack FROM core_nightly"
-- or, where nothing can be downloaded, from the files of their wheels (docs/shell.md).
LOAD httpfs;
LOAD quack;

CREATE OR REPLACE SECRET dpduck (TYPE quack, TOKEN getenv('DPDUCK_TOKEN'));
ATTACH 'quack:localhost:9494' AS clinic;
