"""Linear algebra on one thread: on a busy machine, threads that wait for each other make small matrices far slower."""

from __future__ import annotations

from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits


def one_thread() -> AbstractContextManager[object]:
    """Limits every BLAS of the process to one thread while the context lasts."""
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
