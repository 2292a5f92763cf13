"""A served clinic with several principals while anything is killed, full, cut, swapped. Then every certificate.

What must hold: the same statement has one answer for ever, a published month never changes, no charge is lost, and no
share is exceeded. An older store is refused, the server is back soon, and the checker finds nothing wrong. The
disturbances include all attempts of a hostile principal (hostile.py). `make audit` runs two minutes of it;
DPDUCK_CHAOS_SECONDS=3600 an hour. The printed seed fixes the order of events, but not their exact times.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.database.connection import verify_store
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.publish.extensions import load_extension
from dpduck.server.principals import PrincipalBook
from dpduck.values.errors import StoreError
from tests.server.chaos import BACK, MONTHS, Chaos
from tests.server.served import count, make_clinic
from tests.server.shell import EXTENSIONS, needs_quack

PRINCIPALS, SHARE, SMALL = 16, Fraction(1, 16), Fraction(1, 1000)
"""Of the budget each principal has a share, the last one a small one, which is used up soon."""

STATEMENTS, BUDGET, PAUSE = 40, 100, 0.5
"""Different prices of a question; what all of them may cost together; seconds between two of one principal at most."""
POLICY = f"""CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = {BUDGET}),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name
)"""
STREAM = (
    f"CREATE TABLE stays AS SELECT i % 500 AS patient, DATE '2000-01-01' + (i % {MONTHS * 30})::INTEGER AS came, "
    "['a', 'b'][i % 2 + 1] AS ward FROM range(9000) AS r(i)",
    "FROM dp('CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 4), "
    "DOMAIN ward IN (''a'', ''b''), DOMAIN came RANGE 2000-01-01 TO 2024-01-01 STEP MONTH)')",
    "FROM dp('CREATE PRIVATE STREAM monthly OPTIONS (epsilon = 1) AS "
    "SELECT came, ward, count(*) AS n FROM stays GROUP BY came, ward')",
    "FROM dp('REFRESH PRIVATE STREAM monthly UNTIL ''2000-02-01''')",
)


class Asking(threading.Thread):
    """A principal who asks on and on, attaches again when the connection is gone, and keeps every answer."""

    def __init__(self, chaos: Chaos, name: str, token: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.chaos, self.named, self.token, self.rng = chaos, name, token, np.random.default_rng(seed)
        self.answers: dict[str, list[tuple[object, ...]]] = {}
        self.months: dict[tuple[object, ...], object] = {}
        self.changed: list[str] = []
        self.told: Counter[str] = Counter()
        self.asked = 0

    def run(self) -> None:
        connection = None
        while not self.chaos.over.is_set():
            try:
                connection = connection or attached(self.chaos.address, self.token)
                self._once(connection)
                time.sleep(float(self.rng.uniform(0, PAUSE)))
            except duckdb.Error as error:
                self.told[kind_of(error)] += 1
                if connection is not None:
                    with suppress(duckdb.Error):
                        connection.close()
                connection = None
                time.sleep(float(self.rng.uniform(2, 5)))  # to attach costs a fifth of a second of a processor
        if connection is not None:
            connection.close()

    def _once(self, connection: duckdb.DuckDBPyConnection) -> None:
        column = ("sex", "age", "ward")[self.rng.integers(3)]
        price = f"0.0{10 + self.rng.integers(STATEMENTS)}"
        text = count(column, price)
        kind = self.rng.integers(10)
        if kind == 0:
            text = "SELECT came, ward, n FROM monthly"
        elif kind == 1:
            made = f"CREATE OR REPLACE PRIVATE VIEW {self.named}_{column} OPTIONS (epsilon = {price}) AS "
            text = f"FROM dp($v$ {made} SELECT {column}, count(*) AS n FROM visits GROUP BY {column} $v$)"
        with connection.cursor() as cursor:
            rows = cursor.execute(f"FROM clinic.query($o$ {text} $o$)").fetchall()
        self.asked += 1
        if kind == 0:
            self.changed += [f"{row}" for row in rows if self.months.setdefault(row[:2], row[2]) != row[2]]
        elif kind > 1 and self.answers.setdefault(text, rows) != rows:
            self.changed.append(text)


def attached(address: str, token: str) -> duckdb.DuckDBPyConnection:
    """A client that is attached to a served clinic."""
    connection = duckdb.connect(config={"threads": 1})
    for name in EXTENSIONS:
        load_extension(connection, name, "")
    connection.execute(f"ATTACH '{address}' AS clinic (TOKEN '{token}')")
    return connection


def kind_of(error: duckdb.Error) -> str:
    """Returns the beginning of a client's message, without its variable parts."""
    text = "".join("0" if letter.isdigit() else letter for letter in str(error).split("\n", 1)[0])
    return text[:70]


def run_chaos(folder: Path, seconds: float) -> list[list[str]]:
    """Runs it for so long, and looks at everything afterwards. Returns answers that changed, by who asked."""
    database = make_clinic(folder, POLICY)
    with dpduck.connect(database) as con:
        for statement in STREAM:
            con.execute(statement).fetchall()
    seed = int.from_bytes(os.urandom(4), "big")
    book = PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False))
    shares = {f"p{number}": SHARE for number in range(PRINCIPALS - 1)} | {"poor": SMALL}
    tokens = {name: book.add(name, share) for name, share in shares.items()}
    chaos = Chaos(database, seed, tokens["p0"])
    asking = [Asking(chaos, name, token, seed + place) for place, (name, token) in enumerate(tokens.items())]

    def ask_once(address: str) -> None:
        with suppress(duckdb.Error), attached(address, tokens["p1"]) as connection:  # chaos records the messages
            connection.execute(f"FROM clinic.query($o$ {count('sex', '0.01')} $o$)").fetchall()

    try:
        chaos.record(ask_once)
        for one in asking:
            one.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(float(chaos.rng.uniform(0.2, 3)))
            chaos.one()
    finally:
        chaos.over.set()
        chaos.end()  # whoever waits gets the answer
        deadline = time.monotonic() + BACK
        for one in [one for one in asking if one.ident is not None]:
            one.join(max(0.1, deadline - time.monotonic()))
    answered = {(text, repr(rows)) for one in asking for text, rows in one.answers.items()}
    told = sum((one.told for one in asking), Counter[str]())
    back = sorted(chaos.back) or [0.0]
    report = {
        "seed": seed, "seconds": seconds, "answers": sum(one.asked for one in asking), "releases": len(answered),
        "done": dict(chaos.done), "months": chaos.refreshed, "told": dict(told.most_common()),
        "back": {"times": len(chaos.back), "median": back[len(back) // 2], "most": back[-1]},
        "orphans gone after": max(chaos.gone, default=0.0),
    }  # fmt: skip
    sys.stdout.write(f"{json.dumps(report)}\n")
    report["checked"] = _require_whole(folder, database, answered)
    with Path(os.environ.get("DPDUCK_CHAOS_REPORT", os.devnull)).open("a") as file:
        file.write(json.dumps(report) + "\n")
    return [one.changed for one in asking if one.changed]


def as_asked(text: str) -> str:
    """Returns the question of a charge, which is also that of a view. A price is compared as a number."""
    text = re.sub(r"(?<=epsilon = )[\d.]+", lambda found: str(float(found[0])), text)
    made = re.fullmatch(r"CREATE OR REPLACE PRIVATE VIEW \w+ OPTIONS (\(.*?\)) AS\s+SELECT (.*)", text.strip())
    return text.strip() if made is None else f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {made[1]} {made[2]}"


def _require_whole(folder: Path, database: Path, answered: set[tuple[str, str]]) -> str:
    """One answer for each statement, paid for once. Shares and the budget hold. The checker finds nothing wrong."""
    texts = [text for text, _ in answered]
    assert len(texts) == len(set(texts)), "a statement has two answers"
    assert len(texts) > 3
    deadline = time.monotonic() + 60
    while True:
        try:
            entries = verify_store(database)
            break
        except (duckdb.IOException, StoreError):  # a vault that was orphaned ends by itself
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    assert entries >= len(texts)
    done = CliRunner().invoke(main, ["ledger", str(database), "--format", "csv"])
    rows = [line.split(",") for line in done.output.splitlines() if line and line[0].isdigit()]
    assert done.exit_code == 0 and len(rows) >= len(texts)
    found = CliRunner().invoke(main, ["certify", str(database), "--to", str(folder / "bundle")])
    assert found.exit_code == 0, found.output
    check = [sys.executable, "-I", str(folder / "bundle" / "check.py"), str(folder / "bundle")]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    with duckdb.connect(str(database.with_name("clinic_private.duckdb")), read_only=True) as store:
        spent = store.execute(
            "SELECT principal, sum(CAST(split_part(epsilon, '/', 1) AS DOUBLE) / "
            "coalesce(nullif(TRY_CAST(split_part(epsilon, '/', 2) AS DOUBLE), 0), 1)) FROM dpduck.ledger_entries "
            "WHERE epsilon IS NOT NULL AND principal <> 'owner' GROUP BY ALL"
        ).fetchall()
        texts_charged = store.execute("SELECT statement FROM dpduck.ledger_entries").fetchall()
    charged = {as_asked(text or "") for (text,) in texts_charged}
    lost = [text for text in texts if as_asked(text.split("$ask$")[1]) not in charged]
    assert lost == [], "an answer that nobody is charged for"
    most = {name: BUDGET * float(SMALL if name == "poor" else SHARE) * (1 + 1e-9) for name, _ in spent}
    assert spent and all(amount <= most[name] for name, amount in spent), spent
    return run.stdout.strip()


@pytest.mark.audit
@needs_quack
def test_two_minutes_of_chaos(tmp_path: Path, state_directory: Path) -> None:
    """No answer changes, no charge is lost, no share is exceeded, and every certificate is whole."""
    changed = run_chaos(tmp_path, float(os.environ.get("DPDUCK_CHAOS_SECONDS", "120")))
    assert changed == [], "an answer that was another one the next time"
