"""Completion of names, values, options and keywords, from public facts alone."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpduck.commands.owner_session import OwnerSession
from dpduck.commands.shell.completion import MOST_OFFERED, PublicNames, offer
from dpduck.commands.shell.loop import OwnerShell
from dpduck.commands.shell.prompt import list_options, read_names
from tests.server.served import CANARY

NAMES = PublicNames(
    {"visits": ("sex", "ward", "Patient No"), "by_ward": ("ward", "n"), "odd name": ("x",)},
    {"sex": ("'female'", "'male'"), "ward": ("'north'", "'it''s'"), "year": ("2024", "2025")},
)
OPTIONS = ("epsilon = ", "delta = ", "rho = ")


@pytest.mark.parametrize(
    ("before", "offered"),
    [
        ("FROM v", ["visits"]),
        ("SELECT count(*) FROM ", ["visits", "by_ward", '"odd name"']),
        ("FROM visits, b", ["by_ward"]),
        ("SELECT 1; FROM b", ["by_ward"]),
        ("FROM private.b", ["by_ward"]),
        ("FROM private.main.o", ['"odd name"']),
        ("SELECT visits.s", ["sex"]),
        ("SELECT nosuch.s", []),
        ("FROM visits WHERE se", ["sex", "SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"]),
        ("FROM by_ward WHERE ", ["ward", "n"]),
        ("FROM visits WHERE sex = 'f", ["female'"]),
        ("FROM visits WHERE ward IN ('north', 'i", ["it''s'"]),
        ("FROM visits WHERE other = '", ["female'", "male'", "north'", "it''s'"]),
        ("FROM visits WHERE sex = ", ["'female'", "'male'"]),
        ("FROM visits WHERE year IN (2024, 2", ["2024", "2025"]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (eps", ["epsilon = "]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, d", ["delta = "]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) w", ["ward", "WHEN", "WHERE", "WITH"]),
        ("ALTER PRIVACY POLICY ON v", ["visits"]),
        ("DROP PRIVATE VIEW b", ["by_ward"]),
        ("SUMMARIZE b", ["by_ward"]),
        ("FROM dp_bud", ["dp_budget("]),
        ("SELECT 1; drop priv", ["DROP PRIVACY POLICY ON", "DROP PRIVATE VIEW"]),
        ("CREATE PRIVATE T", ["CREATE PRIVATE TABLE"]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ", []),
        ("GROUP", ["GROUP BY", "GROUPING SETS"]),
        (".b", [".budget"]),
        (".", [".help", ".tables", ".budget", ".ledger", ".price", ".explain", ".errors", ".quit"]),
        (".price SELECT 1 FROM v", ["visits"]),
        ("", []),
    ],
)
def test_what_is_offered(before: str, offered: list[str]) -> None:
    """Tables after FROM, columns of the tables that are named, declared values in quotes, options in OPTIONS."""
    texts = list(offer(before, NAMES, OPTIONS).texts)
    assert texts == offered or (offered and texts[: len(offered)] == offered and before[-2:] in (" w", "se"))


def test_a_completion_replaces_what_was_typed() -> None:
    """The length is that of the beginning alone, after a dot or a quote as well."""
    assert [offer(text, NAMES, ()).length for text in ("FROM vi", "FROM private.b", "WHERE sex = 'fe")] == [2, 1, 2]


def test_offers_are_bounded() -> None:
    """A policy with thousands of columns fills no screen."""
    many = PublicNames({"t": tuple(f"c{number}" for number in range(1000))})
    assert len(offer("SELECT c", many, ()).texts) == MOST_OFFERED


def test_names_are_public(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from dp_columns(). Tables without a policy, and values that no policy declares, are not offered."""
    with OwnerSession(clinic, None) as session:
        shell = OwnerShell(session, "box")
        (names,) = read_names(shell)
        assert set(names.columns) == {"visits", "wards", "ward_cube", "ages"}
        assert names.values == {"sex": ("0", "1"), "ward": tuple(f"'w{number}'" for number in range(6))}
        assert CANARY not in repr(names) and "secret" not in names.columns

        def lost(*_: object) -> None:
            raise duckdb.IOException("gone")

        monkeypatch.setattr(session, "ask", lost)
        assert read_names(shell) == []


def test_options_are_those_of_the_language() -> None:
    """Every option can be completed."""
    options = list_options()
    assert {"epsilon = ", "delta = ", "max_norm_contributed = "} <= set(options)
