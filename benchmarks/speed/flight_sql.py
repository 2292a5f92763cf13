"""Reading a released table of a million rows over Arrow Flight SQL, with the ADBC driver, as BI tools do.

Gate: at least 2 million rows a second, median of seven reads, gate and authentication included. Informs:
the same table read from the public database's own connection, without a network.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import duckdb
import pyarrow as pa

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.audit import AuditFile
from dpduck.server.flight.listener import FlightListener
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.principals import PrincipalBook

ROWS = 1_000_000
BAR = 2_000_000  # rows a second
READS = 7
STATEMENT = "SELECT * FROM million"


def make_store(folder: Path) -> Path:
    """A clinic with a private view. Its rows are then replaced by a million, by hand."""
    database = folder / "clinic.duckdb"
    with dpduck.connect(database) as connection:
        connection.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(100)")
        for statement in (
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN (0, 1))",
            "CREATE PRIVATE VIEW million OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex",
        ):
            connection.execute("FROM dp(?)", [statement]).fetchall()
    with duckdb.connect(str(folder / "clinic_private.duckdb")) as store:
        store.execute(
            "CREATE OR REPLACE TABLE million AS SELECT 'ward ' || range % 1000 AS ward, range % 2 = 0 AS sex, "
            "CAST(range // 2000 AS INTEGER) AS age, (hash(range) % 100000)::BIGINT AS n, "
            f"sqrt(range) AS n_stderr FROM range({ROWS})"
        )
    return database


def rate(read: Callable[[], pa.Table]) -> float:
    """Rows a second, the median of several reads after one to warm up."""
    seconds = []
    for number in range(READS + 1):
        begin = time.perf_counter()
        table = read()
        if number:
            seconds.append(time.perf_counter() - begin)
        assert table.num_rows == ROWS
    return ROWS / statistics.median(seconds)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DPDUCK_STATE_DIR"] = str(folder / "state")
        database = make_store(folder)
        token = PrincipalBook(SecretsFile.open(folder / "clinic_private_secrets", create=False)).add("reader")
        service = open_service(database, None, AuditFile(folder / "audit.jsonl"), Limits())
        listener = FlightListener("localhost:0", service, Limits())
        options = {"username": "reader", "password": token}
        uri = listener.address.replace("grpc+tcp", "grpc")
        with flight_sql.connect(uri, db_kwargs=options, autocommit=True) as client, client.cursor() as cursor:

            def over_flight_sql() -> pa.Table:
                cursor.execute(STATEMENT)
                return cursor.fetch_arrow_table()

            served = rate(over_flight_sql)
        with service.public.cursor() as cursor:
            local = rate(lambda: cursor.execute(STATEMENT).to_arrow_table())
        listener.close()
        service.close()
    print(f"gate     {ROWS:,} rows over Flight SQL: {served / 1e6:.1f} million rows a second, bar {BAR / 1e6:.0f}")
    print(f"informs  the same without a network: {local / 1e6:.1f} million rows a second")
    return 0 if served >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
