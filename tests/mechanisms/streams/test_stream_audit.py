"""An audit of neighbouring streams, strategy by strategy: many independent wards are so many runs of one history.

Half of the wards have one person each, with MAX ROWS rows in the dearest period, and one more that comes too late. The
others have none. What the stream measured in a ward, all of its rows together, is one transcript. The test counts, in
both halves, the event that is likeliest under one history and not the other. It compares the ratio with the price.
False alarms have a chance below 1e-9 (6.2 standard deviations of the estimate). Noise of 2/3 of the right scale is
found with a chance above 0.99, which the last test does.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from dpduck.kernel.queries.stream_state import StreamShape
from dpduck.mechanisms.streams.store import open_state, read_last_version
from dpduck.strategies.time_axis import STRATEGIES
from tests.mechanisms.streams.streams import Visits

MOST, PERIODS, FALSE_ALARM = 2, 4, 6.2
WARDS = 30_000


def wards_for(price: str, strategy: str) -> int:
    """How many wards there are. The factorisation under pure epsilon needs three times as many: every month's
    measurement has a part in its event, which makes it rare.
    """
    return 3 * WARDS if strategy == "factorisation" and "epsilon" in price else WARDS


class Wards(Visits):
    """A database of many wards, and a stream of four months over them."""

    def __init__(self, wards: int, price: str, strategy: str) -> None:
        super().__init__(budget=price, config={"threads": 1})
        self.con.execute("CREATE TABLE stays (person INTEGER, came DATE, ward INTEGER)")
        self.dp(
            f"CREATE PRIVACY POLICY ON stays (PRIVACY UNIT person MAX ROWS {MOST}, BUDGET ({price}), "
            f"DOMAIN ward RANGE 0 TO {wards} STEP 1, DOMAIN came RANGE 2024-01-01 TO 2024-05-01 STEP MONTH)"
        )
        self.dp(
            f"CREATE PRIVATE STREAM by_month OPTIONS ({price}, strategy = {strategy}, answers = 'totals') AS "
            "SELECT came, ward, count(*) AS n FROM stays GROUP BY came, ward"
        )
        self.wards = wards

    def played(self) -> NDArray[np.int64]:
        """Returns the measurements of each ward, shape (rows, wards). The first half have a person with rows."""
        half = f"FROM range({MOST}), range({self.wards // 2}) AS w(ward)"
        self.con.execute(f"INSERT INTO stays SELECT ward, DATE '2024-01-07', ward {half}")
        self.refresh(2)
        self.con.execute(f"INSERT INTO stays SELECT ward, DATE '2024-01-09', ward {half}")
        self.con.execute(f"INSERT INTO stays SELECT ward, DATE '2024-04-09', ward {half}")
        self.refresh(4)
        named = self.named
        shape = StreamShape(f"{named.nonce} {named.digest} {named.entry} {named.name}", "INTEGER", 2, 1)
        ledger = self.streams.parts.ledger
        with open_state(self.streams.files, named, shape, ledger.bounding_key, read_last_version(ledger, named)) as (
            _,
            state,
        ):
            answers = np.concatenate([version.answers for version in state.versions])
        return answers.reshape(-1, self.wards)

    def moved(self) -> NDArray[np.int64]:
        """Returns how one person moves a ward's measurements: nothing is dearer than the first month."""
        matrix = self.plan.axis.matrix
        sums = np.abs(matrix).sum(axis=0)
        assert sums[0] == sums.max() and (matrix**2).sum(axis=0)[0] >= 0.99 * (matrix**2).sum(axis=0).max()
        moved: NDArray[np.int64] = MOST * matrix[:, 0]
        return moved


def lost_epsilon(measured: NDArray[np.int64], moved: NDArray[np.int64], wrong: float = 1.0) -> tuple[float, float]:
    """The log ratio of how often every measurement is at least as far as the person moves it, and its error."""
    seen = (measured >= wrong * moved[:, None])[moved > 0].all(axis=0)
    with_person, without = np.split(seen, 2)
    first, second = int(with_person.sum()), int(without.sum())
    assert min(first, second) > 100, "too few to tell"
    return log(first / second), sqrt(1 / first + 1 / second)


def lost_mu(measured: NDArray[np.int64], moved: NDArray[np.int64]) -> tuple[float, float]:
    """How far apart the two normal laws of the likelihood ratio are, in standard deviations, and the error of that."""
    scores = moved @ measured
    with_person, without = np.split(scores > (moved @ moved) / 2, 2)
    chances = [(half.sum() + 0.5) / (len(half) + 1) for half in (with_person, without)]
    far = float(ndtri(chances[0]) - ndtri(chances[1]))
    error = sqrt(sum(p * (1 - p) / len(with_person) / (exp(-(ndtri(p) ** 2)) / (2 * np.pi)) for p in chances))
    return far, error


@pytest.fixture(scope="module", params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.mark.slow
def test_laplace_noise_loses_no_more_than_epsilon(strategy: str) -> None:
    """Pure epsilon: no event of the measurements is more than e^epsilon likelier with one person's rows."""
    visits = Wards(wards_for("epsilon = 1", strategy), "epsilon = 1", strategy)
    measured, moved = visits.played(), visits.moved()
    visits.con.close()
    lost, error = lost_epsilon(measured, moved)
    assert lost - FALSE_ALARM * error <= 1
    assert lost + FALSE_ALARM * error >= 1, "the event is one that loses all of epsilon"


def test_gaussian_noise_loses_no_more_than_rho(strategy: str) -> None:
    """zCDP: the two histories are no further apart than normal laws at sqrt(2 rho), for every strategy."""
    visits = Wards(WARDS // 2, "rho = 0.5", strategy)
    measured, moved = visits.played(), visits.moved()
    visits.con.close()
    far, error = lost_mu(measured, moved)
    assert far - FALSE_ALARM * error <= 1
    assert far + FALSE_ALARM * error >= 0.97


@pytest.mark.sampled
@pytest.mark.parametrize("price", ["epsilon = 1", "rho = 0.5"])
def test_less_noise_is_found(price: str, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit's power, for each strategy: noise of 2/3 of the right scale fails it."""
    monkeypatch.setattr("dpduck.kernel.queries.streams.require_paid", lambda asks, charge: None)
    visits = Wards(wards_for(price, strategy), price, strategy)
    thinner = "3/2" if "epsilon" in price else "9/4"
    facts = visits.con.execute("SELECT facts FROM private.dpduck.streams").fetchall()[0][0]
    parameter = str(visits.plan.noise.parameter)

    changed = facts.replace(f'\\"{parameter}\\"', f'\\"{Fraction(parameter) / Fraction(thinner)}\\"')
    assert changed != facts
    visits.con.execute("UPDATE private.dpduck.streams SET facts = ?", [changed])
    measured, moved = visits.played(), visits.moved()
    visits.con.close()
    lost, error = (lost_epsilon if "epsilon" in price else lost_mu)(measured, moved)
    assert lost - FALSE_ALARM * error > 1
