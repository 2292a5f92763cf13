"""Rates and forecasts of spending, on made ledgers, against an independent computation."""

from __future__ import annotations

import random
import re
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.database.functions import answer
from dpduck.database.registered import find_database
from dpduck.store.cursors import Caller
from dpduck.store.spending import SpendingRates, days_until, last_day, warn_of_entry
from tests.support.clinics import Clinic, by

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
Entry = tuple[datetime, str, str, str | None, str]  # at, principal, unit, epsilon, rho


def rates_of(entries: list[Entry]) -> SpendingRates:
    """Returns rates over a made ledger's table, without a chain of hashes."""
    connection = dpduck.connect()
    connection.execute("ATTACH ':memory:' AS made")
    connection.execute("CREATE SCHEMA made.dpduck")
    connection.execute(
        'CREATE TABLE made.dpduck.ledger_entries ("at" TIMESTAMPTZ, principal VARCHAR, unit_key VARCHAR, '
        "epsilon VARCHAR, rho VARCHAR, delta VARCHAR)"
    )
    for at, *rest in entries:
        row = [at.isoformat(" "), *rest, "1/10000000"]
        connection.execute("INSERT INTO made.dpduck.ledger_entries VALUES (?, ?, ?, ?, ?, ?)", row)
    return SpendingRates(connection.cursor, "made")


@pytest.mark.parametrize("seed", range(4))
def test_rates_are_those_of_an_independent_sum(seed: int) -> None:
    """Random ledgers: the sum of the last 30 days over the days since the first charge, for all and for one payer."""
    draw = random.Random(seed)  # noqa: S311
    entries: list[Entry] = [
        (
            NOW - timedelta(seconds=draw.randrange(1, (5 if seed == 3 else 90) * 86_400)),
            draw.choice(("alice", "bob")),
            draw.choice(("u", "v")),
            draw.choice((None, "1/3", "2/7")),
            f"{draw.randrange(1, 50)}/1000",
        )
        for _ in range(200)
    ]
    entries.append((NOW, "owner", "u", "0/1", "0/1"))  # a declaration charges nothing
    reader = rates_of(entries)
    for payer in (None, "alice", "nobody"):
        rates = reader.by_unit(payer, NOW)
        mine = [entry for entry in entries if payer in (None, entry[1]) and entry[4] != "0/1"]
        assert rates.keys() == {entry[2] for entry in mine}
        for unit, rate in rates.items():
            of_unit = [entry for entry in mine if entry[2] == unit]
            days = min(30.0, max(1.0, (NOW - min(entry[0] for entry in of_unit)).total_seconds() / 86_400))
            late = [entry for entry in of_unit if NOW - entry[0] < timedelta(days=30)]
            assert rate.of("rho") == pytest.approx(float(sum(Fraction(entry[4]) for entry in late)) / days)
            assert rate.of("epsilon") == pytest.approx(float(sum(Fraction(entry[3] or 0) for entry in late)) / days)
            assert rate.of("delta") == pytest.approx(len(late) * 1e-7 / days)


def test_the_last_day() -> None:
    """What is left over the rate, in days from now. No rate has no last day, and neither has one after year 9999."""
    for left, per_day, days in ((Fraction(3), 0.5, 6), (Fraction(0), 0.5, 0), (Fraction(1, 3), 0.01, 33)):
        assert last_day(left, per_day, NOW) == (NOW + timedelta(days=days)).date().isoformat()
    assert last_day(Fraction(1), 0.0, NOW) is None
    assert last_day(Fraction(10**9), 1e-9, NOW) is None
    assert days_until(date(2026, 11, 30), NOW) == 0.5
    assert days_until(date(2026, 12, 2), NOW) == 2.5
    assert days_until(date(2026, 11, 1), NOW) == 0.0
    assert days_until(date.max, NOW) > 2_900_000


def test_the_list_and_the_command(tmp_path: Path) -> None:
    """dp_budget has the rate, the last day and a warning. The command adds what is spent on a day."""
    path = tmp_path / "clinic.duckdb"
    with dpduck.connect(path) as connection:
        one = Clinic(connection)
        one.fill()
        one.protect()
        assert one.rows("SELECT per_day, lasts_until, warning FROM dp_budget()") == [(0.0, None, None)]
        one.dp(by("sex", "2"))
        tomorrow = (datetime.now(UTC) + timedelta(days=4)).date()
        assert one.rows("SELECT per_day, lasts_until, warning FROM dp_budget()") == [(2.0, tomorrow, None)]
        one.dp(by("sex", "6.1"))
        assert one.value("SELECT warning FROM dp_budget()") == "81 % is spent"
        database = find_database(connection)
        assert database is not None
        assert warn_of_entry(database.ledger, 3) == "the budget of clinic.main.visits.patient: 81 % is spent"
        alice = answer(database, Caller("alice", owner=False), "budget", None)
        assert one.rows(f"SELECT spent, per_day, lasts_until FROM ({alice})") == [(8.1, 0.0, None)]
    runner = CliRunner()
    day = (datetime.now(UTC) + timedelta(days=9)).date()
    csv = runner.invoke(main, ["budget", str(path), "--forecast", day.isoformat(), "--format", "csv"])
    assert csv.exit_code == 0, csv.output
    head, row = (line.split(",") for line in csv.output.strip().split("\n"))
    then = float(dict(zip(head, row, strict=True))["spent_then"])
    assert 8.1 + 9 * 8.1 <= then <= 8.1 + 10 * 8.1
    box = runner.invoke(main, ["budget", str(path), "--forecast", day.isoformat()])
    assert f"spent on {day}" in box.output and "81 % is spent" in box.output and "lasts_until" in box.output
    far = runner.invoke(main, ["budget", str(path), "--forecast", (day + timedelta(days=191)).isoformat()])
    assert re.search(r"\b16[23]\d\d %", far.output), "200 to 202 days, 81 % each, in digits"
    refused = runner.invoke(main, ["budget", str(path), "--forecast", "soon"])
    assert refused.exit_code != 0 and "'soon' is no date; accepted: 2027-01-31" in refused.output


def test_units_by_periods_have_no_rate() -> None:
    """Each month has a budget of its own, so that no rate of the past tells when it ends."""
    with dpduck.connect() as connection:
        one = Clinic(connection)
        connection.execute("CREATE TABLE visits (patient INTEGER, sex INTEGER, day DATE)")
        one.dp(
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient PER MONTH OF day MAX ROWS 2, "
            "BUDGET (epsilon = 3) PER MONTH, DOMAIN sex IN (0, 1))"
        )
        one.dp(
            f"{by('sex', '2.9').partition(' GROUP')[0]} WHERE day >= '2024-01-01' AND day < '2024-02-01' GROUP BY sex"
        )
        rows = one.rows("SELECT per_day, lasts_until, warning FROM dp_budget()")
        assert rows == [(None, None, "96 % is spent"), (None, None, None)]
