"""An audit of neighbouring streams for each kind of answer and strategy: many wards are so many runs of one history.

Half of the wards have one person each: two rows in one month, of the largest charge (where persons are counted, one in
each of two months), one that comes after its month closed and one beyond MAX ROWS. The others have none. All measured
numbers of a ward are one transcript. Its law with the person and without is known up to the noise. The test counts, in
both halves, the event that is likeliest under one law and not the other. It compares the ratio with the price, and with
the loss of the charged noise on these very rows.

False alarms have a chance below 1e-9 (6.2 standard deviations of the estimate). Noise of 2/3 of the right scale is
found with a chance above 0.99, which the last test does: it exceeds the charge. Persons under Gaussian noise are in two
months, and stay below the bound of one: there it exceeds the loss of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from dpduck.kernel.queries.operators import Factor, HadamardFactor
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.streams.statements import shape_of
from dpduck.mechanisms.streams.store import open_state, read_last_version
from dpduck.strategies.marginals.weights import code_count, hadamard_adjoint
from dpduck.strategies.time_axis import STRATEGIES
from tests.mechanisms.streams.streams import Visits
from tests.mechanisms.streams.test_stream_audit import FALSE_ALARM, wards_for

pytestmark = pytest.mark.audit

MOST = 2
KINDS = {
    "sums": "count(*) AS n, sum(charge) AS charges FROM stays GROUP BY came, ward",
    "averages": "avg(charge) AS mean FROM stays GROUP BY came, ward",
    "persons": "count(DISTINCT person) AS persons FROM stays GROUP BY came, ward",
    "cube": "sex, count(*) AS n FROM stays GROUP BY came, GROUPING SETS ((ward, sex), (ward))",
    "rows": "count(*) AS n FROM stays GROUP BY came, ward",
}
NOTHING_LOST = 0.96
"""Of what noise loses that was charged for, so much is found at least: the rest is in numbers of no one ward."""


class Audited(Visits):
    """A database of many wards, and a stream of four months. The first half of the wards have a person."""

    def __init__(self, kind: str, price: str, strategy: str) -> None:
        super().__init__(budget=price, config={"threads": 1})
        self.wards = wards_for(price, strategy)
        unit = "ROW" if kind == "rows" else f"person MAX ROWS {MOST}"
        self.con.execute("CREATE TABLE stays (person INTEGER, came DATE, ward INTEGER, sex VARCHAR, charge INTEGER)")
        self.dp(
            f"CREATE PRIVACY POLICY ON stays (PRIVACY UNIT {unit}, BUDGET ({price}), "
            f"DOMAIN ward RANGE 0 TO {self.wards} STEP 1, DOMAIN sex IN ('f', 'm'), "
            "DOMAIN came RANGE 2024-01-01 TO 2024-05-01 STEP MONTH, "
            "CLAMP charge BETWEEN 0 AND 10)"
        )
        totals = "" if kind == "persons" else ", answers = 'totals'"  # of which trees are more than single months
        self.dp(
            f"CREATE PRIVATE STREAM by_month OPTIONS ({price}, strategy = {strategy}{totals}) AS "
            f"SELECT came, ward, {KINDS[kind]}"
        )
        self.days = ["2024-01-07", "2024-02-07" if kind == "persons" else "2024-01-08"][: 1 if kind == "rows" else 2]

    def put_persons(self, days: Sequence[str]) -> None:
        for day in days:
            rows = f"SELECT ward, DATE '{day}', ward, 'f', 99 FROM range({self.wards // 2}) AS w(ward)"
            self.con.execute(f"INSERT INTO stays {rows}")

    def transcripts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All numbers about each ward in units of the scale of their noise, less their values in an empty ward, shape
        (numbers, wards). And a person's effect on each number."""
        self.put_persons(self.days)
        self.refresh(2)
        if len(self.days) > 1:
            self.put_persons(["2024-01-09", "2024-04-09"])
        self.refresh(4)
        stream, plan, asks = self.request(), self.plan, self.asks()
        last, shape = read_last_version(self.streams.parts.ledger, self.named), shape_of(stream, plan, self.named)
        key = self.streams.parts.ledger.bounding_key
        with open_state(self.streams.files, self.named, shape, key, last) as (_, state):
            measured = np.concatenate([version.answers for version in state.versions])
        measured, start = measured.reshape(plan.axis.factor.rows, -1), 0
        found, moved = [], []
        for ask in asks:
            assert isinstance(ask.query, Table) and ask.noise is not None
            query = ask.query.query
            for number in ask.scan.tables:
                table = self.exact(number)
                others = tuple(axis for axis in range(table.ndim) if axis not in query.attributes)
                expected = query.apply(table.sum(axis=others))
                cells = expected[0].size
                if 1 in query.attributes:  # of each ward
                    scale = (
                        ask.noise.parameter if ask.noise.kind.value == "discrete Laplace" else sqrt(ask.noise.parameter)
                    )
                    by_ward = measured[:, start : start + cells].reshape(expected.shape)
                    of_each = [wards_of(query.factors[1], one.astype(float), self.wards) for one in (by_ward, expected)]
                    found.append((of_each[0] - of_each[1][:, -1:]) / float(scale))
                    moved.append((of_each[1][:, 0] - of_each[1][:, -1]) / float(scale))
                start += cells
        assert start == measured.shape[1]
        return np.concatenate(found), np.concatenate(moved)


def wards_of(factor: Factor, answers: NDArray[np.float64], wards: int) -> NDArray[np.float64]:
    """Answers by ward, shape (numbers, wards). Fourier coefficients are transformed back, with the same noise."""
    if isinstance(factor, HadamardFactor):
        answers = hadamard_adjoint(factor.size, answers, 1) / sqrt(code_count(factor.size))
    return np.moveaxis(answers, 1, -1).reshape(-1, wards)


def lost_epsilon(numbers: NDArray[np.float64], moved: NDArray[np.float64]) -> tuple[float, float]:
    """The log ratio of how often every number is at least as far as a person moves it, and its error."""
    seen = (np.sign(moved[:, None]) * numbers >= np.abs(moved[:, None]) - 1e-9)[moved != 0].all(axis=0)
    first, second = (int(half.sum()) for half in np.split(seen, 2))
    assert min(first, second) > 100, "too few to tell"
    return float(np.log(first / second)), sqrt(1 / first + 1 / second)


def lost_mu(numbers: NDArray[np.float64], moved: NDArray[np.float64]) -> tuple[float, float]:
    """How far apart the laws of the likelihood ratio are, in standard deviations, and the error of that."""
    halves = np.split(moved @ numbers > moved @ moved / 2, 2)
    chances = [(half.sum() + 0.5) / (len(half) + 1) for half in halves]
    error = sqrt(sum(p * (1 - p) / len(halves[0]) / (np.exp(-(ndtri(p) ** 2)) / (2 * np.pi)) for p in chances))
    return float(ndtri(chances[0]) - ndtri(chances[1])), error


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_laplace_noise_loses_no_more_than_epsilon(kind: str, strategy: str) -> None:
    """Pure epsilon: no event of a ward's measurements is more than e^epsilon likelier with one person."""
    audited = Audited(kind, "epsilon = 1", strategy)
    numbers, moved = audited.transcripts()
    audited.con.close()
    lost, error = lost_epsilon(numbers, moved)
    assert lost - FALSE_ALARM * error <= 1
    assert np.abs(moved).sum() <= 1 + 1e-9
    assert lost + FALSE_ALARM * error >= NOTHING_LOST * np.abs(moved).sum() > 0.3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_gaussian_noise_loses_no_more_than_rho(kind: str, strategy: str) -> None:
    """zCDP: the two histories are no further apart than normal laws at sqrt(2 rho)."""
    audited = Audited(kind, "rho = 0.5", strategy)
    numbers, moved = audited.transcripts()
    audited.con.close()
    far, error = lost_mu(numbers, moved)
    assert far - FALSE_ALARM * error <= 1
    assert np.sqrt(moved @ moved) <= 1 + 1e-9
    assert far + FALSE_ALARM * error >= NOTHING_LOST * np.sqrt(moved @ moved) > 0.3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("price", ["epsilon = 1", "rho = 0.5"])
@pytest.mark.parametrize("kind", KINDS)
def test_less_noise_is_found(kind: str, price: str, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit's power, for each strategy: noise of 2/3 of the right scale fails it."""
    monkeypatch.setattr("dpduck.kernel.queries.streams.require_paid", lambda asks, charge: None)
    audited = Audited(kind, price, strategy)
    thinner = Fraction(3, 2) if "epsilon" in price else Fraction(9, 4)
    facts = audited.con.execute("SELECT facts FROM private.dpduck.streams").fetchall()[0][0]
    for parameter in {ask.noise.parameter for ask in audited.asks() if ask.noise is not None}:
        changed = facts.replace(f'\\"{parameter}\\"', f'\\"{parameter / thinner}\\"')
        assert changed != facts
        facts = changed
    audited.con.execute("UPDATE private.dpduck.streams SET facts = ?", [facts])
    numbers, moved = audited.transcripts()
    audited.con.close()
    lost, error = (lost_epsilon if "epsilon" in price else lost_mu)(numbers, moved)
    right = np.abs(moved).sum() / 1.5 if "epsilon" in price else np.sqrt(moved @ moved) / 1.5
    assert lost - FALSE_ALARM * error > (1 if (kind, price) != ("persons", "rho = 0.5") else 1.2 * right)
