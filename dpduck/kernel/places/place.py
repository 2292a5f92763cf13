"""Place where the rows of a statement's tables lie: live, prepared, or in an engine. All places have one protocol."""

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
    """Place of the rows that are counted.

    moment: the moment of the rows, equal for rows that were written together. "" if they may change.
    is_live: whether the rows are those of the tables themselves, in this process.
    """

    moment: str = ""
    is_live: bool = False

    @abstractmethod
    def opened(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> AbstractContextManager[Opened]:
        """Lends a cursor that reads the rows, and the function that rewrites each job.

        cursor: cursor in the transaction that read the public facts.
        """

    @abstractmethod
    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        """Tells whether these columns of a table are a key of the rows that will be counted."""

    def doubt(self) -> None:  # noqa: B027  # most places have nothing to note
        """Notes that something could not be counted here."""
