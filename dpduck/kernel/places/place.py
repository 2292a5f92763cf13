"""Place where the rows of a statement's tables lie: stored tables, prepared copies, or another engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

import duckdb

from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.worker.workers import Workers

Over = Callable[[CountingJob], CountingJob]
"""Function that rewrites a job for a place. The meaning of the counts stays the same."""

Opened = tuple[duckdb.DuckDBPyConnection, Over]


class RowPlace(ABC):
    """Place of the rows that are counted. is_live: whether this process counts the rows in the stored tables.

    moment: text that identifies when the rows were prepared, equal for rows written together. "" if rows may change.
    """

    moment: str = ""
    is_live: bool = False

    @abstractmethod
    def open_rows(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> AbstractContextManager[Opened]:
        """Yields a cursor that reads the rows, and a function that rewrites each job. cursor: it read public facts."""

    @abstractmethod
    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        """Tells whether the columns `key` are a unique key of the rows that will be counted."""

    def doubt(self) -> None:  # noqa: B027  # most places have nothing to note
        """Notes that a job could not be counted at this place."""
