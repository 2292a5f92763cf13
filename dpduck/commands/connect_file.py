"""A principal's own connect.sql: the address, the token as a secret, and dp with its kin as macros of the shell."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_text

ADDRESS, NAME = "quack:localhost:9494", "clinic"
"""The address and the database's name in sql/connect.sql."""

TO_OUTPUT = Path("-")
_FROM_ENVIRONMENT = "getenv('DPDUCK_TOKEN')"
_HEAD = "-- For the stock DuckDB shell, 1.5.5:   duckdb -init THIS_FILE\n-- It has a token: keep it to yourself.\n"
_SHAPE = re.compile(r"quack:(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_SHELL = frozenset(("main", "memory", "system", "temp"))


def require_new_file(path: Path, address: str) -> None:
    """Refuses a file that is there already, and an address that no shell can attach."""
    shape = _SHAPE.fullmatch(address)
    if shape is None or not 0 < int(shape["port"] or 9494) < 65_536:
        raise Refusal(f"{address[:200]!r} is no address", accepted=f"{ADDRESS}, or quack:HOST:PORT")
    if path != TO_OUTPUT and os.path.lexists(path):
        raise Refusal(f"{path} exists", accepted="the name of a new file")


def write_new_file(path: Path, text: str) -> None:
    """Writes a file that only its owner reads. Refuses one that is there already, and leaves no part of a file."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {error.strerror}", accepted="a new file in your folder") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise Refusal(f"{path} cannot be written: {error.strerror}", accepted="a disk with room") from None


def connect_sql(address: str, token: str, database: Path) -> str:
    """Returns sql/connect.sql for one principal. Beyond this machine, the connection has TLS with a known certificate.

    The database's name in the shell is that of its file, if that is a plain name and none of the shell's own.
    """
    from dpduck.server import LOOPBACK  # noqa: PLC0415

    name = database.stem if _PLAIN.fullmatch(database.stem) and fold(database.stem) not in _OF_THE_SHELL else NAME
    shape = _SHAPE.fullmatch(address)
    here = shape is not None and shape["host"].lower() in LOOPBACK
    attach = f'ATTACH {quote_text(address)} AS "{name}"'
    encrypted = f"SET enable_server_cert_verification = true;\n{attach} (DISABLE_SSL false);"
    text = _read_connect_sql()
    text = text[text.index("LOAD httpfs;") :]
    for old, new in (
        (_FROM_ENVIRONMENT, quote_text(token)),
        (f"ATTACH '{ADDRESS}' AS {NAME};", f"{attach};" if here else encrypted),
        (f"'{ADDRESS}'", quote_text(address)),
        (f"'{NAME}'", quote_text(name)),
    ):
        text = text.replace(old, new)
    return _HEAD + text


def _read_connect_sql() -> str:
    """Reads sql/connect.sql, which lies beside the modules in a wheel, and beside the package in a checkout."""
    from importlib.resources import files  # noqa: PLC0415

    installed = files("dpduck").joinpath("sql/connect.sql")
    beside = Path(__file__).parents[2] / "sql" / "connect.sql"
    return (installed if installed.is_file() else beside).read_text(encoding="utf-8")
