"""One door: no query above its stated price is made, and no mechanism measures more than it declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel.door import Bill, Door, open_door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, price
from dpduck.kernel.queries.families import Choice
from dpduck.kernel.queries.quantiles import Quantiles
from dpduck.kernel.queries.tables import Total
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.support.clinics import Clinic, by

POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4,
    BUDGET (epsilon = 400, delta = 1e-4, delta_keys = 5e-5), DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10)"""
COUNTED = "AS SELECT sex, age, count(*) AS n FROM visits GROUP BY sex, age"
SYNTHETIC = "AS SELECT sex, age FROM visits WORKLOAD MARGINALS (2)"
APPROXIMATE = "epsilon = 1, delta = 1e-6"
KINDS = {
    "Laplace": by("sex"),
    "distinct": by("age").replace("count(*)", "count(DISTINCT sex)"),
    "Gaussian": by("sex", more="delta = 1e-6"),
    "choice": by("sex", more="quantiles = 'choice'").replace("count(*)", "quantile_cont(age, 0.7)"),
    "choice under rho": by("sex", more="delta = 1e-6, quantiles = 'choice'").replace("count(*)", "median(age)"),
    "keys": (by("ward", more="delta = 1e-6, group_selection_strategy = LAPLACE_THRESHOLD")),
    "summary": (f"CREATE PRIVATE VIEW summarised OPTIONS (epsilon = 1, summary = 'filter', theta = 2) {COUNTED}"),
    "total": (
        "CREATE PRIVATE VIEW totalled "
        f"OPTIONS (epsilon = 1, summary = 'threshold', summary_size = 10, total_epsilon = 0.1) {COUNTED}"
    ),
    "nodes of ranges": (
        "CREATE PRIVATE VIEW noded OPTIONS (epsilon = 1, summary = 'filter', theta = 1, range_summary = 'dyadic') "
        "AS SELECT age, count(*) AS n FROM visits GROUP BY RANGES(age)"
    ),
    "sketch": (
        "CREATE PRIVATE VIEW sketched "
        f"OPTIONS (epsilon = 1, summary = 'sketch', summary_size = 15, sketch_rows = 3) {COUNTED}"
    ),
    "adaptive questions": (
        "CREATE PRIVATE TABLE adapted OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 10, adaptive = true) "
        f"{SYNTHETIC}"
    ),
    "questions": (f"CREATE PRIVATE TABLE asked OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 10) {SYNTHETIC}"),
    "synthetic cube": (f"CREATE PRIVATE TABLE cubed OPTIONS (epsilon = 1, mechanism = 'cube', rows = 10) {SYNTHETIC}"),
    "projection": (
        f"CREATE PRIVATE PROJECTION projected OPTIONS ({APPROXIMATE}, sparsity = 2, queries = 5) "
        "AS SELECT ward FROM visits"
    ),
    "histogram": (f"CREATE PRIVATE HISTOGRAM lazy OPTIONS ({APPROXIMATE}, queries = 5) ON visits (ward)"),
    "session": (
        f"CREATE PRIVATE SESSION open_session OPTIONS ({APPROXIMATE}, sparsity = 2, queries = 5) ON visits (ward)"
    ),
}


def stated(kind: str, epsilon: str = "1") -> str:
    """The statement of a kind at another price, so that it is another release."""
    named = re.sub(
        r"(VIEW|TABLE|PROJECTION|HISTOGRAM|SESSION) (\w+)", rf"\1 \2_{epsilon.replace('.', '_')}", KINDS[kind], count=1
    )
    return named.replace("epsilon = 1", f"epsilon = {epsilon}", 1)


def dearer(cost: Charge) -> Charge:
    """A hundredth more."""
    more = Fraction(101, 100)
    epsilon = None if cost.epsilon is None else cost.epsilon * more
    return replace(cost, epsilon=epsilon, rho=cost.rho * more, delta=cost.delta * more)


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    """One clinic in memory for all kinds: opening one takes longer than a test."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.fill()
        made.protect(POLICY)
        yield made


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_costs_more_than_it_says_is_not_made(clinic: Clinic, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A price at the door above the statement's is an internal error before the charge. Otherwise all is well."""
    before = clinic.charges()
    with monkeypatch.context() as patch:
        patch.setattr("dpduck.kernel.door.price", lambda asks: dearer(price(asks)))
        assert "more than the statement; nothing was charged" in clinic.refused(stated(kind))
    assert clinic.charges() == before
    clinic.dp(stated(kind))
    assert clinic.charges() == before + 1


@pytest.mark.parametrize("kind", list(KINDS))
def test_both_prices_agree(clinic: Clinic, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts into which planning divides a charge cost all of it by the door's formulas, below only by rounding."""
    seen: list[tuple[Charge, Charge]] = []

    @contextmanager
    def compared(asks: Sequence[Ask[Any]], bill: Bill, *given: Any) -> Iterator[Door]:
        seen.append((price(asks), bill.charge))
        with open_door(asks, bill, *given) as door:
            yield door

    with monkeypatch.context() as patch:
        patch.setattr("dpduck.mechanisms.release.open_door", compared)
        clinic.dp(stated(kind, "1.04"))
    [(cost, charge)] = seen
    amount, most = (cost.rho, charge.rho) if charge.epsilon is None else (cost.epsilon, charge.epsilon)
    assert cost.delta <= charge.delta
    assert amount is not None and Fraction(999, 1000) * most < amount <= most


class Meddler:
    """A door as a mechanism sees it that measures something else than it declared."""

    def __init__(self, door: Door, change: Callable[[Door, Ask[Any]], Sequence[Ask[Any]]]) -> None:
        self._door, self._change = door, change
        self.entry, self.count, self.left, self.admit = door.entry, door.count, door.left, door.admit
        self.raised: list[str] = []

    def answer(self, ask: Ask[Any], chosen: object = None) -> object:
        """Answers every ask that the change makes, through the real door."""
        try:
            return [self._door.answer(one, chosen) for one in self._change(self._door, ask)][-1]
        except InternalError as error:
            self.raised.append(str(error))
            raise

    def tables(self, asks: Sequence[Ask[Any]]) -> object:
        """Passes all asks that the change makes to the real door's tables."""
        try:
            return self._door.tables([one for ask in asks for one in self._change(self._door, ask)])
        except InternalError as error:
            self.raised.append(str(error))
            raise


def too_often(door: Door, ask: Ask[Any]) -> Sequence[Ask[Any]]:
    """Once more than declared."""
    return [ask] * (ask.times + 1)


def with_less_noise(door: Door, ask: Ask[Any]) -> Sequence[Ask[Any]]:
    """Halves the noise, or doubles the rate of a choice."""
    if isinstance(ask.query, Choice | Quantiles):
        return [replace(ask, query=replace(ask.query, rate=2 * ask.query.rate))]
    assert ask.noise is not None
    return [replace(ask, noise=Noise(ask.noise.kind, ask.noise.parameter / 2))]


def something_else(door: Door, ask: Ask[Any]) -> Sequence[Ask[Any]]:
    """The number of rows."""
    return [Ask(ask.scan, Total(), Noise(NoiseKind.LAPLACE, Fraction(10**6)))]


PRICES = {"too_often": "1.01", "with_less_noise": "1.02", "something_else": "1.03"}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("change", [too_often, with_less_noise, something_else])
def test_a_mechanism_measures_no_more_than_it_declared(
    clinic: Clinic,
    kind: str,
    change: Callable[[Door, Ask[Any]], Sequence[Ask[Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asks that are repeated, less noisy or others than declared are refused by the door, and nothing leaves."""
    meddlers: list[Meddler] = []

    @contextmanager
    def meddled(*given: Any) -> Iterator[Meddler]:
        with open_door(*given) as door:
            meddlers.append(Meddler(door, change))
            yield meddlers[-1]

    statement = stated(kind, PRICES[change.__name__])
    before, releases = clinic.charges(), clinic.value("SELECT count(*) FROM dp_releases()")
    with monkeypatch.context() as patch:
        patch.setattr("dpduck.mechanisms.release.open_door", meddled)
        with pytest.raises(duckdb.Error, match="after its charge"):
            clinic.dp(statement)
    assert [meddler.raised for meddler in meddlers] == [["an ask that was not declared, or is used up"]]
    assert clinic.charges() == before + 1
    assert clinic.value("SELECT count(*) FROM dp_releases()") == releases
