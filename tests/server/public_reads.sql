# What would reach private rows from inside a DuckDB: one statement a line; {file} and {folder} are private.
FROM read_csv('{file}')
FROM read_text('{file}')
FROM read_blob('{file}')
FROM read_duckdb('{file}')
FROM '{file}'
ATTACH '{file}' AS v
ATTACH '{file}' AS v (READ_ONLY)
ATTACH 'file:{file}' AS v
COPY ages TO '{folder}/out.csv'
COPY ages FROM '{file}'
FROM glob('{folder}/*')
FROM sniff_csv('{file}')
EXPORT DATABASE '{folder}/out'
CREATE TABLE t AS FROM '{file}'
IMPORT DATABASE '{folder}'
INSTALL httpfs
LOAD '{file}'
SET enable_external_access = true
SET lock_configuration = false
RESET lock_configuration
SET disabled_filesystems = ''
RESET disabled_filesystems
SET allowed_directories = ['{folder}']
SET allowed_paths = ['{file}']
SET python_enable_replacements = true
SET temp_directory = '{folder}'
FROM private_frame
SET GLOBAL enable_external_access = true
PRAGMA enable_external_access
SET home_directory = '{folder}'
FROM parquet_metadata('{file}')
SET secret_directory = '{folder}'
CREATE PERSISTENT SECRET s (TYPE quack, TOKEN 'x')
SELECT getenv('HOME')
FROM read_json('{file}')
