"""Asks a statement of a database in little memory, and counts its charges."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

import dpduck


def outcome(made: Iterable[str], policies: Iterable[str], asked: str, memory: str = "300MB") -> tuple[str, int]:
    """Returns "answered", or the error's beginning, and the number of charges. policies: the owner's statements."""
    with dpduck.connect(config={"memory_limit": memory, "temp_directory": "", "threads": 2}) as con:
        for sql in made:
            con.execute(sql)
        for sql in policies:
            con.execute("FROM dp(?)", [sql])
        try:
            con.execute("FROM dp(?)", [asked]).fetchall()
            said = "answered"
        except duckdb.Error as error:
            said = str(error)[:200]
        ((charges,),) = con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall()
        return said, int(charges)
