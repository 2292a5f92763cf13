"""Every kind of release has a certificate that the checker prices again: all mechanisms, streams, known answers."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.mechanisms.registry import MECHANISMS, mechanism_of, of_statements
from dpduck.publish import checker
from tests.publish.test_certify import Bundle, sealed
from tests.support.bundles import certified

SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1"
SPARSE = "OPTIONS (epsilon = 1, delta = 1e-7, sparsity = 2, queries = 10"
STREAM = "CREATE PRIVATE STREAM {} OPTIONS (epsilon = 1{}) AS SELECT came, sex, {} FROM stays GROUP BY came, sex"
ASKED = {
    "joined tables": f"{SELECT}) sex, age, count(*) AS n FROM stays JOIN people USING (person) GROUP BY sex, age",
    "features of a unit": f"{SELECT}) k, count(*) AS n FROM "
    "(SELECT person, count(*) AS k FROM stays GROUP BY person) GROUP BY k",
    "weighed people": f"{SELECT}, delta = 1e-7, max_norm_contributed = 2) sex, count(*) AS n, avg(cost) AS a "
    "FROM stays GROUP BY sex",
    "private norms": f"{SELECT}, delta = 1e-7, max_norm_contributed = 'private') sex, sum(cost) AS s FROM stays "
    "GROUP BY sex",
    "totals and centres": f"{SELECT}, delta = 1e-7, max_norm_contributed = 'private', total = TRUE, left_out = TRUE) "
    "sex, count(*) AS n, avg(cost) AS a FROM stays GROUP BY sex",
    "ranges": f"{SELECT}, delta = 1e-7) age, count(*) AS n FROM people GROUP BY RANGES(age)",
    "l1 consistency": f"{SELECT}, consistency = 'l1') sex, count(*) AS n FROM stays GROUP BY CUBE (sex)",
    "a sketch": f"{SELECT}, summary = 'sketch', sketch_rows = 3) age, count(*) AS n FROM people GROUP BY age",
    "a filter": f"{SELECT}, summary = 'filter') age, count(*) AS n FROM people GROUP BY age",
    "priorities": f"{SELECT}, summary = 'filter_priority', summary_size = 4, total_epsilon = 0.1) age, count(*) AS n "
    "FROM people GROUP BY age",
    "selected keys": f"{SELECT}, delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD, "
    "max_groups_contributed = 2) zip, count(*) AS n FROM people GROUP BY zip",
    "sums of selected keys": f"{SELECT}, delta = 1e-7, group_selection_strategy = GAUSSIAN_THRESHOLD, "
    "max_groups_contributed = 2) zip, sum(age) AS s, avg(age) AS a, count(*) AS n FROM people GROUP BY zip",
    "weighed selected keys": f"{SELECT}, delta = 1e-7, group_selection_strategy = GAUSSIAN_THRESHOLD, "
    "max_norm_contributed = 1.5) sex, count(*) AS n, avg(cost) AS a FROM (SELECT person, cost, sex + 1 AS sex FROM "
    "stays) GROUP BY sex",
    "a projection": f"CREATE PRIVATE PROJECTION projected {SPARSE}, rows = 64) AS SELECT zip FROM people",
    "a histogram": f"CREATE PRIVATE HISTOGRAM kept {SPARSE}) ON people (zip)",
    "a session": f"CREATE PRIVATE SESSION asked {SPARSE}) ON people (zip)",
    "a stream": STREAM.format("monthly", "", "count(*) AS n"),
    "a Gaussian stream": STREAM.format("totals", ", delta = 1e-7", "count(*) AS n, sum(cost) AS s"),
    "months of a stream": "REFRESH PRIVATE STREAM monthly UNTIL '2024-03-01'",
    "months of totals": "REFRESH PRIVATE STREAM totals UNTIL '2024-03-01'",
    "a target": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 9) sex, count(*) AS n FROM stays "
    "GROUP BY sex",
    "made parents": "CREATE PRIVATE TABLE parents OPTIONS (epsilon = 1, delta = 1e-7, key = person, rows = 50) AS "
    "SELECT age, n FROM (SELECT person, any_value(age) AS age, count(cost) AS n FROM people LEFT JOIN stays "
    "USING (person) GROUP BY person) WORKLOAD MARGINALS (2)",
    "made children": "CREATE PRIVATE TABLE children OPTIONS (epsilon = 1, delta = 1e-7) AS "
    "SELECT age, sex FROM people JOIN stays USING (person) WORKLOAD MARGINALS (2)",
    "an epoch of people": "ALTER PRIVACY POLICY ON people PREPARE",
    "an epoch of stays": "ALTER PRIVACY POLICY ON stays PREPARE",
    "cells": f"{SELECT}) sex, count(*) AS n FROM stays GROUP BY sex",
    "known rows": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, reuse = TRUE) sex, count(*) AS n "
    "FROM stays GROUP BY CUBE (sex)",
    "paid ahead": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 2, reuse = TRUE, ahead = 4) age, "
    "count(*) AS n FROM people GROUP BY age",
    "a month": f"{SELECT}) count(*) AS n FROM months WHERE came >= '2024-02-01' AND came < '2024-04-01'",
}
RELEASES = {kind: text for kind, text in ASKED.items() if text.startswith(("SELECT", "CREATE"))}
"""A statement of each kind; test_certify.py has cubes, sums, quantiles, thresholds and synthetic tables."""

MADE = (
    "CREATE TABLE people AS SELECT range AS person, range % 90 AS age, 'z' || range % 5 AS zip FROM range(900)",
    "ALTER TABLE people ADD PRIMARY KEY (person)",
    "CREATE TABLE stays AS SELECT range % 900 AS person, range % 2 AS sex, range % 7 AS cost, "
    "DATE '2024-01-01' + (range % 150)::INTEGER AS came FROM range(3000)",
    "CREATE TABLE months AS FROM stays",
)
POLICIES = (
    "CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 90, delta = 1e-5, "
    "delta_keys = 5e-6), DOMAIN age RANGE 0 TO 100 STEP 10, CLAMP age BETWEEN 0 AND 100 STEP 1, EXPECT ROWS 900)",
    "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT person REFERENCES people.person MAX ROWS 3, DOMAIN sex IN (0, 1), "
    "DOMAIN came RANGE 2024-01-01 TO 2024-07-01 STEP MONTH, CLAMP cost BETWEEN 0 AND 6 STEP 1)",
    "CREATE PRIVACY POLICY ON months (PRIVACY UNIT person PER MONTH OF came MAX ROWS 3, BUDGET (epsilon = 2) "
    "PER MONTH, LIFETIME (epsilon = 9), DOMAIN sex IN (0, 1))",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of all kinds."""
    folder = tmp_path_factory.mktemp("kinds")
    with certified(folder) as con:
        for statement in MADE:
            con.execute(statement)
        for statement in (*POLICIES, *ASKED.values()):
            con.execute("FROM dp($1)", [statement]).fetchall()
        con.execute("FROM dp_ask('asked', ['z1', 'z2'])").fetchall()
        database = require_database(con)
        others = [anew(text) for text in RELEASES.values() if "PRIVATE STREAM" not in text]
        names = {mechanism_of(database.question_of(text, OWNER)[0]).name for text in others}
        assert names == {one.name for one in (*MECHANISMS, *of_statements())}, "streams are beside the registry"
    return folder / "bundle"


@pytest.fixture
def bundle(written: Path) -> Bundle:
    """The bundle as it was written, to be changed."""
    read: Bundle = json.loads((written / "certificates.json").read_text("utf-8"))
    return read


def anew(statement: str) -> str:
    """A statement that makes something, under another name."""
    return re.sub(r"(CREATE PRIVATE \w+) (\w+)", r"\1 \2_anew", statement)


def parts_of(bundle: Bundle) -> Iterator[tuple[Bundle, Bundle]]:
    """Every part of every plan, with its certificate."""
    for certificate in bundle["certificates"]:
        for part in certificate["plan"]:
            yield certificate, part


def found_in(bundle: Bundle, change: Callable[[Bundle], object]) -> int:
    """Returns how many parts can be changed so. Requires that the price of a release shows each change."""
    number = 0
    for place in range(len(list(parts_of(bundle)))):
        changed = copy.deepcopy(bundle)
        certificate, part = list(parts_of(changed))[place]
        if change(part) is not False:
            (entry,) = [one for one in sealed(changed)["entries"] if one["id"] == certificate["entry"]]
            found, number = list(checker.check_certificate(certificate, entry)), number + 1
            told = ("its noise and its keys cost more", "cannot be read (ValueError)")
            assert found and all(any(word in one for word in told) for one in found), (certificate, part, found)
    return number


def scaled(part: Bundle, names: tuple[str, ...], by: Fraction) -> bool:
    """Changes noises, or rationals, by a factor. Tells whether there was one."""
    known = [name for name in names if name in part]
    for name in known:
        if isinstance(part[name], dict):
            part[name]["parameter"] = str(Fraction(part[name]["parameter"]) * by)
        else:
            part[name] = str(Fraction(part[name]) * by)
    return bool(known)


@pytest.mark.slow
def test_every_kind_is_whole(bundle: Bundle) -> None:
    """Each statement has a certificate with a plan. The checker finds its price equal to the charge."""
    assert list(checker.check(bundle)) == []
    certified = {one["statement"]: one for one in bundle["certificates"]}
    for kind, statement in RELEASES.items():
        assert certified[statement]["plan"], kind
    queries = {moved["query"] for _, part in parts_of(bundle) for moved in part.get("moved", [part])}
    assert queries >= {"Table", "Sketch", "Layers", "Projection", "EveryKey", "Total", "Within", "Threshold", "Beside"}


def test_less_noise_of_any_kind_is_found(bundle: Bundle) -> None:
    """Nine tenths of any noise, or a limit of eleven tenths, costs more than was charged."""
    assert found_in(bundle, lambda part: scaled(part, ("noise", "answers"), Fraction(9, 10))) > 20
    assert found_in(bundle, lambda part: scaled(part, ("limit",), Fraction(11, 10))) == 9


def test_a_unit_that_moves_more_is_found(bundle: Bundle) -> None:
    """One more query under the same noise, or with its own bound, costs more than was charged."""

    def more(part: Bundle) -> None:
        repeated = part["moved"][0] if "moved" in part else part
        repeated["times"] += 1

    assert found_in(bundle, more) > 20
