"""A hostile principal as a process: python -m tests.server.hostile PORT TOKEN SECONDS.

Everything at once, for so many seconds: statements without measure, large views and floods of small releases at the
smallest price, wide results, connections, wrong tokens, slow sockets, attacks of the lists. The answers do not matter.
It prints how often each kind was tried.
"""

from __future__ import annotations

import itertools
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import duckdb

from dpduck.publish.extensions import load_extension
from tests.server.shell import EXTENSIONS
from tests.server.statement_lists import statements

LONG = "x" * 15_000
HEAVY = (
    f"SELECT sum(levenshtein('{LONG}' || n, n || '{LONG}')) FROM ages, range(500)",
    f"SELECT max(length(replace(replace('{LONG}' || n, 'x', '{LONG[:800]}'), 'x', '{LONG}'))) FROM ages",
    "SELECT sum(hash(a.range)) FROM range(3000000000) AS a",
    "SELECT length(list(a.range + b.range)::VARCHAR) FROM range(100000) AS a, range(100000) AS b",
    "SELECT count(*) FROM ages a, ages b, ages c WHERE a.n + b.n + c.n = 3",
    "SELECT n + n AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(40)) + " FROM ages",
    "FROM dp(format('{:>200000000}', 'a'))",
    "SELECT max(length(format('{:>200000000}', n))) FROM ages",
)
WIDE = f"SELECT {', '.join(f'hash(a.range + {number}) AS c{number}' for number in range(60))} FROM range({{}}) AS a"
VIEW = (
    "FROM dp('CREATE PRIVATE VIEW big{0} OPTIONS (epsilon = 0.001, refresh = ''{0}'') AS "
    "SELECT age, count(*) AS n FROM visits GROUP BY age')"
)
SMALL = (
    "FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001, refresh = ''{}'') sex, count(*) AS n "
    "FROM visits GROUP BY sex')"
)
BARE = (
    "-- {0}\nSELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001, refresh = '{0}') ward, count(*) AS n "
    "FROM visits GROUP BY ward;"
)
PLANNED = (
    "FROM dp_explain('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {} FROM visits GROUP BY CUBE (sex, ward)')"
)


KINDS = frozenset({"heavy", "wide", "views", "releases", "bare", "plans", "attacks", "connections"})
"""All that it does."""

AT_LEAST_ONCE = 40.0
"""Seconds after its time in which each of them is still tried once: on a busy machine a release waits for its turn."""


class Hostile:
    """The attempts of one principal with one token."""

    def __init__(self, port: int, token: str, seconds: float) -> None:
        self.port, self.token, self.end = port, token, time.monotonic() + seconds
        self.tried: Counter[str] = Counter()
        self.numbers = itertools.count()
        self.source = random.Random(7)  # noqa: S311

    def attach(self, token: str) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"threads": 1})
        for name in EXTENSIONS:
            load_extension(connection, name, "")
        connection.execute(f"ATTACH 'quack:localhost:{self.port}' AS clinic (TOKEN '{token}')")
        return connection

    def asking(self, kind: str, text: Callable[[], str]) -> None:
        """Asks again and again, once at least, over a connection that is opened anew where it was lost."""
        connection = None
        while time.monotonic() < self.end or not self.tried[kind]:
            try:
                connection = connection or self.attach(self.token)
                with connection.cursor() as cursor:
                    cursor.execute(f"FROM clinic.query($o${text()}$o$)").fetchmany(10)
            except (duckdb.Error, UnicodeError) as error:
                if "not known any longer" in str(error) or "Could not" in str(error):
                    connection = None
                    time.sleep(0.5)
            self.tried[kind] += 1

    def connecting(self) -> None:
        """Connections of this token and of none, that are left open."""
        kept: list[object] = []
        while time.monotonic() < self.end:
            with suppress(duckdb.Error, OSError):
                kept.append(self.attach(self.token if self.source.random() < 0.5 else "dpduck_guess"))
                slow = socket.create_connection(("localhost", self.port), 5)
                slow.sendall(b"POST /quack HTTP/1.1\r\nContent-Length: 100000\r\n\r\nx")
                kept.append(slow)
            del kept[:-20]  # a proxy would let through as much
            self.tried["connections"] += 1
            time.sleep(0.05)

    def run(self) -> None:
        attacks = [*statements("attacks.sql"), *statements("bare.sql")]
        work: list[Callable[[], None]] = [self.connecting]
        for kind, text in (
            ("heavy", lambda: self.source.choice(HEAVY)),
            ("heavy", lambda: self.source.choice(HEAVY)),
            ("heavy", lambda: self.source.choice(HEAVY)),
            ("wide", lambda: WIDE.format(self.source.randrange(10_000, 200_000))),
            ("views", lambda: VIEW.format(next(self.numbers))),
            ("releases", lambda: SMALL.format(next(self.numbers))),
            ("bare", lambda: BARE.format(next(self.numbers))),
            ("plans", lambda: PLANNED.format(f"count(*) AS n{next(self.numbers)}")),
            ("attacks", lambda: self.source.choice(attacks)),
        ):
            work.append(lambda kind=kind, text=text: self.asking(kind, text))  # type: ignore[misc]
        threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.end - time.monotonic()) + 5)
        while not all(self.tried[kind] for kind in KINDS) and time.monotonic() < self.end + AT_LEAST_ONCE:
            time.sleep(0.1)


if __name__ == "__main__":
    hostile = Hostile(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    hostile.run()
    print(json.dumps(hostile.tried), flush=True)  # noqa: T201
