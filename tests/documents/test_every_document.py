"""All documents of all kinds of stores: each figure is the store's, and no value of a private row is shown."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path

import pytest
from click.testing import CliRunner

import dpduck
from benchmarks.odds import best_guess, bound_epsilon, bound_rho
from dpduck.auditor.neighbours import require_database
from dpduck.commands.command_line import main
from dpduck.database.connection import verify_store
from dpduck.documents.facts import read_facts
from dpduck.publish.published_views import open_store
from dpduck.store.cursors import Caller
from dpduck.values.accounting import epsilon_of
from tests.support.documented import CANARY, DOMAINS, KINDS, ROWS, label_of, make_store, refused, written

AMOUNT = re.compile(r"(epsilon|rho|delta)(?:_keys)? = ([0-9.e+-]*[0-9])")


def documents_of(database: Path) -> dict[str, str]:
    """Returns every document by its name."""
    pages = {}
    for suffix in ("csv", "html"):
        target = database.parent / f"codebook.{suffix}"
        target.unlink(missing_ok=True)
        written(database, "codebook", "--to", str(target))
        pages[f"codebook.{suffix}"] = target.read_text(encoding="utf-8")
    printed = {name: written(database, name) for name in ("record", "codebook", "methods")}
    return {**printed, **pages, "label": label_of(database, "--title", "Visits")}


@pytest.fixture(scope="module")
def documents(stores: Mapping[str, Path]) -> Callable[[str], dict[str, str]]:
    """A function that returns every document of one kind of store, and writes them once."""
    return cache(lambda kind: documents_of(stores[kind]))


def amounts_in(database: Path) -> Iterator[tuple[str, float]]:
    """Yields each epsilon, rho and delta that the store has: budgets, charges, sums, and the epsilon of each rho."""
    with dpduck.connect(database) as owner:
        budgets = owner.execute("SELECT measure, budget, spent, declared FROM dp_budget()").fetchall()
        charges = owner.execute("SELECT epsilon, rho, delta FROM dp_ledger()").fetchall()
        texts = owner.execute(
            "SELECT statement FROM dp_releases() WHERE kind = 'view' UNION ALL SELECT comment FROM duckdb_tables() "
            "WHERE comment IS NOT NULL"
        ).fetchall()
    for (text,) in texts:
        yield from ((name, float(amount)) for name, amount in AMOUNT.findall(text))
    for measure, budget, spent, declared in budgets:
        yield from ((measure, budget), (measure, spent))
        yield from ((name, float(amount)) for name, amount in AMOUNT.findall(declared))
    for charge in charges:
        yield from ((name, amount) for name, amount in zip(("epsilon", "rho", "delta"), charge, strict=True) if amount)
    for row in budgets:
        declared = dict(re.findall(r"(delta|delta_keys) = ([0-9.e-]+)", row[3]))
        own = Fraction(declared.get("delta", "0")) - Fraction(declared.get("delta_keys", "0")) or Fraction(1, 10**6)
        if row[0] == "rho":
            keys = sum(spent for measure, _, spent, _ in budgets if measure == "delta")
            yield from (("epsilon", float(epsilon_of(Fraction(row[2]), own))), ("delta", float(own) + keys))


@pytest.mark.parametrize("kind", KINDS)
def test_every_amount_is_the_stores(
    kind: str, documents: Callable[[str], dict[str, str]], stores: Mapping[str, Path]
) -> None:
    """Each stated epsilon, rho and delta is an amount of the store, or above it by rounding alone."""
    known = list(amounts_in(stores[kind]))
    for name, text in documents(kind).items():
        stated = AMOUNT.findall(text)
        assert stated or name.endswith(".csv"), name
        for measure, amount in stated:
            near = (float(amount) / true for which, true in known if which == measure and true)
            assert any(1 - 5e-6 < ratio < 1 + 2e-5 for ratio in near), (name, measure, amount)


@pytest.mark.parametrize("kind", KINDS)
def test_every_guess_is_that_of_another_program(
    kind: str, documents: Callable[[str], dict[str, str]], stores: Mapping[str, Path]
) -> None:
    """Right guesses of 100 are those of benchmarks/odds.py, for the sum of charges and for the whole budget."""
    with dpduck.connect(stores[kind]) as owner:
        rows = owner.execute(
            "SELECT measure, max(spent), any_value(budget) FROM dp_budget() WHERE period IS DISTINCT FROM 'LIFETIME' "
            "GROUP BY measure"
        ).fetchall()
    delta = {measure: (spent, budget) for measure, spent, budget in rows}.get("delta", (0.0, 0.0))
    right = []
    for place, which in enumerate(("spent", "budget")):
        for measure, *amounts in rows:
            if measure != "delta":
                test = bound_epsilon(amounts[place]) if measure == "epsilon" else bound_rho(amounts[place])
                right.append(ceil(100 * (best_guess(test) + delta[place] / 2) - 0.02))
                assert right[-1] > 50, which
    for name, text in documents(kind).items():
        said = [int(number) for number in re.findall(r"at most (\d+) of 100 times", text)]
        assert set(said) <= set(right) and (right[0] in said or name.endswith(".csv")), (name, said, right)


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_a_private_row_is_shown(kind: str, documents: Callable[[str], dict[str, str]]) -> None:
    """Texts that only private rows have are in no document, and neither is a path of this machine."""
    for name, text in documents(kind).items():
        assert CANARY not in text and "/tmp/" not in text and "/dev/shm" not in text, name


def test_no_private_row_is_opened(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """The documents are the same without the database: its file may be empty."""
    before, folder = documents_of(stores["pure"]), stores["pure"].parent
    for name in ("clinic_private.duckdb", "clinic_private_secrets"):
        shutil.move(folder / name, tmp_path / name)
    empty = tmp_path / "clinic.duckdb"
    try:
        empty.write_bytes(b"")
        assert documents_of(empty) == before
        assert empty.read_bytes() == b""
    finally:
        for name in ("clinic_private.duckdb", "clinic_private_secrets"):
            shutil.move(tmp_path / name, folder / name)


def test_no_document_spends(stores: Mapping[str, Path]) -> None:
    """The ledger has as many entries afterwards."""
    entries = verify_store(stores["pure"])
    documents_of(stores["pure"])
    assert verify_store(stores["pure"]) == entries


@pytest.mark.parametrize("document", ["record", "codebook", "methods", "label"])
def test_a_store_without_a_view_has_no_document(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what to do first. An unknown view is refused by name."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    with dpduck.connect(tmp_path / "clinic.duckdb") as owner:
        owner.execute(ROWS)
        owner.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits ({KINDS['pure'].policy}, {DOMAINS})"])
    words = ("--to", str(tmp_path / "label.html")) if document == "label" else ()
    said = refused(tmp_path / "clinic.duckdb", document, *words)
    assert "the store has no private view; accepted: CREATE PRIVATE VIEW .. first" in said


def test_views_of_two_units_have_two_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document is about one privacy unit, and the refusal names the views of one."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    database = make_store(tmp_path, KINDS["rows"])
    with dpduck.connect(database) as owner:
        owner.execute("CREATE TABLE shops AS SELECT i AS shop FROM range(100) AS r(i)")
        for statement in (
            "CREATE PRIVACY POLICY ON shops (PRIVACY UNIT shop MAX ROWS 1, BUDGET (epsilon = 2))",
            "CREATE PRIVATE VIEW all_shops OPTIONS (epsilon = 0.7) AS SELECT count(*) AS n FROM shops",
        ):
            owner.execute("FROM dp(?)", [statement])
    assert "about 2 privacy units, and a document is about one; accepted: --view by_ward" in refused(
        database, "methods"
    )
    assert "epsilon = 0.7" in written(database, "methods", "--view", "all_shops")
    assert "epsilon = 1" in written(database, "methods", "--view", "by_ward")
    assert "no private view 'nothing'" in refused(database, "methods", "--view", "nothing")


def test_principals_are_counted_and_never_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that somebody else paid for is in the sum, and makes the deployment interactive."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    database = make_store(tmp_path, KINDS["rho"])
    with dpduck.connect(database) as owner:
        asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.25) sex, count(*) AS n FROM visits GROUP BY sex"
        require_database(owner).run(asked, Caller("principal_zoe", owner=False, share=Fraction(1, 2)))
    said = documents_of(database)
    assert "access_type: 'Interactive'" in said["record"] and "rho: 0.375" in said["record"]
    assert "Also from those who asked questions of their own" in said["label"]
    assert not [name for name, text in said.items() if "zoe" in text or "GROUP BY sex" in text]


def test_a_dropped_policy_leaves_the_charges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a policy the documents still have the unit, the sum and the budget, from the ledger."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    database = make_store(tmp_path, KINDS["pure"])
    with dpduck.connect(database) as owner:
        owner.execute("FROM dp('DROP PRIVACY POLICY ON visits')")
    said = written(database, "methods")
    assert "one patient" in said and "epsilon = 1.3" in said and "13 % of a budget of epsilon = 10" in said


def test_a_store_of_0_2_has_documents(old: Path) -> None:
    """A store that version 0.2 wrote, with a sketch, a synthetic table and a stream. All of its charges are summed."""
    said = documents_of(old)
    assert "This table is a summary" in said["codebook"] and "made up" in said["codebook"]
    with dpduck.connect(old) as owner:
        ((spent,),) = owner.execute(
            "SELECT DISTINCT spent FROM dp_budget() WHERE measure = 'rho' AND table_name = 'visits'"
        ).fetchall()
    with open_store(old.with_name("clinic_private.duckdb")) as store:
        assert float(read_facts(store, 75).spent.rho) == spent
    assert f"rho = {spent:.4g}"[:9] in said["label"]


def test_a_served_store_has_no_document(stores: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says when to ask again. No file is written."""

    def served(files: object) -> None:
        raise dpduck.DpduckError("the store is served")

    monkeypatch.setattr("dpduck.server.owner.require_not_served", served)
    assert "the store is served" in refused(stores["pure"], "methods")


def test_a_group_lists_its_documents() -> None:
    """The help names the four documents, each in a line."""
    listed = CliRunner().invoke(main, ["document", "--help"]).output
    assert all(f"\n  {name} " in listed for name in ("codebook", "label", "methods", "record"))
