"""Rebuilding the house changes no digest, no row of a ledger and no store: pinned at commit 7775bdd."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.database.connection import verify_store
from tests.database.pinned_statements import COUNTS, PINS, STATEMENTS, STORE, answer, golden, made, releases
from tests.support.clinics import CHARGES

PINNED: dict[str, dict[str, list[Any]]] = json.loads(PINS.read_text(encoding="utf-8"))
COUNTED: dict[str, dict[str, str]] = json.loads(COUNTS.read_text(encoding="utf-8"))
"""The exact counts of the same statements, pinned before the kernel was rebuilt."""


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_every_mechanism_is_charged_as_before(name: str) -> None:
    """Digest, strategy, the ledger's word for the mechanism and every amount are those of the commit before.

    So are exact counts.
    """
    counts: dict[str, str] = {}
    with made(*STATEMENTS[name], counts=counts) as connection:
        assert releases(connection) == PINNED[name]
    assert counts == COUNTED[name]


def test_golden_statements_are_charged_as_before() -> None:
    """Every statement that the golden files accept has the pinned digest and charge."""
    counts: dict[str, str] = {}
    with golden(counts) as connection:
        assert releases(connection) == PINNED["golden"]
    assert counts == COUNTED["golden"] and len(counts) > 100


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the store that an earlier commit wrote."""
    shutil.unpack_archive(STORE, tmp_path)
    (tmp_path / "clinic_private_secrets").chmod(0o600)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def store(unpacked: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """That store, opened by this commit."""
    with dpduck.connect(unpacked / "clinic.duckdb") as connection:
        yield connection


def test_an_earlier_store_answers_for_nothing(store: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The earlier commit's releases are answered as before, without a charge. Its session goes on."""
    kept = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    charges = store.execute(CHARGES).fetchall()
    assert {text: answer(store, text) for text in kept["answers"]} == kept["answers"]
    assert repr(store.execute("FROM dp_ask('few', ['w1'])").fetchall()) == kept["asked"]
    assert len(store.execute("FROM dp_ask('few', ['w2'])").fetchall()) == 1
    assert len(store.execute("FROM dp_ask('lazy', ['w2'])").fetchall()) == 1
    assert releases(store) == kept["releases"]
    assert store.execute(CHARGES).fetchall() == charges


def test_an_earlier_store_verifies(unpacked: Path) -> None:
    """The chain of the commit before is whole."""
    assert verify_store(unpacked / "clinic.duckdb") == 8


def test_a_store_of_0_2_answers_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """62 statements of the corpus are answered as version 0.2 answered them. Nothing is charged, the chain is whole."""
    shutil.unpack_archive(STORE.with_name("store_0_2.zip"), tmp_path)
    (tmp_path / "clinic_private_secrets").chmod(0o600)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    kept = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))["answers"]
    with dpduck.connect(tmp_path / "clinic.duckdb") as connection:
        charges = connection.execute(CHARGES).fetchall()
        assert {text: answer(connection, text) for text in kept} == kept and len(kept) == 62
        assert connection.execute(CHARGES).fetchall() == charges
    assert verify_store(tmp_path / "clinic.duckdb") == 75
