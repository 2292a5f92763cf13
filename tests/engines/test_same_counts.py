"""An engine counts what DuckDB counts, cell by cell."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from tests.engines.conftest import Lake
from tests.engines.corpus import POLICY, STATEMENTS, rows
from tests.support.sail_server import Sail
from tests.test_sql_reference import PAGES


def visits(lake: Lake, name: str, unit: str, count: int = 3000, buckets: int = 3) -> None:
    lake.public("wards", "FROM (VALUES ('north'), ('south'), ('west'), ('nörth')) AS t(name)")
    lake.sail.session.sql("DROP TABLE IF EXISTS db.visits").collect()
    lake.put(buckets, visits=rows(count))
    lake.dp(POLICY.format(unit=unit))


def test_every_form_of_statement(lake: Lake, tmp_path: object) -> None:
    """Awkward values, texts, moments, sums, quantiles, joins, keys, summaries, synthetic data and projections."""
    visits(lake, "visits", "patient_id MAX ROWS 3")
    found = {title: lake.same(statement) for title, statement in STATEMENTS.items()}
    assert all(found.values()), "each counts something"
