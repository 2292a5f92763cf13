"""Import hook against pandas in dpduck's own processes. DuckDB and Arrow would import it, and dpduck never uses it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _PandasBlocker(MetaPathFinder):
    """Import finder that raises for pandas as if it were not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed here", name=fullname)


def do_without_pandas() -> None:
    """Keeps DuckDB from importing pandas for bound parameters, which takes 0.3 s and 90 MB in every process."""
    sys.meta_path.insert(0, _PandasBlocker())
