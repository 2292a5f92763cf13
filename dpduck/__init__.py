"""dpduck: differential privacy inside DuckDB."""

from dpduck.engine.connection import attach_spark, connect, load
from dpduck.values.errors import BudgetRefusal, DpduckError, PermissionRefusal, Refusal, ReleaseFailed, StoreError

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
