"""Alerts: each once when its condition begins, in the log and on standard error, and again only after it has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpduck.server.audit import AuditFile
from dpduck.server.local_vault import LocalVault
from dpduck.server.operations import alerts
from dpduck.server.operations.alerts import Alerts
from dpduck.server.operations.figures import Figures
from dpduck.store.spending import spent_shares
from dpduck.values.errors import StoreError
from tests.server.served import NoAudit, Served, count

WELL = Figures(True, 1.0, {"visits": 0.1}, free_bytes=10**12)
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass
class Log(NoAudit):
    """An audit log in memory, which may be broken."""

    lines: list[str] = field(default_factory=list)
    broken: bool = False

    def note(
        self,
        principal: str | None,
        event: str,
        statement: str = "",
        *,
        why: str = "",
        **_: object,
    ) -> None:
        if self.broken:
            raise StoreError("the disk is full; accepted: room")
        assert (principal, event, statement) == (None, "alert", "")
        self.lines.append(why)


class Watch:
    """Alerts with a clock of their own, and their lines."""

    def __init__(self) -> None:
        self.log, self.said, self.now = Log(), list[Mapping[str, str]](), 0.0
        self.alerts = Alerts(self.log, lambda line: self.said.append(json.loads(line)), lambda: self.now)

    def new(self, figures: Figures, now: datetime = NOW) -> list[str]:
        """The kinds of the alerts that these figures begin, which are the same in both places."""
        said, noted = len(self.said), len(self.log.lines)
        self.alerts.look(figures, now)
        found = self.said[said:]
        if not self.log.broken:
            assert self.log.lines[noted:] == [f"{line['alert']}: {line['why']}" for line in found]
        assert all(set(line) == {"at", "alert", "why"} and "\n" not in line["why"] for line in found)
        return [line["alert"] for line in found]


def test_a_budget_is_said_at_four_fifths_and_at_its_end() -> None:
    """Once each. Spending on says nothing more. A budget that was raised may be said again."""
    watch = Watch()
    steps = [
        (0.1, 0),
        (0.79999, 0),
        (0.8, 1),
        (0.85, 0),
        (0.99999, 0),
        (1.0, 1),
        (1.0, 0),
        (0.9, 0),
        (0.3, 0),
        (0.81, 1),
    ]
    for share, times in steps:
        assert watch.new(replace(WELL, spending={"visits": share})) == ["budget"] * times, share
    assert [line["why"] for line in watch.said] == [
        "the budget of visits: 80 % is spent", "the budget of visits: all of it is spent",
        "the budget of visits: 81 % is spent",
    ]  # fmt: skip
    assert watch.new(replace(WELL, spending={"visits": 0.81, "claims": 1.0})) == ["budget"], "each has its own"


def test_a_restart_of_the_vault_is_said() -> None:
    """Each time, with their number. None for the first start."""
    watch = Watch()
    assert watch.new(WELL) == []
    assert watch.new(replace(WELL, restarts=1)) == ["vault"] and watch.new(replace(WELL, restarts=1)) == []
    assert watch.new(replace(WELL, restarts=3)) == ["vault"]
    assert watch.said[-1]["why"] == "the vault was restarted, 3 times since the server started"


def test_many_refused_log_ins_are_said_once() -> None:
    """Thirty within a minute are many, wherever the minute begins. A quiet minute ends the alert."""
    watch, total = Watch(), 0
    for _ in range(50):  # two every ten seconds, for ever: not many
        watch.now, total = watch.now + 10, total + 2
        assert watch.new(replace(WELL, events={"turned away": total})) == []
    watch.now, total = watch.now + 10, total + 40
    assert watch.new(replace(WELL, events={"turned away": total})) == ["log-in"]
    for _ in range(5):
        watch.now, total = watch.now + 10, total + 40
        assert watch.new(replace(WELL, events={"turned away": total})) == []
    for _ in range(8):
        watch.now += 10
        assert watch.new(replace(WELL, events={"turned away": total})) == []
    watch.now, total = watch.now + 10, total + 31
    assert watch.new(replace(WELL, events={"turned away": total})) == ["log-in"]


def test_a_full_disk_is_said_even_if_it_cannot_be_logged() -> None:
    """On standard error. It ends when there is twice the room, so that it does not flap."""
    watch = Watch()
    watch.log.broken = True
    for free, times in ((2**40, 0), (alerts.LEAST_FREE, 0), (alerts.LEAST_FREE - 1, 1), (0, 0),
                        (alerts.LEAST_FREE + 1, 0), (alerts.LEAST_FREE - 1, 0), (2 * alerts.LEAST_FREE, 0),
                        (100 * 2**20, 1)):  # fmt: skip
        assert watch.new(replace(WELL, free_bytes=free)) == ["disk"] * times, free
    assert "100 MiB left" in watch.said[-1]["why"] and watch.log.lines == []
    assert watch.new(replace(WELL, free_bytes=None)) == []


def test_a_token_that_ends_within_a_week_is_said() -> None:
    """Once for each token and its end. A later end is another one."""
    watch = Watch()
    ends = {"bob": NOW + timedelta(days=8), "eve": NOW + timedelta(days=6)}
    assert watch.new(replace(WELL, ends=ends)) == ["token"] and "eve" in watch.said[0]["why"]
    assert watch.new(replace(WELL, ends=ends)) == []
    assert watch.new(replace(WELL, ends=ends), NOW + timedelta(days=2)) == ["token"]
    assert watch.new(replace(WELL, ends={"eve": NOW + timedelta(days=40)})) == []


def test_alerts_are_never_left_out_of_the_log(tmp_path: Path) -> None:
    """However many unknown clients fill their lines of the minute. The log counts what it leaves out."""
    log = AuditFile(tmp_path / "log", clock=lambda: 0.0)
    for _ in range(100):
        log.note(None, "turned away", why="no such token")
    Alerts(log, lambda line: None).look(replace(WELL, spending={"visits": 1.0}))
    assert log.counts() == {"turned away": 100, "alert": 1}
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    assert [line["why"] for line in lines if line["event"] == "alert"] == [
        "budget: the budget of visits: all of it is spent"
    ]


def test_shares_are_those_of_the_ledger(served: Served) -> None:
    """Of all principals together, as dp_budget has them for the owner. No name of a principal is among them."""
    served.rows("bob", count("ward", "0.2"))
    shares = served.service.vault.spending()
    (share,) = [share for unit, share in shares.items() if "visits" in unit]
    vault = served.service.vault
    assert isinstance(vault, LocalVault) and shares == spent_shares(vault._database.ledger)
    rows = vault.owner("budget", None).table.to_pylist()
    (line,) = [row for row in rows if row["table_name"] == "visits" and row["measure"] != "delta"]
    assert share == pytest.approx(line["spent"] / line["budget"])
