"""A place that the rows of a statement's tables lie in. All places have one protocol: live, prepared, and an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

import duckdb

from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.worker.workers import Workers

Over = Callable[[CountingJob], CountingJob]
"""A job as it is counted in a place: what is counted stays what it was."""

Opened = tuple[duckdb.DuckDBPyConnection, Over]


class Place(ABC):
    """Where rows are counted.

    moment: of the rows, equal for rows that were written together. "": they may change.
    is_live: whether the rows are those of the tables themselves, in this process.
    """

    moment: str = ""
    is_live: bool = False

    @abstractmethod
    def opened(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> AbstractContextManager[Opened]:
        """Lends a cursor that reads the rows, and tells what becomes of each job.

        cursor: in the transaction in which public facts were looked at.
        """

    @abstractmethod
    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        """Tells whether these columns of a table are a key of the rows that will be counted."""

    def doubt(self) -> None:  # noqa: B027  # most places have nothing to note
        """Notes that something could not be counted here."""
