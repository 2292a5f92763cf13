"""Tables in DuckLake, and the checks by which some are refused.

DuckLake's Parquet files have no HUGEINT (DOUBLE instead, and a number that was rounded up cannot be read back), no
microseconds of an INTERVAL and no zone of a time. Only few rows that are inserted at once stay unchanged, with the
metadata, so the number of other rows would decide the value of a row. A file of another program, which DuckLake
recognises by names of columns (mapping_id), may have texts that are not UTF-8.
"""

from __future__ import annotations

import duckdb

from dpduck.language.text.names import TableName
from dpduck.store.table_columns import columns_of_table
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

_FILES = """
SELECT coalesce(bool_and(coalesce(known.own, false)), true) FROM (
    SELECT DISTINCT parse_filename(data_file) AS name FROM ducklake_list_files({lake}, {table}, schema => {schema})
    WHERE data_file IS NOT NULL
) AS listed LEFT JOIN (
    SELECT parse_filename(path) AS name, bool_and(mapping_id IS NULL) AS own
    FROM {metadata}.ducklake_data_file GROUP BY ALL
) AS known USING (name)
"""
"""SQL that tells whether DuckLake wrote every file of a table that this transaction reads. A file that is merged or
added meanwhile is in only one of the two lists, and counts as another program's.
"""


def require_written_by_ducklake(
    cursor: duckdb.DuckDBPyConnection, table: TableName, catalog: str | None, place: str | None
) -> None:
    """Refuses wide integers, intervals, times with a zone, and files that another program wrote.

    catalog, place: the database and the schema of DuckLake's metadata, None for DuckLake's usual names.
    """
    kinds = {name: sql_type(type_name) for name, type_name in columns_of_table(cursor, table).items()}
    long = [name for name, kind in kinds.items() if kind.mentions("HUGEINT", "UHUGEINT")]
    if long:
        name = quote_identifier(long[0])
        raise Refusal(
            f"{table}.{long[0]} is HUGEINT or UHUGEINT, which DuckLake writes as DOUBLE and cannot always read back",
            accepted=f"a copy: CREATE TABLE .. AS SELECT * REPLACE (CAST({name} AS DECIMAL(38, 0)) AS {name}) FROM "
            f"{table}",
        )
    shortened = [name for name, kind in kinds.items() if kind.mentions("INTERVAL", "TIME WITH TIME ZONE")]
    if shortened:
        name = quote_identifier(shortened[0])
        raise Refusal(
            f"{table}.{shortened[0]} is an INTERVAL or a time with a zone, which DuckLake shortens in some rows",
            accepted=f"a copy: CREATE TABLE .. AS SELECT * REPLACE (CAST({name} AS VARCHAR) AS {name}) FROM {table}",
        )
    lake, schema, name = table.parts
    metadata = quote_identifier(catalog or f"__ducklake_metadata_{lake}")
    if place is not None:
        metadata = f"{metadata}.{quote_identifier(place)}"
    asked = _FILES.format(lake=quote_text(lake), table=quote_text(name), schema=quote_text(schema), metadata=metadata)
    try:
        ((own,),) = cursor.execute(asked).fetchall()
    except duckdb.Error:
        raise Refusal(
            f"DuckLake does not say which files of {table} it wrote",
            accepted="ATTACH 'ducklake:..' with METADATA_CATALOG and METADATA_SCHEMA written out, not in a secret",
        ) from None
    if not own:
        raise Refusal(
            f"{table} has files that DuckLake did not write, as ducklake_add_data_files adds them: a text in one may "
            "be no UTF-8, and such a row makes reading fail",
            accepted=f"a copy, which DuckLake writes: CREATE TABLE .. AS FROM {table}",
        )
