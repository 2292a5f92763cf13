"""Certificates of releases, and the checker that needs neither dpduck nor the data."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.kernel.ledger.budgets import for_person
from dpduck.publish import checker
from dpduck.store.cursors import Caller
from dpduck.values.accounting import epsilon_of
from dpduck.values.errors import Refusal
from dpduck.values.odds import guesses_at, odds_text
from dpduck.values.periods import WORDS, Periods, charge_key, last_number
from dpduck.values.privacy import Charge
from tests.support.bundles import certified

Bundle = dict[str, Any]
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 3,
    BUDGET (epsilon = 50, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN (0, 1), DOMAIN ward RANGE 0 TO 7 STEP 1,
    DOMAIN age RANGE 0 TO 100 STEP 10, CLAMP age BETWEEN 0 AND 100)"""
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1"
KEYS = f"{ASKED}, delta = 1e-8, group_selection_strategy"
STATEMENTS = (
    POLICY,
    f"{ASKED}) sex, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)",
    "CREATE PRIVATE VIEW ages OPTIONS (epsilon = 1, delta = 1e-7) AS "
    "SELECT sex, count(*) AS n, sum(age) AS s, avg(age) AS a FROM visits GROUP BY CUBE (sex)",
    f"{KEYS} = GAUSSIAN_THRESHOLD) zip, count(*) AS n FROM visits GROUP BY zip",
    f"{KEYS} = LAPLACE_THRESHOLD) zip, count(*) AS n FROM visits GROUP BY zip",
    f"{ASKED}, quantiles = 'choice') sex, median(age) AS m FROM visits GROUP BY sex",
    f"{ASKED}) ward, count(DISTINCT person) AS n FROM visits GROUP BY ward",
    "CREATE PRIVATE TABLE made OPTIONS (epsilon = 1, delta = 1e-7, mechanism = 'aim') AS "
    "SELECT sex, ward, age FROM visits WORKLOAD MARGINALS (2)",
    "CREATE PRIVATE TABLE mwem OPTIONS (epsilon = 1, mechanism = 'mwem') AS "
    "SELECT sex, ward FROM visits WORKLOAD MARGINALS (2)",
    "ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 60, delta = 1e-6, delta_keys = 5e-7)",
    "CREATE PRIVACY POLICY ON days (PRIVACY UNIT person PER MONTH OF day MAX ROWS 3, BUDGET (epsilon = 2) PER MONTH, "
    "LIFETIME (epsilon = 4))",
    f"{ASKED}) count(*) AS n FROM days WHERE day >= '2024-01-01' AND day < '2024-03-01'",
    f"{ASKED}) count(*) AS n FROM days WHERE day >= '2024-02-01' AND day < '2024-03-01'",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of every kind of release, written by the command."""
    folder = tmp_path_factory.mktemp("certificates")
    with certified(folder) as con:
        con.execute(
            "CREATE TABLE visits AS SELECT range % 1000 AS person, range % 2 AS sex, range % 7 AS ward, "
            "'z' || range % 5 AS zip, (range % 90)::INTEGER AS age FROM range(5000)"
        )
        con.execute("CREATE TABLE days AS SELECT person, DATE '2024-01-01' + age AS day FROM visits")
        for statement in STATEMENTS:
            con.execute("FROM dp($1)", [statement]).fetchall()
    return folder / "bundle"


@pytest.fixture
def bundle(written: Path) -> Bundle:
    """The bundle as it was written, to be changed."""
    read: Bundle = json.loads((written / "certificates.json").read_text("utf-8"))
    return read


@pytest.mark.slow
def test_what_was_written_is_whole(written: Path, bundle: Bundle) -> None:
    """The checker, run by itself from another place, finds nothing wrong with any kind of release."""
    command = [sys.executable, "-I", str(written / "check.py"), str(written), "--head", bundle["head"]]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (run.returncode, run.stdout[:6]) == (0, "whole:"), run.stdout + run.stderr
    assert len(bundle["certificates"]) == len(STATEMENTS) - 3
    assert all(certificate["plan"] for certificate in bundle["certificates"])
    assert {name for certificate in bundle["certificates"] for name in certificate["names"]} >= {"ages", "made", "mwem"}


def test_the_checker_imports_nothing_of_dpduck() -> None:
    """A checker need not trust the maker of the bundle: only the standard library is imported."""
    nodes = ast.walk(ast.parse(Path(checker.__file__).read_text("utf-8")))
    found = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    nodes = ast.walk(ast.parse(Path(checker.__file__).read_text("utf-8")))
    found |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name.split(".")[0] for name in found if name} <= sys.stdlib_module_names


def sealed(bundle: Bundle) -> Bundle:
    """The bundle with a whole chain, written anew by whoever changed it, and certificates that agree with it."""
    link = checker.GENESIS
    names = {certificate["entry"]: checker.digest(certificate) for certificate in bundle["certificates"]}
    for entry in bundle["entries"]:
        entry["certificate"] = names.get(entry["id"])
        link = entry["link"] = checker.digest(entry, link)
    bundle["head"] = link
    links = {entry["id"]: entry["link"] for entry in bundle["entries"]}
    for certificate in bundle["certificates"]:
        certificate["link"] = links.get(certificate["entry"], "")
    return bundle


def _certificate(bundle: Bundle, query: str) -> Bundle:
    """Returns the first certificate with such a query in its plan."""
    found: Bundle = next(one for one in bundle["certificates"] if query in json.dumps(one["plan"]))
    return found


def _part(bundle: Bundle, query: str) -> Bundle:
    found: Bundle = next(one for one in _certificate(bundle, query)["plan"] if query in json.dumps(one))
    return found


def _scaled(noise: Bundle, by: Fraction) -> None:
    noise["parameter"] = str(Fraction(noise["parameter"]) * by)


def _cheaper(bundle: Bundle) -> None:
    entry = bundle["entries"][2]
    entry["rho"] = str(Fraction(entry["rho"]) * Fraction(9, 10))
    bundle["certificates"][1]["price"]["rho"] = entry["rho"]
    bundle["certificates"][1]["also"] = [
        {"epsilon": str(epsilon_of(Fraction(entry["rho"]), small)), "delta": str(small)} for small in checker.DELTAS
    ]


def _other_budget(bundle: Bundle, **amounts: str) -> None:
    for entry in bundle["entries"]:
        if entry["budget"] is not None:
            entry["budget"].update(amounts)


def _added(bundle: Bundle, fields: Bundle, run: str | None = None, after: int = -1) -> None:
    """Adds an entry like another, but for some fields. run: the months that it is charged to."""
    like, number = bundle["entries"][after], len(bundle["entries"]) + 1
    unit = like["unit"] if run is None else like["unit"].split(" FROM ")[0] + run
    bundle["entries"].append({**copy.deepcopy(like), "id": number, "unit": unit, **fields})


def _narrowed(bundle: Bundle, **amounts: object) -> None:
    months = bundle["entries"][10]["budget"]
    _added(bundle, {"budget": {**copy.deepcopy(months), **amounts}}, after=10)


def _dropped(bundle: Bundle) -> None:
    del bundle["entries"][3]
    for number, entry in enumerate(bundle["entries"], start=1):
        entry["id"] = number


def _plan_of_another(bundle: Bundle) -> None:
    part = {"query": "Within", "l1": 1, "times": 1, "limit": "1/1000000", "pure": True}
    bundle["certificates"][0]["plan"] = [part]


def _giving_back(bundle: Bundle) -> None:
    part = {"query": "Within", "l1": 1, "times": 1, "limit": "-9/1", "pure": True}
    _scaled(_part(bundle, '"Table"')["noise"], Fraction(1, 9))
    _certificate(bundle, '"Table"')["plan"].append(part)


PERIODS = "clinic.main.visits.person PER MONTH"
BUDGET = {"epsilon": "2/1", "delta": "0/1", "delta_keys": "0/1", "rho": None}
NONE = {"epsilon": "0/1", "rho": "0/1", "delta": "0/1"}
LITTLE = {"epsilon": "1/9", "rho": "1/162"}
JANUARY = " FROM 2024-01-01 TO 2024-02-01"

CHANGED: dict[str, Callable[[Bundle], object]] = {
    "another format": lambda b: b.update(format="dpduck certificates 1"),
    "another model": lambda b: b.update(model="local: the owner never sees the rows"),
    "other neighbours": lambda b: b.update(neighbours="one table is any other"),
    "an entry's statement": lambda b: b["entries"][1].update(statement="SELECT 1"),
    "an entry's charge": lambda b: b["entries"][2].update(rho="1/1000"),
    "an entry is missing in the middle": lambda b: b["entries"].pop(2),
    "the last entry is missing": lambda b: b["entries"].pop(),
    "two entries are swapped": lambda b: b["entries"].insert(1, b["entries"].pop(2)),
    "a certificate of another statement": lambda b: b["certificates"][0].update(statement="SELECT 1"),
    "a certificate of no entry": lambda b: b["certificates"][0].update(entry=99),
    "two certificates of one entry": lambda b: b["certificates"].append(copy.deepcopy(b["certificates"][0])),
    "another price": lambda b: b["certificates"][0]["price"].update(epsilon="1/2"),
    "another kind of guarantee": lambda b: b["certificates"][1].update(flavor="pure"),
    "noise 1,000 times as large": lambda b: _scaled(b["certificates"][0]["plan"][0]["noise"], Fraction(1000)),
    "a plan of another query": _plan_of_another,
    "no plan": lambda b: b["certificates"][0].update(plan=None),
    "no certificates": lambda b: b["certificates"].clear(),
    "one certificate is missing": lambda b: b["certificates"].pop(4),
    "a certificate of a declaration": lambda b: b["certificates"].append({**b["certificates"][0], "entry": 1}),
    "an entry that names no certificate": lambda b: b["entries"][1].update(certificate=None),
    "other names": lambda b: b["certificates"][0].update(names=["mine"]),
    "other rows": lambda b: b["certificates"][0].update(rows=5),
    "another strategy": lambda b: b["certificates"][0].update(strategy="cells"),
    "another maker": lambda b: b["certificates"][0].update(made_by="dpduck 9"),
    "no other forms of the price": lambda b: b["certificates"][0].update(also=[]),
}
"""Ways to change a bundle after its last link was published."""

REWRITTEN: dict[str, Callable[[Bundle], object]] = {
    "an entry that gives back": lambda b: _added(b, {"rho": "-1/100", "epsilon": None}, after=1),
    "a charge too small": _cheaper,
    "a smaller budget than was spent": lambda b: _other_budget(b, rho="1/100"),
    "a budget without its delta for keys": lambda b: _other_budget(b, delta_keys="0/1"),
    "a budget of more rho than its epsilon": lambda b: _other_budget(b, epsilon="1/10"),
    "an epsilon that rho does not give": lambda b: b["certificates"][1]["also"][0].update(epsilon="1/1000"),
    "no forms of the price": lambda b: b["certificates"][0].update(also=[]),
    "one form of the price": lambda b: b["certificates"][1]["also"].pop(),
    "forms at other deltas": lambda b: b["certificates"][1]["also"][0].update(delta="1/100"),
    "less Laplace noise": lambda b: _scaled(_part(b, '"Table"')["noise"], Fraction(99, 100)),
    "less Gaussian noise": lambda b: _scaled(_part(b, "discrete Gaussian")["noise"], Fraction(99, 100)),
    "a unit that moves more": lambda b: _part(b, '"Table"')["moved"][0].update(times=2),
    "norms of no vector": lambda b: _part(b, '"Table"')["moved"][0].update(l2_squared=1),
    "no noise at all": lambda b: _part(b, '"Table"')["noise"].update(parameter="0/1"),
    "a lower threshold": lambda b: _part(b, '"Threshold"').update(excess=_part(b, '"Threshold"')["excess"] - 8),
    "a threshold of more groups": lambda b: _part(b, '"Threshold"').update(groups=7, total=7),
    "a sharper choice": lambda b: _part(b, '"Quantiles"').update(rate="99/1"),
    "a family beyond its limit": lambda b: _part(b, '"Within"').update(limit="9/1"),
    "a query that nobody knows": lambda b: _part(b, '"Threshold"').update(query="Exact"),
    "a part of a plan that gives back": _giving_back,
    "a charge without a run": lambda b: _added(b, LITTLE, ""),
    "a charge that declares a budget": lambda b: _added(b, {"budget": b["entries"][10]["budget"]}, JANUARY),
    "a budget for a run of months": lambda b: _added(b, {**NONE, "budget": b["entries"][10]["budget"]}, JANUARY),
    "a run of part of a month": lambda b: _added(b, LITTLE, " FROM 2024-05-01 TO 2024-05-20"),
    "a run that begins within a month": lambda b: _added(b, LITTLE, " FROM 2024-05-02 TO 2024-06-01"),
    "an empty run": lambda b: _added(b, {}, " FROM 2024-05-01 TO 2024-05-01"),
    "a run that goes back": lambda b: _added(b, {}, " FROM 2024-05-01 TO 2023-05-01"),
    "a run beyond the last month": lambda b: _added(b, LITTLE, " FROM 9998-12-01 TO 9999-02-01"),
    "a budget narrowed below what is spent": lambda b: _narrowed(b, epsilon="1/2"),
    "a LIFETIME narrowed below what is spent": lambda b: _narrowed(b, lifetime={**BUDGET, "epsilon": "2/1"}),
    "a budget of nothing": lambda b: _narrowed(b, epsilon=None),
    "a LIFETIME of another measure": lambda b: _narrowed(b, lifetime={**BUDGET, "epsilon": None, "rho": "9/1"}),
}
"""Ways to make a bundle look better than what was done, with the whole chain written anew."""


@pytest.mark.parametrize("how", CHANGED)
def test_a_changed_bundle_is_found(bundle: Bundle, how: str) -> None:
    """Any changed word of an entry or a certificate, and any missing one, is named."""
    written = copy.deepcopy(bundle)
    CHANGED[how](bundle)
    assert list(checker.check(bundle)) != []
    assert sealed(bundle) == written or list(checker.check(bundle, written["head"])) != []


@pytest.mark.parametrize("how", REWRITTEN)
def test_a_rewritten_bundle_is_found(bundle: Bundle, how: str) -> None:
    """Every way to make a bundle look better than the truth is named, though all links of its chain are right."""
    assert sealed(copy.deepcopy(bundle)) == bundle
    REWRITTEN[how](bundle)
    found = list(checker.check(sealed(bundle)))
    assert found != []
    assert not any("written" in line or "cannot be read to its end" in line for line in found), found


def test_a_chain_with_an_entry_less_is_told_by_its_last_link(bundle: Bundle) -> None:
    """An entry that was left out, with its certificate, and the chain written anew, is found by the published link."""
    head = bundle["head"]
    _dropped(bundle)
    assert "the last link is not the one that was published" in list(checker.check(sealed(bundle), head))


def ledger_of(charges: list[tuple[str, str]], lifetime: str = "") -> list[Bundle]:
    """Entries that declare a budget of 2 for each month, and charge runs of months."""
    declared = {**BUDGET, **({"lifetime": {**BUDGET, "epsilon": lifetime}} if lifetime else {})}
    found: list[Bundle] = [{"unit": PERIODS, "epsilon": "0/1", "rho": "0/1", "delta": "0/1", "budget": declared}]
    for run, epsilon in charges:
        rho = str(Fraction(epsilon) ** 2 / 2)
        found.append({"unit": f"{PERIODS} {run}", "epsilon": epsilon, "rho": rho, "delta": "0/1", "budget": None})
    return [{"id": number, **entry} for number, entry in enumerate(found, 1)]


def test_budgets_of_periods_are_checked_for_each_of_them() -> None:
    """Disjoint months cost the maximum, overlapping ones the sum, EVERY adds to each. LIFETIME covers all months."""
    january, february = "FROM 2024-01-01 TO 2024-02-01", "FROM 2024-02-01 TO 2024-03-01"
    both = "FROM 2024-01-01 TO 2024-03-01"
    months = [(january, "2"), (february, "2"), ("FROM 1999-01-01 TO 2024-01-01", "2")]
    assert list(checker.check_budgets(ledger_of(months))) == []
    for run in (january, both, "EVERY", "FROM 0001-01-01 TO 2024-02-01"):
        assert list(checker.check_budgets(ledger_of([*months, (run, "1/9")]))) == [
            f"entry 5 exceeds the budget of {PERIODS}"
        ]
    assert list(checker.check_budgets(ledger_of([(both, "1"), (january, "1")], "3"))) == []
    for charges in ([(both, "1"), (january, "1"), (february, "1/9")], [(both, "1"), (january, "1"), ("EVERY", "1/9")]):
        found = list(checker.check_budgets(ledger_of(charges, "3")))
        assert found and all("entry 4 exceeds the" in line for line in found)
    assert list(checker.check_budgets(ledger_of([("EVERY", "1/9")], "999999"))) == [
        f"entry 2 exceeds the LIFETIME of {PERIODS}"
    ]


def test_another_whole_chain_is_told_by_its_last_link(bundle: Bundle) -> None:
    """A chain that was written anew is whole by itself. The published link tells it apart."""
    head = bundle["head"]
    bundle["entries"][0]["at"] += 1
    sealed(bundle)
    assert list(checker.check(bundle)) == []
    assert list(checker.check(bundle, head)) == ["the last link is not the one that was published"]


def test_principals_are_left_out(written: Path) -> None:
    """No certificate contains the asker."""
    assert '"principal"' not in (written / "certificates.json").read_text("utf-8")


UNIT = "c.main.visits.person PER MONTH"
CLOSED, WHOLE = {"epsilon": "1/1", "rho": None, "delta": "0/1", "delta_keys": "0/1"}, "0/1"


def _charged(*charges: tuple[str, str]) -> list[str]:
    """Returns the findings about charges of a unit by months, of runs and epsilons, with BUDGET 1 and LIFETIME 3."""
    nothing = {"epsilon": WHOLE, "rho": WHOLE, "delta": WHOLE}
    entries = [{"id": 1, "unit": UNIT, **nothing, "budget": {**CLOSED, "lifetime": {**CLOSED, "epsilon": "3/1"}}}]
    for number, (run, epsilon) in enumerate(charges, start=2):
        price = {"epsilon": epsilon, "rho": str(Fraction(epsilon) ** 2 / 2), "delta": WHOLE, "budget": None}
        entries.append({"id": number, "unit": f"{UNIT} {run}", **price})
    return list(checker.check_budgets(entries))


def test_an_endless_charge_counts_in_a_later_lifetime() -> None:
    """A LIFETIME that is declared after a charge of every month is below a person's loss so far."""
    january, every = "FROM 2024-01-01 TO 2024-02-01", {"unit": f"{PERIODS} EVERY", "budget": None}
    entries = ledger_of([(january, "1/9"), (january, "1/9")])
    entries[1] |= every
    entries.insert(2, {**entries[0], "budget": {**BUDGET, "lifetime": BUDGET}})
    over = f"the LIFETIME of {PERIODS}"
    assert list(checker.check_budgets(entries)) == [
        f"entry 1 declares less than was spent of {over}",
        f"entry 3 exceeds {over}",
    ]


def test_each_period_has_its_budget() -> None:
    """For a unit by periods the checker adds up the charges of each period, and a person's loss over all periods."""
    january, year = "FROM 2024-01-01 TO 2024-02-01", "FROM 2024-01-01 TO 2025-01-01"
    february, both = "FROM 2024-02-01 TO 2024-03-01", "FROM 2024-01-01 TO 2024-03-01"
    assert _charged((january, "1"), (february, "1"), ("FROM 2024-03-01 TO 2024-04-01", "1")) == []
    assert _charged((january, "1/2"), (both, "1/2"), (february, "1/2")) == []
    beyond = f"entry 4 exceeds the budget of {UNIT}"
    assert _charged((january, "1/2"), (both, "1/2"), (january, "1/10")) == [beyond]
    assert _charged((january, "1/2"), (february, "1/2"), (both, "3/5")) == [beyond]
    assert _charged((year, "1/4")) == []
    assert _charged((year, "1/4"), (january, "1/100")) == [f"entry 3 exceeds the LIFETIME of {UNIT}"]
    assert _charged(("EVERY", "1/100")) == [f"entry 2 exceeds the LIFETIME of {UNIT}"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WORDS), st.integers(0, 500_000), st.integers(0, 400), st.fractions(Fraction(1, 99), 3))
def test_the_checker_counts_periods_as_the_ledger_does(word: str, first: int, more: int, amount: Fraction) -> None:
    """The checker has its own calendar and its own price of a person: of any run they are those of the product."""
    first %= last_number(word) - more
    run = Periods(word, first, first + more)
    unit, endless, numbers = checker.run_of(charge_key(f"c.main.visits.person PER {word}", run))
    assert (unit, numbers) == (f"c.main.visits.person PER {word}", range(first, first + more + 1))
    assert endless == (first == 0 or run.last == last_number(word))
    for charge in (Charge.pure(amount), Charge.zcdp(amount), Charge.zcdp(amount, Fraction(1, 99))):
        person = for_person(charge, run.count)
        found = checker.of_person((charge.epsilon, charge.rho, charge.delta), run.count)
        assert (found[0], found[2]) == (person.epsilon, person.delta)
        assert person.rho * (1 - checker.SMALL) <= found[1] <= person.rho


def test_a_certificate_in_sql_is_that_of_the_bundle(written: Path, bundle: Bundle) -> None:
    """dp_certificate of a view has the fields of the bundle's certificate. An answer's is for the owner alone."""
    kept = next(one for one in bundle["certificates"] if "ages" in one["names"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(written.parent / "state"))
        with dpduck.connect(written.parent / "clinic.duckdb") as con:
            found = dict(con.execute("FROM dp_certificate('AGES')").fetchall())
            answer = dict(con.execute("FROM dp_certificate('release_2')").fetchall())
            analyst = Caller("alice", owner=False)
            told = require_database(con)
            with pytest.raises(Refusal, match="no private view"):
                told.about.certificate("release_2", analyst)
            assert "ages" in told.about.certificate("ages", analyst)
    assert {name: found[name] for name in ("statement", "privacy_unit", "strategy", "link", "made_by", "flavor")} == {
        name: kept[name] for name in ("statement", "privacy_unit", "strategy", "link", "made_by", "flavor")
    }
    for name in ("plan", "price", "rows", "entry"):
        assert json.loads(found[name]) == kept[name], name
    for one in (found, answer):  # a pure epsilon is smaller than what its rho says at a delta
        assert ("also" in one) == (one["flavor"] != "pure")
    assert found["neighbours"] == bundle["neighbours"] and found["model"] == bundle["model"]
    price = json.loads(found["price"])
    amounts = [None if price[name] is None else float(Fraction(price[name])) for name in ("epsilon", "rho", "delta")]
    assert found["odds"] == odds_text(guesses_at(amounts[0], amounts[1] or 0.0, amounts[2] or 0.0))
    assert "odds" not in kept
    assert json.loads(answer["entry"]) == 2 and "owner" not in found


def test_a_reader_sees_of_a_certificate_what_dp_releases_shows() -> None:
    """Statements, answers and numbers in the ledger stay with the asker, also where readers share paid answers."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT range // 4 AS person, range % 2 AS sex FROM range(40)")
        database, anna = require_database(con), Caller("anna", owner=False, share=Fraction(1, 2))
        count = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) sex, count(*) AS n FROM visits {}GROUP BY sex"
        view = "CREATE PRIVATE VIEW {} OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits {}GROUP BY sex"
        policy = "(PRIVACY UNIT person MAX ROWS 4, BUDGET (epsilon = 50), DOMAIN sex IN (0, 1))"
        for text in (f"CREATE PRIVACY POLICY ON visits {policy}", view.format("theirs", "WHERE person <> 4711 ")):
            con.execute("FROM dp(?)", [text]).fetchall()
        con.execute("FROM dp(?)", [count.format("2", "WHERE person <> 12 ")]).fetchall()
        for text in (count.format("3", ""), view.format("mine", ""), view.format("shared", "WHERE person <> 4711 ")):
            database.run(text, anna)

        def told(name: str, caller: Caller | None = None) -> dict[str, Any]:
            sql = database.about.certificate(name, caller or Caller("owner", owner=True))
            return dict(con.execute(sql).fetchall())

        releases = {row[0]: row for row in con.execute(database.list_releases(anna)).fetchall()}
        assert sorted(releases) == ["mine", "release_4", "release_5", "shared", "theirs"]
        for name, (_, statement, *_, number) in releases.items():
            found = told(name, anna)
            assert (found["statement"], found["entry"]) == (statement, None if number is None else str(number)), name
            assert set(json.loads(found["names"])) <= set(releases) - {"theirs"} | {name}, "who shares a charge"
            assert {field: found[field] for field in ("price", "plan", "made_by")} == {
                field: told(name)[field] for field in ("price", "plan", "made_by")
            }
            assert found["privacy_unit"] == (None if name == "theirs" else told(name)["privacy_unit"])
        assert {name: told(name, anna)["link"] == told(name)["link"] for name in releases} == {
            "mine": True, "release_4": True, "release_5": True, "shared": False, "theirs": False,
        }  # fmt: skip
        hidden = [one for (one,) in con.execute("SELECT name FROM dp_releases()").fetchall() if one not in releases]
        assert len(hidden) == 2
        for name in hidden:
            with pytest.raises(Refusal, match="no private view"):
                told(name, anna)
