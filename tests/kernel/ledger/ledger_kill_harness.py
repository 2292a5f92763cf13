"""Kills a process at every step of opening a ledger and charging it. test_ledger_kill runs this as a script.

The parent never opens DuckDB. Each child is forked clean, opens the store and charges. It reports every charge that
returned through a pipe before anything else can happen to it. Arguments: an empty directory, "steps" or "moments", the
number of children, and a seed of the steps. Prints how many children were killed at which step.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.values.privacy import ZERO, Budget, Charge
from tests.support.kills import print_account, run_child

UNIT = "main.patients.id"
MOST_STEPS = 18


def open_ledger(directory: Path, steps: object = None) -> Ledger:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(f"ATTACH '{directory}/clinic_private.duckdb' AS private")
    options = {} if steps is None else {"steps": steps}
    return Ledger.open(
        connection.cursor,
        "private",
        secrets_path=directory / "clinic_secrets",
        witness_directory=directory / "state",
        **options,  # type: ignore[arg-type]
    )


def child(directory: Path, pipe: int, kill_at: int, charges: int) -> None:
    """Charges, reports, and dies at the given step. Names of steps go through the pipe, too."""
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.write(pipe, f"killed {name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    ledger = open_ledger(directory, step)
    if ledger.budget(UNIT) is None:
        ledger.declare_budget(UNIT, "visits", Budget(Fraction(10**6), ZERO, ZERO, None), "owner", "CREATE")
    known = len(ledger.entries())
    os.write(pipe, f"opened {known} {int(ledger.spent(UNIT).epsilon or 0)}\n".encode())
    for _ in range(charges):
        entry = ledger.charge(UNIT, "visits", Charge.pure(Fraction(1)), "alice", "statement", "noise")
        os.write(pipe, f"charged {entry}\n".encode())


def check(directory: Path, returned: set[int], charged: int) -> None:
    """Opens the store as its owner would: it is whole, has every charge that returned, and no more than were begun."""
    ledger = open_ledger(directory)
    ledger.verify()
    entries = ledger.entries()
    ids = {entry.id for entry in entries if entry.budget is None}
    assert returned <= ids, "a charge that returned is not in the ledger"
    assert len(ids) <= charged, "a charge appeared that nobody asked for"
    assert ledger.spent(UNIT).epsilon == len(ids), "the sum is not that of the entries"


def main(directory: Path, mode: str, children: int, seed: int = 2) -> None:
    returned: set[int] = set()
    killed: Counter[str] = Counter()
    begun = 0
    # The steps of each opening depend on the last kill.
    steps = np.random.default_rng(seed).integers(MOST_STEPS, size=children).tolist()
    for number in range(children):
        steps_of = (1 + steps[number], 2) if mode == "steps" else (0, 10**6)
        # every other child that is killed at a moment charges at least once, however slow the machine is
        word = "" if mode == "steps" else ("opened", "charged")[number % 2]
        report = run_child(
            lambda pipe, steps_of=steps_of: child(directory, pipe, *steps_of),  # type: ignore[misc]
            word,
            secrets.randbelow(150_000) / 1e6,
        )
        lines = [line.split(maxsplit=1) for line in report]
        charged = [int(rest) for word, rest in lines if word == "charged"]
        killed.update(rest for word, rest in lines if word == "killed")
        opened = [int(rest.split()[1]) for word, rest in lines if word == "opened"]
        assert all(spent >= len(returned) for spent in opened), "a charge was lost"
        returned.update(charged)
        begun += len(charged) + 1
    run_child(lambda _: check(directory, returned, begun))
    print_account(killed, "returned", len(returned))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
