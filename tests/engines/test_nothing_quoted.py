"""Nothing of rows, labels or the bounding key is in errors, plans, logs or events of client, driver or worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dpduck.database.functions import database_of
from dpduck.engines import spark
from dpduck.engines.task import task_of
from dpduck.kernel.places.orders import Order
from dpduck.kernel.rows.bounding import key_integer
from tests.engines.conftest import Lake

ROW, LABEL = "canary-of-a-row", "canary-of-a-label"
POLICY = (
    "CREATE PRIVACY POLICY ON lake.db.{} (PRIVACY UNIT unit MAX ROWS 2, BUDGET (epsilon = 100), "
    f"DOMAIN text IN ('{LABEL}', 'b'))"
)
ASK = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{}') text, count(*) FROM lake.db.{} "
    "WHERE CAST(text AS INTEGER) > 3 OR text > 'a' GROUP BY text"
)


@pytest.mark.parametrize("carry_name", ["carry", "carry_packed"])
def test_canaries(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], carry_name: str
) -> None:
    """One statement is answered, and the task of another fails and quotes a row. Also prepared."""
    said_there = spark.SparkEngine._fetch_results

    def planned(self: spark.SparkEngine, found: Any) -> Any:
        found.explain(extended=True)  # to standard output
        return said_there(self, found)

    monkeypatch.setattr(spark.SparkEngine, "_fetch_results", planned)
    lake.put(3, quoted=pa.table({"unit": [1, 2, 3], "text": [ROW, LABEL, "b"]}))
    lake.dp(POLICY.format("quoted"))
    if carry_name == "carry_packed":
        lake.dp("ALTER PRIVACY POLICY ON lake.db.quoted PREPARE")
    lake.same(ASK.format("a", "quoted"))

    def failing(order: Order, *of: str) -> Any:
        return task_of(replace(order, stage_sql=f"SELECT CAST(text AS BIGINT) FROM {order.tables[0].sql}"), *of)

    errors, carry = list[str](), getattr(spark.SparkEngine, carry_name)

    def telling(*given: Any) -> Any:
        try:
            yield from carry(*given)
        except Exception as error:
            errors.append(str(error))
            raise

    monkeypatch.setattr(spark, "task_of", failing)
    monkeypatch.setattr(spark.SparkEngine, carry_name, telling)
    said = lake.refused(ASK.format("b", "quoted"))
    loaded = database_of(lake.con)
    assert loaded is not None
    key = loaded.ledger.bounding_key
    plans = capfd.readouterr()
    assert "Logical Plan" in plans.out, "plans are searched, too"
    log = lake.server.said() + "".join([*errors, *plans])
    assert "the charge stays, nothing was released" in said
    assert "counting failed" in errors[0], "a task failed, quoting a row to whoever listens"
    for secret in (ROW, LABEL, str(key_integer(key)), key.hex()):
        assert secret not in said
        assert secret not in log


def test_an_engine_that_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of a job after its charge, the charge stays and the text is the fixed one."""
    lake.put(3, ended=pa.table({"unit": [1, 2, 3], "text": [ROW, LABEL, "b"]}))
    lake.dp(POLICY.format("ended"))
    monkeypatch.setattr(spark.SparkEngine, "carry", lambda *_: (_ for _ in ()).throw(OSError(ROW)))
    said = lake.refused(ASK.format("a", "ended"))
    assert "the charge stays, nothing was released" in said and ROW not in said
    assert lake.con.execute("SELECT count(*) FROM dp_ledger() WHERE epsilon = 1").fetchone() == (1,)
