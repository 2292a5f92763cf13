"""A bundle of certificates of a database that a test fills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main


@contextmanager
def certified(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Returns a database in a folder. At the end the command makes a bundle of its releases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect(folder / "clinic.duckdb") as con:
            yield con
        found = CliRunner().invoke(main, ["certify", str(folder / "clinic.duckdb"), "--to", str(folder / "bundle")])
        assert found.exit_code == 0, found.output
