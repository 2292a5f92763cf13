"""dpduck: differential privacy inside DuckDB."""

from dpduck.edges.connection import connect, load
from dpduck.errors import BudgetRefusal, DpduckError, PermissionRefusal, Refusal, ReleaseFailed, StoreError

__all__ = [
    "BudgetRefusal",
    "DpduckError",
    "PermissionRefusal",
    "Refusal",
    "ReleaseFailed",
    "StoreError",
    "connect",
    "load",
]
