"""A database file with the header of a newer DuckDB."""

from __future__ import annotations

import struct
from functools import reduce
from pathlib import Path

HEADER = 4096
"""Bytes of the main header: a checksum, the letters DUCK, the format's number, and the writer."""

FORMAT, WRITER = slice(12, 20), slice(52, 84)
NEWEST = 9999
"""Number of a format that no DuckDB reads."""


def make_newer(path: Path) -> Path:
    """Changes a file's header so that this DuckDB refuses to open it, as 1.5 refuses a file of 2.0."""
    data = bytearray(path.read_bytes())
    data[FORMAT] = struct.pack("<Q", NEWEST)
    data[WRITER] = b"v9.0.0".ljust(WRITER.stop - WRITER.start, b"\0")
    data[:8] = struct.pack("<Q", checksum(bytes(data[8:HEADER])))
    path.write_bytes(bytes(data))
    return path


def checksum(data: bytes) -> int:
    """DuckDB's checksum of a block: the numbers of eight bytes, each multiplied, combined by XOR."""
    numbers = struct.unpack(f"<{len(data) // 8}Q", data)
    return reduce(lambda sum_, number: sum_ ^ (number * 0xBF58476D1CE4E5B9 & (1 << 64) - 1), numbers, 5381)
