"""Twenty deployments of the registry, each released with all documents by one command, twice."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import pytest

import dpduck
from dpduck.commands.release import ReleaseSettings, release_plan
from dpduck.mechanisms.batch import split_statements
from dpduck.publication.plan import read_plan
from tests.publication.releasing import charges, check, files_of, read_files
from tests.publication.twenty_plans import CANARY, MACROS, PLANS, RegistryPlan
from tests.support.registry import accepted

pytest.importorskip("vl_convert", reason="a release draws pictures")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "registry.md"


def make_database(plan: RegistryPlan, folder: Path) -> Path:
    """Makes the rows and the policies of a deployment. Exactly one text of the rows is the canary."""
    database = folder / "rows.duckdb"
    with dpduck.connect(database) as con:
        con.execute(MACROS)
        con.execute(plan.tables)
        for policy in split_statements(plan.policies):
            con.execute("FROM dp($1)", [policy])
    (folder / "plan.sql").write_text(plan.plan, "utf-8")
    return database


def release(plan: RegistryPlan, database: Path, *, free: bool) -> bool:
    settings = ReleaseSettings(
        plan.name, "data@example.org", None, 20, "", lambda question: not free or pytest.fail("it is paid already")
    )
    return release_plan(database, None, database.with_name("plan.sql"), database.with_name("public"), settings)


@pytest.mark.sampled
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.file)
def test_a_deployment_is_released(plan: RegistryPlan, tmp_path: Path) -> None:
    """All documents are there, the checker and the registry accept them, and the same command changes nothing."""
    database, folder = make_database(plan, tmp_path), tmp_path / "public"
    assert release(plan, database, free=False)
    steps = read_plan(plan.plan)
    views, paid, before = {step.name for step in steps}, charges(database), read_files(folder)
    assert set(before) == files_of(views, plan.units)
    assert len(paid) == sum(step.has_price for step in steps)
    checked = check(folder)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    check_documents(plan, views, {name: text.decode() for name, text in before.items() if is_text(name)})
    assert not [name for name, content in before.items() if CANARY.encode() in content]
    assert release(plan, database, free=True)
    assert (read_files(folder), charges(database)) == (before, paid)


def is_text(name: str) -> bool:
    return name.startswith(("documents/", "data/csv/"))


def check_documents(plan: RegistryPlan, views: set[str], texts: dict[str, str]) -> None:
    """Each view is in the codebook, the paragraph, the label, the record and the report, and has rows."""
    for view in views:
        assert len(texts[f"data/csv/{view}.csv"].splitlines()) > 1, view
    for kind in ("codebook", "label", "methods", "registry_record"):
        said = [text for name, text in texts.items() if name.startswith(f"documents/{kind}")]
        assert all(any(view in text for text in said) for view in views), kind
    records = [accepted(text) for name, text in texts.items() if name.endswith(".yaml")]
    assert len(records) == plan.units
    for record in records:
        assert (record["tier"], record["deployment"]["basic"]["name"]) == (3, plan.name)
        assert record["deployment"]["privacy_loss"]["privacy_parameters"]
    rows = [
        row for name, text in texts.items() if name.endswith("codebook.csv") for row in csv.DictReader(StringIO(text))
    ]
    for row in rows:
        assert row["meaning"] and row["type"], row
    assert all(view in texts["documents/report.html"] for view in views)
    hidden = any(word in plan.plan for word in ("HAVING", "LIMIT", "summary ="))
    for kind in ("label", "codebook", "registry_record"):
        shown = "".join(text for name, text in texts.items() if name.startswith(f"documents/{kind}"))
        assert ("are not shown, because of their noisy numbers" in shown) == hidden


def test_the_page_has_the_twenty() -> None:
    """docs/registry.md has a row for each plan, with the words of the plan."""
    assert len(PLANS) == len({plan.name for plan in PLANS}) == len({plan.file for plan in PLANS}) == 20
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    wanted = [f"| {' | '.join((plan.name, plan.unit, plan.price, plan.released, plan.left_out))} |" for plan in PLANS]
    assert table[1:] == wanted
