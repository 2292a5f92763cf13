"""A released folder as its reader sees it: its files, its check, and the charges that the ledger has for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import dpduck

ALWAYS = {
    "check.py", "manifest.json", "plan.sql", "certificates/certificates.json", "certificates/check.py",
    "data/views.duckdb", "data/parquet/dpduck_releases.parquet", "documents/report.html",
}  # fmt: skip
OF_A_UNIT = ("label.html", "methods.md", "registry_record.yaml", "codebook.html", "codebook.csv")


def files_of(views: Collection[str], units: int = 1) -> set[str]:
    """Returns the names of the files that a release of some views has. units: the number of their privacy units."""
    ends = [""] if units == 1 else [f"_{number}" for number in range(1, units + 1)]
    documents = {f"documents/{Path(name).stem}{end}{Path(name).suffix}" for name in OF_A_UNIT for end in ends}
    data = {f"data/{form}/{view}.{form}" for form in ("parquet", "csv") for view in views}
    return ALWAYS | documents | data


def read_files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a folder by their names."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def charges(database: Path) -> list[tuple[Any, ...]]:
    """Returns the charges in the ledger of a database."""
    with dpduck.connect(database) as con:
        return con.execute("SELECT id, mechanism, rho FROM dp_ledger() WHERE rho > 0 ORDER BY id").fetchall()


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs check.py of a released folder."""
    return subprocess.run([sys.executable, "check.py"], cwd=folder, capture_output=True, text=True, check=False)
