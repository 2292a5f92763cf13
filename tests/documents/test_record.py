"""Records for the registry of deployments: its own schema accepts each, in every tier, for every kind of store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import dpduck
from dpduck.documents.facts import DocumentFacts, read_facts
from dpduck.documents.record import record_text
from dpduck.publish.published_views import open_store
from tests.support.documented import KINDS, make_store, refused, written
from tests.support.registry import accepted, schema, validator

yaml = pytest.importorskip("yaml", reason="the registry's records are YAML")
pytest.importorskip("jsonschema", reason="the registry's schema is a JSON schema")


def slug(record: dict[str, Any]) -> str:
    """Returns the slug as the registry's scripts/update_slug.py makes it."""
    basic = record["deployment"]["basic"]
    parts = (basic["name"], "-".join(basic["data_curators"]), basic["publication_date"].split("-")[0])
    return "_".join(re.sub(r"\W+", "_", part.lower()) for part in parts).replace("_", "-")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tier", [1, 2, 3])
def test_the_schema_accepts_every_record(kind: str, tier: int, stores: Mapping[str, Path]) -> None:
    """Every kind of store, in every tier. The slug is the one that the registry makes."""
    record = accepted(written(stores[kind], "record", "--tier", str(tier)))
    assert (record["tier"], record["status"], record["url_slug"]) == (tier, "Draft", slug(record))
    sections = {"basic", "administrative"}
    sections |= {"dp_variant", "privacy_loss", "deployment_model"} if tier > 1 else set()
    sections |= {"accounting", "implementation"} if tier > 2 else set()
    assert set(record["deployment"]) == sections
    assert record["deployment"]["basic"]["intended_use"].startswith("TODO: ")


def tiers_of(schema: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields the fields of the schema with their tiers."""
    for name, node in schema.get("properties", {}).items():
        if "tier" in node:
            yield name, node["tier"]
        yield from tiers_of(node)


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_tier_has_its_fields(tier: int, stores: Mapping[str, Path]) -> None:
    """All fields of a tier and of those below are in the record, and none of a higher tier. One is a comment."""
    text = written(stores["stream"], "record", "--tier", str(tier))
    for name, least in tiers_of(schema()):
        assert (re.search(rf"^ +(?:# )?{name}:", text, re.MULTILINE) is not None) == (least <= tier), name
    assert "    # data_product_sector: TODO: one of Technology, " in text


def test_parameters_are_those_of_the_ledger(stores: Mapping[str, Path]) -> None:
    """The variant, and the sum of all charges: an epsilon, a rho, or what a rho with a delta implies."""
    said = {}
    for kind, database in stores.items():
        deployment = accepted(written(database, "record"))["deployment"]
        said[kind] = (deployment["dp_variant"]["variant_name"], deployment["privacy_loss"]["privacy_parameters"])
    with dpduck.connect(stores["approximate"]) as owner:
        ((rho,),) = owner.execute("SELECT spent FROM dp_budget()").fetchall()
    assert said["pure"] == ("Pure DP", {"epsilon": 1.3})
    assert said["approximate"] == ("Zero-concentrated DP", {"rho": rho})
    assert said["rho"] == ("Zero-concentrated DP", {"rho": 0.125})
    assert said["month"] == ("Pure DP", {"epsilon": 0.5}), "of the most used month"
    assert said["stream"] == said["synthetic"] == said["rows"] == ("Pure DP", {"epsilon": 1.0})
    name, parameters = said["keys"]
    assert name == "Approximate DP" and parameters["delta"] == pytest.approx(7e-6) and 6 < parameters["epsilon"] < 7


def test_units_and_kinds_of_release(stores: Mapping[str, Path]) -> None:
    """The unit, whether rows are added over time, and whether there are several releases."""
    said = {kind: accepted(written(database, "record"))["deployment"] for kind, database in stores.items()}
    units = {kind: one["privacy_loss"]["privacy_unit"] for kind, one in said.items()}
    assert units["pure"] == "all rows of one patient" and units["rows"] == "one row"
    assert units["month"] == "all rows of one patient in one month"
    moving = {kind for kind, one in said.items() if one["deployment_model"].get("data_source_type") == "Dynamic"}
    assert moving == {"month", "row_month", "stream"}
    many = {kind for kind, one in said.items() if one["deployment_model"]["release_type"] == "Many releases"}
    assert many == {"pure", "approximate", "month", "row_month", "stream", "keys"}
    assert said["synthetic"]["basic"]["data_product_type"] == "Synthetic data"
    assert "2 are published" in said["stream"]["deployment_model"]["release_type_details"]
    assert "never more than epsilon = 12" in said["month"]["privacy_loss"]["privacy_parameters_details"]
    assert "a threshold for groups" in said["keys"]["implementation"]["mechanisms"]
    assert "discrete Gaussian noise" in said["rho"]["implementation"]["mechanisms"]


@pytest.fixture(scope="module")
def facts(stores: Mapping[str, Path]) -> DocumentFacts:
    """The facts of the store with a pure budget."""
    with open_store(stores["pure"].with_name("clinic_private.duckdb")) as store:
        return read_facts(store, 3)


def test_statements_of_principals_make_it_interactive(facts: DocumentFacts) -> None:
    """Others who asked are named as actors, and share the budget."""
    plain, asked = (accepted(record_text(replace(facts, asked_by_others=of)))["deployment"] for of in (False, True))
    assert plain["deployment_model"]["access_type"] == "Non-interactive"
    assert asked["deployment_model"]["access_type"] == "Interactive"
    assert "may collude" in asked["deployment_model"]["actors"] not in plain["deployment_model"]["actors"]


@pytest.mark.parametrize(
    "title",
    ['It\'s: a "test" # 50 % {x}', "two\nlines", "tab\tand \x07bell", "- Ü\u2028\U0001f986", "  blanks ", "null"],
)
def test_any_title_is_kept(title: str, facts: DocumentFacts) -> None:
    """Quotes, colons and control characters come back from the YAML as they were, on one line."""
    record = accepted(record_text(facts, title))
    assert record["deployment"]["basic"]["name"] == " ".join(title.split()) and record["url_slug"] == slug(record)


def test_a_charge_changes_the_record(facts: DocumentFacts) -> None:
    """A record with half of the charge says another parameter: the test of parameters can fail."""
    assert facts.spent.epsilon == Fraction(13, 10)
    half = accepted(record_text(replace(facts, spent=replace(facts.spent, epsilon=Fraction(13, 20)))))
    assert half["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.65}


def test_a_wrong_record_is_refused_by_the_schema(facts: DocumentFacts) -> None:
    """The schema can refuse: a field that it does not know, and a variant that it does not know."""
    for right, wrong in (("intended_use", "use"), ("'Pure DP'", "'Epsilon DP'"), ("epsilon: 1.3", "epsilon: 'much'")):
        text = record_text(facts)
        assert right in text and list(validator().iter_errors(yaml.safe_load(text.replace(right, wrong))))


def test_a_file_has_a_name_that_the_registry_takes(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """The registry's check of names is made before the store is read. An edited record is never written over."""
    said = refused(stores["pure"], "record", "--to", str(tmp_path / "My record.yaml"))
    assert "lowercase letters, digits and _" in said
    target = tmp_path / "visits_2024.yaml"
    assert "fill in each TODO" in written(stores["pure"], "record", "--to", str(target))
    assert "fill in each TODO" in written(stores["pure"], "record", "--to", str(target)), "the same text is no change"
    edited = target.read_text(encoding="utf-8").replace("TODO: what the numbers are for", "planning")
    target.write_text(edited, encoding="utf-8")
    assert "may have been edited" in refused(stores["pure"], "record", "--to", str(target))
    assert target.read_text(encoding="utf-8") == edited


def test_public_tables_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that was declared public is an unprotected quantity."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    database = make_store(tmp_path, KINDS["rows"])
    assert "No statistic is in the tables without noise" in written(database, "record")
    with dpduck.connect(database) as owner:
        owner.execute("CREATE TABLE wards (name VARCHAR)")
        owner.execute("FROM dp('DECLARE PUBLIC TABLE wards')")
        owner.execute("CREATE TABLE ward_totals AS SELECT ward, count(*) AS n FROM visits GROUP BY ward")
        owner.execute("FROM dp('DECLARE PUBLIC TABLE ward_totals')")
        owner.execute(
            "FROM dp($$ CREATE PRIVATE VIEW in_wards OPTIONS (epsilon = 1, public_totals = 'ward_totals') AS "
            "SELECT ward, sex, count(*) AS n FROM visits GROUP BY GROUPING SETS ((ward), (ward, sex)) $$)"
        )
    quantities = accepted(written(database, "record"))["deployment"]["dp_variant"]["unprotected_quantities"]
    assert "Totals that were public already have no noise in in_wards.\nNo other statistic" in quantities
    assert "An answer with an error of 0 follows from totals" in written(database, "codebook")
    assert "- the table wards, which was declared public." in quantities
