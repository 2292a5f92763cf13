"""dpduck: differential privacy inside DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpduck.values.errors import BudgetRefusal, DpduckError, PermissionRefusal, Refusal, ReleaseFailed, StoreError

if TYPE_CHECKING:
    from dpduck.database.connection import attach_spark, connect, load

__all__ = [
    "BudgetRefusal",
    "DpduckError",
    "PermissionRefusal",
    "Refusal",
    "ReleaseFailed",
    "StoreError",
    "attach_spark",
    "connect",
    "load",
]


def __getattr__(name: str) -> Any:
    """Imports the functions at their first use. A server's process does without its 200 modules."""
    if name not in ("attach_spark", "connect", "load"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpduck.database import connection  # noqa: PLC0415

    return getattr(connection, name)


def __dir__() -> list[str]:
    """Lists the public names, for completion in notebooks."""
    return __all__
